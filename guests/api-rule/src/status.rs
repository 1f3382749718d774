//! What the status says.

use mortise_sdk::{Action, Error, Host, ObjectRef, WriteFailure, status};
use serde::Deserialize;

use crate::api::{ApiRule, ApiRuleStatus};

/// All is done.
pub(crate) fn ready() -> ApiRuleStatus {
    say("Ready", "Reconciled successfully".to_owned())
}

/// Something else must happen first.
pub(crate) fn warning(description: String) -> ApiRuleStatus {
    say("Warning", description)
}

/// Something is wrong.
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

/// The status with its time, which stays what it is while the rest does.
pub(crate) fn stamp(rule: &ApiRule, next: ApiRuleStatus, host: &Host) -> ApiRuleStatus {
    status::stamp(rule.status.clone(), next, |status| &mut status.last_processed_time, host)
}

/// Errors that are not about the fields of the APIRule, as a status describes them.
pub(crate) fn general(error: &str) -> String {
    format!("ApiRuleErrors: {error}")
}

/// Writes that failed, by class of object.
///
/// As in the original, what failed to be made counts as a failure of the APIRule, and so does every write of an
/// `AuthorizationPolicy` but its deletion.
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

fn class(failure: &WriteFailure, host: &Host) -> &'static str {
    let kind = failure.ref_.kind.kind.as_str();
    match (failure.action, kind) {
        (Action::Apply, "VirtualService") if exists(&failure.ref_, host) => "VirtualService",
        (Action::Apply, "RequestAuthentication") if exists(&failure.ref_, host) => {
            "RequestAuthentication"
        }
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
