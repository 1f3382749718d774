//! A host in this process, with an account of its own on a control plane, and puppets with accounts
//! of their own.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Deref,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use kube::Client;
use mortise::local;
use mortise_core::reconcile::Report;
use mortise_host::{
    cluster::{Cluster, lease::Guard, only_own},
    host::{Host, Loaded, Options, ProcessorStatus, Settings},
    operator::{self, ImageOptions, Operator, admin::Admin, api::definition},
    wasm::{Limits, Processor},
};
use mortise_sdk::{Description, Outcome};
use mortise_tests::{cluster, guest};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;

use super::ground::{Ground, TIMEOUT, client_with};

const PUPPET: &str = "tests/guests/puppet";

/// A running host in a namespace of its own.
pub(super) struct Stage {
    ground: Ground,
    pub(super) host: Arc<Host>,
    /// The cluster with the host's rights.
    own: Cluster,
    puppet: Processor,
    /// The last report of each processor.
    last: Mutex<BTreeMap<String, Report>>,
}

impl Deref for Stage {
    type Target = Ground;

    fn deref(&self) -> &Ground {
        &self.ground
    }
}

// === impl Stage ===

impl Stage {
    /// Starts a host that may impersonate these accounts. Returns `None` without Go.
    pub(super) async fn new(prefix: &str, accounts: &[String]) -> Option<Self> {
        let stage = Self::bare(prefix).await?;
        stage.let_act_as(accounts).await;
        Some(stage)
    }

    /// Starts a host that may not impersonate any account yet. Returns `None` without Go.
    pub(super) async fn bare(prefix: &str) -> Option<Self> {
        Some(Self::before(cluster::shared().await.unwrap()?, prefix).await)
    }

    /// Starts a host on this control plane that may not impersonate any account yet.
    pub(super) async fn before(control_plane: &cluster::Cluster, prefix: &str) -> Self {
        let ground = Ground::on(control_plane, prefix).await;
        let kubeconfig = ground.kubeconfig_of_host(control_plane).await;
        let own = Cluster::new(only_own(&client_with(kubeconfig).await));
        let host = Host::start(&own, Vec::new(), &Options::default()).unwrap();
        let module = module().await;
        let puppet = puppet(&module, &mortise_tests::code_cache()).await;
        let (host, last) = (Arc::new(host), Mutex::default());
        Self { ground, host, own, puppet, last }
    }

    /// Adds a puppet as the Processor of this name, with the account of this name.
    pub(super) async fn puppet(&self, name: &str, description: &Description, script: &Value) {
        self.host.swap(self.load(name, description, script).await).await.unwrap();
    }

    /// Runs the Processor controller for the namespace until it is dropped. The Processors may use
    /// the module `puppet.wasm`. The controller consumes reports, so that other readers miss some.
    pub(super) async fn supervise(&self) -> (JoinSet<()>, TempDir) {
        self.supervise_with(mortise_tests::registry::none()).await
    }

    /// Does what [`Stage::supervise`] does, with modules from registries.
    pub(super) async fn supervise_with(&self, images: ImageOptions) -> (JoinSet<()>, TempDir) {
        let control_plane = cluster::shared().await.unwrap().unwrap();
        control_plane.install(&[definition::processors()]).await.unwrap();
        let modules = tempfile::tempdir().unwrap();
        let module = module().await;
        std::fs::copy(&module, modules.path().join("puppet.wasm")).unwrap();
        let options = operator::Options {
            namespace: Some(self.namespace.clone()),
            modules: modules.path().to_owned(),
            images,
            now: Options::default().now,
            lease: Guard::none(),
            largest: operator::Largest::default(),
        };
        let engine = local::engine(Some(&mortise_tests::code_cache()), false);
        let opened = Operator::open(&self.own, &engine.unwrap(), &self.host, options).await;
        let (operator, host) = (opened.unwrap(), Arc::clone(&self.host));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { operator.run(CancellationToken::new()).await.unwrap() });
        tasks.spawn(async move {
            loop {
                host.next_report().await.unwrap();
            }
        });
        (tasks, modules)
    }

    /// Loads a puppet as a Processor, without adding it to the host.
    pub(super) async fn load(
        &self,
        name: &str,
        description: &Description,
        script: &Value,
    ) -> Loaded {
        let play = json!({"description": description, "script": script}).to_string();
        let settings = Settings {
            name: Some(name.into()),
            account: Some(format!("{}/{name}", self.namespace).parse().unwrap()),
            ..Settings::in_namespace(&self.namespace)
        };
        Loaded::describe(self.puppet.clone(), &play, settings).await.unwrap()
    }

    /// Returns the first report of each of these processors, by its name.
    pub(super) async fn first_reports(&self, of: &BTreeSet<String>) -> BTreeMap<String, Report> {
        let mut reports = BTreeMap::new();
        while reports.len() < of.len() {
            let (processor, report) = self.report().await;
            if of.contains(&processor) {
                reports.entry(processor).or_insert(report);
            }
        }
        reports
    }

    /// Waits until `holds` is true of a processor's last run.
    pub(super) async fn last_run(&self, of: &str, holds: impl Fn(&Report) -> bool) -> Report {
        loop {
            if let Some(last) = self.last(of).filter(|last| holds(last)) {
                return last;
            }
            self.report().await;
        }
    }

    /// Returns a processor's last run that a wait has read.
    fn last(&self, of: &str) -> Option<Report> {
        self.last.lock().unwrap().get(of).cloned()
    }

    /// Forgets the last run of a processor.
    pub(super) fn forget_runs(&self, of: &str) {
        self.last.lock().unwrap().remove(of);
    }

    /// Returns the next report, with the name of its processor.
    async fn report(&self) -> (String, Report) {
        let report = timeout(TIMEOUT, self.host.next_report()).await;
        let report = report.expect("the report of a run").unwrap();
        let processor = report.key.processor().split_once('/').unwrap().1.to_owned();
        self.last.lock().unwrap().insert(processor.clone(), report.clone());
        (processor, report)
    }

    pub(super) fn status_of(&self, processor: &str) -> ProcessorStatus {
        let name = format!("{}/{processor}", self.namespace);
        let is_it = |status: &ProcessorStatus| *status.version.processor == *name;
        self.host.status().into_iter().find(is_it).expect("the processor is at work")
    }

    /// Returns the value of a series, as text.
    pub(super) async fn metric(&self, series: &str) -> Option<String> {
        let client = Client::new(Admin::of(&self.host).router(), "default");
        let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
        let text = client.request_text(request).await.unwrap();
        let mut values = text.lines().filter_map(|line| line.strip_prefix(series));
        values.next().map(|value| value.trim().to_owned())
    }
}

/// Returns the path of the puppet's module.
pub(super) async fn module() -> PathBuf {
    tokio::task::spawn_blocking(|| guest(PUPPET)).await.unwrap().unwrap()
}

/// Loads the puppet's component, which leaves its code in the cache.
pub(super) async fn puppet(module: &Path, cache: &Path) -> Processor {
    let bytes = std::fs::read(module).unwrap();
    let engine = local::engine(Some(cache), false);
    let name = module.display().to_string();
    Processor::load(&engine.unwrap(), &name, bytes.into(), Limits::default()).await.unwrap()
}

/// Returns a script that returns this outcome.
pub(super) fn returns(outcome: &Outcome) -> Value {
    json!({"returns": {"outcome": outcome}})
}
