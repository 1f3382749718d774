//! Processor resources with the embedded API: the host runs what they ask for, and their status
//! shows the result.

mod elsewhere;
mod ends;
mod fields;
mod files;
mod flood;
mod gone;
mod hang;
mod images;
mod refused;
mod rights;
mod shared;
mod signed;
mod swaps;

use std::{fs, sync::Arc};

use kube::{
    Api,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
    runtime::wait::await_condition,
};
use mortise::local;
use mortise_core::{grant::rights::Account, reconcile::Report};
use mortise_embedded_api::EmbeddedApi;
use mortise_host::{
    cluster::{Cluster, lease::Guard, only_own},
    host::{Host, Options},
    oci,
    operator::{
        self, ImageOptions, Largest, Operator, Progress,
        api::{Condition, Processor, definition},
    },
};
use mortise_tests::{guest, registry};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{sync::watch as latest, task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{
    CONFIG_MAP, NAMESPACE, PUPPET, TIMEOUT, applies, merge, now, object,
    play::{Play, deletion, manifest, outcome},
    scripted, selection,
    tap::Tap,
};

/// A cluster with the Processors' CRD, and a host with a Processor controller.
struct Place {
    api: EmbeddedApi,
    /// The cluster as other users see it.
    cluster: Cluster,
    modules: TempDir,
    /// Records and blocks the requests between host and API.
    tap: Tap,
    /// The host's own account; `None`: an administrator.
    me: Option<Account>,
    /// The upper bounds of the Processors' limits.
    largest: Largest,
    /// The namespace whose Processors run; `None`: all.
    served: Option<String>,
    /// How modules come from registries: not at all, unless a test sets it.
    images: ImageOptions,
    /// The options of the hosts.
    options: Options,
    host: Arc<Host>,
    /// The reports of ended runs.
    reports: Arc<latest::Sender<Vec<Report>>>,
    /// Stops the controller of the Processors, as a host does that is told to stop.
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

/// Another host of the same cluster.
struct Replica {
    host: Arc<Host>,
    progress: latest::Receiver<Progress>,
}

impl Replica {
    /// Waits until all Processors are handled, and so many do not run as their specs ask.
    async fn until_faulty(&self, count: usize) {
        let mut progress = self.progress.clone();
        let is_it = |progress: &Progress| {
            progress.listed && progress.pending + progress.pulling == 0 && progress.faulty == count
        };
        timeout(TIMEOUT, progress.wait_for(is_it)).await.expect("the expected count").unwrap();
    }
}

impl Place {
    async fn new() -> Self {
        let api = EmbeddedApi::new(mortise_embedded_api::Options {
            now: now(),
            namespaces: vec!["default".into(), NAMESPACE.into(), "b".into(), "c".into()],
            ..Default::default()
        });
        let cluster = super::cluster(&api);
        local::apply(&cluster, vec![definition::processors()]).await.unwrap();
        let modules = tempfile::tempdir().unwrap();
        let tap = Tap::default();
        let options = Options { now: now(), ..Options::default() };
        let host = Self::host(&tap, &api, &options);
        let mut place = Self {
            api,
            cluster,
            modules,
            tap,
            me: None,
            largest: Largest::default(),
            served: None,
            images: registry::none(),
            options,
            host,
            reports: Arc::new(latest::Sender::new(Vec::new())),
            stop: CancellationToken::new(),
            tasks: JoinSet::new(),
        };
        place.put("puppet.wasm", PUPPET);
        place.account("puppet", &json!({"annotations": {"mortise.dev/processor": "*"}})).await;
        place.start().await;
        place
    }

    fn host(tap: &Tap, api: &EmbeddedApi, options: &Options) -> Arc<Host> {
        Arc::new(Host::start(&Self::as_host(tap, api), Vec::new(), options).unwrap())
    }

    /// Returns the cluster with the client of `mortise run`, which sends a request without an
    /// account only if it is on the list of `only_own`.
    fn as_host(tap: &Tap, api: &EmbeddedApi) -> Cluster {
        Cluster::new(only_own(tap.cluster(api).client()))
    }

    async fn start(&mut self) {
        let stop = self.stop.clone();
        self.run_operator(&Arc::clone(&self.host), self.images.clone(), stop).await;
        let (host, reports) = (Arc::clone(&self.host), Arc::clone(&self.reports));
        self.tasks.spawn(async move {
            loop {
                let report = host.next_report().await.unwrap();
                reports.send_modify(|reports| reports.push(report));
            }
        });
    }

    /// Starts another host of the same cluster, with a folder of modules and an engine like those
    /// of this one.
    async fn replica(&mut self, images: ImageOptions) -> Replica {
        let host = Self::host(&self.tap, &self.api, &self.options);
        let progress = self.run_operator(&host, images, CancellationToken::new()).await;
        Replica { host, progress }
    }

    async fn run_operator(
        &mut self,
        host: &Arc<Host>,
        images: ImageOptions,
        stop: CancellationToken,
    ) -> latest::Receiver<Progress> {
        let cache = mortise_tests::code_cache();
        let engine = local::engine(Some(&cache), false).unwrap();
        let options = operator::Options {
            namespace: self.served.clone(),
            modules: self.modules.path().to_owned(),
            images,
            now: now(),
            lease: Guard::none(),
            largest: self.largest,
        };
        let mut cluster = Self::as_host(&self.tap, &self.api);
        if let Some(me) = &self.me {
            cluster = cluster.acting_as(me);
        }
        let operator = Operator::open(&cluster, &engine, host, options).await.unwrap();
        let progress = operator.progress();
        self.tasks.spawn(async move { operator.run(stop).await.unwrap() });
        progress
    }

    /// Ends the host and its controller, and starts others.
    async fn restart(&mut self) {
        self.tasks.shutdown().await;
        self.host = Self::host(&self.tap, &self.api, &self.options);
        self.start().await;
    }

    /// Copies a guest's module into the folder, under a name.
    fn put(&self, name: &str, folder: &str) {
        fs::copy(guest(folder).unwrap(), self.modules.path().join(name)).unwrap();
    }

    async fn apply(&self, objects: &[Value]) {
        local::apply(&self.cluster, objects.to_vec()).await.unwrap();
    }

    /// Creates an account that may do everything, and consents as its metadata says.
    async fn account(&self, name: &str, metadata: &Value) {
        let rbac = "rbac.authorization.k8s.io";
        let all = json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]});
        let subject = json!({"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE});
        self.apply(&[
            json!({
                "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": "everything"}, "rules": [all],
            }),
            json!({
                "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "everything"}, "subjects": [subject],
            }),
            object("v1/ServiceAccount", name, &json!({"metadata": metadata})),
        ])
        .await;
    }

    fn processors(&self) -> Api<Processor> {
        Api::namespaced(self.cluster.client().clone(), NAMESPACE)
    }

    /// Creates or applies a Processor of the puppet.
    async fn puppet(&self, name: &str, play: &Play, spec: &Value) {
        let mut fields = json!({
            "module": {"path": "puppet.wasm"}, "serviceAccountName": "puppet", "config": play.config(),
        });
        merge(&mut fields, spec);
        self.apply(&[object("mortise.dev/v1alpha1/Processor", name, &json!({"spec": fields}))])
            .await;
    }

    async fn edit(&self, name: &str, spec: Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.processors().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn delete(&self, name: &str) {
        self.processors().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Waits until `holds` is true of a Processor.
    async fn until(&self, name: &str, what: &str, holds: impl Fn(&Processor) -> bool) -> Processor {
        let holds = |processor: Option<&Processor>| processor.is_some_and(&holds);
        match timeout(TIMEOUT, await_condition(self.processors(), name, holds)).await {
            Ok(found) => found.unwrap().unwrap(),
            Err(elapsed) => panic!(
                "not reached, {elapsed}: {what}; {:#?}",
                self.processors().get(name).await.map(|it| it.status)
            ),
        }
    }

    /// Waits until a condition of the newest spec has this reason; returns the condition's status
    /// and message.
    async fn reason(&self, name: &str, kind: &str, reason: &str) -> (String, String) {
        let what = format!("{kind} {reason} of {name}");
        let found = self.until(name, &what, |processor| {
            condition(processor, kind).is_some_and(|condition| {
                condition.reason == reason
                    && condition.observed_generation == processor.metadata.generation
            })
        });
        let condition = condition(&found.await, kind).unwrap().clone();
        (condition.status, condition.message)
    }

    async fn until_gone(&self, name: &str) {
        let gone = |processor: Option<&Processor>| processor.is_none();
        let waited = timeout(TIMEOUT, await_condition(self.processors(), name, gone)).await;
        let Ok(waited) = waited else {
            panic!("{name} stays: {:#?}", self.processors().get(name).await);
        };
        waited.unwrap();
    }

    /// Returns the objects of a kind in the namespace, as other users see them.
    async fn objects(&self, kind: &str) -> Api<DynamicObject> {
        let resource = self.cluster.resolve(&super::kind(kind)).await.unwrap().unwrap();
        let client = self.cluster.client().clone();
        Api::namespaced_with(client, NAMESPACE, &mortise_host::cluster::api_resource(&resource))
    }

    /// Changes an object of the namespace as another user.
    async fn change(&self, kind: &str, name: &str, patch: Value) {
        let params = PatchParams { field_manager: Some("somebody".into()), ..Default::default() };
        self.objects(kind).await.patch(name, &params, &Patch::Merge(patch)).await.unwrap();
    }

    /// Waits for the report of a run.
    async fn report(&self, what: &str, is_it: impl Fn(&Report) -> bool) -> Report {
        let mut reports = self.reports.subscribe();
        let found = reports.wait_for(|reports| reports.iter().any(&is_it));
        let found = timeout(TIMEOUT, found).await.unwrap_or_else(|_| panic!("no report: {what}"));
        found.unwrap().iter().find(|report| is_it(report)).unwrap().clone()
    }

    /// Returns the number of ended runs of a Processor.
    fn runs(&self, name: &str) -> u64 {
        let status = self.host.status_of(&format!("{NAMESPACE}/{name}"));
        status.map_or(0, |status| status.runs)
    }

    /// Waits until the host has nothing to run.
    async fn until_idle(&self) {
        let mut activity = self.host.activity();
        timeout(TIMEOUT, async {
            while !self.host.drive().is_idle() {
                activity.changed().await.unwrap();
            }
        })
        .await
        .expect("the host comes to rest");
    }

    /// Waits until the versions at work are these.
    async fn until_at_work_are(&self, versions: &[&str]) {
        let mut activity = self.host.activity();
        let at_work =
            || self.host.status().into_iter().map(|status| status.version.version.clone());
        let waited = timeout(TIMEOUT, async {
            while at_work().collect::<Vec<_>>() != versions {
                activity.changed().await.unwrap();
            }
        });
        let late = |_| panic!("at work are {:?}, not {versions:?}", at_work().collect::<Vec<_>>());
        waited.await.unwrap_or_else(late);
    }

    /// Waits for an object of the namespace.
    async fn until_object(
        &self,
        kind: &str,
        name: &str,
        what: &str,
        holds: impl Fn(Option<&Value>) -> bool,
    ) {
        let api = self.objects(kind).await;
        let holds = |found: Option<&DynamicObject>| {
            holds(found.map(|found| serde_json::to_value(found).unwrap()).as_ref())
        };
        let waited = timeout(TIMEOUT, await_condition(api, name, holds)).await;
        let Ok(waited) = waited else {
            let objects = self.api.objects();
            let processors = objects.iter().filter(|object| object["kind"] == "Processor");
            let status: Vec<_> = processors.map(|processor| &processor["status"]).collect();
            panic!("not reached: {what}; {status:#?}")
        };
        waited.unwrap();
    }
}

fn condition<'a>(processor: &'a Processor, kind: &str) -> Option<&'a Condition> {
    processor.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == kind)
}

/// Returns a puppet that reconciles `ConfigMaps` with the label `play=yes`, and may write
/// `ConfigMaps`.
fn puppet() -> Play {
    Play::new("puppet")
        .reconciles("objects", &selection(CONFIG_MAP, "play=yes"))
        .writes(&selection(CONFIG_MAP, ""), &["create", "update", "delete"])
}

fn made(name: &str, data: &Value) -> Value {
    object(CONFIG_MAP, name, &json!({"data": data}))
}

#[tokio::test(start_paused = true)]
async fn a_processor_runs_its_module_and_reports_it_in_its_status() {
    let place = Place::new().await;
    let script = applies(&[made("b", &json!({"from": "a"}))]);
    place.apply(&[scripted("a", &script)]).await;
    place.puppet("rules", &puppet(), &json!({})).await;
    place.until_object(CONFIG_MAP, "b", "what is wanted is made", |found| found.is_some()).await;
    assert_eq!(
        place.reason("rules", "Synced", "Synced").await,
        ("True".into(), "all 1 objects are reconciled".into())
    );
    assert_eq!(place.reason("rules", "Ready", "Runs").await.0, "True");
    let status = place.processors().get("rules").await.unwrap().status.unwrap();
    let module = status.module.unwrap();
    assert_eq!((module.name.as_str(), module.version.as_str()), ("puppet", "1.0.0"));
    assert!(module.digest.starts_with("sha256:"), "{module:?}");
    assert_eq!(status.counts.map(|counts| (counts.objects, counts.failing)), Some((1, 0)));
}
