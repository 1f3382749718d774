//! Calls to systems outside of the cluster, answered by the test.

use std::{fmt, mem, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use futures::future::{self, BoxFuture};
use jiff::Timestamp;
use mortise_core::{
    contract,
    outbound::{
        self as core, Allowed, Authorization, Egress, GrantedCredential, Outbound, Scheme,
        pauses::{PauseKey, Pauses},
    },
    write::Clock,
};
use parking_lot::Mutex;
use serde_json::Value;

use super::{Stub, run::Notes};
use crate::{
    OutboundRule,
    outbound::{Answer, CallError, Method},
};

/// A call as the other side gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboundRequest {
    /// The method.
    pub method: Method,
    /// The whole URL, with the query.
    pub url: String,
    /// Names in lower case, and values, without the credential's header.
    pub headers: Vec<(String, String)>,
    /// The body, if there is one.
    pub body: Option<Vec<u8>>,
    /// The value of the credential, if the call has one: the token, the password or the header's
    /// value.
    pub token: Option<String>,
    /// The time of the call, in milliseconds of Unix time.
    pub now: u64,
}

/// The reply of a test to a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// An answer, of any status.
    Answer(Answer),
    /// No connection: nothing was sent. The text is for people.
    NotSent(String),
    /// The connection ended before the answer was whole. The text is for people.
    NoAnswer(String),
    /// The rate of the grant is reached: nothing was sent.
    Paused(Duration),
    /// An answer that is larger than the limit.
    TooLarge,
}

/// A call that a processor has asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct CallMade {
    /// The method.
    pub method: Method,
    /// The whole URL, with the query.
    pub url: String,
    /// The headers that the processor set.
    pub headers: Vec<(String, String)>,
    /// The body, if there is one.
    pub body: Option<Vec<u8>>,
    /// The value of the credential; `None` if the call has none, or was not sent.
    pub token: Option<String>,
    /// True if the call has passed the rules of the host, and the test has replied to it.
    pub is_sent: bool,
    /// The answer, or the reason why there is none.
    pub result: Result<Answer, CallError>,
}

/// The function of a test that replies to calls.
pub(super) type Answering = Box<dyn FnMut(&OutboundRequest) -> Reply + Send>;

/// The replies to calls, which a test may change at any time. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Replies(Arc<Mutex<Option<Answering>>>);

/// The client of a test: it replies to what the host's rules have let through, and keeps the pauses
/// that replies ask for, by the clock of the test.
pub(super) struct Client {
    replies: Replies,
    pauses: Pauses,
    clock: Clock,
    /// The call that was sent last; `None` if none was sent since.
    sent: Mutex<Option<Sent>>,
}

// === impl Stub ===

impl Stub {
    /// Answers the calls that the processor makes to systems outside of the cluster. The rules of
    /// the host come first: the function gets what they let through, with the value of the
    /// credential. Another function may take its place at any time.
    ///
    /// ```
    /// use mortise_sdk::testing::{Reply, Stub};
    /// use serde_json::json;
    ///
    /// let stub = Stub::new().outbound(|call| match call.token.as_deref() {
    ///     Some("secret") => Reply::json(200, &json!({"id": "7"})),
    ///     _ => Reply::status(401),
    /// });
    /// ```
    #[must_use]
    pub fn outbound(self, reply: impl FnMut(&OutboundRequest) -> Reply + Send + 'static) -> Self {
        self.set_outbound(reply);
        self
    }

    /// Answers calls from now on as [`Stub::outbound`] does.
    pub fn set_outbound(&self, reply: impl FnMut(&OutboundRequest) -> Reply + Send + 'static) {
        self.state.lock().replies.set(Box::new(reply));
    }

    /// Grants these rules only. Without this, all that the description declares is granted.
    #[must_use]
    pub fn grant_egress(self, rules: impl IntoIterator<Item = OutboundRule>) -> Self {
        let rules = rules.into_iter().map(Into::into).collect();
        self.preparing().granted = Some(rules);
        self
    }

    /// Forgets all notes, as a host does when it starts: the next run of each object has none.
    pub fn forget_notes(&self) {
        if let Some(driver) = &self.state.lock().driver {
            driver.forget_notes();
        }
    }

    /// Sets what calls are answered by, and whether notes are kept.
    pub(super) fn answered(self, replies: Replies, notes: Notes) -> Self {
        let mut state = self.state.lock();
        (state.replies, state.notes) = (replies, notes);
        drop(state);
        self
    }

    /// Returns whether a run has left a note.
    pub(super) fn is_noted(&self) -> bool {
        self.journal.lock().is_noted
    }

    /// Returns the calls so far, those that were refused too.
    pub fn calls(&self) -> Vec<CallMade> {
        self.journal.lock().calls.clone()
    }
}

/// Returns grants of all that the rules name.
///
/// # Errors
///
/// A rule is not valid.
pub fn granted(rules: &[contract::OutboundRule]) -> Result<Vec<Arc<Egress>>, String> {
    let of = |rule: &contract::OutboundRule| {
        let credential = |of: &contract::Selection| GrantedCredential {
            group: of.kind.group.clone(),
            kind: of.kind.kind.clone(),
            labels: of.labels.clone(),
        };
        Ok(Arc::new(Egress {
            origin: rule.origin.clone(),
            credentials: rule.credentials.iter().map(credential).collect(),
            rate: None,
            ca_bundle: None,
            private: false,
            connect: None,
        }))
    };
    rules.iter().map(of).collect()
}

// === impl Replies ===

impl Replies {
    pub(super) fn set(&self, answering: Answering) {
        *self.0.lock() = Some(answering);
    }

    /// Returns the reply to a call.
    ///
    /// # Panics
    ///
    /// If the test has no function for it.
    fn reply(&self, call: &OutboundRequest) -> Reply {
        let mut answering = self.0.lock();
        let Some(answering) = &mut *answering else {
            panic!(
                "the processor calls {} {}, and the test has no answer: script it with \
                 `Stub::outbound(|call| Reply::json(200, &json!({{}})))`",
                call.method.name(),
                call.url
            );
        };
        answering(call)
    }
}

/// A call that was sent.
pub(super) struct Sent {
    /// The value of its credential, if it has one.
    pub(super) token: Option<String>,
}

// === impl Client ===

impl Client {
    pub(super) fn new(replies: Replies, clock: Clock) -> Self {
        Self { replies, pauses: Pauses::default(), clock, sent: Mutex::default() }
    }

    /// Returns whether a call was sent since this was asked last, and with which credential.
    pub(super) fn take_sent(&self) -> Option<Sent> {
        mem::take(&mut self.sent.lock())
    }

    fn answer(&self, call: &Allowed) -> Result<core::Answer, core::CallError> {
        let date = (self.clock)();
        let now = since_epoch(date);
        if let Some(left) = self.pauses.left(&PauseKey::of(call), now) {
            return Err(core::CallError::paused(left));
        }
        let request = OutboundRequest::of(call, now);
        *self.sent.lock() = Some(Sent { token: request.token.clone() });
        let answer = match self.replies.reply(&request) {
            Reply::Answer(Answer { status, headers, body }) => {
                core::Answer { status, headers: in_lower_case(headers), body }
            }
            Reply::NotSent(why) => return Err(core::CallError::NotSent(why)),
            Reply::NoAnswer(why) => return Err(core::CallError::NoAnswer(why)),
            Reply::Paused(pause) => return Err(core::CallError::paused(pause)),
            Reply::TooLarge => return Err(core::CallError::TooLarge),
        };
        self.pauses.follow(call, &answer, date, now);
        Ok(answer)
    }
}

impl Outbound for Client {
    fn send(&self, call: Allowed) -> BoxFuture<'_, Result<core::Answer, core::CallError>> {
        Box::pin(future::ready(self.answer(&call)))
    }
}

fn since_epoch(time: Timestamp) -> Duration {
    Duration::try_from(time.duration_since(Timestamp::UNIX_EPOCH)).unwrap_or_default()
}

fn in_lower_case(headers: Vec<(String, String)>) -> Vec<(String, String)> {
    headers.into_iter().map(|(name, value)| (name.to_lowercase(), value)).collect()
}

// === impl OutboundRequest ===

impl OutboundRequest {
    fn of(call: &Allowed, now: Duration) -> Self {
        Self {
            method: method(call.method),
            url: call.target.url(),
            headers: in_lower_case(call.headers.clone()),
            body: call.body.clone(),
            token: call.authorization.as_ref().map(token),
            now: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Returns the body as JSON, or as a text if it is none; null if there is no body.
    pub fn json(&self) -> Value {
        let Some(body) = &self.body else { return Value::Null };
        let text = || Value::from(String::from_utf8_lossy(body));
        serde_json::from_slice(body).unwrap_or_else(|_| text())
    }
}

impl fmt::Display for OutboundRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method.name(), self.url)
    }
}

/// Returns the value of a credential, from the header that carries it.
fn token(of: &Authorization) -> String {
    let value = of.value.as_str();
    match &of.credential.scheme {
        Scheme::Header(_) => value.to_owned(),
        Scheme::Bearer => value.strip_prefix("Bearer ").unwrap_or(value).to_owned(),
        Scheme::Basic(user) => {
            let encoded = value.strip_prefix("Basic ").unwrap_or(value);
            let decoded = BASE64.decode(encoded).unwrap_or_default();
            let text = String::from_utf8_lossy(&decoded);
            let password = text.strip_prefix(user).and_then(|rest| rest.strip_prefix(':'));
            password.unwrap_or_default().to_owned()
        }
    }
}

fn method(of: core::Method) -> Method {
    match of {
        core::Method::Get => Method::Get,
        core::Method::Head => Method::Head,
        core::Method::Post => Method::Post,
        core::Method::Put => Method::Put,
        core::Method::Patch => Method::Patch,
        core::Method::Delete => Method::Delete,
    }
}

// === impl Reply ===

impl Reply {
    /// Creates an answer without a body.
    pub fn status(status: u16) -> Self {
        Self::Answer(Answer { status, headers: Vec::new(), body: Vec::new() })
    }

    /// Creates an answer of JSON.
    pub fn json(status: u16, body: &Value) -> Self {
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        Self::Answer(Answer { status, headers, body: body.to_string().into_bytes() })
    }

    /// Adds a header to an answer.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        if let Self::Answer(answer) = &mut self {
            answer.headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        Self::Answer(answer)
    }
}

#[cfg(test)]
mod tests;
