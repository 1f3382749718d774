//! `Failure`: an answer that is a Kubernetes `Status`.
//!
//! Texts, reasons and details are those of kube-apiserver 1.34, since clients and people read them.
//! Errors of the fields of one object are a list of [`Cause`]s.

#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

/// A request that was refused or failed, with the content of its `Status` object.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{}", .0.message)]
pub struct Failure(Box<Parts>);

#[derive(Debug, Clone, Default)]
struct Parts {
    code: u16,
    reason: &'static str,
    message: String,
    details: Option<Map<String, Value>>,
    metadata: Map<String, Value>,
    retry_after: Option<u64>,
    plain: bool,
}

/// An entry of `details.causes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// The reason, for example `FieldValueInvalid`.
    pub reason: String,
    /// The message, without the field; empty where Kubernetes leaves it out.
    pub message: String,
    /// The path of the field, for example `spec.ports[0].name`.
    pub field: String,
}

/// The group, the kind or plural, and the name of the object that a failure is about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Named<'a> {
    pub(crate) group: &'a str,
    /// The plural of a resource, or the kind, whichever Kubernetes uses.
    pub(crate) kind: &'a str,
    pub(crate) name: &'a str,
}

// === impl Named ===

impl<'a> Named<'a> {
    pub(crate) fn new(group: &'a str, kind: &'a str, name: &'a str) -> Self {
        Self { group, kind, name }
    }

    /// Returns the kind with its group: `widgets.example.dev`, or `configmaps` in the core group.
    fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.kind.to_owned()
        } else {
            format!("{}.{}", self.kind, self.group)
        }
    }

    fn details(&self) -> Map<String, Value> {
        let fields = [("group", self.group), ("kind", self.kind), ("name", self.name)];
        let present = fields.into_iter().filter(|(_, text)| !text.is_empty());
        present.map(|(key, text)| (key.to_owned(), Value::from(text))).collect()
    }
}

// === impl Failure ===

impl Failure {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self(Box::new(Parts { code, reason, message: message.into(), ..Parts::default() }))
    }

    fn about(code: u16, reason: &'static str, named: Named<'_>, message: String) -> Self {
        let mut failure = Self::new(code, reason, message);
        failure.0.details = Some(named.details());
        failure
    }

    /// 404: the object does not exist.
    pub(crate) fn not_found(named: Named<'_>) -> Self {
        Self::about(
            404,
            "NotFound",
            named,
            format!("{} \"{}\" not found", named.qualified(), named.name),
        )
    }

    /// 404 as plain text: nothing is served at the path, whose group is none of Kubernetes' own.
    pub(crate) fn no_such_page() -> Self {
        Self::plain(404, "404 page not found\n")
    }

    /// A plain text instead of a `Status`.
    pub(crate) fn plain(code: u16, text: impl Into<String>) -> Self {
        let mut failure = Self::new(code, "", text);
        failure.0.plain = true;
        failure
    }

    /// Changes the texts of the message, and of the fields and messages of the causes.
    #[must_use]
    pub(crate) fn map_texts(mut self, change: impl Fn(&str) -> String) -> Self {
        self.0.message = change(&self.0.message);
        let details = self.0.details.as_mut();
        let causes =
            details.and_then(|details| details.get_mut("causes")).and_then(Value::as_array_mut);
        for cause in causes.into_iter().flatten().filter_map(Value::as_object_mut) {
            for key in ["field", "message"] {
                if let Some(text) = cause.get_mut(key) {
                    *text = Value::String(change(text.as_str().unwrap_or_default()));
                }
            }
        }
        self
    }

    /// 404: nothing is served at the path, whose group is one of Kubernetes' own.
    pub(crate) fn no_such_resource() -> Self {
        Self::generic(404, "NotFound", "the server could not find the requested resource")
    }

    /// 409: the name is taken.
    pub(crate) fn already_exists(named: Named<'_>) -> Self {
        Self::about(
            409,
            "AlreadyExists",
            named,
            format!("{} \"{}\" already exists", named.qualified(), named.name),
        )
    }

    /// 409: a precondition does not hold.
    pub(crate) fn conflict(named: Named<'_>, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{}\": {why}",
            named.qualified(),
            named.name
        );
        Self::about(409, "Conflict", named, message)
    }

    /// 409: the object has another resource version than the one sent.
    pub(crate) fn modified(named: Named<'_>) -> Self {
        Self::conflict(
            named,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 409 of a server-side apply: conflicts with other managers; each cause names a field.
    pub(crate) fn apply_conflict(message: impl Into<String>, causes: Vec<Cause>) -> Self {
        Self::new(409, "Conflict", message).with_details(Map::new()).with_causes(causes)
    }

    /// 422: the object is invalid; `named` holds the kind, not the plural.
    pub(crate) fn invalid<E: Into<Cause>>(
        named: Named<'_>,
        errors: impl IntoIterator<Item = E>,
    ) -> Self {
        let causes: Vec<Cause> = errors.into_iter().map(Into::into).collect();
        let message =
            format!("{} \"{}\" is invalid: {}", named.qualified(), named.name, aggregate(&causes));
        Self::about(422, "Invalid", named, message).with_causes(causes)
    }

    /// A refusal with any code, with the reason that goes with the code.
    pub(crate) fn refused(code: u16, message: &str) -> Self {
        let reason = match code {
            400 => "BadRequest",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "NotFound",
            409 => "Conflict",
            410 => "Gone",
            422 => "Invalid",
            429 => "TooManyRequests",
            500.. => "InternalError",
            _ => "",
        };
        Self::generic(code, reason, message)
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 403: the rules of the server forbid the request; `why` follows `is forbidden: `.
    pub(crate) fn forbidden(named: Named<'_>, why: &str) -> Self {
        let subject = match (named.kind, named.name) {
            ("", _) => "forbidden".to_owned(),
            (_, "") => format!("{} is forbidden", named.qualified()),
            (_, name) => format!("{} \"{name}\" is forbidden", named.qualified()),
        };
        Self::about(403, "Forbidden", named, format!("{subject}: {why}"))
    }

    /// 405: the resource does not support the verb.
    pub(crate) fn method_not_allowed() -> Self {
        Self::generic(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
    }

    /// 406: the client accepts none of the available representations; `available` lists them.
    pub(crate) fn not_acceptable(available: &str) -> Self {
        Self::generic(
            406,
            "NotAcceptable",
            format!("406: Not Acceptable\n\nAvailable representations: {available}"),
        )
    }

    /// 415 from a resource that names the media types that it accepts.
    pub(crate) fn unsupported_media_type(accepted: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {accepted}"
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// 415 from the routes: no handler takes this content type.
    pub(crate) fn unroutable_media_type() -> Self {
        Self::generic(415, "UnsupportedMediaType", "415: Unsupported Media Type")
    }

    /// 410: the resource version, or the continue token, is too old.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 429: try again later.
    pub(crate) fn too_many_requests(message: impl Into<String>, retry_after: Option<u64>) -> Self {
        let mut failure = Self::new(429, "TooManyRequests", message);
        failure.0.retry_after = retry_after;
        if let Some(seconds) = retry_after {
            failure.0.details =
                Some(Map::from_iter([("retryAfterSeconds".to_owned(), json!(seconds))]));
        }
        failure
    }

    /// 500 with the reason `InternalError`.
    pub(crate) fn internal(why: &str) -> Self {
        let cause = Cause { reason: String::new(), message: why.to_owned(), field: String::new() };
        let failure = Self::new(500, "InternalError", format!("Internal error occurred: {why}"));
        failure.with_details(Map::new()).with_causes(vec![cause])
    }

    /// 500 without a reason, as Kubernetes gives for errors that it does not classify.
    pub(crate) fn unclassified(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    /// 501: a real server supports this, with components that are missing here.
    pub(crate) fn not_implemented(named: Named<'_>, why: &str) -> Self {
        let message = format!("{} \"{}\": {why}", named.qualified(), named.name);
        Self::about(501, "NotImplemented", named, message)
    }

    /// 504: the resource version does not exist yet.
    pub(crate) fn timeout(message: impl Into<String>) -> Self {
        Self::new(504, "Timeout", message)
    }

    /// A failure with any other code, with empty details.
    pub(crate) fn generic(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(code, reason, message).with_details(Map::new())
    }

    /// Replaces the details.
    #[must_use]
    pub(crate) fn with_details(mut self, details: Map<String, Value>) -> Self {
        self.0.details = Some(details);
        self
    }

    /// Adds these causes to the details, in their order.
    #[must_use]
    pub(crate) fn with_causes(mut self, causes: Vec<Cause>) -> Self {
        let causes: Vec<Value> = causes.into_iter().map(Cause::into_value).collect();
        if !causes.is_empty() {
            self.0
                .details
                .get_or_insert_default()
                .insert("causes".to_owned(), Value::Array(causes));
        }
        self
    }

    /// Sets the list metadata (the token to continue with).
    #[must_use]
    pub(crate) fn with_metadata(mut self, metadata: Map<String, Value>) -> Self {
        self.0.metadata = metadata;
        self
    }

    /// Returns the HTTP status.
    pub fn code(&self) -> u16 {
        self.0.code
    }

    /// Returns the machine-readable reason, empty if there is none.
    pub fn reason(&self) -> &str {
        self.0.reason
    }

    /// Returns the message for people.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the seconds for the header `Retry-After`, if any.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        self.0.retry_after
    }

    /// Returns whether the answer is a plain text instead of a `Status`.
    pub(crate) fn is_plain(&self) -> bool {
        self.0.plain
    }

    /// Returns the `Status` object.
    pub fn to_status(&self) -> Value {
        let parts = &*self.0;
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": parts.metadata, "status": "Failure", "message": parts.message, "code": parts.code,
        });
        if let Some(fields) = status.as_object_mut() {
            if !parts.reason.is_empty() {
                fields.insert("reason".to_owned(), Value::from(parts.reason));
            }
            if let Some(details) = &parts.details {
                fields.insert("details".to_owned(), Value::Object(details.clone()));
            }
        }
        status
    }
}

// === impl Cause ===

impl Cause {
    fn into_value(self) -> Value {
        let fields = [("reason", self.reason), ("message", self.message), ("field", self.field)];
        let present = fields.into_iter().filter(|(_, text)| !text.is_empty());
        Value::Object(present.map(|(key, text)| (key.to_owned(), Value::String(text))).collect())
    }
}

/// Joins the texts of causes, each distinct one once: `a: m`, or `[a: m, b: n]`.
fn aggregate(causes: &[Cause]) -> String {
    let mut texts: Vec<String> = Vec::with_capacity(causes.len());
    for cause in causes {
        let text = format!("{}: {}", cause.field, cause.message);
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.as_slice() {
        [only] => only.clone(),
        many => {
            let mut text = String::new();
            let _ = write!(text, "[{}]", many.join(", "));
            text
        }
    }
}
