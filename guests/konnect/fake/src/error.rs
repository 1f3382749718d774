//! Answers that refuse a request.

use serde_json::{Value, json};

use crate::message::{Answer, PROBLEM};

/// The trace that problem documents name.
const TRACE: &str = "kong:trace:1234567890123456789";
/// The type of the details of an entity's errors.
const DETAIL: &str = "type.googleapis.com/kong.admin.model.v1.ErrorDetail";

/// The family of an answer's errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Errors {
    /// Problem documents (RFC 9457): organizations, control planes, config stores.
    Problem,
    /// Codes of gRPC with details: entities of a control plane.
    Entity,
}

// === impl Errors ===

impl Errors {
    pub(crate) fn unauthorized(self) -> Answer {
        match self {
            Self::Problem => problem(401, "Unauthorized", "Invalid credentials"),
            Self::Entity => status_and_message(401, "Unauthorized"),
        }
    }

    pub(crate) fn not_found(self, what: &str) -> Answer {
        match self {
            Self::Problem => problem(404, "Not Found", &format!("{what} not found")),
            Self::Entity => entity(404, 5, "Not found", &json!([])),
        }
    }

    pub(crate) fn method_not_allowed(self) -> Answer {
        match self {
            Self::Problem => problem(405, "Method Not Allowed", "the path has no such method"),
            Self::Entity => status_and_message(405, "Method not allowed"),
        }
    }

    pub(crate) fn too_large(self) -> Answer {
        match self {
            Self::Problem => problem(413, "Content Too Large", "the body is too large"),
            Self::Entity => status_and_message(413, "Content too large"),
        }
    }

    /// Refuses to store more.
    pub(crate) fn full(self) -> Answer {
        match self {
            Self::Problem => problem(403, "Forbidden", "the most entities are stored"),
            Self::Entity => entity(403, 8, "the most entities are stored", &json!([])),
        }
    }

    /// Refuses the value of a field.
    pub(crate) fn field(self, field: &str, message: &str) -> Answer {
        match self {
            Self::Problem => problem(400, "Bad Request", &format!("{field}: {message}")),
            Self::Entity => {
                entity(400, 3, "validation error", &detail("ERROR_TYPE_FIELD", field, message))
            }
        }
    }
}

/// Returns a problem document.
pub(crate) fn problem(status: u16, title: &str, explanation: &str) -> Answer {
    let body = json!({"status": status, "title": title, "instance": TRACE, "detail": explanation});
    Answer::with_type(status, PROBLEM, &body)
}

/// Refuses a value that another entity has.
pub(crate) fn unique(field: &str) -> Answer {
    let message = format!("{field} (type: unique) constraint failed");
    constraint(field, message.trim_start())
}

/// Refuses the deletion of an entity that others name.
pub(crate) fn foreign(referrer: &str) -> Answer {
    constraint(
        "",
        &format!("constraint failed (type: foreign) as {referrer} references this value"),
    )
}

/// Refuses a reference to an entity that is not there.
pub(crate) fn no_such(field: &str, singular: &str) -> Answer {
    let details = detail("ERROR_TYPE_REFERENCE", field, &format!("no such {singular}"));
    entity(400, 3, "validation error", &details)
}

/// Refuses a write that the kind of control plane does not allow.
pub(crate) fn not_permitted(message: &str) -> Answer {
    entity(403, 7, "usage constraint error", &json!([{"@type": DETAIL, "messages": [message]}]))
}

fn constraint(field: &str, message: &str) -> Answer {
    let details = detail("ERROR_TYPE_REFERENCE", field, message);
    entity(400, 3, "data constraint error", &details)
}

fn detail(of: &str, field: &str, message: &str) -> Value {
    json!([{"@type": DETAIL, "type": of, "field": field, "messages": [message]}])
}

fn entity(status: u16, code: u32, message: &str, details: &Value) -> Answer {
    Answer::json(status, &json!({"code": code, "message": message, "details": details}))
}

fn status_and_message(status: u16, message: &str) -> Answer {
    Answer::json(status, &json!({"message": message, "status": status}))
}
