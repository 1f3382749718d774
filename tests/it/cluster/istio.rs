//! Istio's four processors on a real control plane, run by `mortise run`, with accounts that hold
//! what `mortise inspect --rbac` prints and nothing else.

mod fields;
mod life;
mod restarts;
mod rights;
mod steady;
mod take_over;
mod upgrade;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::StreamExt as _;
use kube::{
    Api,
    api::DynamicObject,
    runtime::{WatchStreamExt as _, watcher},
};
use mortise::commands::inspect;
use mortise_core::api::{Method, Outgoing};
use mortise_host::{host::Settings, operator::api::definition};
use mortise_tests::{cluster, definitions, istio_client, loaded};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::{
    ground::Ground,
    kind,
    program::{Ports, Program, get},
};

/// The guests that work for the Istio resource, each with an account of its name.
pub(super) const GUESTS: [&str; 4] =
    ["istio-installation", "peer-authentication", "ingress-gateway-restart", "sidecar-restart"];
const INSTALLATION: &str = "istio-installation";
const INTERFACE: &str = "istio:client/renderer@0.1.0";
/// The version of `guests/istio-client` that is installed.
const VERSION: &str = "1.31";
const ISTIO: &str = "operator.kyma-project.io/v1alpha2/Istio";
const PROCESSOR: &str = "mortise.dev/v1alpha1/Processor";

/// A control plane with Istio's processors.
pub(super) struct Mesh {
    host: Option<(Program, Ports)>,
    ground: Ground,
    /// The configurations of the processors, by guest.
    configs: BTreeMap<&'static str, Value>,
    /// The managers whose fields `istio-installation` takes over.
    take_over: Vec<String>,
    /// The roles and bindings that `inspect --rbac` prints, by guest.
    printed: BTreeMap<&'static str, Vec<Value>>,
    folder: TempDir,
    // Dropped last: it ends the control plane.
    plane: cluster::Cluster,
}

/// The states that the Istio resource has had, each that differs from the one before.
pub(super) struct States {
    seen: Arc<Mutex<Vec<String>>>,
    _task: JoinSet<()>,
}

// === impl States ===

impl States {
    pub(super) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

// === impl Mesh ===

impl Mesh {
    /// Starts a control plane with the accounts of the processors, which have these configurations,
    /// and without a host. Returns `None` without Go.
    pub(super) async fn prepare(configs: &[(&'static str, Value)]) -> Option<Self> {
        let library = library().await?;
        let plane = cluster::own().await.unwrap()?;
        let ground = Ground::on(&plane, "istio").await;
        let folder = tempfile::tempdir().unwrap();
        let config = |guest| configs.iter().find(|(of, _)| *of == guest);
        let config = |guest| config(guest).map_or_else(|| json!({}), |(_, config)| config.clone());
        let configs = GUESTS.map(|guest| (guest, config(guest))).into();
        let printed = BTreeMap::new();
        let take_over = Vec::new();
        let mut mesh = Self { host: None, ground, configs, take_over, printed, folder, plane };
        mesh.modules(&library).await;
        let kinds = definitions("guests/istio-installation").unwrap();
        let kinds = [vec![definition::processors(), autoscalers()], kinds].concat();
        mesh.plane.install(&kinds).await.unwrap();
        mesh.surroundings().await;
        mesh.accounts().await;
        Some(mesh)
    }

    /// Builds the modules, and compiles them into the cache of the host, so that no test waits for
    /// its compiler child.
    async fn modules(&mut self, library: &Path) {
        let modules = self.modules_dir();
        fs::create_dir_all(&modules).unwrap();
        link(library, &modules.join("istio.wasm"));
        for guest in GUESTS {
            let config = self.configs[guest].to_string();
            let loaded = loaded(&folder_of(guest), &config).await.unwrap();
            let built = mortise_tests::guest(&folder_of(guest)).unwrap();
            link(&built, &modules.join(format!("{guest}.wasm")));
            let settings = Settings {
                account: Some(format!("{}/{guest}", self.ground.namespace).parse().unwrap()),
                ..loaded.settings
            };
            let kinds = definitions(&folder_of(guest)).unwrap();
            let account = settings.account.as_ref();
            let text = inspect::rbac(&loaded.description, kinds, account, None).await.unwrap();
            self.printed.insert(guest, serde_saphyr::from_multiple(&text).unwrap());
            share_code(&self.cache_dir());
        }
    }

    /// Makes what is there before Istio: namespaces, the priority of its Pods.
    async fn surroundings(&self) {
        let priority = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": "istio-kyma-priority"}, "value": 2_100_000,
        });
        let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        // The roles of the processors live in both.
        let namespaces = ["kyma-system", "istio-system"].map(namespace);
        self.ground.apply([namespaces.to_vec(), vec![priority]].concat()).await;
    }

    async fn accounts(&self) {
        let accounts: Vec<String> = GUESTS.map(str::to_owned).into();
        self.ground.let_act_as(&accounts).await;
        for guest in GUESTS {
            self.ground.account(guest, &[]).await;
            self.ground.consent(guest).await;
            self.ground.apply(self.printed[guest].clone()).await;
        }
    }

    fn modules_dir(&self) -> PathBuf {
        self.folder.path().join("modules")
    }

    fn cache_dir(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    /// Starts the host.
    pub(super) async fn start(&mut self) {
        let kubeconfig = self.folder.path().join("kubeconfig");
        let config = self.ground.kubeconfig_of_host(&self.plane).await;
        fs::write(&kubeconfig, serde_json::to_string(&config).unwrap()).unwrap();
        // What compiling the renderer takes.
        let compiler = ["--compile-memory-mib", "1536", "--compile-seconds", "300"];
        let arguments = ["--namespace", &self.ground.namespace].into_iter().chain(compiler);
        let mut host =
            Program::start(&kubeconfig, &self.modules_dir(), &self.cache_dir(), arguments);
        let ports = host.ports().await;
        self.host = Some((host, ports));
    }

    /// Kills the host as `kill -9` does.
    pub(super) fn kill(&mut self) {
        let (host, _) = self.host.take().expect("the host runs");
        host.kill();
    }

    /// Returns the Processor of a guest.
    fn processor(&self, guest: &str) -> Value {
        let mut spec = json!({
            "module": {"path": format!("{guest}.wasm")},
            "serviceAccountName": guest,
            "config": self.configs[guest],
        });
        if guest == INSTALLATION {
            spec["takeOver"] = json!(self.take_over);
            spec["libraries"] = json!([{
                "interface": INTERFACE, "module": {"path": "istio.wasm"},
                "limits": {"memory": "256Mi", "deadline": "60s"},
            }]);
            spec["limits"] = json!({"memory": "256Mi", "deadline": "60s"});
        }
        json!({
            "apiVersion": "mortise.dev/v1alpha1", "kind": "Processor",
            "metadata": self.ground.named(guest), "spec": spec,
        })
    }

    /// Applies the Processors of all guests.
    pub(super) async fn processors(&self) {
        let all = GUESTS.map(|guest| self.processor(guest));
        self.ground.apply(all.into()).await;
    }

    /// Replaces the spec of the Istio resource, as a user of `kubectl edit`.
    pub(super) async fn edit(&self, spec: &Value) {
        let cluster = &self.ground.cluster;
        let resource = cluster.resolve(&kind(ISTIO)).await.unwrap().unwrap();
        let at = resource.path_of(Some("kyma-system"), "default");
        let patch = json!([{"op": "replace", "path": "/spec", "value": spec}]);
        let answer = cluster.send(&Outgoing::new(Method::JsonPatch, at, Some(patch))).await;
        answer.unwrap_or_else(|refusal| panic!("{spec}: {}", refusal.message));
    }

    /// Creates the Istio resource, as a user of `kubectl apply`.
    pub(super) async fn istio(&self, spec: Value) {
        let istio = json!({
            "apiVersion": "operator.kyma-project.io/v1alpha2", "kind": "Istio",
            "metadata": {"name": "default", "namespace": "kyma-system"}, "spec": spec,
        });
        self.ground.apply(vec![istio]).await;
    }

    /// Returns an object, read as an administrator.
    pub(super) async fn get(&self, of: &str, namespace: &str, name: &str) -> Option<Value> {
        let cluster = &self.ground.cluster;
        let resource = cluster.resolve(&kind(of)).await.unwrap()?;
        let namespace = resource.namespaced.then_some(namespace);
        match cluster.send(&Outgoing::get(resource.path_of(namespace, name))).await {
            Ok(answer) => Some(answer.body),
            Err(refusal) if refusal.code == 404 => None,
            Err(refusal) => panic!("{of} {name}: {}", refusal.message),
        }
    }

    /// Returns all objects of a kind, in all namespaces; none if the kind is not served.
    pub(super) async fn list(&self, of: &str) -> Vec<Value> {
        let cluster = &self.ground.cluster;
        let Some(resource) = cluster.resolve(&kind(of)).await.unwrap() else { return Vec::new() };
        let (group_version, name) = of.rsplit_once('/').unwrap();
        let (mut all, mut next) = (Vec::new(), String::new());
        loop {
            // In pages, since the client bounds an answer.
            let page = format!("{}?limit=500&continue={next}", resource.path(None));
            let answer = match cluster.send(&Outgoing::get(page)).await {
                // The kind is not served any more.
                Err(refusal) if refusal.code == 404 => return Vec::new(),
                answer => answer.unwrap_or_else(|refusal| panic!("{of}: {}", refusal.message)),
            };
            let items = answer.body["items"].as_array().cloned().unwrap_or_default();
            all.extend(items.into_iter().map(|mut item| {
                item["apiVersion"] = json!(group_version);
                item["kind"] = json!(name);
                item
            }));
            match answer.body["metadata"]["continue"].as_str() {
                Some(token) if !token.is_empty() => token.clone_into(&mut next),
                _ => return all,
            }
        }
    }

    /// Changes an object by a merge patch, as somebody with an editor.
    pub(super) async fn patch(&self, of: &str, namespace: &str, name: &str, change: &Value) {
        let cluster = &self.ground.cluster;
        let resource = cluster.resolve(&kind(of)).await.unwrap().unwrap();
        let namespace = resource.namespaced.then_some(namespace);
        let at = format!("{}?fieldManager=editor", resource.path_of(namespace, name));
        let patch = Outgoing::new(Method::MergePatch, at, Some(change.clone()));
        let answer = cluster.send(&patch).await;
        answer.unwrap_or_else(|refusal| panic!("{of} {name}: {}", refusal.message));
    }

    pub(super) async fn delete(&self, of: &str, namespace: &str, name: &str) {
        let cluster = &self.ground.cluster;
        let resource = cluster.resolve(&kind(of)).await.unwrap().unwrap();
        let namespace = resource.namespaced.then_some(namespace);
        let delete = Outgoing::new(Method::Delete, resource.path_of(namespace, name), None);
        let answer = cluster.send(&delete).await;
        answer.unwrap_or_else(|refusal| panic!("{of} {name}: {}", refusal.message));
    }

    /// Returns the time at which the workload of [`injected`] was restarted last.
    pub(super) async fn restarted_at(&self) -> Option<String> {
        let workload = self.get("apps/v1/Deployment", "default", "web").await?;
        let annotations = &workload["spec"]["template"]["metadata"]["annotations"];
        annotations[istio::action::RESTARTED_AT].as_str().map(str::to_owned)
    }

    pub(super) async fn status(&self) -> Value {
        let istio = self.get(ISTIO, "kyma-system", "default").await;
        istio.map(|istio| istio["status"].clone()).unwrap_or_default()
    }

    /// Waits until the Istio resource is in a state, and speaks of its present generation. Returns
    /// the time that took.
    pub(super) async fn until_state(&self, state: &str) -> Duration {
        self.until(&format!("the state is {state}"), async || {
            let Some(istio) = self.get(ISTIO, "kyma-system", "default").await else {
                return false;
            };
            let generation = &istio["metadata"]["generation"];
            let conditions = istio["status"]["conditions"].as_array();
            let are_current = conditions.is_some_and(|conditions| {
                conditions.iter().all(|one| one["observedGeneration"] == *generation)
            });
            istio["status"]["state"] == state && are_current
        })
        .await
    }

    /// Follows the states of the Istio resource from now on.
    pub(super) async fn states(&self) -> States {
        let cluster = &self.ground.cluster;
        let resource = cluster.resolve(&kind(ISTIO)).await.unwrap().unwrap();
        let api: Api<DynamicObject> = Api::namespaced_with(
            cluster.client().clone(),
            "kyma-system",
            &mortise_host::cluster::api_resource(&resource),
        );
        let (seen, mut task) = (Arc::new(Mutex::new(Vec::new())), JoinSet::new());
        let all = Arc::clone(&seen);
        task.spawn(async move {
            let objects = watcher(api, watcher::Config::default()).touched_objects();
            objects
                .for_each(|object| {
                    let state = object.unwrap().data["status"]["state"].clone();
                    let state = state.as_str().unwrap_or_default().to_owned();
                    let mut all = all.lock().unwrap();
                    if all.last() != Some(&state) {
                        all.push(state);
                    }
                    std::future::ready(())
                })
                .await;
        });
        let states = States { seen, _task: task };
        self.until("the states are followed", async || !states.seen().is_empty()).await;
        states
    }

    /// Waits until something holds. What the Istio resource and the Processors say is shown if it
    /// never does.
    pub(super) async fn until(&self, what: &str, holds: impl AsyncFn() -> bool) -> Duration {
        // The compiler of a module is a process of low priority.
        const COMPILE_TIMEOUT: Duration = Duration::from_mins(10);
        const POLL_INTERVAL: Duration = Duration::from_millis(20);
        let begun = tokio::time::Instant::now();
        while !holds().await {
            if begun.elapsed() > COMPILE_TIMEOUT {
                let said: Vec<Value> =
                    self.list(PROCESSOR).await.iter().map(|one| one["status"].clone()).collect();
                panic!("in vain: {what}\n{:#}\n{said:#?}", self.status().await);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        begun.elapsed()
    }

    /// Returns the values of a metric's series, by their labels.
    pub(super) async fn metric(&self, name: &str) -> BTreeMap<String, u64> {
        let (_, ports) = self.host.as_ref().expect("the host runs");
        let (_, text) = get(&ports.public, "/metrics").await;
        let series = text.lines().filter_map(|line| line.strip_prefix(name));
        let series = series.filter_map(|rest| rest.strip_prefix('{')?.split_once("} "));
        let series = series.map(|(labels, value)| (labels.to_owned(), value.parse().unwrap()));
        series.collect()
    }

    /// Returns the sum of a metric over all of its labels.
    pub(super) async fn total(&self, name: &str) -> u64 {
        self.metric(name).await.values().sum()
    }

    /// Returns the number of runs of all processors, and that of calls of the library that were
    /// not answered from memory.
    pub(super) async fn work(&self) -> (u64, u64) {
        let runs = self.total("mortise_reconciles_total").await;
        let calls = self.metric("mortise_library_calls_total").await;
        let rendered = calls.iter().filter(|(labels, _)| !labels.contains("memo"));
        (runs, rendered.map(|(_, calls)| calls).sum())
    }

    /// Waits until no processor has anything to do.
    pub(super) async fn until_idle(&self) {
        self.until("nothing is left to do", async || {
            let keys = self.metric("mortise_queue_keys").await;
            let busy = keys.iter().filter(|(labels, _)| !labels.contains("delayed"));
            busy.map(|(_, keys)| keys).sum::<u64>() == 0
        })
        .await;
    }

    /// Returns the requests on behalf of the processors that the API server refused as forbidden.
    pub(super) async fn forbidden(&self) -> Vec<String> {
        let requests = self.ground.requests().await;
        let forbidden = requests.iter().filter(|event| event.code() == 403);
        forbidden
            .map(|event| format!("{} {} as {}", event.verb, event.request_uri, event.account()))
            .collect()
    }
}

/// Returns a workload whose Pods have a sidecar of this image, with these resources.
fn injected(image: &str, resources: &Value) -> Value {
    let template = json!({
        "metadata": {"labels": {"app": "web"}, "annotations": {"sidecar.istio.io/status": "{}"}},
        "spec": {"containers": [
            {"name": "app", "image": "app:1"},
            {"name": "istio-proxy", "image": image, "resources": resources},
        ]},
    });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template},
    })
}

fn folder_of(guest: &str) -> String {
    format!("guests/{guest}")
}

/// Builds the library; `None` without Go.
async fn library() -> Option<PathBuf> {
    let build = || istio_client::component(istio_client::version(VERSION)?);
    tokio::task::spawn_blocking(build).await.unwrap().unwrap()
}

fn link(from: &Path, to: &Path) {
    fs::hard_link(from, to).or_else(|_| fs::copy(from, to).map(drop)).unwrap();
}

/// Links the code that was compiled for all tests into the cache directory of a host.
fn share_code(cache: &Path) {
    let to = cache.join("code");
    if !to.exists() {
        fs::create_dir_all(&to).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode;
        for folder in [cache, &to] {
            fs::set_permissions(folder, private(0o700)).unwrap();
        }
    }
    let compiled = mortise_tests::code_cache().join("code");
    for code in fs::read_dir(compiled).unwrap().map(Result::unwrap) {
        let place = to.join(code.file_name());
        if !place.exists() {
            link(&code.path(), &place);
        }
    }
}

/// Returns a definition of vertical autoscalers, whose kind Kubernetes does not have.
fn autoscalers() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "verticalpodautoscalers.autoscaling.k8s.io",
            // The group is one of Kubernetes' own.
            "annotations": {"api-approved.kubernetes.io": "unapproved, a test"},
        },
        "spec": {
            "group": "autoscaling.k8s.io", "scope": "Namespaced",
            "names": {"kind": "VerticalPodAutoscaler", "plural": "verticalpodautoscalers"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }},
            }],
        },
    })
}
