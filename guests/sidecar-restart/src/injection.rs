//! The Pods that the injector gives a sidecar, by the selectors of its webhooks.

use std::collections::BTreeMap;

use istio::{kubernetes::Pod, predicate::SIDECAR};
use mortise_sdk::{Error, Host, Kind, Object, Selection, kubernetes::Namespace, object::Metadata};
use serde::Deserialize;

/// The selector of the injector's webhooks.
pub(crate) const WEBHOOKS: &str = "app=sidecar-injector";
pub(crate) const WEBHOOK_FIELDS: [&str; 2] =
    ["webhooks[].namespaceSelector", "webhooks[].objectSelector"];
/// The labels of Pods that are read. A selector that asks for another one takes no Pod here.
pub(crate) const POD_LABELS: [&str; 3] = ["sidecar.istio.io/inject", "istio.io/rev", "istio"];
/// The annotation of Pods that want no sidecar.
pub(crate) const INJECT: &str = "sidecar.istio.io/inject";
pub(crate) const STATUS: &str = "sidecar.istio.io/status";

/// The namespaces in which the injector makes no sidecars, whatever its selectors take.
const IGNORED: [&str; 4] = ["kube-system", "kube-public", "kube-node-lease", "local-path-storage"];

/// The selectors of the injector's webhooks.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Injector {
    webhooks: Vec<Webhook>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Configuration {
    metadata: Metadata,
    webhooks: Vec<Webhook>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Webhook {
    namespace_selector: Selector,
    object_selector: Selector,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Selector {
    match_labels: BTreeMap<String, String>,
    match_expressions: Vec<Expression>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Expression {
    key: String,
    operator: String,
    values: Vec<String>,
}

/// Returns the kind of the injector's webhooks.
pub(crate) fn webhook_kind() -> Kind {
    Kind::new("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration")
}

impl Object for Configuration {
    const GROUP: &'static str = "admissionregistration.k8s.io";
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "MutatingWebhookConfiguration";
}

// === impl Injector ===

impl Injector {
    pub(crate) fn read(host: &Host) -> Result<Self, Error> {
        let of = Selection::new(webhook_kind()).labels(WEBHOOKS).fields(WEBHOOK_FIELDS);
        let configurations: Vec<Configuration> = host.list(&of)?;
        let of_live = configurations.into_iter().filter(|one| !one.metadata.is_deleted());
        Ok(Self { webhooks: of_live.flat_map(|one| one.webhooks).collect() })
    }

    /// Returns whether the injector is gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.webhooks.is_empty()
    }

    /// Returns whether a Pod has no sidecar although its labels and those of its namespace ask for
    /// one.
    pub(crate) fn misses(&self, pod: &Pod, namespace: &Namespace) -> bool {
        let annotation = pod.annotation(INJECT);
        let labels = &pod.metadata.labels;
        let refuses =
            !labels.contains_key(INJECT) && !annotation.is_empty() && !is_true(annotation);
        let has_one = pod.metadata.annotations.contains_key(STATUS)
            || pod.all_containers().any(|container| container.name == SIDECAR);
        let is_ignored = IGNORED.contains(&pod.namespace());
        let takes = |webhook: &Webhook| {
            webhook.namespace_selector.takes(&namespace.metadata.labels)
                && webhook.object_selector.knows(&POD_LABELS)
                && webhook.object_selector.takes(labels)
        };
        !has_one && !refuses && !is_ignored && self.webhooks.iter().any(takes)
    }
}

/// Returns whether an annotation says yes, as the injector reads it.
fn is_true(text: &str) -> bool {
    matches!(text.to_lowercase().as_str(), "y" | "yes" | "true" | "on" | "1")
}

// === impl Selector ===

impl Selector {
    fn takes(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|expression| expression.holds(labels))
    }

    fn knows(&self, keys: &[&str]) -> bool {
        let mut used =
            self.match_labels.keys().chain(self.match_expressions.iter().map(|one| &one.key));
        used.all(|key| keys.contains(&key.as_str()))
    }
}

impl Expression {
    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        match self.operator.as_str() {
            "In" => value.is_some_and(|value| self.values.contains(value)),
            "NotIn" => value.is_none_or(|value| !self.values.contains(value)),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Returns the injector with the webhooks of Istio's default installation.
    fn injector() -> Injector {
        let rev = |operator: &str| json!({"key": "istio.io/rev", "operator": operator});
        let of = |key: &str, operator: &str, values: &[&str]| json!({"key": key, "operator": operator, "values": values});
        let webhooks = json!([
            {
                "namespaceSelector": {"matchExpressions": [of("istio-injection", "In", &["enabled"])]},
                "objectSelector": {"matchExpressions": [of(INJECT, "NotIn", &["false"])]},
            },
            {
                "namespaceSelector": {"matchExpressions": [
                    {"key": "istio-injection", "operator": "DoesNotExist"}, rev("DoesNotExist"),
                ]},
                "objectSelector": {"matchExpressions": [
                    of(INJECT, "In", &["true"]), rev("DoesNotExist"),
                ]},
            },
            {"objectSelector": {"matchLabels": {"example.com/unknown": "yes"}}},
        ]);
        Injector { webhooks: serde_json::from_value(webhooks).unwrap() }
    }

    fn misses(namespace: &str, labels: &Value, change: &Value) -> bool {
        let mut pod = json!({"metadata": {"name": "a", "namespace": namespace, "labels": labels}});
        json_merge(&mut pod, change);
        let labels = match namespace {
            "shop" | "kube-system" => json!({"istio-injection": "enabled"}),
            "off" => json!({"istio-injection": "disabled"}),
            _ => json!({}),
        };
        let namespace = json!({"metadata": {"name": namespace, "labels": labels}});
        let pod = serde_json::from_value(pod).unwrap();
        injector().misses(&pod, &serde_json::from_value(namespace).unwrap())
    }

    fn json_merge(value: &mut Value, change: &Value) {
        let Some(change) = change.as_object() else {
            *value = change.clone();
            return;
        };
        for (key, change) in change {
            json_merge(&mut value[key], change);
        }
    }

    #[test]
    fn selectors_and_the_pods_own_wish_decide() {
        let none = json!({});
        let annotated = |key: &str, value: &str| json!({"metadata": {"annotations": {key: value}}});
        let native = json!({"spec": {"initContainers": [{"name": SIDECAR}]}});
        let cases = [
            ("the namespace", "shop", none.clone(), none.clone(), true),
            ("the Pod refuses", "shop", json!({INJECT: "false"}), none.clone(), false),
            (
                "the Pod refuses in the old way",
                "shop",
                none.clone(),
                annotated(INJECT, "no"),
                false,
            ),
            ("it agrees in the old way", "shop", none.clone(), annotated(INJECT, "True"), true),
            ("the Pod asks", "other", json!({INJECT: "true"}), none.clone(), true),
            ("nobody asks", "other", none.clone(), none.clone(), false),
            ("switched off", "off", json!({INJECT: "true"}), none.clone(), false),
            ("it has one", "shop", none.clone(), annotated(STATUS, ""), false),
            ("it has a native one", "shop", none.clone(), native, false),
            ("ignored", "kube-system", none.clone(), none.clone(), false),
            (
                "a label that is not read",
                "other",
                json!({"example.com/unknown": "yes"}),
                none,
                false,
            ),
        ];
        for (case, namespace, labels, change, expected) in cases {
            assert_eq!(misses(namespace, &labels, &change), expected, "{case}");
        }
    }
}
