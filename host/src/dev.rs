//! `mortise dev`: a guest's component against a Kubernetes API in memory, for people at their desk.

use std::{
    io::Write as _,
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
};
use tokio_util::sync::CancellationToken;

mod kubeconfig;

use kubeconfig::Kubeconfig;

use crate::{
    admin::Admin,
    args::DevArgs,
    cluster::Cluster,
    desk, files,
    guest::Guest,
    print::{BOLD, DIM},
    run::{Host, Loaded, Options},
};

/// What the command was given, read before anything is built.
struct Input {
    guest: Option<Guest>,
    crds: Vec<files::Object>,
    objects: Vec<files::Object>,
    config: String,
}

/// Runs until Ctrl-C.
///
/// # Errors
///
/// A port in use, a guest that does not build or load, objects that cannot be applied.
pub async fn run(args: &DevArgs, cache: Option<&Path>) -> anyhow::Result<ExitCode> {
    let input = Input::open(args)?;
    let listener = bind(args.port).await?;
    let admin = match args.listen {
        Some(address) => Some(listen(address).await?),
        None => None,
    };
    let address = listener.local_addr().context("the listener has no address")?;
    let kubeconfig = Kubeconfig::write(args.kubeconfig.as_deref(), address)?;
    say(&format!("{BOLD}Kubernetes API in memory{BOLD:#}  http://{address}"))?;
    say(&format!("{BOLD}export KUBECONFIG={}{BOLD:#}", kubeconfig.path().display()))?;

    let api = Arc::new(EmbeddedApi::new(mortise_embedded_api::Options::default()));
    let stop = CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn({
        let (api, stop) = (Arc::clone(&api), stop.clone());
        async move { api.serve(listener, stop).await.context("the API stopped serving") }
    });
    let mut host = None;
    let work = async {
        host = start(input, &api, cache).await?;
        let told = tell(admin, host.as_ref().map(Host::admin));
        tokio::try_join!(told, print_reports(host.as_mut())).map(|_| ())
    };
    let ended = tokio::select! {
        ended = work => ended,
        signal = told_to_end() => signal,
        Some(served) = tasks.join_next() => served.context("the API's task failed")?,
    };
    // Before the API goes, so that what runs can be written.
    if let Some(host) = host {
        host.stop().await?;
    }
    stop.cancel();
    while let Some(served) = tasks.join_next().await {
        served.context("the API's task failed")??;
    }
    ended?;
    Ok(ExitCode::SUCCESS)
}

/// Prints a line for each reconcile, as long as the host runs; without a host there is nothing to do.
async fn print_reports(host: Option<&mut Host>) -> anyhow::Result<()> {
    let Some(host) = host else { return std::future::pending().await };
    loop {
        say(&crate::print::report(&host.next_report().await?))?;
    }
}

/// Waits for Ctrl-C, or for the signal that programs are ended with.
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

/// A place for metrics, which is told.
async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(address).await.with_context(|| {
        format!(
            "cannot listen on {address}: choose another address with --listen (port 0: a free one)"
        )
    })?;
    let address = listener.local_addr().context("the listener has no address")?;
    say(&format!("{BOLD}metrics{BOLD:#}  http://{address}/metrics"))?;
    Ok(listener)
}

/// Answers those who run the host, as long as it runs; where nobody asked for that there is nothing to do.
async fn tell(listener: Option<TcpListener>, admin: Option<Admin>) -> anyhow::Result<()> {
    let (Some(listener), Some(admin)) = (listener, admin) else {
        return std::future::pending().await;
    };
    admin.serve(listener, CancellationToken::new()).await.context("metrics are no longer served")
}

/// Installs the CRDs, builds and loads the guest, applies the objects.
async fn start(
    input: Input,
    api: &EmbeddedApi,
    cache: Option<&Path>,
) -> anyhow::Result<Option<Host>> {
    let cluster = Cluster::new(kube::Client::new(api.router(), "default"));
    desk::apply_files(&cluster, input.crds).await?;
    let loaded = match input.guest {
        Some(guest) => Some(load(guest, input.config, cache).await?),
        None => None,
    };
    for kind in
        loaded.iter().flat_map(|loaded| desk::serve_untyped(api, &loaded.description, |_| false))
    {
        desk::warn_untyped(&kind);
    }
    let applied = input.objects.len();
    desk::apply_files(&cluster, input.objects).await?;
    let Some(loaded) = loaded else {
        say(&format!("{DIM}{applied} objects applied{DIM:#}"))?;
        return Ok(None);
    };
    say(&format!(
        "{DIM}{} {} loaded, {applied} objects applied{DIM:#}",
        loaded.description.name, loaded.description.version
    ))?;
    Host::start(&cluster, vec![loaded], &Options::default()).map(Some)
}

async fn load(guest: Guest, config: String, cache: Option<&Path>) -> anyhow::Result<Loaded> {
    let module = tokio::task::spawn_blocking(move || guest.build())
        .await
        .context("the build broke off")??;
    desk::load(&module, config, cache).await
}

fn say(line: &str) -> anyhow::Result<()> {
    writeln!(anstream::stdout(), "{line}").context("cannot write to standard output")
}

// === impl Input ===

impl Input {
    fn open(args: &DevArgs) -> anyhow::Result<Self> {
        let guest = args.guest.as_deref().map(Guest::open).transpose()?;
        let named = guest.iter().flat_map(|guest| &guest.crds);
        let crds: Result<Vec<_>, _> =
            named.chain(&args.crds).map(|folder| files::open(folder)).collect();
        let examples = guest.as_ref().and_then(|guest| guest.examples.as_ref());
        let objects = args.apply.as_ref().or(examples).map(|path| files::open(path)).transpose()?;
        Ok(Self {
            crds: crds?.concat(),
            objects: objects.unwrap_or_default(),
            config: desk::config(args.config.as_deref())?,
            guest,
        })
    }
}
