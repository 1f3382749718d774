//! `mortise dev`: a guest's component against a Kubernetes API in memory, for people at their desk.

use std::{
    io::Write as _,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::Context as _;
use mortise_embedded_api::EmbeddedApi;
use serde_json::json;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;

use crate::{
    args::DevArgs,
    cluster::Cluster,
    desk, files,
    guest::Guest,
    print::{BOLD, DIM},
    run::{Host, Loaded, Options},
};

/// Runs until Ctrl-C.
///
/// # Errors
///
/// A port in use, a guest that does not build or load, objects that cannot be applied.
pub async fn run(args: &DevArgs, cache: Option<&Path>) -> anyhow::Result<ExitCode> {
    let guest = args.guest.as_deref().filter(|_| !args.api_only).map(Guest::open).transpose()?;
    let module = guest.as_ref().map(Guest::build).transpose()?;
    let listener = bind(args.port).await?;
    let address = listener.local_addr().context("the listener has no address")?;
    let kubeconfig = Kubeconfig::write(args.kubeconfig.as_deref(), address)?;
    say(&format!("{BOLD}Kubernetes API in memory{BOLD:#}  http://{address}"))?;
    say(&format!("{BOLD}export KUBECONFIG={}{BOLD:#}", kubeconfig.path.display()))?;

    let api = Arc::new(EmbeddedApi::new(mortise_embedded_api::Options::default()));
    let stop = CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn({
        let (api, stop) = (Arc::clone(&api), stop.clone());
        async move { api.serve(listener, stop).await.context("the API stopped serving") }
    });
    let mut host = match (&guest, &module) {
        (Some(guest), Some(module)) => {
            let loaded = desk::load(module, desk::config(args.config.as_deref())?, cache).await?;
            Some(start(args, guest, loaded, &api).await?)
        }
        _ => None,
    };
    let ended = tokio::select! {
        ended = work(host.as_mut()) => ended,
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
async fn work(host: Option<&mut Host>) -> anyhow::Result<()> {
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

async fn start(
    args: &DevArgs,
    guest: &Guest,
    loaded: Loaded,
    api: &EmbeddedApi,
) -> anyhow::Result<Host> {
    let cluster = Cluster::new(kube::Client::new(api.router(), "default"));
    for folder in &guest.crds {
        desk::apply(&cluster, files::load(folder)?).await?;
    }
    for kind in desk::serve_untyped(api, &loaded.description, &[]) {
        desk::warn_untyped(&kind);
    }
    let objects = match args.apply.as_ref().or(guest.examples.as_ref()) {
        Some(folder) => files::load(folder)?,
        None => Vec::new(),
    };
    let applied = objects.len();
    desk::apply(&cluster, objects).await?;
    say(&format!(
        "{DIM}{} {} loaded, {applied} objects applied{DIM:#}",
        loaded.description.name, loaded.description.version
    ))?;
    Host::start(&cluster, vec![loaded], &Options::default())
}

fn say(line: &str) -> anyhow::Result<()> {
    writeln!(anstream::stdout(), "{line}").context("cannot write to standard output")
}

// === impl Kubeconfig ===

/// The file by which kubectl finds the API. In a folder of its own, it is removed at the end.
#[derive(Debug)]
struct Kubeconfig {
    path: PathBuf,
    _folder: Option<tempfile::TempDir>,
}

impl Kubeconfig {
    fn write(path: Option<&Path>, address: SocketAddr) -> anyhow::Result<Self> {
        let own_folder =
            || tempfile::Builder::new().prefix("mortise-").tempdir().context("no temporary folder");
        let folder = if path.is_none() { Some(own_folder()?) } else { None };
        let own = folder.as_ref().map(|folder| folder.path().join("kubeconfig"));
        let path = path.map(Path::to_owned).or(own).context("no place for the kubeconfig")?;
        let text = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "mortise", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "mortise", "user": {}}],
            "contexts": [{"name": "mortise", "context": {"cluster": "mortise", "user": "mortise", "namespace": "default"}}],
            "current-context": "mortise",
        });
        std::fs::write(&path, crate::print::yaml(&text))
            .with_context(|| format!("cannot write the kubeconfig `{}`", path.display()))?;
        Ok(Self { path, _folder: folder })
    }
}
