//! The input of a case, and the cluster after a plan was carried out.

use std::collections::BTreeMap;

use istio::{
    action::{self, Action},
    api::{ISTIO_NAMESPACE, MODULE_NAMESPACE},
    cluster::{self, Cluster, Flavour, Objects},
    features,
    kubernetes::{Node, Service},
    resource::Plan,
};
use mortise_sdk::kubernetes::ConfigMap;
use mortise_tests::goldens::{group::GroupCase, sorted};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The time of a restart, as the cases were recorded.
pub(super) const NOW: &str = "<RFC3339 now>";

/// The objects around an Istio resource.
pub(super) struct Surroundings {
    pub(super) flavour: Flavour,
    pub(super) nodes: Vec<Node>,
    pub(super) features: Option<ConfigMap>,
    pub(super) mesh: Option<String>,
    provisioning_info: Option<ConfigMap>,
    elb_deprecated: bool,
    gateway: Option<Service>,
}

impl Surroundings {
    pub(super) fn of(case: &GroupCase) -> Self {
        let objects = case.documents("cluster.yaml");
        let mut nodes: Vec<Node> = list(objects, "Node");
        nodes.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
        let config_map = |namespace, name| -> Option<ConfigMap> {
            let found = object(objects, "ConfigMap", namespace, name)?;
            Some(serde_json::from_value(found.clone()).unwrap())
        };
        let flavour = match text(case.document("context.yaml"), "/build") {
            "experimental" => Flavour::Experimental,
            "regular" | "" => Flavour::Regular,
            other => panic!("{other}"),
        };
        let gateway = object(objects, "Service", ISTIO_NAMESPACE, cluster::INGRESS_GATEWAY);
        Self {
            flavour,
            nodes,
            features: config_map(MODULE_NAMESPACE, features::NAME),
            mesh: config_map(ISTIO_NAMESPACE, "istio")
                .and_then(|mesh| mesh.data.get("mesh").cloned()),
            provisioning_info: config_map(MODULE_NAMESPACE, cluster::PROVISIONING_INFO),
            elb_deprecated: config_map(ISTIO_NAMESPACE, cluster::ELB_DEPRECATED).is_some(),
            gateway: gateway.map(|gateway| serde_json::from_value(gateway.clone()).unwrap()),
        }
    }

    pub(super) fn cluster(&self) -> Result<Cluster, String> {
        let objects = Objects {
            nodes: &self.nodes,
            elb_deprecated: self.elb_deprecated,
            gateway: self.gateway.as_ref(),
            provisioning_info: self.provisioning_info.as_ref(),
        };
        Cluster::of(&objects, self.flavour)
    }
}

/// Returns the environment of the original.
pub(super) fn environment(case: &GroupCase) -> BTreeMap<String, String> {
    let environment = case.document("context.yaml").get("env").cloned();
    serde_json::from_value(environment.unwrap_or(json!({}))).unwrap()
}

/// Returns the text at a pointer; "" if there is none.
pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the objects of a kind.
pub(super) fn list<T: DeserializeOwned>(objects: &[Value], kind: &str) -> Vec<T> {
    let of_kind = objects.iter().filter(|object| object["kind"] == kind);
    of_kind.map(|object| serde_json::from_value(object.clone()).unwrap()).collect()
}

/// Returns an object by kind, namespace and name.
pub(super) fn object<'a>(
    objects: &'a [Value],
    kind: &str,
    namespace: &str,
    name: &str,
) -> Option<&'a Value> {
    objects.iter().find(|object| {
        object["kind"] == kind
            && text(object, "/metadata/namespace") == namespace
            && text(object, "/metadata/name") == name
    })
}

/// Removes all descriptions of a schema.
pub(super) fn drop_descriptions(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if map.get("description").is_some_and(Value::is_string) {
                map.remove("description");
            }
            map.values_mut().for_each(drop_descriptions);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_descriptions),
        _ => {}
    }
}

/// Returns the outcome of restarts, in the form in which the original's was recorded.
pub(super) fn carry_out(actions: &[Action], objects: &[Value], fails_on_error: bool) -> Value {
    let (mut warnings, mut removed, mut rolled_out) = (Vec::new(), Vec::new(), Vec::new());
    let (mut templates, mut error) = (json!({}), String::new());
    for action in actions {
        let failure = match action {
            Action::Wait(_) => None,
            Action::Warn(warning) => {
                let pod = &warning.pod;
                warnings.push(json!({
                    "Name": pod.name, "Namespace": pod.namespace, "Kind": pod.kind,
                    "Message": warning.message,
                }));
                None
            }
            Action::Remove(pod) => {
                removed.push(Value::from(format!("{}/{}", pod.namespace, pod.name)));
                None
            }
            Action::Unsupported(workload) => {
                Some(format!("kind {} is not supported for rollout", workload.kind))
            }
            Action::RollOut(workload) => {
                match object(objects, &workload.kind, &workload.namespace, &workload.name) {
                    None => Some(workload.not_found()),
                    Some(found) => {
                        let name =
                            format!("{}/{}/{}", workload.kind, workload.namespace, workload.name);
                        let mut found = found.clone();
                        overlay(&mut found, &action::roll_out_patch(NOW));
                        let annotations = found.pointer("/spec/template/metadata/annotations");
                        templates[&name] = annotations.cloned().unwrap();
                        rolled_out.push(Value::from(name));
                        None
                    }
                }
            }
        };
        if let Some(failure) = failure
            && fails_on_error
        {
            error = format!("running pod restart action failed: {failure}");
            break;
        }
    }
    json!({
        "warnings": warnings,
        "deletedPods": sorted(removed),
        "rolledOut": sorted(rolled_out),
        "templateAnnotations": templates,
        "error": error,
    })
}

/// Returns the module's own objects after a plan, as an API server would leave them.
pub(super) fn after(objects: &[Value], plan: &Plan) -> Value {
    const OWN: [&str; 4] =
        ["PeerAuthentication", "NetworkPolicy", "VerticalPodAutoscaler", "EnvoyFilter"];
    let mut left: BTreeMap<_, Value> = objects
        .iter()
        .filter(|object| OWN.contains(&text(object, "/kind")))
        .map(|object| (key(object), object.clone()))
        .collect();
    for object in &plan.apply {
        let there = left.entry(key(object)).or_insert_with(|| json!({}));
        overlay(there, object);
        there["spec"] = object["spec"].clone();
    }
    for object in &plan.delete {
        left.remove(&key(object));
    }
    left.into_values().collect()
}

/// Returns objects by kind, namespace and name.
pub(super) fn in_order(mut objects: Vec<Value>) -> Value {
    objects.sort_by_key(key);
    objects.into()
}

fn key(object: &Value) -> (String, String, String) {
    let part = |pointer| text(object, pointer).to_owned();
    (part("/kind"), part("/metadata/namespace"), part("/metadata/name"))
}

fn overlay(value: &mut Value, over: &Value) {
    match (value, over) {
        (Value::Object(map), Value::Object(over)) => {
            for (key, over) in over {
                overlay(map.entry(key).or_insert(Value::Null), over);
            }
        }
        (value, over) => {
            if over.is_object() && value.is_null() {
                *value = json!({});
                overlay(value, over);
            } else {
                *value = over.clone();
            }
        }
    }
}
