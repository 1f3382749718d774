//! The condition that the processor writes, its texts, and the state that follows from it.

use istio::{
    api::State,
    condition::{RESOURCES_FAILED, RESOURCES_SUCCEEDED},
};
use mortise_sdk::object::Condition;

/// The type of the condition.
pub const TYPE: &str = "CustomResourcesReconciled";

/// Returns the condition of a resource whose objects are as they should be.
pub fn succeeded() -> Condition {
    Condition::new(TYPE, true.into(), RESOURCES_SUCCEEDED.name, RESOURCES_SUCCEEDED.message)
}

/// Returns the condition of a resource whose objects could not be reconciled, for this reason.
pub fn failed(description: impl Into<String>) -> Condition {
    Condition::new(TYPE, false.into(), RESOURCES_FAILED.name, description)
}

/// Returns the state and the description of the Istio resource that follow from the condition;
/// `None` if it is not a condition of this processor.
pub fn state(condition: &Condition) -> Option<(State, String)> {
    match condition.reason.as_str() {
        _ if condition.condition_type != TYPE => None,
        reason if reason == RESOURCES_SUCCEEDED.name => Some((State::Ready, String::new())),
        reason if reason == RESOURCES_FAILED.name => {
            Some((State::Error, condition.message.clone()))
        }
        _ => None,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_follows_from_the_reason() {
        let message = could_not_reconcile("PeerAuthentication/default", "no");
        let expected =
            "Could not reconcile Istio resource PeerAuthentication/default: no".to_owned();
        assert_eq!(state(&succeeded()), Some((State::Ready, String::new())));
        assert_eq!(state(&failed(message)), Some((State::Error, expected)));
        let other = Condition { condition_type: "Ready".to_owned(), ..succeeded() };
        assert_eq!(state(&other), None);
    }
}
