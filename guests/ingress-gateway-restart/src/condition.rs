//! The conditions that the processor writes, their texts, and the states that follow from them.

use istio::{
    api::State,
    condition::{
        INGRESS_FAILED, INGRESS_SUCCEEDED, Reason, USER_RESOURCE, USER_RESOURCE_FOUND,
        USER_RESOURCE_NOT_FOUND, USER_RESOURCE_UNKNOWN,
    },
};
use mortise_sdk::object::Condition;

use crate::workload::Workload;

/// The type of the condition for restarts.
pub const RESTARTED: &str = "IngressGatewayRestarted";

/// Returns the condition of a resource for whose settings nothing has to be restarted any more.
pub fn restarted() -> Condition {
    Condition::new(RESTARTED, true.into(), INGRESS_SUCCEEDED.name, INGRESS_SUCCEEDED.message)
}

/// Returns the condition of a resource for which a restart failed.
pub fn not_restarted(description: impl Into<String>) -> Condition {
    Condition::new(RESTARTED, false.into(), INGRESS_FAILED.name, description)
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

/// Returns the state and the description of the Istio resource that follow from a condition; `None`
/// if it is not a condition of this processor.
pub fn state(condition: &Condition) -> Option<(State, String)> {
    let is = |condition_type: &str, reason: Reason| {
        condition.condition_type == condition_type && condition.reason == reason.name
    };
    let message = || condition.message.clone();
    if is(RESTARTED, INGRESS_SUCCEEDED) || is(USER_RESOURCE, USER_RESOURCE_NOT_FOUND) {
        Some((State::Ready, String::new()))
    } else if is(USER_RESOURCE, USER_RESOURCE_FOUND) {
        Some((State::Warning, message()))
    } else if is(RESTARTED, INGRESS_FAILED) || is(USER_RESOURCE, USER_RESOURCE_UNKNOWN) {
        Some((State::Error, message()))
    } else {
        None
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_follows_from_type_and_reason() {
        let found = user_resource(Some("there is one"));
        let cases = [
            (restarted(), Some(State::Ready)),
            (not_restarted("no"), Some(State::Error)),
            (user_resource(None), Some(State::Ready)),
            (found.clone(), Some(State::Warning)),
            (unknown_user_resource("no"), Some(State::Error)),
            (Condition { condition_type: "Ready".to_owned(), ..restarted() }, None),
        ];
        for (condition, expected) in cases {
            assert_eq!(state(&condition).map(|(state, _)| state), expected, "{condition:?}");
        }
        assert_eq!(state(&restarted()).unwrap().1, "");
        assert_eq!(state(&found).unwrap().1, found.message);
        assert_eq!(state(&not_restarted("no")).unwrap().1, "no");
    }
}
