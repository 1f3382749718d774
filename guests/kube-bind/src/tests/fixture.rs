//! A consumer and a provider in memory.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use mortise_sdk::{
    ObjectRef,
    testing::{Stub, request_for},
};
use serde_json::{Value, json};

use crate::KubeBind;

pub(super) const PROVIDER: &str = "kube-bind/kubeconfig-a/kubeconfig";
const CONFIG: &str =
    r#"{"groups": ["golden.example.dev"], "claims": [{"resources": ["configmaps", "secrets"]}]}"#;

/// Two clusters.
pub(super) struct World(Stub);

pub(super) fn object(api_version: &str, kind: &str, namespace: &str, name: &str) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = namespace.into();
    }
    object
}

/// An object with further fields.
pub(super) fn with(mut object: Value, fields: Value) -> Value {
    merge(&mut object, fields);
    object
}

fn merge(object: &mut Value, fields: Value) {
    match (object, fields) {
        (Value::Object(object), Value::Object(fields)) => {
            for (key, value) in fields {
                merge(object.entry(key).or_insert(Value::Null), value);
            }
        }
        (object, fields) => *object = fields,
    }
}

pub(super) fn bind(kind: &str, namespace: &str, name: &str) -> Value {
    object("kube-bind.io/v1alpha2", kind, namespace, name)
}

pub(super) fn core(kind: &str, namespace: &str, name: &str) -> Value {
    object("v1", kind, namespace, name)
}

pub(super) fn rocket(namespace: &str) -> Value {
    with(
        object("golden.example.dev/v1", "Rocket", namespace, "saturn"),
        json!({"spec": {"intent": "fly", "stages": 3}}),
    )
}

pub(super) fn kubeconfig(namespace: &str) -> Value {
    let text = json!({
        "current-context": "default",
        "contexts": [{"name": "default", "context": {"cluster": "p", "user": "u", "namespace": namespace}}],
        "clusters": [{"name": "p", "cluster": {"server": "https://p.example:6443"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    });
    let secret = core("Secret", "kube-bind", "kubeconfig-a");
    with(
        secret,
        json!({"type": "Opaque", "data": {"kubeconfig": BASE64_STANDARD.encode(text.to_string())}}),
    )
}

pub(super) fn binding() -> Value {
    let secret = json!({"namespace": "kube-bind", "name": "kubeconfig-a", "key": "kubeconfig"});
    with(bind("APIServiceBinding", "", "rockets"), json!({"spec": {"kubeconfigSecretRef": secret}}))
}

pub(super) fn export() -> Value {
    let spec = json!({
        "informerScope": "Namespaced", "isolation": "Prefixed",
        "resources": [{"group": "golden.example.dev", "resource": "rockets", "versions": ["v1"]}],
    });
    with(bind("APIServiceExport", "cn", "rockets"), json!({"spec": spec}))
}

fn names() -> Value {
    json!({"kind": "Rocket", "listKind": "RocketList", "plural": "rockets", "singular": "rocket"})
}

fn versions(schema: &Value) -> Value {
    json!([{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": schema}])
}

fn open_api() -> Value {
    let text = json!({"type": "string"});
    json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"intent": text, "stages": {"type": "integer"}, "secretName": text}},
        "status": {"type": "object", "properties": {"result": text}},
    }})
}

pub(super) fn schema() -> Value {
    let spec = json!({
        "informerScope": "Namespaced", "group": "golden.example.dev", "scope": "Namespaced",
        "names": names(), "versions": versions(&open_api()),
    });
    with(bind("BoundSchema", "cn", "rockets.golden.example.dev"), json!({"spec": spec}))
}

pub(super) fn definition() -> Value {
    let spec = json!({
        "group": "golden.example.dev", "scope": "Namespaced", "names": names(),
        "versions": versions(&json!({"openAPIV3Schema": open_api()})),
    });
    let definition = object(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        "",
        "rockets.golden.example.dev",
    );
    with(definition, json!({"spec": spec}))
}

pub(super) fn service_namespace() -> Value {
    let namespace = bind("APIServiceNamespace", "cn", "team");
    with(namespace, json!({"spec": {}, "status": {"namespace": "cn-team"}}))
}

/// The objects that every provider has.
fn provider(definition: Value) -> Vec<Value> {
    let spec = json!({"kubeconfigSecretRef": {"name": "kubeconfig", "key": "kubeconfig"}, "providerPrettyName": "Golden"});
    vec![
        core("Namespace", "", "cn"),
        core("Namespace", "", "cn-team"),
        with(bind("ClusterBinding", "cn", "cluster"), json!({"spec": spec})),
        service_namespace(),
        definition,
    ]
}

impl World {
    /// Creates a consumer and a provider with these objects, and those that each has.
    pub(super) fn new(
        home: impl IntoIterator<Item = Value>,
        there: impl IntoIterator<Item = Value>,
    ) -> Self {
        Self::with_definition(home, there, definition()).settled()
    }

    /// Creates the same before anything has run.
    pub(super) fn unsettled(
        home: impl IntoIterator<Item = Value>,
        there: impl IntoIterator<Item = Value>,
    ) -> Self {
        Self::with_definition(home, there, definition())
    }

    /// Creates a consumer and a provider with another definition.
    pub(super) fn new_with_definition(
        home: impl IntoIterator<Item = Value>,
        there: impl IntoIterator<Item = Value>,
        definition: Value,
    ) -> Self {
        Self::with_definition(home, there, definition).settled()
    }

    /// Creates the same before anything has run.
    pub(super) fn with_definition(
        home: impl IntoIterator<Item = Value>,
        there: impl IntoIterator<Item = Value>,
        definition: Value,
    ) -> Self {
        let secret = kubeconfig("cn");
        let mut handed_out = secret.clone();
        handed_out["metadata"] = json!({"name": "kubeconfig", "namespace": "cn"});
        let common = [core("Namespace", "", "kube-bind"), core("Namespace", "", "team"), secret];
        let stub = Stub::new()
            .crds(concat!(env!("CARGO_MANIFEST_DIR"), "/../../crds/kube-bind.io"))
            .objects(common.into_iter().chain(home))
            .cluster(PROVIDER, provider(definition).into_iter().chain([handed_out]).chain(there));
        Self(stub)
    }

    /// Accepts objects that no API server would accept, before anything has run.
    pub(super) fn unchecked(self) -> Self {
        Self(self.0.unchecked())
    }

    /// Adds another provider before anything has run.
    pub(super) fn beside(self, cluster: &str, objects: impl IntoIterator<Item = Value>) -> Self {
        Self(self.0.cluster(cluster, objects))
    }

    /// Creates two clusters in which the export `rockets` is bound.
    pub(super) fn bound() -> Self {
        Self::new([binding()], [export(), schema()])
    }

    /// Creates two clusters in which an object is synchronised.
    pub(super) fn synchronised() -> Self {
        let world = Self::bound();
        world.home().apply(&rocket("team"));
        world.settled()
    }

    pub(super) fn settled(self) -> Self {
        self.settle();
        self
    }

    pub(super) fn settle(&self) {
        let settled = self.0.settle::<KubeBind>(CONFIG);
        assert_eq!(settled.failures, std::collections::BTreeMap::new());
    }

    /// Settles, and returns the reasons of the failures.
    pub(super) fn failures(&self) -> Vec<String> {
        self.failures_under(CONFIG)
    }

    /// Settles under another configuration, and returns the reasons of the failures.
    pub(super) fn failures_under(&self, config: &str) -> Vec<String> {
        self.0.settle::<KubeBind>(config).failures.into_values().collect()
    }

    pub(super) fn home(&self) -> &Stub {
        &self.0
    }

    pub(super) fn there(&self) -> Stub {
        self.0.in_cluster(PROVIDER)
    }

    pub(super) fn at_home(&self, of: &Value) -> Option<Value> {
        self.0.object(&request_for(of).ref_)
    }

    pub(super) fn at_provider(&self, of: &Value) -> Option<Value> {
        let of: ObjectRef = request_for(of).ref_.in_cluster(PROVIDER);
        self.0.object(&of)
    }

    /// Returns the conditions of an object, as `Type=Status/Reason`.
    pub(super) fn conditions(found: Option<Value>) -> Vec<String> {
        let found = found.unwrap_or_default();
        let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let text = |condition: &Value, field: &str| {
            condition[field].as_str().unwrap_or_default().to_owned()
        };
        let shown = conditions.iter().map(|condition| {
            let reason = text(condition, "reason");
            let shown = format!("{}={}", text(condition, "type"), text(condition, "status"));
            if text(condition, "status") == "True" || reason.is_empty() {
                shown
            } else {
                format!("{shown}/{reason}")
            }
        });
        shown.collect()
    }

    /// Returns the reasons of the events at one of the clusters.
    pub(super) fn events(of: &Stub) -> Vec<String> {
        let events = of.all().into_iter().filter(|object| object["kind"] == "Event");
        events.map(|event| event["reason"].as_str().unwrap_or_default().to_owned()).collect()
    }
}
