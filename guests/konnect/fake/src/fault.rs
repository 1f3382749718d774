//! Faults: answers, dropped connections and delays in place of the usual answer.

use std::collections::BTreeMap;

use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::message::{Answer, End, JSON, Reply, Request};

/// A fault. Its keys are those of the goldens, and `token`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Fault {
    /// The method of the requests; absent: every method.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The regular expression that is searched in the path.
    pub path: String,
    /// The token of the requests; absent: every token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// How often the fault applies. Absent: once; negative: always.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<i64>,
    /// The status of the answer. Absent: the request is carried out and answered as usual (unless
    /// the connection is closed).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The body of the answer; a text is sent as it is. Absent: empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
    /// Headers of the answer; the content type is JSON if it is not among them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The request is carried out as usual all the same.
    pub act: bool,
    /// The connection is closed without an answer.
    pub drop: bool,
    /// The connection is reset without an answer.
    pub reset: bool,
    /// The seconds that pass before the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_seconds: Option<f64>,
}

/// Why a fault is refused.
#[derive(Debug, thiserror::Error)]
pub enum Invalid {
    #[error("`path` of a fault is not a regular expression: `{path}`")]
    Path {
        path: String,
        #[source]
        source: regex::Error,
    },
    #[error("`status` of a fault is {0}; it must be from 200 to 599")]
    Status(u16),
    #[error("`delaySeconds` of a fault is {0}; it must be from 0 to 3600")]
    Delay(f64),
    #[error("there are {count} faults; the most is {most}")]
    TooMany { count: usize, most: usize },
}

/// Faults that are set.
#[derive(Debug, Default)]
pub(crate) struct Faults(Vec<Set>);

#[derive(Debug)]
struct Set {
    fault: Fault,
    path: Regex,
    /// How often it still applies; nothing: always.
    left: Option<i64>,
}

/// The most seconds of a delay.
const MAX_DELAY_SECONDS: f64 = 3_600.0;

// === impl Fault ===

impl Fault {
    /// Returns whether the request is carried out.
    pub(crate) fn carries_out(&self) -> bool {
        self.act || !(self.status.is_some() || self.drop || self.reset)
    }

    /// Returns the reply in place of the usual answer, which is missing if the request was not
    /// carried out.
    pub(crate) fn reply(&self, usual: Option<Answer>) -> Reply {
        let delay = self.delay();
        let closed = End::Closed { reset: self.reset, done: usual.is_some() };
        let end = match (self.status, usual) {
            _ if self.drop || self.reset => closed,
            (Some(status), _) => End::Answer(self.answer(status)),
            (None, Some(usual)) => End::Answer(usual),
            (None, None) => closed,
        };
        Reply { delay, end }
    }

    /// Returns the delay in milliseconds.
    fn delay(&self) -> u64 {
        let seconds = self.delay_seconds.unwrap_or_default().clamp(0.0, MAX_DELAY_SECONDS);
        let delay = std::time::Duration::from_secs_f64(seconds);
        u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)
    }

    fn answer(&self, status: u16) -> Answer {
        let own = self.headers.iter().map(|(name, value)| (name.clone(), value.clone()));
        let mut headers: Vec<(String, String)> = own.collect();
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
            headers.push(("content-type".to_owned(), JSON.to_owned()));
        }
        let body = match &self.body {
            None => Vec::new(),
            Some(Value::String(text)) => text.clone().into_bytes(),
            Some(body) => body.to_string().into_bytes(),
        };
        Answer { status, headers, body }
    }

    fn check(&self) -> Result<(), Invalid> {
        if let Some(status) = self.status.filter(|status| !(200..=599).contains(status)) {
            return Err(Invalid::Status(status));
        }
        let is_wrong = |delay: &f64| !(0.0..=MAX_DELAY_SECONDS).contains(delay);
        match self.delay_seconds.filter(is_wrong) {
            Some(delay) => Err(Invalid::Delay(delay)),
            None => Ok(()),
        }
    }
}

// === impl Faults ===

impl Faults {
    pub(crate) fn set(faults: Vec<Fault>, most: usize) -> Result<Self, Invalid> {
        if faults.len() > most {
            return Err(Invalid::TooMany { count: faults.len(), most });
        }
        let set = faults.into_iter().map(|fault| {
            fault.check()?;
            let invalid = |source| Invalid::Path { path: fault.path.clone(), source };
            let path = Regex::new(&fault.path).map_err(invalid)?;
            let left = Some(fault.times.unwrap_or(1)).filter(|times| *times >= 0);
            Ok(Set { fault, path, left })
        });
        Ok(Self(set.collect::<Result<_, _>>()?))
    }

    /// Takes the first fault that applies to a request.
    pub(crate) fn take(&mut self, request: &Request) -> Option<Fault> {
        let set = self.0.iter_mut().find(|set| set.applies(request))?;
        set.left = set.left.map(|left| left - 1);
        Some(set.fault.clone())
    }
}

// === impl Set ===

impl Set {
    fn applies(&self, request: &Request) -> bool {
        let is_method = |method: &String| method.eq_ignore_ascii_case(&request.method);
        self.left.is_none_or(|left| left > 0)
            && self.fault.method.as_ref().is_none_or(is_method)
            && self.fault.token.as_ref().is_none_or(|token| Some(token) == request.token.as_ref())
            && self.path.is_match(&request.path)
    }
}
