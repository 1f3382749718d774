//! Requests and replies.

use serde_json::Value;

/// A request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// The method, in upper case.
    pub method: String,
    /// The host that the caller asked for, such as `eu.api.konghq.com`; a port is ignored.
    pub host: String,
    /// The path, without the query.
    pub path: String,
    /// The query as in the URL, without `?`; empty if there is none.
    pub query: String,
    /// The bearer token of the header `Authorization`.
    pub token: Option<String>,
    /// The other headers.
    pub headers: Vec<(String, String)>,
    /// The body; empty if there is none.
    pub body: Vec<u8>,
}

/// The reply to a request, and its delay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The milliseconds before the answer is sent, or the connection is closed.
    pub delay: u64,
    pub end: End,
}

/// How a request ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    Answer(Answer),
    /// The connection is closed without an answer.
    Closed {
        /// The connection is reset (TCP `RST`) instead of closed in order.
        reset: bool,
        /// The request has been carried out.
        done: bool,
    },
}

/// An answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// The headers, among them `Content-Type`; names as in the goldens or in lower case.
    pub headers: Vec<(String, String)>,
    /// The body; empty if there is none.
    pub body: Vec<u8>,
}

/// The content type of answers.
pub const JSON: &str = "application/json";
/// The content type of problem documents.
pub const PROBLEM: &str = "application/problem+json";

// === impl Request ===

impl Request {
    /// Returns the value of the query's first parameter of this name, decoded.
    pub fn query_value(&self, name: &str) -> Option<String> {
        self.query_pairs().into_iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// Returns the parameters of the query, decoded.
    pub fn query_pairs(&self) -> Vec<(String, String)> {
        let parts = self.query.split('&').filter(|part| !part.is_empty());
        parts
            .map(|part| {
                let (name, value) = part.split_once('=').unwrap_or((part, ""));
                (decode(name, true), decode(value, true))
            })
            .collect()
    }

    /// Returns the body as JSON; as text if it is none, and nothing if it is empty.
    pub fn body_value(&self) -> Option<Value> {
        value(&self.body)
    }
}

// === impl Answer ===

impl Answer {
    /// Returns an answer with a JSON body.
    pub fn json(status: u16, body: &Value) -> Self {
        Self::with_type(status, JSON, body)
    }

    /// Returns an answer with a body in JSON and another content type.
    pub fn with_type(status: u16, content_type: &str, body: &Value) -> Self {
        let headers = vec![("content-type".to_owned(), content_type.to_owned())];
        Self { status, headers, body: body.to_string().into_bytes() }
    }

    /// Returns the answer without a body.
    pub fn empty(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    /// Returns the body as JSON; as text if it is none, and nothing if it is empty.
    pub fn body_value(&self) -> Option<Value> {
        value(&self.body)
    }

    /// Returns a header's value; case is ignored in the name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

// === impl Reply ===

impl Reply {
    /// Returns the answer, if there is one.
    pub fn answer(&self) -> Option<&Answer> {
        match &self.end {
            End::Answer(answer) => Some(answer),
            End::Closed { .. } => None,
        }
    }
}

fn value(body: &[u8]) -> Option<Value> {
    if body.is_empty() {
        return None;
    }
    let json = serde_json::from_slice(body);
    Some(json.unwrap_or_else(|_| Value::String(String::from_utf8_lossy(body).into_owned())))
}

/// Decodes percent-encoded text. An escape that is none stays as it is.
pub(crate) fn decode(text: &str, plus_is_space: bool) -> String {
    let mut rest = text.as_bytes();
    let mut decoded = Vec::with_capacity(rest.len());
    while let Some((&byte, after)) = rest.split_first() {
        let (byte, after) = match (byte, escape(after)) {
            (b'%', Some(escaped)) => escaped,
            (b'+', _) if plus_is_space => (b' ', after),
            _ => (byte, after),
        };
        decoded.push(byte);
        rest = after;
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// Reads two hexadecimal digits; returns their byte and what comes after.
fn escape(text: &[u8]) -> Option<(u8, &[u8])> {
    let (digits, after) = text.split_at_checked(2)?;
    let digits = digits.iter().map(|digit| char::from(*digit).to_digit(16));
    let value = digits.collect::<Option<Vec<u32>>>()?;
    let value = value.into_iter().fold(0, |sum, digit| sum * 16 + digit);
    Some((u8::try_from(value).ok()?, after))
}
