//! The conditions of the Istio resource.

use mortise_sdk::object::{Condition, ConditionStatus};

use crate::api::State;

/// A reason of a condition. It decides on the condition's type and status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reason {
    /// The name of the reason.
    pub name: &'static str,
    /// The type of the condition.
    pub condition_type: &'static str,
    status: Status,
    /// The message, unless there is a better one.
    pub message: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Status {
    True,
    False,
    Unknown,
}

/// The type of the condition for the module as a whole.
pub const READY: &str = "Ready";
/// The type of the condition for the objects that the module adds to Istio's own.
pub const RESOURCES: &str = "CustomResourcesReconciled";
/// The type of the condition for restarts of the ingress gateway and the control plane.
pub const GATEWAY: &str = "IngressGatewayRestarted";
/// The type of the condition for the restart of sidecars.
pub const SIDECARS: &str = "ProxySidecarRestartSucceeded";
/// The type of the condition for other people's settings of the ingress gateway.
pub const USER_RESOURCE: &str = "IngressTargetingUserResourceFound";

/// The types of the conditions besides [`READY`], in the order of the original's steps.
pub const PARTS: [&str; 4] = [RESOURCES, GATEWAY, SIDECARS, USER_RESOURCE];

/// The description when sidecars have to be restarted by hand.
const RESTART_BY_HAND: &str = "Some Pods with Istio sidecar injection failed to restart. To learn \
    more about the warning, see kyma-system/istio-controller-manager logs: could not restart one \
    or more Istio-injected Pods";

macro_rules! reasons {
    ($($name:ident: $text:literal, $type:expr, $status:ident, $message:literal;)*) => {
        $(
            #[doc = concat!("The reason `", $text, "`.")]
            pub const $name: Reason = Reason {
                name: $text,
                condition_type: $type,
                status: Status::$status,
                message: $message,
            };
        )*
        /// All reasons.
        pub const ALL: &[Reason] = &[$($name),*];
    };
}

reasons! {
    RECONCILE_SUCCEEDED: "ReconcileSucceeded", READY, True, "Reconciliation succeeded";
    RECONCILE_UNKNOWN: "ReconcileUnknown", READY, Unknown,
        "Module readiness is unknown. Either a reconciliation is progressing, or failed previously. \
         Check status of other conditions";
    RECONCILE_REQUEUED: "ReconcileRequeued", READY, False,
        "Proxy reset is still ongoing. Reconciliation requeued";
    RECONCILE_FAILED: "ReconcileFailed", READY, False, "Reconciliation failed";
    VALIDATION_FAILED: "ValidationFailed", READY, False,
        "Reconciliation did not happen as Istio Custom Resource failed to validate";
    OLDER_EXISTS: "OlderCRExists", READY, False,
        "This Istio custom resource is not the oldest one and does not represent the module state";
    OLDEST_NOT_FOUND: "OldestCRNotFound", READY, False,
        "Oldest Istio custom resource could not be found";
    INSTALL_NOT_NEEDED: "IstioInstallNotNeeded", READY, False, "Istio installation is not needed";
    INSTALL_SUCCEEDED: "IstioInstallSucceeded", READY, False, "Istio installation succeeded";
    UNINSTALL_SUCCEEDED: "IstioUninstallSucceeded", READY, False,
        "Istio uninstallation succeded";
    INSTALL_UNINSTALL_FAILED: "IstioInstallUninstallFailed", READY, False,
        "Istio install or uninstall failed";
    MISCONFIGURED: "IstioCustomResourceMisconfigured", READY, False,
        "Istio custom resource has invalid configuration";
    DANGLING: "IstioCustomResourcesDangling", READY, False,
        "Istio deletion blocked because of existing Istio custom resources";
    UPDATE_NOT_ALLOWED: "IstioVersionUpdateNotAllowed", READY, False,
        "Update to the new Istio version is not allowed";
    RESOURCES_SUCCEEDED: "CustomResourcesReconcileSucceeded", READY, False,
        "Custom resources reconciliation succeeded";
    RESOURCES_FAILED: "CustomResourcesReconcileFailed", READY, False,
        "Custom resources reconciliation failed";
    SIDECARS_SUCCEEDED: "ProxySidecarRestartSucceeded", SIDECARS, True,
        "Proxy sidecar restart succeeded";
    SIDECARS_FAILED: "ProxySidecarRestartFailed", SIDECARS, False, "Proxy sidecar restart failed";
    SIDECARS_PARTLY: "ProxySidecarRestartPartiallySucceeded", SIDECARS, False,
        "Proxy sidecar restart partially succeeded";
    SIDECARS_MANUAL: "ProxySidecarManualRestartRequired", SIDECARS, False,
        "Proxy sidecar manual restart is required for some workloads";
    INGRESS_SUCCEEDED: "IngressGatewayRestartSucceeded", READY, False,
        "Istio Ingress Gateway restart succeeded";
    INGRESS_FAILED: "IngressGatewayRestartFailed", READY, False,
        "Istio Ingress Gateway restart failed";
    EGRESS_SUCCEEDED: "EgressGatewayRestartSucceeded", READY, False,
        "Istio Egress Gateway restart succeeded";
    EGRESS_FAILED: "EgressGatewayRestartFailed", READY, False,
        "Istio Egress Gateway restart failed";
    USER_RESOURCE_FOUND: "IngressTargetingUserResourceFound", USER_RESOURCE, True,
        "Resource targeting Istio Ingress Gateway found";
    USER_RESOURCE_NOT_FOUND: "IngressTargetingUserResourceNotFound", USER_RESOURCE, False,
        "Resources targeting Istio Ingress Gateway not found";
    USER_RESOURCE_UNKNOWN: "IngressTargetingUserResourceDetectionFailed", USER_RESOURCE, Unknown,
        "Resource targeting Istio Ingress Gateway detection failed";
}

impl Reason {
    /// Returns the condition, without a transition time. An empty message stands for the usual one.
    pub fn condition(&self, message: &str) -> Condition {
        let status = match self.status {
            Status::True => ConditionStatus::True,
            Status::False => ConditionStatus::False,
            Status::Unknown => ConditionStatus::Unknown,
        };
        let message = if message.is_empty() { self.message } else { message };
        Condition::new(self.condition_type, status, self.name, message)
    }
}

/// Returns the state and the description of the Istio resource that follow from a condition;
/// `None` if its type is none of [`PARTS`].
pub fn state(condition: &Condition) -> Option<(State, &str)> {
    let is = |status: ConditionStatus| condition.status == status;
    let ready = (State::Ready, "");
    let error = (State::Error, condition.message.as_str());
    Some(match condition.condition_type.as_str() {
        RESOURCES | GATEWAY if is(ConditionStatus::False) => error,
        SIDECARS if condition.reason == SIDECARS_FAILED.name => error,
        SIDECARS if condition.reason == SIDECARS_MANUAL.name => (State::Warning, RESTART_BY_HAND),
        USER_RESOURCE if is(ConditionStatus::True) => (State::Warning, &condition.message),
        USER_RESOURCE if is(ConditionStatus::Unknown) => error,
        RESOURCES | GATEWAY | SIDECARS | USER_RESOURCE => ready,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn reasons_have_names_of_their_own() {
        let names: BTreeSet<_> = ALL.iter().map(|reason| reason.name).collect();
        assert_eq!(names.len(), ALL.len());
    }

    #[test]
    fn the_state_follows_from_type_status_and_reason() {
        let of = |condition_type: &str, status: bool, reason: Reason| {
            Condition::new(condition_type, status.into(), reason.name, "x")
        };
        let cases = [
            (of(RESOURCES, true, RESOURCES_SUCCEEDED), Some((State::Ready, ""))),
            (of(RESOURCES, false, RESOURCES_FAILED), Some((State::Error, "x"))),
            (of(GATEWAY, true, INGRESS_SUCCEEDED), Some((State::Ready, ""))),
            (of(GATEWAY, false, INGRESS_FAILED), Some((State::Error, "x"))),
            (SIDECARS_SUCCEEDED.condition("x"), Some((State::Ready, ""))),
            (SIDECARS_PARTLY.condition("x"), Some((State::Ready, ""))),
            (SIDECARS_MANUAL.condition("x"), Some((State::Warning, RESTART_BY_HAND))),
            (SIDECARS_FAILED.condition("x"), Some((State::Error, "x"))),
            (USER_RESOURCE_NOT_FOUND.condition("x"), Some((State::Ready, ""))),
            (USER_RESOURCE_FOUND.condition("x"), Some((State::Warning, "x"))),
            (USER_RESOURCE_UNKNOWN.condition("x"), Some((State::Error, "x"))),
            (RECONCILE_FAILED.condition("x"), None),
        ];
        for (condition, expected) in cases {
            assert_eq!(state(&condition), expected, "{condition:?}");
        }
    }

    #[test]
    fn a_message_replaces_the_usual_one_unless_it_is_empty() {
        assert_eq!(SIDECARS_MANUAL.condition("a, b").message, "a, b");
        assert_eq!(SIDECARS_MANUAL.condition("").message, SIDECARS_MANUAL.message);
    }
}
