//! The conditions and texts of the status.

use api_gateway_module::api::{ApiGateway, ApiGatewayStatus};
use mortise_sdk::{
    Host,
    object::{Condition, ConditionStatus},
    status::set_condition,
};

/// The type of the only condition.
pub(crate) const READY: &str = "Ready";

/// The state of the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Processing,
    Ready,
    Error,
    Warning,
}

/// The reason of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    ReconcileProcessing,
    ReconcileSucceeded,
    ReconcileFailed,
    OlderCRExists,
    DependenciesMissing,
    KymaGatewayReconcileFailed,
    KymaGatewayDeletionBlocked,
    OathkeeperReconcileFailed,
    DeletionBlockedExistingResources,
}

/// The state of the module at the end of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) state: State,
    pub(crate) description: Option<String>,
    pub(crate) reason: Reason,
    /// Names of objects, which are added to the message.
    pub(crate) names: Vec<String>,
}

impl Reason {
    pub(crate) fn name(self) -> String {
        format!("{self:?}")
    }

    fn message(self) -> &'static str {
        match self {
            Self::ReconcileProcessing => "Reconcile processing",
            Self::ReconcileSucceeded => "Reconciliation succeeded",
            Self::ReconcileFailed => "Reconciliation failed",
            Self::OlderCRExists => {
                "API Gateway CR is not the oldest one and does not represent the module state"
            }
            Self::DependenciesMissing => "Module dependencies missing",
            Self::KymaGatewayReconcileFailed => "Kyma Gateway reconciliation failed",
            Self::KymaGatewayDeletionBlocked => {
                "Kyma Gateway deletion blocked because of the existing custom resources"
            }
            Self::OathkeeperReconcileFailed => "Ory Oathkeeper reconciliation failed",
            Self::DeletionBlockedExistingResources => {
                "API Gateway deletion blocked because of the existing custom resources"
            }
        }
    }

    fn status(self) -> ConditionStatus {
        match self {
            Self::ReconcileSucceeded => ConditionStatus::True,
            Self::ReconcileProcessing => ConditionStatus::Unknown,
            _ => ConditionStatus::False,
        }
    }
}

impl Report {
    pub(crate) fn ready() -> Self {
        Self {
            state: State::Ready,
            description: Some("Successfully reconciled".to_owned()),
            reason: Reason::ReconcileSucceeded,
            names: Vec::new(),
        }
    }

    pub(crate) fn processing() -> Self {
        Self {
            state: State::Processing,
            description: None,
            reason: Reason::ReconcileProcessing,
            names: Vec::new(),
        }
    }

    pub(crate) fn error(reason: Reason, description: impl Into<String>) -> Self {
        let description = Some(description.into());
        Self { state: State::Error, description, reason, names: Vec::new() }
    }

    pub(crate) fn warning(
        reason: Reason,
        description: impl Into<String>,
        names: Vec<String>,
    ) -> Self {
        let description = Some(description.into());
        Self { state: State::Warning, description, reason, names }
    }

    /// Returns the status. The time of its condition changes only with the condition's status.
    pub(crate) fn status(&self, gateway: &ApiGateway, host: &Host) -> ApiGatewayStatus {
        let former = gateway.status.iter().flat_map(|status| &status.conditions);
        let mut conditions: Vec<Condition> =
            former.filter(|condition| condition.condition_type == READY).take(1).cloned().collect();
        let mut message = self.reason.message().to_owned();
        if !self.names.is_empty() {
            message = format!("{message}: {}", self.names.join(", "));
        }
        let condition = Condition::new(READY, self.reason.status(), self.reason.name(), message);
        set_condition(&mut conditions, condition, host);
        ApiGatewayStatus {
            state: format!("{:?}", self.state),
            description: self.description.clone(),
            conditions,
        }
    }
}

#[cfg(test)]
mod tests {
    use mortise_sdk::testing::Stub;

    use super::*;

    #[test]
    fn each_reason_reads_as_in_the_original() {
        let all = [
            (Reason::ReconcileProcessing, "ReconcileProcessing", ConditionStatus::Unknown),
            (Reason::ReconcileSucceeded, "ReconcileSucceeded", ConditionStatus::True),
            (Reason::OlderCRExists, "OlderCRExists", ConditionStatus::False),
            (Reason::DependenciesMissing, "DependenciesMissing", ConditionStatus::False),
        ];
        for (reason, name, status) in all {
            assert_eq!((reason.name().as_str(), reason.status()), (name, status));
        }
    }

    #[test]
    fn there_is_one_condition_with_the_names_in_its_message() {
        let stub = Stub::new().at("2026-01-01T00:00:00Z");
        let names = vec!["a/b".to_owned(), "c/d".to_owned()];
        let report = Report::warning(Reason::DeletionBlockedExistingResources, "no", names);
        let former = Condition {
            last_transition_time: "2025-01-01T00:00:00Z".to_owned(),
            ..Condition::new(READY, ConditionStatus::False, "Other", "")
        };
        let other = Condition::new("Other", ConditionStatus::True, "Other", "");
        let status = ApiGatewayStatus { conditions: vec![other, former], ..Default::default() };
        let gateway = ApiGateway { status: Some(status), ..ApiGateway::default() };
        let status = report.status(&gateway, &stub.host());
        let [condition] = status.conditions.as_slice() else { panic!("{status:?}") };
        let message =
            "API Gateway deletion blocked because of the existing custom resources: a/b, c/d";
        assert_eq!(condition.message, message);
        assert_eq!(condition.last_transition_time, "2025-01-01T00:00:00Z");
        assert_eq!(stub.asked_clock(), 0);
    }
}
