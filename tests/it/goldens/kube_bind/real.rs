//! Two real control planes, and the processor in `mortise run` with the rights that `mortise inspect
//! --rbac` prints. Time passes by itself.

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash as _, Hasher as _},
    path::PathBuf,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, ensure};
use futures::future;
use mortise_core::api::{Method, Outgoing};
use mortise_host::operator::api::definition;
use mortise_tests::{cluster::Audit, guest};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    runtime::Runtime,
    sync::watch,
    task::JoinHandle,
};

use super::{
    CONFIG,
    differences::Differences,
    format::{self, Scenario},
    names::{Names, Server, Site},
    run,
    stage::{Stage, World, of_consumer},
};
use crate::{
    cluster::{
        kube_bind::{self, GUEST, Side, refusals},
        program::Program,
    },
    goldens::scenario::{Refused, Report, Requests, Verb, text},
};

/// The namespace of the Processor: its objects do not count.
const NAMESPACE: &str = "kube-system";
/// The time that is left to the programs of a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);
const DEFINITIONS: (&str, &str, &str) =
    ("/apis/apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition");
const BUILT_IN: [(&str, &str, &str); 4] = [
    ("/api/v1", "namespaces", "Namespace"),
    ("/api/v1", "secrets", "Secret"),
    ("/api/v1", "configmaps", "ConfigMap"),
    ("/api/v1", "serviceaccounts", "ServiceAccount"),
];
/// The group of the host's own kinds, which do not count.
const OWN: &str = "mortise.dev";
/// The most lines of a host's log in a report.
const MAX_LINES: usize = 10;

/// The runtime of all connections to control planes here.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// A control plane, as an administrator sees it.
pub(super) struct Plane {
    side: Side,
    /// A digest of the versions of all objects at the last look.
    revision: AtomicU64,
}

/// The folders of modules and compiled code, for all scenarios.
pub(super) struct Folders {
    modules: TempDir,
    cache: TempDir,
}

/// Two control planes, and the processor.
pub(super) struct Planes<'a> {
    provider: Plane,
    consumer: Plane,
    folders: &'a Folders,
    proxy: Proxy,
    servers: Vec<String>,
    /// The processor, while it runs.
    program: Option<Program>,
    audit: Audit,
    // Bound, so that no other program can listen there.
    _dead: TcpSocket,
}

/// Runs a scenario to the first step that differs from the record, or tells the requests that the
/// API server at home has refused for want of a right. `None` without Go.
pub(super) fn run(
    scenario: &Scenario,
    crds: &[Value],
    folders: &Folders,
    intended: &Differences,
) -> Option<Report> {
    let mut stage = match stage(scenario, crds, folders) {
        Ok(stage) => stage?,
        Err(error) => return Some(Report::broken(&error)),
    };
    let mut report = run::run(scenario, &mut stage, intended);
    match stage.world.refused() {
        Ok(refused) => {
            report.differences.extend(refused.iter().map(|one| format!("refused: {one}")));
        }
        Err(error) => report.differences.push(format!("{error:#}")),
    }
    Some(report)
}

/// Starts two control planes, in which the original's kinds are defined.
fn stage<'a>(
    scenario: &Scenario,
    crds: &[Value],
    folders: &'a Folders,
) -> anyhow::Result<Option<Stage<Planes<'a>>>> {
    RUNTIME
        .block_on(async {
            let of_home = [of_consumer(crds), vec![definition::processors()]].concat();
            let (provider, home) = future::join(Side::open(crds), Side::open(&of_home)).await;
            let (Some(provider), Some(home)) = (provider, home) else { return Ok(None) };
            let dead = TcpSocket::new_v4()?;
            dead.bind("127.0.0.1:0".parse()?)?;
            let (names, proxy) = sites(&provider, &home, &dead).await?;
            let (sites, servers) = names;
            kube_bind::install(&home, NAMESPACE, CONFIG, &servers).await;
            let audit = home.plane.audit().await?;
            let planes = Planes {
                provider: Plane { side: provider, revision: AtomicU64::new(0) },
                consumer: Plane { side: home, revision: AtomicU64::new(0) },
                folders,
                proxy,
                servers,
                program: None,
                audit,
                _dead: dead,
            };
            anyhow::Ok(Some((planes, Names::at(sites))))
        })?
        .map(|(planes, names)| Stage::new(scenario, planes, names))
        .transpose()
}

/// Returns the API servers that kubeconfigs lead to, and the addresses of those that are granted.
async fn sites(
    provider: &Side,
    home: &Side,
    dead: &TcpSocket,
) -> anyhow::Result<((Vec<Site>, Vec<String>), Proxy)> {
    let kubeconfig = |side: &Side| -> anyhow::Result<Value> {
        Ok(serde_saphyr::from_str(&std::fs::read_to_string(side.plane.kubeconfig())?)?)
    };
    let (provider, home) = (kubeconfig(provider)?, kubeconfig(home)?);
    let address = |kubeconfig: &Value| {
        let server = text(kubeconfig, "/clusters/0/cluster/server");
        server.strip_prefix("https://").unwrap_or(server).to_owned()
    };
    let proxy = Proxy::to(address(&provider)).await?;
    let sites = [
        (Server::Provider, address(&provider), &provider),
        (Server::Proxy, proxy.address.clone(), &provider),
        (Server::Dead, dead.local_addr()?.to_string(), &provider),
        (Server::Consumer, address(&home), &home),
    ];
    let site = |(server, address, kubeconfig): (Server, String, &Value)| {
        let mut cluster = kubeconfig["clusters"][0]["cluster"].clone();
        cluster["server"] = format!("https://{address}").into();
        Site { server, address, cluster, user: kubeconfig["users"][0]["user"].clone() }
    };
    let sites: Vec<Site> = sites.into_iter().map(site).collect();
    let granted = sites.iter().filter(|site| site.server != Server::Consumer);
    let servers = granted.map(|site| format!("https://{}", site.address)).collect();
    Ok(((sites, servers), proxy))
}

// === impl Plane ===

impl Plane {
    async fn send(&self, verb: Verb, path: &str, body: &Value) -> anyhow::Result<Value> {
        let method = match verb {
            Verb::Get => Method::Get,
            Verb::Create => Method::Post,
            Verb::Merge => Method::MergePatch,
            Verb::Delete => Method::Delete,
        };
        let body = (!body.is_null()).then(|| body.clone());
        let mut outgoing = Outgoing::new(method, path.to_owned(), body);
        // A kind that was just defined is not served at once.
        outgoing.retry_not_found = matches!(verb, Verb::Create);
        let answer = self.side.cluster.send(&outgoing).await;
        answer.map(|answer| answer.body).map_err(|refusal| {
            let request = format!("{method:?} {path}");
            Refused { request, status: refusal.code, message: refusal.message }.into()
        })
    }

    /// Returns all objects of a kind; none if it is not served.
    async fn list(&self, (root, plural, kind): (&str, &str, &str)) -> anyhow::Result<Vec<Value>> {
        let mut list = match self.send(Verb::Get, &format!("{root}/{plural}"), &Value::Null).await {
            Err(error) if is_absent(&error) => return Ok(Vec::new()),
            list => list?,
        };
        let items = list["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
        let api_version = root.trim_start_matches("/apis/").trim_start_matches("/api/");
        let named = |mut item: Value| {
            item["apiVersion"] = api_version.into();
            item["kind"] = kind.into();
            item
        };
        Ok(items.into_iter().map(named).collect())
    }

    async fn all(&self) -> anyhow::Result<Vec<Value>> {
        let is_foreign = |definition: &Value| text(definition, "/spec/group") != OWN;
        let mut definitions = self.list(DEFINITIONS).await?;
        definitions.retain(is_foreign);
        let custom = definitions.iter().filter_map(|definition| {
            let versions = definition["spec"]["versions"].as_array()?;
            let version = versions.iter().find(|version| version["storage"] == true)?;
            let group = text(definition, "/spec/group");
            let root = format!("/apis/{group}/{}", text(version, "/name"));
            Some((
                root,
                text(definition, "/spec/names/plural"),
                text(definition, "/spec/names/kind"),
            ))
        });
        let custom: Vec<(String, &str, &str)> = custom.collect();
        let custom = custom.iter().map(|(root, plural, kind)| (root.as_str(), *plural, *kind));
        let lists = BUILT_IN.into_iter().chain(custom).map(|of| self.list(of));
        let objects = future::try_join_all(lists).await?.concat();
        Ok([definitions, objects].concat())
    }
}

fn is_absent(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Refused>().is_some_and(|refused| refused.status == 404)
}

impl Requests for Plane {
    fn send(&self, verb: Verb, path: &str, body: &Value) -> anyhow::Result<Value> {
        RUNTIME.block_on(self.send(verb, path, body))
    }

    fn objects(&self) -> anyhow::Result<Vec<Value>> {
        let objects = RUNTIME.block_on(self.all())?;
        let mut hasher = DefaultHasher::new();
        for object in &objects {
            text(object, "/metadata/uid").hash(&mut hasher);
            text(object, "/metadata/resourceVersion").hash(&mut hasher);
        }
        self.revision.store(hasher.finish(), Ordering::Relaxed);
        Ok(objects)
    }
}

// === impl Folders ===

impl Folders {
    /// Builds the processor into a folder.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be built.
    pub(super) fn new() -> anyhow::Result<Self> {
        let (modules, cache) = (tempfile::tempdir()?, tempfile::tempdir()?);
        let module: PathBuf = guest(GUEST)?;
        std::fs::copy(module, modules.path().join(kube_bind::MODULE))?;
        Ok(Self { modules, cache })
    }
}

// === impl Planes ===

impl Planes<'_> {
    /// Returns the requests of the processor that the API server at home has refused for want of a
    /// right.
    fn refused(&self) -> anyhow::Result<Vec<String>> {
        let events = RUNTIME.block_on(self.audit.events())?;
        Ok(refusals(&events, &kube_bind::account(NAMESPACE)))
    }
}

impl World for Planes<'_> {
    type Api = Plane;

    const IS_DRIVEN: bool = false;

    fn cluster(&self, side: format::Side) -> &Plane {
        match side {
            format::Side::P => &self.provider,
            format::Side::C => &self.consumer,
        }
    }

    fn revision(&self) -> u64 {
        let of = |plane: &Plane| plane.revision.load(Ordering::Relaxed);
        of(&self.provider).wrapping_mul(31).wrapping_add(of(&self.consumer))
    }

    fn work(&mut self) {}

    fn pass(&mut self, time: Duration) {
        std::thread::sleep(time);
    }

    fn switch(&mut self, is_started: bool) -> anyhow::Result<()> {
        if is_started {
            let arguments = self.servers.iter().flat_map(|server| ["--clusters", server]);
            let kubeconfig = self.consumer.side.plane.kubeconfig();
            let (modules, cache) = (self.folders.modules.path(), self.folders.cache.path());
            self.program = Some(Program::start(&kubeconfig, modules, cache, arguments));
            return Ok(());
        }
        let mut program = self.program.take().context("the processor does not run")?;
        program.terminate();
        let (status, said) = RUNTIME.block_on(program.ended());
        ensure!(status.success(), "the host ended with {status}: {said}");
        Ok(())
    }

    fn is_running(&self) -> bool {
        self.program.is_some()
    }

    fn connect(&mut self, _: &[(String, bool)]) {}

    fn set_proxy(&mut self, is_up: bool) {
        self.proxy.is_up.send_replace(is_up);
    }

    fn patience(&self, within: Duration) -> Duration {
        within.max(PATIENCE)
    }

    fn failures(&mut self) -> Vec<String> {
        let said = self.program.as_mut().map(Program::said).unwrap_or_default();
        let is_bad = |event: &&Value| ["WARN", "ERROR"].contains(&text(event, "/level"));
        let bad: Vec<String> = said.iter().filter(is_bad).map(Value::to_string).collect();
        bad[bad.len().saturating_sub(MAX_LINES)..].to_vec()
    }
}

// === impl Proxy ===

/// A way to a server that can be cut, with all its connections.
struct Proxy {
    address: String,
    is_up: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

impl Proxy {
    async fn to(server: String) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let is_up = watch::Sender::new(false);
        let ways = is_up.subscribe();
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(carry(stream, server.clone(), ways.clone()));
            }
        });
        Ok(Self { address, is_up, serving })
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Carries a connection while the way is open.
async fn carry(mut stream: TcpStream, server: String, mut is_up: watch::Receiver<bool>) {
    if !*is_up.borrow() {
        return;
    }
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    tokio::select! {
        // How a connection ends is the business of its two sides.
        _ = tokio::io::copy_bidirectional(&mut stream, &mut server) => {}
        _ = is_up.wait_for(|is_up| !is_up) => {}
    }
}
