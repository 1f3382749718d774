//! The texts of the status.

use mortise_sdk::{Action, Error, Host, ObjectRef, WriteFailure, status};
use serde::Deserialize;

use crate::api::{ApiRule, ApiRuleStatus};

/// Returns the status of an APIRule that was reconciled without errors.
pub(crate) fn ready() -> ApiRuleStatus {
    say("Ready", "Reconciled successfully".to_owned())
}

/// Returns the status of an APIRule that waits for a CRD to be installed.
pub(crate) fn warning(description: String) -> ApiRuleStatus {
    say("Warning", description)
}

/// Returns the status of an APIRule with an error.
pub(crate) fn error(description: String) -> ApiRuleStatus {
    say("Error", description)
}

fn say(state: &str, description: String) -> ApiRuleStatus {
    ApiRuleStatus {
        last_processed_time: None,
        state: state.to_owned(),
        description: Some(description),
    }
}

/// Sets the time of a status, which stays the same as long as the rest of the status does.
pub(crate) fn stamp(rule: &ApiRule, next: ApiRuleStatus, host: &Host) -> ApiRuleStatus {
    status::stamp(rule.status.clone(), next, |status| &mut status.last_processed_time, host)
}

/// Sets the time of a status to that of this call.
pub(crate) fn now(status: ApiRuleStatus, host: &Host) -> ApiRuleStatus {
    ApiRuleStatus { last_processed_time: Some(host.now_text()), ..status }
}

/// Returns the text for errors that are not about fields of the APIRule.
pub(crate) fn general(error: &str) -> String {
    format!("ApiRuleErrors: {error}")
}

/// Returns the text for failed writes, grouped by class of object.
///
/// As in the original, a failure to create an object counts as a failure of the APIRule, and so
/// does every failed write of an `AuthorizationPolicy` except its deletion.
pub(crate) fn describe_failed_writes(failures: &[WriteFailure], host: &Host) -> String {
    const CLASSES: [&str; 5] =
        ["ApiRule", "VirtualService", "RequestAuthentication", "AuthorizationPolicy", "AccessRule"];
    let classified: Vec<(&str, &str)> =
        failures.iter().map(|failure| (class(failure, host), failure.message.as_str())).collect();
    let lines = CLASSES.iter().filter_map(|class| {
        let of_class: Vec<&str> = classified
            .iter()
            .filter(|(other, _)| other == class)
            .map(|(_, message)| *message)
            .collect();
        (!of_class.is_empty()).then(|| format!("{class}Errors: {}", of_class.join(", ")))
    });
    lines.collect::<Vec<String>>().join("\n")
}

pub(crate) fn class(failure: &WriteFailure, host: &Host) -> &'static str {
    let kind = failure.ref_.kind.kind.as_str();
    match (failure.action, kind) {
        (Action::Apply, "VirtualService") if exists(&failure.ref_, host) => "VirtualService",
        (Action::Apply, "RequestAuthentication") if exists(&failure.ref_, host) => {
            "RequestAuthentication"
        }
        (Action::Apply, "Rule") if exists(&failure.ref_, host) => "AccessRule",
        (Action::Delete, "VirtualService") => "VirtualService",
        (Action::Delete, "RequestAuthentication") => "RequestAuthentication",
        (Action::Delete, "AuthorizationPolicy") => "AuthorizationPolicy",
        (Action::Delete, "Rule") => "AccessRule",
        _ => "ApiRule",
    }
}

fn exists(reference: &ObjectRef, host: &Host) -> bool {
    #[derive(Deserialize)]
    struct Any {}
    let read: Result<Option<Any>, Error> = host.get_ref(reference, &["metadata.name"]);
    matches!(read, Ok(Some(_)))
}
