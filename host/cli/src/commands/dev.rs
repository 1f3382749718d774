//! `mortise dev`: runs guests against a Kubernetes API in memory, on a developer's machine.
//!
//! [`session`] does the work and sends messages about it; [`view`] or [`plain`] shows them. They
//! share only the types in [`message`].

mod build;
mod change;
mod companion;
mod input;
mod kubeconfig;
pub mod message;
pub(crate) mod objects;
mod plain;
mod process;
mod ready;
mod remote;
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
use mortise_host::{http::caller, telemetry};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;

use self::{
    input::Input,
    kubeconfig::Kubeconfig,
    message::{Message, Scene, Sender},
    remote::Remote,
    session::Session,
};
use crate::{args::DevArgs, local};

/// Runs until Ctrl-C.
///
/// # Errors
///
/// Fails for bad input, a port in use or refused objects; if standard output is not a terminal,
/// also for a guest whose first build fails.
pub async fn run(args: &DevArgs, cache: Option<&Path>) -> anyhow::Result<ExitCode> {
    let mut input = Input::open(args)?;
    let engine = local::engine(cache, false)?;
    let listener = bind(args.port).await?;
    let admin = match args.listen {
        Some(address) => Some(listen(address).await?),
        None => None,
    };
    let address = listener.local_addr().context("the listener has no address")?;
    let kubeconfig = Kubeconfig::write(args.kubeconfig.as_deref(), address, "default")?;
    let remotes = remote::open_all(&mut input).await?;
    let scene = Scene {
        address: format!("http://{address}"),
        metrics: admin
            .as_ref()
            .and_then(|admin| Some(format!("http://{}/metrics", admin.local_addr().ok()?))),
        kubeconfig: kubeconfig.path().display().to_string(),
        guests: input.guests.iter().map(|guest| guest.package.clone()).collect(),
    };
    let attended = std::io::stdout().is_terminal();
    let (messages, inbox) = mpsc::unbounded_channel();
    let (stop, stop_api) = (CancellationToken::new(), CancellationToken::new());
    let api = Arc::new(new_api());
    let session = Session {
        input,
        api: Arc::clone(&api),
        engine,
        admin,
        messages: messages.clone(),
        attended,
        remotes: remotes.iter().map(Remote::shown).collect(),
    };

    let work = async {
        let worked = session.run(&stop).await;
        stop.cancel();
        // Stopped last: the host may still write while it ends.
        stop_api.cancel();
        worked
    };
    let serve = async {
        let home = api.serve(listener, stop_api.clone());
        let home = async { home.await.context("the API stopped serving") };
        let served = tokio::try_join!(home, remote::serve_all(remotes, &stop_api));
        stop.cancel();
        served.map(|_| ())
    };
    let show = async {
        let shown = if attended && !args.plain {
            view::run(&scene, inbox, redirect_log(messages), &stop).await
        } else {
            drop(messages);
            plain::run(&scene, inbox).await
        };
        stop.cancel();
        shown
    };
    let end = async {
        let ended = tokio::select! {
            ended = end_requested() => ended,
            () = stop.cancelled() => Ok(()),
        };
        stop.cancel();
        ended
    };
    let (worked, served, shown, ended) = tokio::join!(work, serve, show, end);
    worked.and(served).and(shown).and(ended)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns an API in memory that listens on this machine.
fn new_api() -> EmbeddedApi {
    EmbeddedApi::new(mortise_embedded_api::Options {
        check: Some(|request| caller::check(request, &[])),
        ..mortise_embedded_api::Options::default()
    })
}

/// Sends the program's own log as messages until the returned value is dropped. Otherwise log lines
/// would overwrite the view.
fn redirect_log(messages: Sender) -> telemetry::Redirected {
    // A closed channel means that the program ends.
    telemetry::redirect(move |line| _ = messages.send(Message::Log(line)))
}

/// Waits for Ctrl-C or for SIGTERM.
async fn end_requested() -> anyhow::Result<()> {
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
