//! The status of an APIRule in v1beta1: a code for each kind of object. Only the code of the
//! APIRule itself is stored, as a state.

use mortise_sdk::{Host, WriteFailure};

use crate::{
    api::{
        ApiRuleStatus,
        v1beta1::{Part, Status},
    },
    config::Handler,
    status,
    validation::Failure,
};

const OK: &str = "OK";
const ERROR: &str = "ERROR";
const SKIPPED: &str = "SKIPPED";
const WARNING: &str = "WARNING";

const DEPRECATED: &str = "Version v1beta1 of APIRule is deprecated and will be removed in future releases. \
    Use version v2 instead.";
const UNSUPPORTED: &str = "Version v1beta1 of APIRule is no longer supported and this APIRule is not reconciled. \
    Make sure to migrate to version v2.";

/// Returns the status of an APIRule that was reconciled without errors.
pub(super) fn ok(handler: Handler) -> Status {
    base(handler, OK, Part { code: OK.to_owned(), description: String::new() })
}

/// Returns the status of an APIRule with an error.
pub(super) fn error(handler: Handler, message: &str) -> Status {
    base(handler, SKIPPED, Part { code: ERROR.to_owned(), description: message.to_owned() })
}

/// Returns the status of an APIRule that waits for a CRD to be installed.
pub(super) fn warning(handler: Handler, message: &str) -> Status {
    base(handler, SKIPPED, Part { code: WARNING.to_owned(), description: message.to_owned() })
}

/// Returns the status of an APIRule whose validation failed: up to three failures, and the number
/// of the rest.
pub(super) fn failures(handler: Handler, failures: &[Failure]) -> Status {
    const MAX_LISTED_FAILURES: usize = 3;
    let line = |failure: &Failure| {
        format!("Attribute \"{}\": {}", failure.attribute_path, failure.message)
    };
    if let [only] = failures {
        return error(handler, &format!("Validation error: {}", line(only)));
    }
    let mut lines: Vec<String> = failures.iter().take(MAX_LISTED_FAILURES).map(line).collect();
    if failures.len() > MAX_LISTED_FAILURES {
        lines.push(format!("{} more error(s)...", failures.len() - MAX_LISTED_FAILURES));
    }
    error(handler, &format!("Multiple validation errors: \n{}", lines.join("\n")))
}

fn base(handler: Handler, code: &str, api_rule: Part) -> Status {
    let part = || Some(Part { code: code.to_owned(), description: String::new() });
    let status = Status {
        api_rule_status: Some(api_rule),
        virtual_service_status: part(),
        ..Status::default()
    };
    match handler {
        Handler::Ory => Status { access_rule_status: part(), ..status },
        Handler::Istio => Status {
            authorization_policy_status: part(),
            request_authentication_status: part(),
            ..status
        },
    }
}

/// Returns whether the APIRule has an error, so that it must be tried again.
pub(super) fn is_error(status: &Status) -> bool {
    status.api_rule_status.as_ref().is_some_and(|part| part.code == ERROR)
}

/// Returns what is stored of a status.
pub(super) fn stored(status: &Status) -> ApiRuleStatus {
    let part = status.api_rule_status.clone().unwrap_or_default();
    if part.code == OK {
        return status::warning(DEPRECATED.to_owned());
    }
    let description = format!("{DEPRECATED}\n\n{}", part.description);
    if part.code == ERROR { status::error(description) } else { status::warning(description) }
}

/// Returns the stored status of an APIRule that is not reconciled.
pub(super) fn unsupported() -> ApiRuleStatus {
    status::error(UNSUPPORTED.to_owned())
}

/// Returns the stored status of an APIRule of which these writes failed.
///
/// The messages are those of the APIRule itself, which failed creations count to; of other objects
/// it says only the kind.
pub(crate) fn failed(failures: &[WriteFailure], host: &Host) -> ApiRuleStatus {
    const KINDS: [(&str, &str); 4] = [
        ("VirtualService", "VirtualService"),
        ("AccessRule", "Rule"),
        ("AuthorizationPolicy", "AuthorizationPolicy"),
        ("RequestAuthentication", "RequestAuthentication"),
    ];
    let classes: Vec<&str> = failures.iter().map(|failure| status::class(failure, host)).collect();
    let of_rule = failures.iter().zip(&classes).filter(|(_, class)| **class == "ApiRule");
    let mut lines: Vec<String> = of_rule.map(|(failure, _)| failure.message.clone()).collect();
    let kinds = KINDS.iter().filter(|(class, _)| classes.contains(class));
    lines.extend(kinds.map(|(_, kind)| format!("Error has happened on subresource {kind}")));
    stored(&error(Handler::Ory, &lines.join("\n")))
}
