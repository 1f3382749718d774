//! The status of the Istio resource, from the conditions of all processors that work for it.

use istio::{
    api::{Istio, IstioStatus, State},
    check::Refusal,
    condition::{self, GATEWAY, PARTS, RESOURCES, Reason, SIDECARS},
};
use mortise_sdk::{
    Host,
    object::{Condition, ConditionStatus},
};

/// The description while an installation is under way.
const PROCESSING: &str = "Reconciling Istio";
/// The description while the resource is being deleted.
const DELETING: &str = "Deleting Istio";
/// The state of the resource, in one word and in several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) state: State,
    pub(crate) description: String,
    /// The reason of the condition `Ready`.
    pub(crate) reason: Reason,
}

impl Summary {
    pub(crate) fn processing() -> Self {
        Self::new(State::Processing, condition::RECONCILE_UNKNOWN, PROCESSING)
    }

    pub(crate) fn deleting() -> Self {
        Self::new(State::Deleting, condition::RECONCILE_UNKNOWN, DELETING)
    }

    pub(crate) fn error(reason: Reason, description: impl Into<String>) -> Self {
        Self::new(State::Error, reason, description)
    }

    pub(crate) fn warning(reason: Reason, description: impl Into<String>) -> Self {
        Self::new(State::Warning, reason, description)
    }

    fn new(state: State, reason: Reason, description: impl Into<String>) -> Self {
        Self { state, description: description.into(), reason }
    }

    /// Returns the summary once Istio is installed: the worst of what the other processors say. Of
    /// several that are as bad the first one counts, in the order of the original's steps.
    pub(crate) fn of_others(istio: &Istio) -> Self {
        let parts = PARTS.iter().filter_map(|condition_type| find(istio, condition_type));
        let found: Vec<Self> = parts.filter_map(Self::of_condition).collect();
        let is_error = |summary: &&Self| summary.state == State::Error;
        let worst = found.iter().find(is_error).or(found.first());
        worst
            .cloned()
            .unwrap_or_else(|| Self::new(State::Ready, condition::RECONCILE_SUCCEEDED, ""))
    }

    /// Returns what is wrong according to a condition of another processor.
    fn of_condition(condition: &Condition) -> Option<Self> {
        let (state, description) =
            condition::state(condition).filter(|(state, _)| *state != State::Ready)?;
        let reason = match condition.condition_type.as_str() {
            RESOURCES => condition::RESOURCES_FAILED,
            GATEWAY => condition::INGRESS_FAILED,
            // The original has said by then that the ingress gateway was restarted, and says no
            // more.
            SIDECARS => condition::INGRESS_SUCCEEDED,
            _ => condition::RECONCILE_FAILED,
        };
        Some(Self::new(state, reason, description))
    }

    /// Returns the part of the status that this processor owns. The clock is asked only if the
    /// condition changes.
    pub(crate) fn status(self, istio: &Istio, host: &Host) -> IstioStatus {
        let ready = self.reason.condition("");
        let status = IstioStatus::of_conditions(&[condition::READY], [ready], istio, host);
        IstioStatus { state: Some(self.state), description: Some(self.description), ..status }
    }
}

impl From<Refusal> for Summary {
    fn from(refusal: Refusal) -> Self {
        let reason = refusal.reason.unwrap_or(condition::RECONCILE_UNKNOWN);
        Self::new(refusal.state, reason, refusal.description)
    }
}

/// Returns a condition of a resource.
pub(crate) fn find<'a>(istio: &'a Istio, condition_type: &str) -> Option<&'a Condition> {
    let conditions = istio.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().find(|one| one.condition_type == condition_type)
}

/// Returns whether a condition of another processor holds, of the resource as it is now. A
/// condition that does not say of which generation it speaks is taken for current.
pub(crate) fn holds(istio: &Istio, condition_type: &str) -> bool {
    find(istio, condition_type)
        .is_some_and(|one| one.status == ConditionStatus::True && is_current(istio, one))
}

/// Returns whether no processor speaks of a former generation of the resource.
pub(crate) fn are_current(istio: &Istio) -> bool {
    let conditions = PARTS.iter().filter_map(|condition_type| find(istio, condition_type));
    conditions.into_iter().all(|one| is_current(istio, one))
}

fn is_current(istio: &Istio, condition: &Condition) -> bool {
    let generation = istio.metadata.generation.unwrap_or_default();
    condition.observed_generation.is_none_or(|observed| observed >= generation)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn istio(conditions: &Value) -> Istio {
        serde_json::from_value(
            json!({"metadata": {"name": "a"}, "status": {"conditions": conditions}}),
        )
        .unwrap()
    }

    fn condition(of: &str, status: &str, reason: &str, message: &str) -> Value {
        json!({"type": of, "status": status, "reason": reason, "message": message})
    }

    #[test]
    fn the_worst_condition_counts_and_among_equals_the_first() {
        let resources =
            || condition(RESOURCES, "False", "CustomResourcesReconcileFailed", "no resources");
        let gateway = || condition(GATEWAY, "False", "IngressGatewayRestartFailed", "no gateway");
        let failed =
            || condition("ProxySidecarRestartSucceeded", "False", "ProxySidecarRestartFailed", "x");
        let manual = || {
            let reason = "ProxySidecarManualRestartRequired";
            condition("ProxySidecarRestartSucceeded", "False", reason, "a, b")
        };
        let filter = || {
            let of = "IngressTargetingUserResourceFound";
            condition(of, "True", of, "a filter")
        };
        let fine = || condition(RESOURCES, "True", "CustomResourcesReconcileSucceeded", "");
        let reason = condition::SIDECARS_PARTLY.name;
        let partly = condition("ProxySidecarRestartSucceeded", "False", reason, "2 to come");
        let by_hand = condition::SIDECARS_MANUAL.condition("");
        let by_hand = condition::state(&by_hand).unwrap().1;
        let cases = [
            (json!([]), State::Ready, "", "ReconcileSucceeded"),
            (json!([partly]), State::Ready, "", "ReconcileSucceeded"),
            (json!([fine()]), State::Ready, "", "ReconcileSucceeded"),
            (
                json!([condition("Other", "False", "x", "y")]),
                State::Ready,
                "",
                "ReconcileSucceeded",
            ),
            (json!([resources()]), State::Error, "no resources", "CustomResourcesReconcileFailed"),
            (
                json!([gateway(), resources()]),
                State::Error,
                "no resources",
                "CustomResourcesReconcileFailed",
            ),
            (json!([fine(), manual()]), State::Warning, by_hand, "IngressGatewayRestartSucceeded"),
            (json!([filter(), failed()]), State::Error, "x", "IngressGatewayRestartSucceeded"),
            (
                json!([filter(), manual()]),
                State::Warning,
                by_hand,
                "IngressGatewayRestartSucceeded",
            ),
            (json!([filter()]), State::Warning, "a filter", "ReconcileFailed"),
        ];
        for (conditions, state, description, reason) in cases {
            let summary = Summary::of_others(&istio(&conditions));
            let actual = (summary.state, summary.description.as_str(), summary.reason.name);
            assert_eq!(actual, (state, description, reason), "{conditions}");
        }
    }

    #[test]
    fn conditions_of_a_former_generation_do_not_hold() {
        let mut istio = istio(&json!([
            {"type": GATEWAY, "status": "True", "reason": "a", "observedGeneration": 1},
            {"type": RESOURCES, "status": "True", "reason": "a"},
        ]));
        istio.metadata.generation = Some(1);
        assert!(holds(&istio, GATEWAY) && holds(&istio, RESOURCES) && are_current(&istio));
        istio.metadata.generation = Some(2);
        assert!(!holds(&istio, GATEWAY) && holds(&istio, RESOURCES) && !are_current(&istio));
        assert!(!holds(&istio, condition::SIDECARS));
    }
}
