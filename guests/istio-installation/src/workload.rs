//! The workloads of Istio: whether they run what they should, and whether they are ready.

use std::collections::BTreeMap;

use istio::api::ISTIO_NAMESPACE;
use mortise_sdk::{Error, Host, ObjectRef, object::Metadata};
use serde::Deserialize;
use serde_json::Value;

use crate::render::{kind_of, name_of, namespace_of};

/// The namespaces in which workloads may be: on Google Kubernetes Engine, the CNI plugin is in the
/// second one.
pub(crate) const NAMESPACES: [&str; 2] = [ISTIO_NAMESPACE, "kube-system"];

pub(crate) const FIELDS: [&str; 8] = [
    "metadata.labels",
    "metadata.generation",
    "spec.replicas",
    "spec.template.spec.containers[].name",
    "spec.template.spec.containers[].image",
    "spec.template.spec.initContainers[].name",
    "spec.template.spec.initContainers[].image",
    "status",
];

/// A Deployment or `DaemonSet`, as it should be and as it is.
#[derive(Debug, Clone)]
pub(crate) struct Workload<'a> {
    pub(crate) reference: ObjectRef,
    pub(crate) live: Option<Live>,
    wanted: &'a Value,
}

/// A workload in the cluster.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Live {
    pub(crate) metadata: Metadata,
    spec: Spec,
    pub(crate) status: Status,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Spec {
    replicas: Option<i64>,
    template: Template,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Template {
    spec: TemplateSpec,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TemplateSpec {
    containers: Vec<Container>,
    init_containers: Vec<Container>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Container {
    name: String,
    image: String,
}

/// The status of a Deployment or of a `DaemonSet`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Status {
    observed_generation: i64,
    replicas: i64,
    updated_replicas: i64,
    ready_replicas: i64,
    desired_number_scheduled: i64,
    updated_number_scheduled: i64,
    number_ready: i64,
    pub(crate) conditions: Vec<Condition>,
}

/// A condition of a workload. It need not have all that conditions have elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub(crate) of: String,
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    #[serde(rename = "lastTransitionTime")]
    since: Option<String>,
}

/// The availability of a workload whose roll-out was complete once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Availability {
    /// It does its work, though a roll-out may be under way.
    Full,
    /// Some Pods do its work, fewer than it should have since this time (RFC 3339): an autoscaler
    /// has just asked for more, or some break.
    Reduced { since: String },
    /// No Pod does its work.
    None,
}

/// Returns whether objects of a kind are workloads.
pub(crate) fn is_one(kind: &str) -> bool {
    matches!(kind, "Deployment" | "DaemonSet")
}

// === impl Workload ===

impl<'a> Workload<'a> {
    /// Reads the workloads among objects.
    pub(crate) fn read(
        objects: impl IntoIterator<Item = &'a Value>,
        host: &Host,
    ) -> Result<Vec<Self>, Error> {
        let workloads = objects.into_iter().filter(|object| is_one(&kind_of(object).kind));
        workloads
            .map(|wanted| {
                let reference =
                    ObjectRef::new(kind_of(wanted), namespace_of(wanted), name_of(wanted));
                let live = host.get_ref(&reference, &FIELDS)?;
                Ok(Self { reference, live, wanted })
            })
            .collect()
    }

    /// Returns the name of the workload for messages.
    pub(crate) fn title(&self) -> String {
        let ObjectRef { kind, namespace, name, .. } = &self.reference;
        format!("{} {}/{name}", kind.kind, namespace.as_deref().unwrap_or_default())
    }

    /// Returns the label selector of the workload's Pods.
    pub(crate) fn pods(&self) -> String {
        let labels = self.wanted.pointer("/spec/selector/matchLabels").and_then(Value::as_object);
        let labels: BTreeMap<&str, &str> = labels
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
            .collect();
        let labels: Vec<String> =
            labels.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
        labels.join(",")
    }

    /// Returns whether the workload has the images that it should have, so that its template is the
    /// one of the wanted version.
    pub(crate) fn is_current(&self) -> bool {
        let Some(live) = &self.live else { return false };
        let template = &live.spec.template.spec;
        let images = |containers: &[Container]| -> BTreeMap<String, String> {
            containers.iter().map(|one| (one.name.clone(), one.image.clone())).collect()
        };
        let wanted: Template = self
            .wanted
            .pointer("/spec/template")
            .and_then(|template| Template::deserialize(template).ok())
            .unwrap_or_default();
        images(&wanted.spec.containers) == images(&template.containers)
            && images(&wanted.spec.init_containers) == images(&template.init_containers)
    }

    /// Returns whether the roll-out of the workload is complete.
    pub(crate) fn is_rolled_out(&self) -> bool {
        let Some(Live { metadata, spec, status }) = &self.live else { return false };
        let is_observed = status.observed_generation >= metadata.generation.unwrap_or_default();
        let is_complete = if self.is_daemon_set() {
            let wanted = status.desired_number_scheduled;
            wanted > 0 && status.updated_number_scheduled >= wanted && status.number_ready >= wanted
        } else {
            let wanted = spec.replicas.unwrap_or(1);
            status.updated_replicas >= wanted
                && status.ready_replicas >= wanted
                && status.replicas <= status.updated_replicas
        };
        is_observed && is_complete
    }

    pub(crate) fn availability(&self) -> Availability {
        let Some(live) = &self.live else { return Availability::None };
        let condition = live.condition("Available").filter(|one| one.status == "False");
        let Some(condition) = condition else { return Availability::Full };
        match &condition.since {
            Some(since) if live.status.ready_replicas > 0 => {
                Availability::Reduced { since: since.clone() }
            }
            _ => Availability::None,
        }
    }

    fn is_daemon_set(&self) -> bool {
        self.reference.kind.kind == "DaemonSet"
    }

    /// Returns how much of the workload is ready, in words.
    pub(crate) fn progress(&self) -> String {
        let Some(Live { spec, status, .. }) = &self.live else { return "it does not exist".into() };
        let (ready, wanted) = if self.is_daemon_set() {
            (status.number_ready, status.desired_number_scheduled)
        } else {
            (status.ready_replicas, spec.replicas.unwrap_or(1))
        };
        format!("{ready} of {wanted} Pods are ready")
    }
}

impl Live {
    pub(crate) fn condition(&self, condition_type: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|one| one.of == condition_type)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn workload(wanted: &Value, live: Value) -> Workload<'_> {
        let reference = ObjectRef::new(kind_of(wanted), namespace_of(wanted), name_of(wanted));
        let live = (!live.is_null()).then(|| serde_json::from_value(live).unwrap());
        Workload { reference, live, wanted }
    }

    fn wanted(kind: &str) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": kind,
            "metadata": {"name": "a", "namespace": ISTIO_NAMESPACE},
            "spec": {
                "selector": {"matchLabels": {"istio": "pilot", "app": "istiod"}},
                "template": {"spec": {"containers": [{"name": "a", "image": "r/a:1"}]}},
            },
        })
    }

    #[test]
    fn a_deployment_is_rolled_out_when_no_old_pod_is_left() {
        let wanted = wanted("Deployment");
        let cases = [
            (json!(null), false),
            (json!({}), false),
            (json!({"status": {"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1}}), true),
            (json!({"status": {"replicas": 1, "updatedReplicas": 1, "readyReplicas": 0}}), false),
            (json!({"status": {"replicas": 2, "updatedReplicas": 1, "readyReplicas": 2}}), false),
            (
                json!({
                    "metadata": {"generation": 2},
                    "status": {
                        "observedGeneration": 1,
                        "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1,
                    },
                }),
                false,
            ),
            (json!({"spec": {"replicas": 0}}), true),
        ];
        for (live, expected) in cases {
            assert_eq!(workload(&wanted, live.clone()).is_rolled_out(), expected, "{live}");
        }
    }

    #[test]
    fn a_workload_with_some_pods_is_available_in_part() {
        let wanted = wanted("Deployment");
        let live = |status: &str, ready: i64| {
            let condition = json!({
                "type": "Available", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            json!({"status": {"readyReplicas": ready, "conditions": [condition]}})
        };
        let since = "2026-01-01T00:00:00Z".to_owned();
        let cases = [
            (json!(null), Availability::None),
            (json!({}), Availability::Full),
            (live("True", 3), Availability::Full),
            (live("False", 1), Availability::Reduced { since }),
            (live("False", 0), Availability::None),
        ];
        for (live, expected) in cases {
            assert_eq!(workload(&wanted, live.clone()).availability(), expected, "{live}");
        }
    }

    #[test]
    fn a_daemon_set_without_nodes_is_not_ready() {
        let wanted = wanted("DaemonSet");
        let status = |desired, updated, ready| {
            json!({"status": {
                "desiredNumberScheduled": desired, "updatedNumberScheduled": updated,
                "numberReady": ready,
            }})
        };
        let cases = [
            (status(0, 0, 0), false),
            (status(2, 2, 1), false),
            (status(2, 1, 2), false),
            (status(2, 2, 2), true),
        ];
        for (live, expected) in cases {
            assert_eq!(workload(&wanted, live.clone()).is_rolled_out(), expected, "{live}");
        }
    }

    #[test]
    fn images_tell_the_version_of_a_template() {
        let wanted = wanted("Deployment");
        let live = |image: &str| json!({"spec": {"template": {"spec": {"containers": [{"name": "a", "image": image}]}}}});
        assert!(workload(&wanted, live("r/a:1")).is_current());
        assert!(!workload(&wanted, live("r/a:2")).is_current());
        assert!(!workload(&wanted, json!({})).is_current());
        assert_eq!(workload(&wanted, json!({})).pods(), "app=istiod,istio=pilot");
    }
}
