//! The condition that the processor writes, and its texts.

use istio::condition::{RESOURCES, RESOURCES_FAILED, RESOURCES_SUCCEEDED};
use mortise_sdk::object::Condition;

/// Returns the condition of a resource whose objects are as they should be.
pub fn succeeded() -> Condition {
    Condition::new(RESOURCES, true.into(), RESOURCES_SUCCEEDED.name, RESOURCES_SUCCEEDED.message)
}

/// Returns the condition of a resource whose objects could not be reconciled, for this reason.
pub fn failed(description: impl Into<String>) -> Condition {
    Condition::new(RESOURCES, false.into(), RESOURCES_FAILED.name, description)
}

/// Returns the description of a failure that concerns objects, in the original's words. `objects`
/// is the original's name for them, such as `NetworkPolicies`.
pub(crate) fn could_not_reconcile(objects: &str, cause: &str) -> String {
    format!("Could not reconcile Istio resource {objects}: {cause}")
}

/// Returns the description of a failure before any object is looked at.
pub(crate) fn could_not_begin(cause: &str) -> String {
    format!("Could not reconcile Istio resources: {cause}")
}

/// Returns the description of a cluster that cannot be told, in the original's words.
pub(crate) fn unclear_cluster(cause: &str) -> String {
    format!("Could not build cluster strategy: {cause}")
}
