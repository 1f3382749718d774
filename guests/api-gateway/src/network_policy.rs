//! The network policy for the Pods of the former operator.

use api_gateway_module::{MODULE_LABEL, MODULE_NAMESPACE, object};
use mortise_sdk::{Kind, ObjectRef, Selection};
use serde_json::{Value, json};

use crate::{
    status::{Reason, Report},
    work::{Stop, Work},
};

const NAME: &str = "kyma-project.io--api-gateway-allow";
/// The label with the name of the APIGateway.
pub(crate) const OWNER: &str = "api-gateway.kyma-project.io/managed-by";

pub(crate) fn reference() -> ObjectRef {
    let kind = Kind::new("networking.k8s.io", "v1", "NetworkPolicy");
    ObjectRef::new(kind, Some(MODULE_NAMESPACE), NAME)
}

pub(crate) fn selection() -> Selection {
    Selection::new(reference().kind).namespace(MODULE_NAMESPACE).name(NAME)
}

/// Applies the policy, or deletes it where none is wanted.
pub(crate) fn reconcile(work: &mut Work<'_>) -> Result<(), Stop> {
    let failed = |error: mortise_sdk::Error| match error {
        mortise_sdk::Error::Unavailable { .. } => Stop::Unavailable(error),
        error => Stop::Report(Report::error(Reason::ReconcileFailed, error.to_string())),
    };
    if work.is_deleted() || work.gateway.spec.network_policies_enabled != Some(true) {
        return work.delete_any(reference()).map_err(failed);
    }
    let existing = object::Existing::read(work.host, &reference()).map_err(failed)?;
    let policy = policy(&work.gateway.metadata.name);
    work.apply(object::replacing(&policy, existing.as_ref()));
    Ok(())
}

fn policy(owner: &str) -> Value {
    let (module, of_module) = MODULE_LABEL;
    let dns =
        |port: u16| json!([{"port": port, "protocol": "UDP"}, {"port": port, "protocol": "TCP"}]);
    let tcp = |port: u16| json!([{"port": port, "protocol": "TCP"}]);
    let system = |app: &str| {
        json!([{
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
            "podSelector": {"matchLabels": {"k8s-app": app}},
        }])
    };
    let scraper =
        json!({"matchLabels": {"networking.kyma-project.io/metrics-scraping": "allowed"}});
    let of_a_module = json!({"matchExpressions": [{"key": module, "operator": "Exists"}]});
    let from = |pods: Value| json!({"namespaceSelector": {}, "podSelector": pods});
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": NAME, "namespace": MODULE_NAMESPACE, "labels": {OWNER: owner}},
        "spec": {
            "podSelector": {"matchLabels": {module: of_module}},
            "policyTypes": ["Egress", "Ingress"],
            "egress": [
                {"ports": tcp(443)},
                {"ports": dns(53), "to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]},
                {"ports": dns(8053), "to": system("kube-dns")},
                {"ports": dns(53), "to": system("node-local-dns")},
            ],
            "ingress": [
                {"ports": tcp(9443), "from": [{"namespaceSelector": {}}]},
                {"ports": tcp(8080), "from": [from(scraper), from(of_a_module)]},
            ],
        },
    })
}
