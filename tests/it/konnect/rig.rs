//! An API in memory over HTTP and the fake of Konnect, for hosts that run as processes of their own.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use axum::middleware::from_fn_with_state;
use konnect::kind;
use konnect_fake::{Config, Konnect, Server, server::Options};
use mortise::local;
use mortise_embedded_api::EmbeddedApi;
use mortise_host::cluster::Cluster;
use mortise_tests::{code_cache, definitions, guest};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{net::TcpListener, task::JoinSet, time::Instant};

use super::{
    objects::NAMESPACE,
    trap::{Trap, tap},
};
use crate::cluster::{
    konnect::held::Breaches,
    program::{POLL_INTERVAL, Program, TIMEOUT},
};

const GUEST: &str = "guests/konnect";
pub(super) const HOME: &str = "mortise";
pub(super) const NAME: &str = "konnect";

/// What the test stands in for: the API server and Konnect. When it is dropped, it fails if an object
/// without the finalizer was asked for more than GET.
pub(super) struct Rig {
    pub(super) api: EmbeddedApi,
    pub(super) cluster: Cluster,
    pub(super) fake: Server,
    pub(super) trap: Arc<Trap>,
    breaches: Breaches,
    folder: TempDir,
    _tasks: JoinSet<()>,
}

// === impl Rig ===

impl Rig {
    /// Starts both, with the kinds of Konnect. No Processor is there yet.
    pub(super) async fn start() -> Self {
        let api = EmbeddedApi::new(mortise_embedded_api::Options {
            namespaces: ["default", HOME, NAMESPACE].map(str::to_owned).into(),
            ..Default::default()
        });
        let trap = Arc::new(Trap::default());
        let breaches = Breaches::default();
        let fake = fake(&trap, &api, &breaches).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        write_kubeconfig(folder.path(), &server);
        std::fs::create_dir(folder.path().join("modules")).unwrap();
        let module = tokio::task::spawn_blocking(|| guest(GUEST)).await.unwrap().unwrap();
        std::fs::copy(module, folder.path().join("modules/konnect.wasm")).unwrap();
        let router = api.router().layer(from_fn_with_state(Arc::clone(&trap), tap));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
        let cluster = crate::host::cluster(&api);
        let rig = Self { api, cluster, fake, trap, breaches, folder, _tasks: tasks };
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crds/mortise.dev");
        rig.apply(mortise::files::load(&own).unwrap()).await;
        rig.apply(definitions(GUEST).unwrap()).await;
        rig
    }

    /// Creates the Processor, and an account that may do everything.
    pub(super) async fn with_processor(self, config: &Value, more: &Value) -> Self {
        let labels = json!({"mortise.dev/processor": NAME});
        let metadata = json!({"name": NAME, "namespace": HOME, "labels": labels});
        let mut spec = json!({
            "module": {"path": "konnect.wasm"}, "serviceAccountName": NAME, "config": config,
            "limits": {"concurrency": 8},
            "egress": [{
                "origin": "https://*.api.konghq.com", "connect": self.fake.address().to_string(),
                "caBundle": self.fake.authority(), "private": true,
                "credentials": [{"group": kind::KONNECT, "kind": kind::AUTH.kind}],
            }],
        });
        crate::host::merge(&mut spec, more);
        let rbac = "rbac.authorization.k8s.io/v1";
        let account = json!({"kind": "ServiceAccount", "namespace": HOME, "name": NAME});
        self.apply(vec![
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
            json!({
                "apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": "all"},
                "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
            }),
            json!({
                "apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": {"name": "all"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "all"},
                "subjects": [account],
            }),
            json!({
                "apiVersion": "mortise.dev/v1alpha1", "kind": "Processor",
                "metadata": {"name": NAME, "namespace": HOME}, "spec": spec,
            }),
        ])
        .await;
        self
    }

    /// Applies objects as another user.
    pub(super) async fn apply(&self, objects: Vec<Value>) {
        local::apply(&self.cluster, objects).await.unwrap();
    }

    /// Starts a host.
    pub(super) fn host(&self, arguments: &[&str]) -> Program {
        let (folder, cache) = (self.folder.path(), cache());
        let egress = ["--egress", "https://*.api.konghq.com", "--egress-private"];
        let arguments = egress.iter().chain(arguments);
        Program::start(&folder.join("kubeconfig"), &folder.join("modules"), &cache, arguments)
    }

    /// Returns the objects that have entities.
    pub(super) fn objects(&self) -> Vec<Value> {
        let mut objects = self.api.objects();
        objects.retain(|object| row(object).is_some_and(|entity| entity.api.is_some()));
        objects
    }

    /// Waits until something holds; `None` means that it does.
    pub(super) async fn until(&self, holds: impl Fn() -> Option<String>) {
        let begun = Instant::now();
        while let Some(why) = holds() {
            assert!(begun.elapsed() < TIMEOUT, "{why}; there are {} entities", self.entities());
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until all objects are programmed.
    pub(super) async fn until_programmed(&self) {
        self.until(|| {
            let mut objects = self.objects();
            objects.retain(|object| !is_programmed(object));
            (!objects.is_empty()).then(|| format!("these are not programmed: {objects:#?}"))
        })
        .await;
    }

    /// Returns the first collection whose entities are not those of the objects, one for each.
    pub(super) fn wrong(&self) -> Option<String> {
        let konnect = self.fake.konnect().lock();
        let objects = self.objects();
        kind::entities().find_map(|(entity, api)| {
            let collection = api.collection.rsplit('/').next().unwrap();
            let known = objects.iter().filter(|object| object["kind"] == entity.kind);
            let known: BTreeMap<String, Option<&str>> =
                known.map(|object| (title(object), entity.id(object, "id"))).collect();
            let stored = konnect.entities(collection);
            let mut ids: Vec<Option<&str>> = stored.iter().map(|of| of["id"].as_str()).collect();
            let mut of_objects: Vec<Option<&str>> = known.values().copied().collect();
            ids.sort_unstable();
            of_objects.sort_unstable();
            let is_right = ids == of_objects && !ids.contains(&None);
            (!is_right)
                .then(|| format!("{collection}: objects have {known:#?}, there are {stored:#?}"))
        })
    }

    /// Asserts that there is exactly one entity for each object, and objects of each kind.
    pub(super) fn assert_one_each(&self) {
        if let Some(wrong) = self.wrong() {
            panic!("{wrong}");
        }
        let objects = self.objects();
        for (entity, _) in kind::entities() {
            assert!(objects.iter().any(|of| of["kind"] == entity.kind), "no {}", entity.kind);
        }
    }

    /// Returns how many entities there are.
    pub(super) fn entities(&self) -> usize {
        let konnect = self.fake.konnect().lock();
        let collections = kind::entities().filter_map(|(_, api)| api.collection.rsplit('/').next());
        collections.map(|collection| konnect.entities(collection).len()).sum()
    }

    /// Returns the requests with this method that Konnect got, as `path status`.
    pub(super) fn requests(&self, method: &str) -> Vec<String> {
        let konnect = self.fake.konnect().lock();
        let requests = konnect.log(0).filter(|entry| entry.method == method);
        let status = |entry: &konnect_fake::log::Entry| {
            entry.answer.as_ref().map_or_else(String::new, |answer| answer.status.to_string())
        };
        requests.map(|entry| format!("{} {}", entry.path, status(entry))).collect()
    }
}

/// Returns the cache directory of all hosts of these tests: code is compiled once.
pub(super) fn cache() -> PathBuf {
    code_cache().join("konnect")
}

impl Drop for Rig {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.breaches.all(), [""; 0], "never before the finalizer");
        }
    }
}

async fn fake(trap: &Arc<Trap>, api: &EmbeddedApi, breaches: &Breaches) -> Server {
    let (seer, gate) = (Arc::clone(trap), Arc::clone(trap));
    let (api, breaches) = (api.clone(), breaches.clone());
    let options = Options {
        observer: Some(Arc::new(move |request, status| {
            breaches.see(request, |entity| stored(&api, entity));
            seer.see(&request.method, status);
        })),
        gate: Some(Arc::new(move |request| gate.hold(&request.method))),
        ..Options::default()
    };
    Server::start(Konnect::new(Config::default()), options).await.unwrap()
}

/// Returns the objects of a kind.
fn stored(api: &EmbeddedApi, of: &kind::Entity) -> Vec<Value> {
    let path = format!("/apis/{}/{}/{}", of.group, of.version, of.plural);
    let (status, mut list) = api.answer(http::Request::get(path).body(String::new()).unwrap());
    assert_eq!(status, 200, "{list}");
    serde_json::from_value(list["items"].take()).unwrap()
}

fn write_kubeconfig(folder: &Path, server: &str) {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": HOME}}],
    });
    std::fs::write(folder.join("kubeconfig"), config.to_string()).unwrap();
}

/// Returns the row of an object's kind.
pub(super) fn row(object: &Value) -> Option<&'static kind::Entity> {
    kind::find(object["kind"].as_str()?)
}

fn title(object: &Value) -> String {
    format!("{} {}", object["kind"], object["metadata"]["name"])
}

/// Returns whether an object is programmed, and has an ID.
fn is_programmed(object: &Value) -> bool {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let is_true = |of: &Value| of["type"] == "Programmed" && of["status"] == "True";
    let has_id = row(object).is_some_and(|entity| entity.id(object, "id").is_some());
    has_id && conditions.into_iter().flatten().any(is_true)
}
