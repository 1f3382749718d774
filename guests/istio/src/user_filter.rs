//! Other people's `EnvoyFilter`s for the ingress gateway.

use std::collections::BTreeMap;

use mortise_sdk::{Object, object::Metadata};
use serde::Deserialize;

use crate::{api::ISTIO_NAMESPACE, predicate::MODULE_LABEL};

/// An `EnvoyFilter`, reduced to the workloads that it is for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct EnvoyFilter {
    /// The metadata of the filter.
    pub metadata: Metadata,
    /// The spec of the filter.
    pub spec: EnvoyFilterSpec,
}

/// The spec of an `EnvoyFilter`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EnvoyFilterSpec {
    /// The workloads that the filter is for; all of the mesh if there is no selector.
    pub workload_selector: WorkloadSelector,
}

/// A selector of workloads by their labels.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct WorkloadSelector {
    /// The labels of the workloads.
    pub labels: BTreeMap<String, String>,
}

impl Object for EnvoyFilter {
    const GROUP: &'static str = "networking.istio.io";
    const VERSION: &'static str = "v1alpha3";
    const KIND: &'static str = "EnvoyFilter";
}

/// Returns a warning about the first filter of somebody else for the ingress gateway.
pub fn warning(filters: &[EnvoyFilter]) -> Option<String> {
    let metadata = &filters.iter().find(|filter| filter.is_of_a_user())?.metadata;
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    Some(format!(
        "misconfigured EnvoyFilter can potentially break Istio Ingress Gateway: \
         user-created EnvoyFilter {namespace}/{} targeting Ingress Gateway found",
        metadata.name
    ))
}

impl EnvoyFilter {
    fn is_of_a_user(&self) -> bool {
        let metadata = &self.metadata;
        metadata.namespace.as_deref() == Some(ISTIO_NAMESPACE)
            && self.is_for_the_gateway()
            && !metadata.labels.contains_key(MODULE_LABEL)
            && metadata.owner_references.iter().all(|owner| owner.kind != "RateLimit")
    }

    fn is_for_the_gateway(&self) -> bool {
        let labels = &self.spec.workload_selector.labels;
        let has = |key, value| labels.get(key).is_some_and(|actual| actual == value);
        has("istio", "ingressgateway") || has("app", "istio-ingressgateway")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn filters_of_users_for_the_gateway_are_warned_about() {
        let gateway = json!({"istio": "ingressgateway"});
        let cases = [
            ("by istio", json!({}), gateway.clone(), true),
            ("by app", json!({}), json!({"app": "istio-ingressgateway", "x": "y"}), true),
            ("egress", json!({}), json!({"istio": "egressgateway"}), false),
            ("no selector", json!({}), json!({}), false),
            ("elsewhere", json!({"namespace": "shop"}), gateway.clone(), false),
            ("of a module", json!({"labels": {MODULE_LABEL: ""}}), gateway.clone(), false),
            (
                "of a rate limit",
                json!({"ownerReferences": [{"kind": "Other"}, {"kind": "RateLimit"}]}),
                gateway,
                false,
            ),
        ];
        for (case, change, labels, expected) in cases {
            let mut metadata = json!({"name": "mine", "namespace": ISTIO_NAMESPACE});
            metadata.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            let spec = json!({"workloadSelector": {"labels": labels}});
            let filter: Value = json!({"metadata": metadata, "spec": spec});
            let filter: EnvoyFilter = serde_json::from_value(filter).unwrap();
            assert_eq!(warning(&[filter]).is_some(), expected, "{case}");
        }
    }
}
