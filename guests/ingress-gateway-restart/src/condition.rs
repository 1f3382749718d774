//! The conditions that the processor writes, and their texts.

use istio::condition::{
    GATEWAY, INGRESS_FAILED, INGRESS_SUCCEEDED, USER_RESOURCE_FOUND, USER_RESOURCE_NOT_FOUND,
    USER_RESOURCE_UNKNOWN,
};
use mortise_sdk::object::Condition;

use crate::workload::Workload;

/// Returns the condition of a resource for whose settings nothing has to be restarted any more.
pub fn restarted() -> Condition {
    Condition::new(GATEWAY, true.into(), INGRESS_SUCCEEDED.name, INGRESS_SUCCEEDED.message)
}

/// Returns the condition of a resource for which a restart failed.
pub fn not_restarted(description: impl Into<String>) -> Condition {
    Condition::new(GATEWAY, false.into(), INGRESS_FAILED.name, description)
}

/// Returns the condition for `EnvoyFilter`s of users, with the warning about the first one.
pub fn user_resource(warning: Option<&str>) -> Condition {
    match warning {
        Some(warning) => USER_RESOURCE_FOUND.condition(warning),
        None => USER_RESOURCE_NOT_FOUND.condition(""),
    }
}

/// Returns the condition for `EnvoyFilter`s that cannot be read.
pub fn unknown_user_resource(cause: &str) -> Condition {
    let message = format!("{}: {cause}", USER_RESOURCE_UNKNOWN.message);
    USER_RESOURCE_UNKNOWN.condition(&message)
}

/// Returns the description of an annotation that cannot be read, in the original's words.
pub(crate) fn unreadable(annotation: &str, cause: &str) -> String {
    format!("Could not create Ingress Gateway restart evaluator: annotation {annotation}: {cause}")
}

/// Returns the description of a restart that failed, in the original's words. Without a workload,
/// the restart could not begin.
pub(crate) fn could_not_restart(workload: Option<Workload>, cause: &str) -> String {
    let name = match workload {
        None | Some(Workload::IngressGateway) => "Ingress Gateway",
        Some(Workload::Istiod) => "Istiod",
        Some(Workload::Cni) => "CNI",
    };
    format!("Failed to restart {name}: {cause}")
}
