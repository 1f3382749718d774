//! `mortise dev`: runs guests against a Kubernetes API in memory, on a developer's machine.
//!
//! [`session`] does the work and sends news of it; [`view`] or [`plain`] shows the news. Neither
//! side knows more of the other than the types in [`news`].

mod build;
mod change;
mod input;
mod kubeconfig;
mod news;
mod objects;
mod plain;
mod ready;
mod renewal;
mod session;
mod view;

use std::{
    io::IsTerminal as _,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::ExitCode,
    sync::Arc,
};

use anyhow::Context as _;
use mortise_embedded_api::EmbeddedApi;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;

use crate::{args::DevArgs, desk, log};
use input::Input;
use kubeconfig::Kubeconfig;
use news::{News, Scene, Sender};
use session::Session;

/// Runs until Ctrl-C.
///
/// # Errors
///
/// Fails for bad input, a port in use or objects that are refused; if standard output is not a
/// terminal, also for a guest that does not build the first time.
pub async fn run(args: &DevArgs, cache: Option<&Path>) -> anyhow::Result<ExitCode> {
    let input = Input::open(args)?;
    let engine = desk::engine(cache, false)?;
    let listener = bind(args.port).await?;
    let admin = match args.listen {
        Some(address) => Some(listen(address).await?),
        None => None,
    };
    let address = listener.local_addr().context("the listener has no address")?;
    let kubeconfig = Kubeconfig::write(args.kubeconfig.as_deref(), address)?;
    let scene = Scene {
        address: format!("http://{address}"),
        metrics: admin
            .as_ref()
            .and_then(|admin| Some(format!("http://{}/metrics", admin.local_addr().ok()?))),
        kubeconfig: kubeconfig.path().display().to_string(),
        guests: input.guests.iter().map(|guest| guest.package.clone()).collect(),
        secrets: input.secrets,
    };
    let attended = std::io::stdout().is_terminal();
    let (news, inbox) = mpsc::unbounded_channel();
    let (stop, stop_api) = (CancellationToken::new(), CancellationToken::new());
    let api = Arc::new(EmbeddedApi::new(mortise_embedded_api::Options::default()));
    let session =
        Session { input, api: Arc::clone(&api), engine, admin, news: news.clone(), attended };

    let work = async {
        let worked = session.run(&stop).await;
        stop.cancel();
        // Stopped last: while the host ends, it may still have to write.
        stop_api.cancel();
        worked
    };
    let serve = async {
        let served = api.serve(listener, stop_api.clone()).await.context("the API stopped serving");
        stop.cancel();
        served
    };
    let show = async {
        let shown = if attended && !args.plain {
            view::run(&scene, inbox, redirect_log(news), &stop).await
        } else {
            drop(news);
            plain::run(&scene, inbox).await
        };
        stop.cancel();
        shown
    };
    let end = async {
        let told = tokio::select! {
            told = told_to_end() => told,
            () = stop.cancelled() => Ok(()),
        };
        stop.cancel();
        told
    };
    let (worked, served, shown, told) = tokio::join!(work, serve, show, end);
    worked.and(served).and(shown).and(told)?;
    Ok(ExitCode::SUCCESS)
}

/// Sends the program's own log to the news until the returned value is dropped. Otherwise log lines
/// would overwrite the view.
fn redirect_log(news: Sender) -> log::Redirected {
    // A closed channel means that the program ends.
    log::redirect(move |line| _ = news.send(News::Log(line)))
}

/// Waits for Ctrl-C or for SIGTERM.
async fn told_to_end() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("no signals")?;
    tokio::select! {
        pressed = tokio::signal::ctrl_c() => pressed.context("no signals"),
        _ = terminate.recv() => Ok(()),
    }
}

async fn bind(port: Option<u16>) -> anyhow::Result<TcpListener> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.unwrap_or(0)));
    TcpListener::bind(address).await.with_context(|| match port {
        Some(port) => format!("cannot listen on port {port}: choose another with --port, or leave --port out for a free one"),
        None => format!("cannot listen on {address}"),
    })
}

/// Opens the listener for metrics.
async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!(
            "cannot listen on {address}: choose another address with --listen (port 0: a free one)"
        )
    })
}
