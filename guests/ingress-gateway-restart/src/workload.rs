//! The workloads that are restarted.

use istio::{action::RESTARTED_AT, api::ISTIO_NAMESPACE, cluster::INGRESS_GATEWAY};
use mortise_sdk::{Error, Host, Kind, Manifest, ObjectRef, Selection, object::Metadata};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The fields that are read of a workload.
pub(crate) const FIELDS: [&str; 2] = [
    "metadata.creationTimestamp",
    "spec.template.metadata.annotations[\"istio-operator.kyma-project.io/restartedAt\"]",
];
/// The path that is written in a workload.
pub(crate) const WRITTEN: [&str; 1] =
    ["spec.template.metadata.annotations[\"istio-operator.kyma-project.io/restartedAt\"]"];

/// A workload that is restarted, in the order of the original.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Workload {
    /// The ingress gateway.
    #[serde(rename = "istio-ingressgateway")]
    IngressGateway,
    /// The control plane.
    #[serde(rename = "istiod")]
    Istiod,
    /// The CNI plugin.
    #[serde(rename = "istio-cni-node")]
    Cni,
}

/// A workload as it is.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Existing {
    metadata: Metadata,
    spec: Value,
}

impl Workload {
    pub(crate) const ALL: [Self; 3] = [Self::IngressGateway, Self::Istiod, Self::Cni];

    /// Returns the name of the workload.
    pub fn name(self) -> &'static str {
        match self {
            Self::IngressGateway => INGRESS_GATEWAY,
            Self::Istiod => "istiod",
            Self::Cni => "istio-cni-node",
        }
    }

    fn kind(self) -> Kind {
        let kind = if self == Self::Cni { "DaemonSet" } else { "Deployment" };
        Kind::new("apps", "v1", kind)
    }

    pub(crate) fn selection(self) -> Selection {
        Selection::new(self.kind()).namespace(ISTIO_NAMESPACE).name(self.name())
    }

    fn reference(self) -> ObjectRef {
        ObjectRef::new(self.kind(), Some(ISTIO_NAMESPACE), self.name())
    }

    /// Returns the workload that a write was for.
    pub(crate) fn of(reference: &ObjectRef) -> Option<Self> {
        Self::ALL.into_iter().find(|workload| workload.reference() == *reference)
    }

    /// Returns whether the workload has to be restarted for a change of this time: it exists, was
    /// made before, and was not restarted for it yet.
    pub(crate) fn awaits(self, at: &str, host: &Host) -> Result<bool, Error> {
        let Some(existing) = host.get_ref::<Existing>(&self.reference(), &FIELDS)? else {
            return Ok(false);
        };
        // Both times are in UTC and whole seconds, in a form whose order is that of the text.
        let created = existing.metadata.creation_timestamp.unwrap_or_default();
        let annotations = existing.spec.pointer("/template/metadata/annotations");
        let restarted_at = annotations.and_then(|annotations| annotations.get(RESTARTED_AT));
        Ok(created.as_str() < at && restarted_at.and_then(Value::as_str) != Some(at))
    }

    /// Returns the change that restarts the workload.
    pub(crate) fn restart(self, at: &str) -> Manifest {
        let kind = self.kind();
        let patch = istio::action::roll_out_patch(at);
        let object = json!({
            "apiVersion": kind.api_version(),
            "kind": kind.kind,
            "metadata": {"name": self.name(), "namespace": ISTIO_NAMESPACE},
            "spec": patch.get("spec"),
        });
        Manifest::json(&object)
    }
}
