//! `mortise run`: runs a host in a cluster until a signal.
//!
//! The parts are started in this order, so that any error is reported before a processor runs: the
//! cluster and the host's account there, the engine, the ports, the host without processors, the
//! operator (which opens the folder of modules and loads processors into the host), the Lease. They
//! end in the reverse order, so that the Lease is released after the last write.

mod home;
mod memory;
mod once;
mod report;
mod signals;
mod version;

use std::{
    future::pending,
    net::SocketAddr,
    path::Path,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use futures::future::OptionFuture;
use kube::api::ApiResource;
use mortise_core::{contract::Kind, key::NamespacedName};
use serde_json::{Map, Value};
use tokio::{net::TcpListener, sync::watch as latest, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use self::{
    home::{Home, Need},
    signals::Signals,
};
use crate::{
    args::RunArgs,
    cache_dir::{self, CacheDir},
    cluster::{
        Cluster, clusters,
        lease::{self, Guard, Lease, Lost, Times},
        remote,
    },
    host::{Host, Options},
    metrics::Metrics,
    oci::Store,
    operator::{
        self, ImageOptions, Operator, Progress,
        admin::{self, Admin, Also, Objects, Reports},
        api::Processor,
    },
    outbound,
    wasm::{self, Compiler, Engine},
    webhooks::{Certificate, Clients, Paths, Stop, Webhooks},
};

/// The exit code if a reconcile failed or a Processor is not running.
const FAILED_EXIT_CODE: u8 = 3;
/// The exit code if the host ended before all runs did.
const CUT_SHORT_EXIT_CODE: u8 = 4;
/// The time that calls may still compute after the shutdown begins. Then they are cancelled; writes
/// in progress are completed.
const CALLS_TIMEOUT: Duration = Duration::from_secs(3);
/// The time that webhooks are still answered after the shutdown begins. By then no Service routes
/// to it: its endpoint is removed when its Pod begins to terminate, and clients learn of that in a
/// second or two.
const ENDPOINT_REMOVAL_TIME: Duration = Duration::from_secs(5);

/// A host and its tasks.
struct Server {
    engine: Engine,
    host: Arc<Host>,
    lease: Guard,
    progress: latest::Receiver<Progress>,
    reports: Reports,
    /// The tasks that end before the host does.
    before: JoinSet<anyhow::Result<()>>,
    stop_before: CancellationToken,
    /// The tasks that end after the host.
    after: JoinSet<anyhow::Result<()>>,
    stop_after: CancellationToken,
    /// The tasks that serve webhooks, which end last.
    webhooks: JoinSet<anyhow::Result<()>>,
    stop_webhooks: Stop,
}

/// The listeners of the public port and of the admin port.
struct Ports {
    public: TcpListener,
    admin: TcpListener,
    webhooks: Option<TcpListener>,
}

/// Runs until a signal or a failure of the host.
///
/// # Errors
///
/// Fails for invalid options, for an unusable cluster, if the Lease is lost, and if a task of the
/// host ends.
pub async fn run(
    args: &RunArgs,
    cache: Option<&Path>,
    compiler: Compiler,
) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::open()?;
    let server = tokio::select! {
        server = Server::start(args, cache, compiler) => server?,
        signal = signals.next() => {
            info!(signal, "ended before anything was started");
            return Ok(ExitCode::SUCCESS);
        }
    };
    server.run(args, &mut signals).await
}

// === impl Server ===

/// Returns the options for other clusters, none of which is the home cluster.
fn clusters(args: &RunArgs, home: &Home) -> clusters::Options {
    let home = crate::http::Home::parse(&home.address);
    let connect = Arc::new(remote::Inline { home });
    clusters::Options { connect, servers: args.clusters.as_slice().into() }
}

/// Returns the options for systems outside of the cluster, none of which is the home cluster.
fn outbound(args: &RunArgs, home: &Home) -> outbound::Options {
    let (origins, private) = (args.egress.as_slice().into(), args.egress_private);
    outbound::Options {
        origins,
        private,
        home: crate::http::Home::parse(&home.address),
        client: None,
    }
}

impl Server {
    async fn start(
        args: &RunArgs,
        cache: Option<&Path>,
        compiler: Compiler,
    ) -> anyhow::Result<Self> {
        let times = args.lease.times()?;
        let (registries, policy) = (args.registry.registries()?, args.policy()?);
        let home = Home::connect(args).await?;
        check_definition(&Cluster::new(home.client.clone())).await?;
        home.check(&needs(args, lease_namespace(args, &home))).await?;
        info!(cluster = home.address, version = home.version, user = home.user, "connected");
        let metrics = Metrics::new();
        let cache = cache_dir::open(cache)?;
        let engine = Engine::new(wasm::Options {
            cache: cache.clone(),
            compiler,
            metrics: metrics.clone(),
            call_memory: Some(memory::of_calls(args)),
            ..wasm::Options::default()
        })?;
        let paths = Paths::new(args.webhook_paths.clone()).map_err(anyhow::Error::msg)?;
        let mut ports = Ports::open(args).await?;
        let (lease, guard) = match args.leader_elect.then(|| strive(args, &home, times)) {
            Some((lease, guard)) => (Some(lease), guard),
            None => (None, Guard::none()),
        };
        let cluster = Cluster::new(home.client.clone()).guarded(&guard);
        let options = Options {
            skips: true,
            lease: guard.clone(),
            metrics,
            bounds: args.bounds(),
            namespace: args.namespace.clone(),
            clusters: clusters(args, &home),
            outbound: outbound(args, &home),
            ..Options::default()
        };
        let host = Arc::new(Host::start(&cluster, Vec::new(), &options)?);
        let operator = operator::Options {
            namespace: args.namespace.clone(),
            modules: args.modules.clone(),
            images: ImageOptions {
                registries,
                store: store(args, cache.as_ref())?,
                interval: Duration::from_secs(args.image_interval_seconds.into()),
                policy: policy.map(Arc::new),
            },
            now: options.now,
            lease: guard.clone(),
            largest: args.largest(),
        };
        let operator = Operator::open(&cluster, &engine, &host, operator).await?;
        let mut server = Self::around(engine, host, guard, operator.progress());
        if let (Some(listener), Some(secret)) = (ports.webhooks.take(), home.certificate.clone()) {
            let clients = args.webhook_client_ca.clone().map(Clients::open).transpose()?;
            server.serve_webhooks(listener, secret, paths, clients);
        }
        server.spawn(operator, lease);
        server.serve(ports, home.about(), args.admin_host.clone().into());
        Ok(server)
    }

    fn around(
        engine: Engine,
        host: Arc<Host>,
        lease: Guard,
        progress: latest::Receiver<Progress>,
    ) -> Self {
        Self {
            engine,
            host,
            lease,
            progress,
            reports: Reports::default(),
            before: JoinSet::new(),
            stop_before: CancellationToken::new(),
            after: JoinSet::new(),
            stop_after: CancellationToken::new(),
            webhooks: JoinSet::new(),
            stop_webhooks: Stop::default(),
        }
    }

    /// Serves the webhooks until no write is pending and no traffic is routed here: pending writes
    /// may wait for webhooks.
    fn serve_webhooks(
        &mut self,
        listener: TcpListener,
        (client, secret): (kube::Client, NamespacedName),
        paths: Paths,
        clients: Option<(Clients, impl Future<Output = ()> + Send + 'static)>,
    ) {
        let (certificate, kept) = Certificate::watch(client, secret);
        let (clients, reread) = clients.unzip();
        let webhooks = Webhooks::new(&self.host, paths, clients);
        let (told, current) = (webhooks.clone(), certificate.clone());
        let stop = self.stop_webhooks.clone();
        self.webhooks.spawn(async move {
            tokio::select! {
                () = stop.closed.cancelled() => Ok(()),
                ended = kept => ended,
                () = told.report_state(current) => Ok(()),
                Some(()) = OptionFuture::from(reread) => Ok(()),
            }
        });
        let served = webhooks.serve(listener, certificate.source(), self.stop_webhooks.clone());
        self.webhooks.spawn(async move { served.await.context("webhooks are no longer served") });
    }

    /// Starts the operator, the task that reads the host's reports, and the leader election.
    fn spawn(&mut self, operator: Operator, lease: Option<Lease>) {
        self.before.spawn(operator.run(self.stop_before.clone()));
        let (host, reports) = (Arc::clone(&self.host), self.reports.clone());
        let now = Options::default().now;
        self.before.spawn(report::run(host, reports, now, self.stop_before.clone()));
        if let Some(lease) = lease {
            let stop = self.stop_after.clone();
            self.after.spawn(async move { Ok(lease.run(stop).await?) });
        }
    }

    /// Serves both ports; `names` are those of the admin port.
    fn serve(&mut self, ports: Ports, about: Map<String, Value>, names: Arc<[String]>) {
        let public = Admin { also: self.readiness(), ..Admin::of(&self.host) }.router();
        let objects = Objects {
            host: Arc::clone(&self.host),
            reports: self.reports.clone(),
            lease: self.lease.clone(),
            about,
        };
        let objects = admin::without_pages(objects.router(), names);
        for (router, listener) in [(public, ports.public), (objects, ports.admin)] {
            let served = admin::serve(router, listener, self.stop_after.clone());
            self.after.spawn(async move {
                served.await;
                Ok(())
            });
        }
    }

    /// Returns the readiness check: the host is ready once all Processors have been handled, except
    /// those that wait for lists that this host converts, until it shuts down.
    fn readiness(&self) -> Also {
        let (progress, stop) = (self.progress.clone(), self.stop_before.clone());
        let host = Arc::clone(&self.host);
        let is_loaded = AtomicBool::new(false);
        Arc::new(move || {
            if stop.is_cancelled() {
                return Some("the host is ending");
            }
            let Progress { listed, pending, .. } = *progress.borrow();
            if listed && pending <= host.waiting_for_own_conversions() {
                is_loaded.store(true, Ordering::Relaxed);
            }
            (!is_loaded.load(Ordering::Relaxed)).then_some("not all Processors are loaded yet")
        })
    }

    /// Runs until a signal, with `--once` until all is reconciled, or until a part fails. A failure
    /// shuts the host down as a signal does, ending its runs and releasing the Lease, unless the
    /// Lease itself was lost.
    async fn run(mut self, args: &RunArgs, signals: &mut Signals) -> anyhow::Result<ExitCode> {
        let end = tokio::select! {
            signal = signals.next() => {
                info!(signal, "shutting down: no new runs start, running ones finish");
                Ok(ExitCode::SUCCESS)
            }
            end = once::done(&self.host, &mut self.progress, &self.lease), if args.once => {
                Ok(if end.is_well() { ExitCode::SUCCESS } else { ExitCode::from(FAILED_EXIT_CODE) })
            }
            Some(ended) = self.before.join_next() => Err(failure(ended)),
            Some(ended) = self.after.join_next() => Err(failure(ended)),
            Some(ended) = self.webhooks.join_next() => Err(failure(ended)),
        };
        if let Err(error) = &end {
            if error.is::<Lost>() {
                return end;
            }
            warn!("a part of the host has failed: no new runs start, running ones finish");
        }
        let limit = Duration::from_secs(args.drain_seconds.into());
        let host = Arc::clone(&self.host);
        tokio::select! {
            // The first failure is reported.
            drained = self.drain() => end.and_then(|code| drained.map(|()| code)),
            () = tokio::time::sleep(limit) => {
                error!(running = running(&host), ?limit, "runs did not finish within --drain-seconds");
                end.map(|_| ExitCode::from(CUT_SHORT_EXIT_CODE))
            }
            signal = signals.next() => {
                warn!(signal, running = running(&host), "ended at once");
                end.map(|_| ExitCode::from(CUT_SHORT_EXIT_CODE))
            }
        }
    }

    /// Stops starting runs, ends those in progress, releases the Lease, and closes the port of
    /// webhooks once no traffic is routed to it.
    async fn drain(mut self) -> anyhow::Result<()> {
        let leave = tokio::time::Instant::now() + ENDPOINT_REMOVAL_TIME;
        self.stop_before.cancel();
        self.stop_webhooks.leaving.cancel();
        self.host.begin_nothing();
        let calls_end = async {
            tokio::time::sleep(CALLS_TIMEOUT).await;
            let running = running(&self.host);
            if running > 0 {
                warn!(running, "calls that still run are cancelled");
            }
            self.engine.cancel_calls();
            pending::<()>().await;
        };
        let end = async {
            let ended = all_ended(&mut self.before).await;
            // The other tasks still run if one failed; after this they no longer write.
            self.before.shutdown().await;
            ended.and(self.host.stop().await)
        };
        let ended = tokio::select! {
            ended = end => ended,
            () = calls_end => return Ok(()),
            // The Lease was lost: runs that are still in progress must not write.
            Some(ended) = self.after.join_next() => return Err(failure(ended)),
        };
        self.stop_after.cancel();
        let ended = ended.and(all_ended(&mut self.after).await);
        if !self.webhooks.is_empty() {
            tokio::time::sleep_until(leave).await;
        }
        self.stop_webhooks.closed.cancel();
        ended.and(all_ended(&mut self.webhooks).await)
    }
}

/// Fails if the cluster does not serve the kind Processor.
async fn check_definition(cluster: &Cluster) -> anyhow::Result<()> {
    let resource = ApiResource::erase::<Processor>(&());
    let (group, version, kind) = (resource.group, resource.version, resource.kind);
    let known = cluster.resolve(&Kind::home(group, version, kind)).await?;
    anyhow::ensure!(
        known.is_some(),
        "the cluster does not know Processors: `kubectl apply --server-side -f deploy/install.yaml` defines them"
    );
    Ok(())
}

/// Opens the folder of modules from registries; `None` without a cache directory.
fn store(args: &RunArgs, cache: Option<&CacheDir>) -> anyhow::Result<Option<Store>> {
    let store = cache.map(|cache| Store::open(cache, u64::from(args.max_modules_mib) << 20));
    Ok(store.transpose()?.flatten())
}

fn lease_namespace<'a>(args: &'a RunArgs, home: &'a Home) -> &'a str {
    args.lease.lease_namespace.as_deref().unwrap_or(&home.namespace)
}

fn strive(args: &RunArgs, home: &Home, times: Times) -> (Lease, Guard) {
    let settings = lease::Settings {
        namespace: lease_namespace(args, home).to_owned(),
        name: args.lease.lease_name.clone(),
        identity: identity(),
        times,
        now: Options::default().now,
    };
    Lease::new(home.client.clone(), settings)
}

/// Returns the error of a task that ended unexpectedly.
fn failure(ended: Result<anyhow::Result<()>, tokio::task::JoinError>) -> anyhow::Error {
    match ended.context("a task of the host failed") {
        Ok(Ok(())) => anyhow::anyhow!("a task of the host ended"),
        Ok(Err(error)) | Err(error) => error,
    }
}

async fn all_ended(tasks: &mut JoinSet<anyhow::Result<()>>) -> anyhow::Result<()> {
    while let Some(ended) = tasks.join_next().await {
        ended.context("a task of the host failed")??;
    }
    Ok(())
}

/// Returns the number of runs in progress.
fn running(host: &Host) -> usize {
    host.status().iter().map(|processor| processor.running).sum()
}

/// Returns this host's identity in a Lease: the host name, for people, and a unique number.
fn identity() -> String {
    let place = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let place = if place.trim().is_empty() { "mortise" } else { place.trim() };
    format!("{place}_{:016x}", rand::random::<u64>())
}

/// Returns the rights that the host itself needs.
fn needs(args: &RunArgs, lease_namespace: &str) -> Vec<Need> {
    let need = |group, resource, namespace: Option<&str>, verbs| Need {
        verbs,
        group,
        resource,
        name: None,
        namespace: namespace.map(str::to_owned),
    };
    let of = args.namespace.as_deref();
    let mut needs = vec![
        need("mortise.dev", "processors", of, &["get", "list", "watch", "patch"]),
        need("mortise.dev", "processors/status", of, &["patch"]),
        need("", "serviceaccounts", of, &["list", "watch"]),
        need("apiextensions.k8s.io", "customresourcedefinitions", None, &["list", "watch"]),
    ];
    if of.is_none() {
        needs.push(need("authorization.k8s.io", "subjectaccessreviews", None, &["create"]));
    }
    if let Some(NamespacedName { namespace, name }) = &args.webhook_certificate {
        let (namespace, verbs) = (Some(&**namespace), &["list", "watch"] as _);
        needs.push(Need { name: Some(name.to_string()), ..need("", "secrets", namespace, verbs) });
    }
    if args.leader_elect {
        let namespace = Some(lease_namespace);
        let lease = |verbs| need("coordination.k8s.io", "leases", namespace, verbs);
        // The authorization check of a create request has no object name.
        let name = Some(args.lease.lease_name.clone());
        needs.extend([lease(&["create"]), Need { name, ..lease(&["get", "watch", "update"]) }]);
    }
    needs
}

// === impl Ports ===

impl Ports {
    async fn open(args: &RunArgs) -> anyhow::Result<Self> {
        anyhow::ensure!(
            args.admin_host.is_empty() || !args.admin.ip().is_loopback(),
            "`--admin-host` names a host that leads to `--admin {}`: an address that is not loopback is expected there",
            args.admin
        );
        let public = listen(args.listen, "--listen").await?;
        let admin = listen(args.admin, "--admin").await?;
        let of = |listener: &TcpListener| listener.local_addr().context("a port has no address");
        info!(listen = %of(&public)?, admin = %of(&admin)?, "listening");
        let webhooks = match args.webhooks {
            Some(address) => Some(listen(address, "--webhooks").await?),
            None => None,
        };
        if let Some(webhooks) = &webhooks {
            info!(webhooks = %of(webhooks)?, "listening for webhooks");
        }
        Ok(Self { public, admin, webhooks })
    }
}

async fn listen(address: SocketAddr, option: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!(
            "cannot listen on {address}: choose another address with {option} (port 0: a free one)"
        )
    })
}
