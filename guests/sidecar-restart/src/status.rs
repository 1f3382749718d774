//! The condition of this processor, and its texts.

use istio::{
    action::{self, Warning},
    condition::{self, Reason},
};
use mortise_sdk::object::Condition;

const FAILED: &str = "Error occurred during reconciliation of Istio Sidecars";

/// The result of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Result {
    /// The error that kept the processor from looking at Pods.
    pub error: Option<String>,
    /// The Pods of Kyma's modules that have to be restarted by hand.
    pub kyma: Vec<Warning>,
    /// The other Pods that have to be restarted by hand.
    pub customers: Vec<Warning>,
    /// The number of restarts that are still to come.
    pub pending: usize,
    /// The restarts that the API server refused.
    pub refused: Vec<String>,
}

impl Result {
    /// Returns the condition, without a transition time.
    pub fn condition(&self) -> Condition {
        let (reason, message) = self.reason();
        reason.condition(&message)
    }

    fn reason(&self) -> (Reason, String) {
        if let Some(error) = &self.error {
            return (condition::SIDECARS_FAILED, format!("{FAILED}: {error}"));
        }
        if !self.kyma.is_empty() {
            let message = format!("{FAILED}: {}", action::message(&self.kyma));
            return (condition::SIDECARS_FAILED, message);
        }
        if !self.customers.is_empty() {
            return (condition::SIDECARS_MANUAL, action::message(&self.customers));
        }
        if !self.refused.is_empty() {
            let message = format!(
                "{}: the API server refused {}",
                condition::SIDECARS_PARTLY.message,
                self.refused.join("; ")
            );
            return (condition::SIDECARS_PARTLY, message);
        }
        if self.pending > 0 {
            let message = format!(
                "{}: {} restart(s) are still to come",
                condition::SIDECARS_PARTLY.message,
                self.pending
            );
            return (condition::SIDECARS_PARTLY, message);
        }
        (condition::SIDECARS_SUCCEEDED, String::new())
    }
}

#[cfg(test)]
mod tests {
    use istio::{action::Object, api::State};

    use super::*;

    fn warning(namespace: &str) -> Warning {
        let (kind, name) = ("Pod".to_owned(), "app-1".to_owned());
        Warning { pod: Object { kind, namespace: namespace.to_owned(), name }, message: "" }
    }

    #[test]
    fn the_worst_is_said_and_decides_on_the_state() {
        let named = |namespace: &str| {
            format!(
                "The sidecars of the following workloads could not be restarted: {namespace}/app-1"
            )
        };
        let mut result = Result::default();
        let mut check = |change: fn(&mut Result), state: State, message: &str| {
            change(&mut result);
            let condition = result.condition();
            assert_eq!(condition.message, message);
            assert_eq!(condition::state(&condition).unwrap().0, state, "{message}");
        };
        check(|_| {}, State::Ready, "Proxy sidecar restart succeeded");
        let pending = "Proxy sidecar restart partially succeeded: 2 restart(s) are still to come";
        check(|result| result.pending = 2, State::Ready, pending);
        let refused =
            "Proxy sidecar restart partially succeeded: the API server refused a/b: no; c/d: no";
        let refuse =
            |result: &mut Result| result.refused = vec!["a/b: no".into(), "c/d: no".into()];
        check(refuse, State::Ready, refused);
        let warn = |result: &mut Result| result.customers.push(warning("shop"));
        check(warn, State::Warning, &named("shop"));
        let kyma = format!("{FAILED}: {}", named("kyma-system"));
        let warn = |result: &mut Result| result.kyma.push(warning("kyma-system"));
        check(warn, State::Error, &kyma);
        let error = format!("{FAILED}: it broke");
        check(|result| result.error = Some("it broke".into()), State::Error, &error);
    }
}
