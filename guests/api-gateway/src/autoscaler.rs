//! The vertical autoscaler of the former operator.

use api_gateway_module::{MODULE_LABEL, MODULE_NAMESPACE, object};
use mortise_sdk::{Kind, Manifest, ObjectRef, Selection};
use serde_json::{Value, json};

use crate::{
    status::Reason,
    work::{Stop, Work, unreadable},
};

const NAME: &str = "api-gateway-controller-manager-vpa";
const CHECKPOINT: &str = "api-gateway-controller-manager-vpa-manager";
const DEPLOYMENT: &str = "api-gateway-controller-manager";

fn kind(kind: &str) -> Kind {
    Kind::new("autoscaling.k8s.io", "v1", kind)
}

pub(crate) fn reference() -> ObjectRef {
    ObjectRef::new(kind("VerticalPodAutoscaler"), Some(MODULE_NAMESPACE), NAME)
}

fn checkpoint() -> ObjectRef {
    ObjectRef::new(kind("VerticalPodAutoscalerCheckpoint"), Some(MODULE_NAMESPACE), CHECKPOINT)
}

pub(crate) fn selection() -> Selection {
    Selection::new(reference().kind).namespace(MODULE_NAMESPACE).name(NAME)
}

pub(crate) fn checkpoint_selection() -> Selection {
    Selection::new(checkpoint().kind).namespace(MODULE_NAMESPACE).name(CHECKPOINT)
}

/// Applies the autoscaler if the cluster knows the kind, or deletes it with the APIGateway.
pub(crate) fn reconcile(work: &mut Work<'_>) -> Result<(), Stop> {
    const FAILED: &str = "Error during VPA reconciliation";
    let failed = |error| unreadable(Reason::ReconcileFailed, FAILED, work.host)(error);
    let existing = match object::Existing::read(work.host, &reference()) {
        Err(error) if error.is_unknown_kind() => return Ok(()),
        existing => existing.map_err(failed)?,
    };
    if work.is_deleted() {
        return work
            .delete_any(reference())
            .map_err(|error| unreadable(Reason::ReconcileFailed, FAILED, work.host)(error));
    }
    let found = object::Existing::find(work.host, &checkpoint()).map_err(failed)?;
    work.apply(object::replacing(&autoscaler(), existing.as_ref()));
    if found.is_some() {
        let of = checkpoint();
        let labelled = json!({
            "apiVersion": of.kind.api_version(), "kind": of.kind.kind,
            "metadata": {"name": CHECKPOINT, "namespace": MODULE_NAMESPACE, "labels": labels()},
        });
        let outcome = std::mem::take(&mut work.outcome);
        work.outcome = outcome.patch(Manifest::json(&labelled));
    }
    Ok(())
}

fn labels() -> Value {
    let (module, of_module) = MODULE_LABEL;
    json!({
        module: of_module,
        "app.kubernetes.io/managed-by": of_module,
        "app.kubernetes.io/component": of_module,
        "app.kubernetes.io/part-of": of_module,
    })
}

fn autoscaler() -> Value {
    let policy = |container: &str| {
        json!({
            "containerName": container,
            "minAllowed": {"cpu": "10m", "memory": "64Mi"},
            "maxAllowed": {"cpu": "10", "memory": "16Gi"},
            "controlledResources": ["cpu", "memory"],
            "controlledValues": "RequestsAndLimits",
        })
    };
    json!({
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": NAME, "namespace": MODULE_NAMESPACE, "labels": labels()},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": DEPLOYMENT},
            "updatePolicy": {"updateMode": "InPlaceOrRecreate", "minReplicas": 1},
            "resourcePolicy": {"containerPolicies": [policy("manager"), policy("init")]},
        },
    })
}
