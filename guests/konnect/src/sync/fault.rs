//! Calls that failed: what the API or the host said, and in which words a condition tells it.

use std::time::Duration;

use mortise_sdk::{
    outbound::{Answer, CallError},
    time,
};
use serde_json::{Map, Value};

use crate::kind::Api;

/// How long nothing is sent after 429 without a time that can be used.
pub(crate) const PAUSE: Duration = Duration::from_secs(15);
/// The most bytes of an answer that are read as an error. A longer one is not quoted at all: what is
/// cut off might be the second half of a secret.
const MAX_BODY: usize = 64 << 10;
/// The collection of control planes.
const CONTROL_PLANES: &str = "/v2/control-planes";
/// The kind of which the original tells the wrong operation.
const VAULT: &str = "KongVault";
/// The longest pause that an answer may ask for.
const LONGEST_PAUSE: Duration = Duration::from_mins(10);

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fault {
    /// The API refused.
    Refused(Refusal),
    /// The API did what was asked, and did not answer with an entity.
    NoEntity,
    /// There is no whole answer.
    Call(CallError),
    /// The entity is refused as that of another object, in the words of the condition. Nothing helps
    /// but a change of one of them.
    Clash(String),
}

/// An answer that refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    content_type: String,
    body: String,
    retry_after: Option<String>,
    /// The client of the original has no type for the status, at this operation.
    is_generic: bool,
}

/// How an answer is typed, which decides about the words of the condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Typed {
    /// A problem document for which the condition has nothing but the document.
    Alone,
    /// A typed error: the condition has the document after what was attempted.
    Document,
    /// Anything else.
    No,
}

/// The operation that was attempted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
}

// === impl Fault ===

impl Fault {
    /// Returns the status of the answer, if the API refused.
    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            Self::Refused(refusal) => Some(refusal.status),
            _ => None,
        }
    }

    /// Returns whether the API refused in a form that the original's client does not know.
    pub(crate) fn is_untyped(&self, api: &Api) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.typed(Some(api)) == Typed::No)
    }

    /// Returns the fault of an operation at which only these statuses are typed.
    pub(crate) fn typed_for(mut self, statuses: &[u16]) -> Self {
        if let Self::Refused(refusal) = &mut self {
            refusal.is_generic = !statuses.contains(&refusal.status);
        }
        self
    }

    /// Returns whether the condition has nothing but the document of the answer.
    pub(crate) fn is_document_alone(&self, api: &Api) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.typed(Some(api)) == Typed::Alone)
    }

    /// Returns the fault in words, without what was attempted.
    pub(crate) fn text(&self, api: Option<&Api>) -> String {
        match self {
            Self::Refused(refusal) => refusal.text(api),
            Self::NoEntity => "response from Konnect is nil".to_owned(),
            Self::Call(error) => error.to_string(),
            Self::Clash(message) => message.clone(),
        }
    }

    /// Returns the message of the condition.
    pub(crate) fn message(&self, operation: Operation, api: &Api, kind: &str, of: &str) -> String {
        let text = self.text(Some(api));
        let typed = match self {
            Self::Refused(refusal) => Some(refusal.typed(Some(api))),
            _ => None,
        };
        let is_alone = match typed {
            Some(typed) => typed != Typed::Document,
            None => matches!(self, Self::Clash(_)),
        };
        match operation {
            Operation::Delete if typed == Some(Typed::Alone) => text,
            Operation::Delete => format!("failed to delete {kind} on Konnect: {text}"),
            _ if is_alone => text,
            Operation::Update if is_control_planes(api) && typed.is_some() => {
                format!("failed to update {kind} on Konnect: {text}")
            }
            // As with the original, which says so of vaults.
            Operation::Update if kind != VAULT => format!("failed to update {kind} {of}: {text}"),
            Operation::Create | Operation::Update => {
                format!("failed to create {kind} {of}: {text}")
            }
        }
    }
}

// === impl Refusal ===

impl Refusal {
    pub(crate) fn of(answer: &Answer) -> Self {
        let header = |name: &str| answer.header(name).map(str::to_owned);
        Self {
            status: answer.status,
            content_type: header("content-type").unwrap_or_default(),
            body: match answer.body.len() {
                length if length > MAX_BODY => format!("({length} bytes)"),
                _ => String::from_utf8_lossy(&answer.body).into_owned(),
            },
            retry_after: header("retry-after"),
            is_generic: false,
        }
    }

    /// Returns whether the API has an entity already with a value that must be unique.
    pub(crate) fn is_conflict(&self) -> bool {
        let body: Value = serde_json::from_str(&self.body).unwrap_or_default();
        let code = body.get("code").and_then(Value::as_i64);
        let message = body.get("message").and_then(Value::as_str).unwrap_or_default();
        let is_clash = message == "data constraint error"
            || message.contains("(type: unique) constraint failed");
        self.status == 409 || code == Some(6) || (code == Some(3) && is_clash)
    }

    /// Returns whether the API knows nothing of what the entity refers to.
    pub(crate) fn lacks_reference(&self) -> bool {
        let body: Value = serde_json::from_str(&self.body).unwrap_or_default();
        let details = body.get("details").and_then(Value::as_array);
        let is_reference = |detail: &Value| {
            detail.get("type").and_then(Value::as_str) == Some("ERROR_TYPE_REFERENCE")
        };
        let is_all = |details: &Vec<Value>| !details.is_empty() && details.iter().all(is_reference);
        self.status == 400 && !self.is_conflict() && details.is_some_and(is_all)
    }

    /// Returns how long the API asks to send nothing; `None` if it does not.
    pub(crate) fn pause(&self, now: u64) -> Option<Duration> {
        if self.status != 429 {
            return None;
        }
        let asked = self.retry_after.as_deref().and_then(|text| {
            let seconds = text.trim().parse::<u64>().map(Duration::from_secs).ok();
            let until = || time::parse(&rfc3339(text.trim())?)?.checked_sub(now);
            seconds.or_else(|| until().map(Duration::from_millis))
        });
        Some(asked.filter(|pause| !pause.is_zero()).unwrap_or(PAUSE).min(LONGEST_PAUSE))
    }

    fn text(&self, api: Option<&Api>) -> String {
        if self.typed(api) == Typed::No {
            let failed = match self.expected(api) {
                Some((_, of)) if !self.is(of) => {
                    format!("unknown content-type received: {}", self.content_type)
                }
                _ => "API error occurred".to_owned(),
            };
            let line = if self.body.is_empty() { "" } else { "\n" };
            let body = without_instance(&self.body);
            return format!("{failed}: Status {}{line}{body}", self.status);
        }
        let body: Value = serde_json::from_str(&self.body).unwrap_or_default();
        let fields: &[&str] = match self.status {
            _ if is_core(api) => &["message", "status"],
            _ if is_legacy(api) => &["message"],
            400 => &["status", "title", "instance", "detail", "invalid_parameters"],
            _ => &["status", "title", "instance", "detail"],
        };
        let field = |field: &&str| match *field {
            "instance" => "\"instance\":\"\"".to_owned(),
            field => format!("\"{field}\":{}", body.get(field).unwrap_or(&Value::Null)),
        };
        format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(","))
    }

    /// Returns how the original's client types the answer.
    fn typed(&self, api: Option<&Api>) -> Typed {
        let is_object = serde_json::from_str::<Map<String, Value>>(&self.body).is_ok();
        match self.expected(api) {
            Some((typed, content_type)) if is_object && self.is(content_type) => typed,
            _ => Typed::No,
        }
    }

    /// Returns the type of an error of this status, and the content type that it must have; `None` if
    /// the status has none.
    fn expected(&self, api: Option<&Api>) -> Option<(Typed, &'static str)> {
        const JSON: &str = "application/json";
        const PROBLEM: &str = "application/problem+json";
        match self.status {
            _ if self.is_generic => None,
            401 if api.is_none() => Some((Typed::Document, PROBLEM)),
            401 if is_core(api) => Some((Typed::Document, JSON)),
            _ if api.is_none() || is_core(api) => None,
            400 | 401 | 403 | 404 if is_legacy(api) => Some((Typed::Document, JSON)),
            _ if is_legacy(api) => None,
            400 | 404 | 409 => Some((Typed::Alone, PROBLEM)),
            401 | 403 | 500 | 503 => Some((Typed::Document, PROBLEM)),
            _ => None,
        }
    }

    fn is(&self, content_type: &str) -> bool {
        self.content_type.split(';').next().unwrap_or_default().trim() == content_type
    }
}

/// Returns the end of a pause, to the second.
pub(crate) fn until(now: u64, pause: Duration) -> String {
    let pause = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
    time::rfc3339(now.saturating_add(pause).saturating_add(999))
}

/// Returns the message about a pause for which nothing was sent.
pub(crate) fn paused(now: u64, pause: Duration) -> String {
    format!("Konnect asks for a pause: nothing is sent until {}", until(now, pause))
}

/// Returns whether an entity is one of a control plane, whose errors have a form of their own. `None`
/// is the organization.
fn is_core(api: Option<&Api>) -> bool {
    api.is_some_and(|api| api.collection.contains("/core-entities/"))
}

/// Returns whether the errors about an entity have the older form, with nothing but a message.
fn is_legacy(api: Option<&Api>) -> bool {
    api.is_some_and(|api| api.collection.contains("/dp-client-certificates"))
}

/// Returns whether an entity is a control plane.
fn is_control_planes(api: &Api) -> bool {
    api.collection == CONTROL_PLANES
}

/// Returns the text of an answer without the number of the request that it holds: an equal failure
/// has an equal text, which is not written again.
fn without_instance(body: &str) -> String {
    const KEY: &str = "\"instance\"";
    let Some((before, after)) = body.split_once(KEY) else { return body.to_owned() };
    let value = after.trim_start().strip_prefix(':').map(str::trim_start);
    let rest = value.and_then(|value| value.strip_prefix('"')?.split_once('"'));
    match rest {
        Some((_, rest)) => format!("{before}{KEY}:\"\"{rest}"),
        None => body.to_owned(),
    }
}

/// Returns a date of HTTP, `Wed, 21 Oct 2015 07:28:00 GMT`, as RFC 3339.
fn rfc3339(date: &str) -> Option<String> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut parts = date.split_once(", ")?.1.strip_suffix(" GMT")?.split(' ');
    let (day, month, year, time) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    Some(format!("{year}-{month:02}-{day}T{time}Z"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind;

    fn refusal(status: u16, content_type: &str, body: &str) -> Refusal {
        let headers = vec![("content-type".to_owned(), content_type.to_owned())];
        Refusal::of(&Answer { status, headers, body: body.into() })
    }

    fn created(kind: &'static str, refusal: Refusal) -> String {
        let api = kind::find(kind).unwrap().api.as_ref().unwrap();
        Fault::Refused(refusal).message(Operation::Create, api, kind, "ns/x")
    }

    #[test]
    fn messages_are_those_of_the_original_without_the_number_of_the_request() {
        let problem = |status: u16| {
            let body = format!(
                r#"{{"status": {status}, "title": "T", "instance": "kong:trace:1", "detail": "d"}}"#
            );
            refusal(status, "application/problem+json", &body)
        };
        let json = |status, body| refusal(status, "application/json", body);
        let cases = [
            (
                "KonnectGatewayControlPlane",
                problem(400),
                r#"{"status":400,"title":"T","instance":"","detail":"d","invalid_parameters":null}"#,
            ),
            (
                "KonnectGatewayControlPlane",
                problem(409),
                r#"{"status":409,"title":"T","instance":"","detail":"d"}"#,
            ),
            (
                "KonnectGatewayControlPlane",
                problem(500),
                r#"failed to create KonnectGatewayControlPlane ns/x: {"status":500,"title":"T","instance":"","detail":"d"}"#,
            ),
            (
                "KongService",
                json(401, r#"{"message":"Unauthorized","status":401}"#),
                r#"failed to create KongService ns/x: {"message":"Unauthorized","status":401}"#,
            ),
            ("KongService", json(401, "away"), "API error occurred: Status 401\naway"),
            (
                "KongService",
                json(400, r#"{"code": 3}"#),
                "API error occurred: Status 400\n{\"code\": 3}",
            ),
            (
                "KongDataPlaneClientCertificate",
                json(403, r#"{"message":"no","status":403}"#),
                r#"failed to create KongDataPlaneClientCertificate ns/x: {"message":"no"}"#,
            ),
            (
                "KongDataPlaneClientCertificate",
                json(409, r#"{"message":"twice"}"#),
                "API error occurred: Status 409\n{\"message\":\"twice\"}",
            ),
            (
                "KongService",
                refusal(502, "text/plain", "bad gateway"),
                "API error occurred: Status 502\nbad gateway",
            ),
            (
                "KongService",
                json(500, r#"{"instance" : "kong:trace:1", "a": 1}"#),
                "API error occurred: Status 500\n{\"instance\":\"\", \"a\": 1}",
            ),
            ("KongService", refusal(503, "text/plain", ""), "API error occurred: Status 503"),
            (
                "KongService",
                refusal(401, "text/plain", "no"),
                "unknown content-type received: text/plain: Status 401\nno",
            ),
            (
                "KonnectGatewayControlPlane",
                json(500, "{}"),
                "unknown content-type received: application/json: Status 500\n{}",
            ),
        ];
        for (kind, refusal, expected) in cases {
            assert_eq!(created(kind, refusal), expected);
        }
    }

    #[test]
    fn of_the_organization_one_status_is_typed() {
        let told = |status| {
            let body = format!(r#"{{"status":{status}}}"#);
            Fault::Refused(refusal(status, "application/problem+json", &body)).text(None)
        };
        assert!(told(401).starts_with(r#"{"status":401,"title":null"#), "{}", told(401));
        assert_eq!(told(500), "API error occurred: Status 500\n{\"status\":500}");
    }

    #[test]
    fn an_update_of_a_vault_is_told_as_a_creation() {
        let api = kind::find("KongVault").unwrap().api.as_ref().unwrap();
        let refused = refusal(401, "application/json", r#"{"message":"no","status":401}"#);
        assert_eq!(
            Fault::Refused(refused).message(Operation::Update, api, "KongVault", "/v"),
            r#"failed to create KongVault /v: {"message":"no","status":401}"#
        );
    }

    #[test]
    fn a_clash_is_told_in_several_ways() {
        let cases = [
            (400, r#"{"code":3,"message":"data constraint error"}"#, true),
            (400, r#"{"code":3,"message":"name (type: unique) constraint failed"}"#, true),
            (400, r#"{"code":6,"message":"already exists"}"#, true),
            (409, "", true),
            (400, r#"{"code":3,"message":"validation error"}"#, false),
            (403, r#"{"code":7}"#, false),
            (400, "no JSON", false),
        ];
        for (status, body, expected) in cases {
            assert_eq!(refusal(status, "application/json", body).is_conflict(), expected, "{body}");
        }
    }

    #[test]
    fn a_pause_is_read_as_seconds_or_as_a_date() {
        let now = time::parse("2015-10-21T07:27:53Z").unwrap();
        let pause = |retry_after: Option<&str>| {
            let retry_after = retry_after.map(str::to_owned);
            let refusal = Refusal { retry_after, ..refusal(429, "", "") };
            refusal.pause(now).map(|pause| pause.as_secs())
        };
        let cases = [
            (Some("7"), 7),
            (Some("Wed, 21 Oct 2015 07:28:00 GMT"), 7),
            (Some("Wed, 21 Oct 2015 07:27:00 GMT"), 15),
            (None, 15),
            (Some("0"), 15),
            (Some("-3"), 15),
            (Some("soon"), 15),
            (Some("99999999"), 600),
        ];
        for (retry_after, expected) in cases {
            assert_eq!(pause(retry_after), Some(expected), "{retry_after:?}");
        }
        assert_eq!(refusal(503, "", "").pause(now), None);
    }
}
