//! A consumer: a control plane with the processor, bound to a place at the provider.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use futures::future;
use mortise_core::api::{Method, Outgoing};
use mortise_tests::{cluster::Audit, definitions};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    GUEST, NAME, Side, account,
    backend::{self, EXPORTS, Export, kube_bind, within},
    folders, install, named, of_home, refusals,
};
use crate::cluster::program::Program;

const CONFIG: &str = r#"{"groups": ["example.com"], "claims": [{"resources": ["secrets"]}]}"#;
/// The namespace at home in which the objects of kinds with namespaces stand.
pub(super) const TEAM: &str = "team";

/// A control plane with the processor, bound to a place at the provider.
pub(super) struct Consumer {
    pub(super) home: Arc<Side>,
    pub(super) place: String,
    kubeconfig: Value,
    audit: Audit,
    /// The folder of the module.
    pub(super) folder: TempDir,
    cache: TempDir,
    pub(super) host: Option<Program>,
}

/// A provider, and consumers that are bound to all its exports.
pub(super) struct Stand {
    pub(super) provider: Arc<Side>,
    pub(super) consumers: Vec<Consumer>,
    audit: Audit,
    backend: tokio::task::JoinHandle<()>,
}

// === impl Stand ===

impl Stand {
    /// Starts a provider and a consumer for each place, and the processors. `None` without Go.
    pub(super) async fn open(places: &[&str]) -> Option<Self> {
        let mut stand = Self::prepared(places).await?;
        for consumer in &mut stand.consumers {
            consumer.host = Some(consumer.start());
        }
        Some(stand)
    }

    /// Starts a provider and a consumer for each place. No processor runs. `None` without Go.
    pub(super) async fn prepared(places: &[&str]) -> Option<Self> {
        let kinds = definitions(GUEST).unwrap();
        let of_home = of_home(&kinds);
        let homes = future::join_all(places.iter().map(|_| Side::open(&of_home)));
        let (provider, homes) = future::join(Side::open(&kinds), homes).await;
        let provider = Arc::new(provider?);
        let exported: Vec<Value> = EXPORTS.iter().map(backend::definition).collect();
        provider.plane.install(&exported).await.unwrap();
        let audit = provider.plane.audit().await.unwrap();
        let backend = backend::serve(Arc::clone(&provider), &EXPORTS);
        let mut consumers = Vec::new();
        for (place, home) in places.iter().zip(homes) {
            let kubeconfig = backend::make_place(&provider, place, &EXPORTS).await;
            consumers.push(Consumer::open(home?, place, kubeconfig).await);
        }
        Some(Self { provider, consumers, audit, backend })
    }

    /// Checks that no consumer's account was refused anything for want of a right.
    pub(super) async fn nothing_was_refused(&self) {
        let events = self.audit.events().await.unwrap();
        for consumer in &self.consumers {
            let there = refusals(&events, &backend::account(&consumer.place));
            assert_eq!(there, Vec::<String>::new(), "at the provider for {}", consumer.place);
            let events = consumer.audit.events().await.unwrap();
            assert_eq!(refusals(&events, &account(NAME)), Vec::<String>::new(), "at home");
        }
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        self.backend.abort();
    }
}

// === impl Consumer ===

impl Consumer {
    /// Makes the processor, and binds all exports.
    async fn open(home: Side, place: &str, kubeconfig: Value) -> Self {
        let server = kubeconfig["clusters"][0]["cluster"]["server"].as_str().unwrap();
        let servers = [server.to_owned()];
        install(&home, NAME, CONFIG, &servers).await;
        home.apply(&named("v1", "Namespace", TEAM)).await;
        let mut secret = within(named("v1", "Secret", "provider"), NAME);
        secret["stringData"] = json!({"kubeconfig": kubeconfig.to_string()});
        home.apply(&secret).await;
        for export in &EXPORTS {
            bind(&home, export).await;
        }
        let [folder, cache] = folders(GUEST, NAME).await;
        let audit = home.plane.audit().await.unwrap();
        let place = place.to_owned();
        Self { home: Arc::new(home), place, kubeconfig, audit, folder, cache, host: None }
    }

    /// Gives the provider another `cluster` in the kubeconfig, at home and at the provider.
    pub(super) async fn reach_provider_by(&mut self, cluster: Value, provider: &Side) {
        let server = cluster["server"].as_str().unwrap().to_owned();
        install(&self.home, NAME, CONFIG, &[server]).await;
        self.kubeconfig["clusters"][0]["cluster"] = cluster;
        for (side, name, namespace) in
            [(&*self.home, "provider", NAME), (provider, "kubeconfig", &self.place)]
        {
            let mut secret = within(named("v1", "Secret", name), namespace);
            secret["stringData"] = json!({"kubeconfig": self.kubeconfig.to_string()});
            side.apply(&secret).await;
        }
    }

    /// Starts `mortise run`.
    pub(super) fn start(&self) -> Program {
        self.start_with(&self.home.plane.kubeconfig())
    }

    /// Starts `mortise run` with a kubeconfig for home.
    pub(super) fn start_with(&self, kubeconfig: &Path) -> Program {
        let server = self.kubeconfig["clusters"][0]["cluster"]["server"].as_str().unwrap();
        let (modules, cache) = (self.folder.path(), self.cache.path());
        Program::start(kubeconfig, modules, cache, ["--clusters", server])
    }

    /// Waits until all exports are bound.
    pub(super) async fn until_bound(&self) {
        for export in &EXPORTS {
            let is_ready = |binding: Option<&Value>| is_true(binding, "Ready");
            self.home.until(&binding(export), "the binding is ready", is_ready).await;
            self.until_defined(export).await;
        }
    }

    /// Waits until the definition of a kind is established.
    pub(super) async fn until_defined(&self, export: &Export) {
        let definition =
            named("apiextensions.k8s.io/v1", "CustomResourceDefinition", &export.title());
        let is_established = |definition: Option<&Value>| is_true(definition, "Established");
        self.home.until(&definition, "the definition is established", is_established).await;
    }

    /// Returns the object at the provider for one of this consumer.
    pub(super) fn there(&self, export: &Export, name: &str) -> Value {
        export.there(&self.place, TEAM, name)
    }
}

/// Binds an export at home.
pub(super) async fn bind(home: &Side, export: &Export) {
    let mut binding = binding(export);
    binding["spec"] = json!({
        "kubeconfigSecretRef": {"namespace": NAME, "name": "provider", "key": "kubeconfig"},
    });
    home.apply(&binding).await;
}

pub(super) fn binding(export: &Export) -> Value {
    kube_bind("APIServiceBinding", export.plural)
}

fn is_true(object: Option<&Value>, condition: &str) -> bool {
    let conditions = object.and_then(|object| object["status"]["conditions"].as_array());
    let is_so = |of: &Value| of["type"] == condition && of["status"] == "True";
    conditions.into_iter().flatten().any(is_so)
}

// === requests ===

impl Side {
    /// Changes fields of an object, or of its `/status`, as a manager of fields.
    pub(super) async fn merge(&self, object: &Value, subresource: &str, change: Value) {
        let path = self.path(object).await;
        let path = format!("{path}{subresource}?fieldManager=somebody");
        let merge = Outgoing::new(Method::MergePatch, path, Some(change));
        self.cluster.send(&merge).await.unwrap_or_else(|refusal| panic!("{refusal}: {object}"));
    }

    /// Waits until a field of an object has a value; null: is not there.
    pub(super) async fn until_is(&self, object: &Value, pointer: &str, wanted: &Value) {
        let is_so = |found: Option<&Value>| {
            found.is_some_and(|of| of.pointer(pointer).unwrap_or(&Value::Null) == wanted)
        };
        let title = format!("{object} has {wanted} at {pointer}");
        self.until(object, &title, is_so).await;
    }

    /// Waits until an object is gone.
    pub(super) async fn until_gone(&self, object: &Value) {
        self.until(object, &format!("{object} is gone"), |of| of.is_none()).await;
    }
}

// === fields ===

/// Returns the fields of each manager, as paths. Parts of one name, such as those of status and of
/// the rest, are one manager.
pub(super) fn fields_by_manager(object: &Value) -> BTreeMap<String, Vec<String>> {
    let mut fields = BTreeMap::<String, Vec<String>>::new();
    for entry in object["metadata"]["managedFields"].as_array().into_iter().flatten() {
        let manager = entry["manager"].as_str().unwrap().to_owned();
        leaves(&entry["fieldsV1"], "", fields.entry(manager).or_default());
    }
    fields
}

fn leaves(value: &Value, path: &str, found: &mut Vec<String>) {
    match value.as_object().filter(|fields| !fields.is_empty()) {
        Some(fields) => {
            let own = fields.iter().filter(|(key, _)| *key != ".");
            own.for_each(|(key, value)| leaves(value, &format!("{path}/{key}"), found));
        }
        None => found.push(path.to_owned()),
    }
}
