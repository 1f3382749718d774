//! The calls to systems outside of the cluster that a case scripts: `calls.yaml`.

use std::{collections::BTreeMap, fmt::Write as _, path::Path, sync::Arc};

use mortise_core::{outbound::Outbound, write::Clock};
use mortise_embedded_api::yaml;
use parking_lot::Mutex;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::{document::Difference, file};
use crate::testing::{
    OutboundRequest, Reply,
    outbound::{Client, Replies},
};

/// The calls of the reconciles of one step: a document of `calls.yaml`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Calls {
    /// True if the calls may be made in any order.
    pub any_order: bool,
    /// The calls, each of which must be made once.
    pub calls: Vec<Scripted>,
}

/// A call that a case expects, and the reply to it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scripted {
    /// The method, as HTTP writes it: `GET`.
    pub method: String,
    /// The whole URL, with the query.
    pub url: String,
    /// The value of the credential; `None`: any, or none.
    pub token: Option<String>,
    /// A part of the body: JSON whose objects may lack fields, or a text. `None`: any.
    #[serde(default, deserialize_with = "value")]
    pub body: Option<Value>,
    /// The answer; `None` if there is an error.
    pub answer: Option<ScriptedAnswer>,
    /// The reason why there is no answer.
    pub error: Option<ScriptedError>,
}

/// An answer to a call.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedAnswer {
    /// The HTTP status.
    pub status: u16,
    /// Names and values.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The body: a text is sent as it is, anything else as JSON.
    #[serde(default, deserialize_with = "value")]
    pub body: Option<Value>,
}

/// The reason why a call has no answer.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScriptedError {
    /// Nothing was sent.
    NotSent,
    /// Something was sent, and no answer came.
    NoAnswer,
}

/// The calls of a running case. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Script(Arc<Mutex<Progress>>);

#[derive(Debug, Default)]
struct Progress {
    /// True if calls may be made again, and need not be made: for a run without notes.
    is_loose: bool,
    /// The calls of the current step that were not made yet.
    open: Calls,
    /// The calls that were made, of all steps.
    made: Vec<Scripted>,
    /// The calls of the current step that are not scripted.
    unscripted: Vec<String>,
    wrong: Vec<Difference>,
}

fn value<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Ok(Some(yaml::Document::deserialize(deserializer)?.0))
}

/// Returns a client that answers calls from a file like the `calls.yaml` of a case: those of all
/// its documents, each as often as it is made. A call that is not in the file is not sent.
///
/// # Errors
///
/// The file cannot be read, or does not parse.
pub fn answers(path: &Path, clock: Clock) -> Result<Arc<dyn Outbound>, String> {
    let calls = file::scripted(path)?.into_iter().flat_map(|of| of.calls).collect();
    let script = Script::new(Calls { any_order: true, calls });
    script.set_loose();
    Ok(script.client(clock))
}

// === impl Calls ===

impl Calls {
    /// Checks what the types do not. An error begins with the field.
    pub(super) fn check(&self) -> Result<(), String> {
        for (index, call) in self.calls.iter().enumerate() {
            call.check().map_err(|error| format!("calls[{index}].{error}"))?;
        }
        Ok(())
    }

    /// Removes the call that a request is, if it is one that may be made next.
    fn take(&mut self, request: &OutboundRequest, any_order: bool) -> Option<Scripted> {
        let within = if any_order { self.calls.len() } else { 1 };
        let at = self.calls.iter().take(within).position(|call| call.is(request))?;
        Some(self.calls.remove(at))
    }
}

// === impl Scripted ===

impl Scripted {
    fn check(&self) -> Result<(), String> {
        const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
        if !METHODS.contains(&self.method.as_str()) {
            return Err(format!("method: `{}` is none of {}", self.method, METHODS.join(", ")));
        }
        match (&self.answer, &self.error) {
            (Some(answer), None) if (200..600).contains(&answer.status) => Ok(()),
            (Some(answer), None) => {
                Err(format!("answer.status: {} is not from 200 to 599", answer.status))
            }
            (None, Some(_)) => Ok(()),
            _ => Err("answer: either `answer` or `error` is expected".to_owned()),
        }
    }

    fn is(&self, request: &OutboundRequest) -> bool {
        self.method == request.method.name()
            && self.url == request.url
            && self.token.as_ref().is_none_or(|token| request.token.as_ref() == Some(token))
            && self.body.as_ref().is_none_or(|body| is_part(body, &request.json()))
    }

    fn reply(&self) -> Reply {
        let told = || "the case says so".to_owned();
        match (&self.answer, self.error) {
            (Some(answer), _) => answer.reply(),
            (None, Some(ScriptedError::NotSent)) => Reply::NotSent(told()),
            (None, _) => Reply::NoAnswer(told()),
        }
    }

    fn line(&self) -> String {
        let token = self.token.as_ref().map(|token| format!(" token {token}"));
        let body = self.body.as_ref().map(|body| format!(" body {body}"));
        let (token, body) = (token.unwrap_or_default(), body.unwrap_or_default());
        format!("{} {}{token}{body}", self.method, self.url)
    }
}

// === impl ScriptedAnswer ===

impl ScriptedAnswer {
    fn reply(&self) -> Reply {
        let reply = match &self.body {
            None => Reply::status(self.status),
            Some(Value::String(text)) => Reply::Answer(crate::outbound::Answer {
                status: self.status,
                headers: Vec::new(),
                body: text.clone().into_bytes(),
            }),
            Some(body) => Reply::json(self.status, body),
        };
        self.headers.iter().fold(reply, |reply, (name, value)| reply.header(name, value))
    }
}

/// Returns whether a value holds a part: objects may have more fields, lists have as many entries.
fn is_part(part: &Value, of: &Value) -> bool {
    match (part, of) {
        (Value::Object(part), Value::Object(of)) => {
            part.iter().all(|(key, part)| of.get(key).is_some_and(|of| is_part(part, of)))
        }
        (Value::Array(part), Value::Array(of)) => {
            part.len() == of.len() && part.iter().zip(of).all(|(part, of)| is_part(part, of))
        }
        _ => part == of,
    }
}

// === impl Script ===

impl Script {
    /// Creates the script of a case that begins with these calls.
    pub(super) fn new(first: Calls) -> Self {
        Self(Arc::new(Mutex::new(Progress { open: first, ..Progress::default() })))
    }

    /// Lets calls be made again, in any order, and be left out.
    pub(super) fn set_loose(&self) {
        self.0.lock().is_loose = true;
    }

    /// Returns a client that answers by the script.
    pub(super) fn client(&self, clock: Clock) -> Arc<dyn Outbound> {
        Arc::new(Client::new(self.replies(), clock))
    }

    pub(super) fn replies(&self) -> Replies {
        let (script, replies) = (self.clone(), Replies::default());
        replies.set(Box::new(move |request| script.0.lock().reply(request)));
        replies
    }

    /// Ends a step, and begins the one with the calls `next`.
    pub(super) fn end_step(&self, title: &str, next: Calls) {
        let mut progress = self.0.lock();
        let open = std::mem::replace(&mut progress.open, next).calls;
        let unmade = if progress.is_loose { Vec::new() } else { open };
        let unscripted = std::mem::take(&mut progress.unscripted);
        if unmade.is_empty() && unscripted.is_empty() {
            return;
        }
        let mut expected = String::new();
        for call in &unmade {
            let _ = writeln!(expected, "{}", call.line());
        }
        let title = format!("the calls of {title}");
        progress.wrong.push(Difference { title, expected, actual: unscripted.concat() });
    }

    /// Returns the calls that were not scripted, and those that were scripted and not made, of all
    /// steps that have ended.
    pub(super) fn wrong(&self) -> Vec<Difference> {
        self.0.lock().wrong.clone()
    }
}

// === impl Progress ===

impl Progress {
    fn reply(&mut self, request: &OutboundRequest) -> Reply {
        let any_order = self.open.any_order || self.is_loose;
        if let Some(call) = self.open.take(request, any_order) {
            let reply = call.reply();
            self.made.push(call);
            return reply;
        }
        let again = self.made.iter().rev().find(|call| self.is_loose && call.is(request));
        if let Some(call) = again {
            return call.reply();
        }
        self.unscripted.push(entry(request));
        Reply::NotSent("calls.yaml does not hold this call at this point".to_owned())
    }
}

/// Returns a call as calls.yaml would hold it.
fn entry(request: &OutboundRequest) -> String {
    let mut entry = json!({"method": request.method.name(), "url": request.url});
    if let Some(entry) = entry.as_object_mut() {
        entry.extend(request.token.clone().map(|token| ("token".to_owned(), token.into())));
        let body = request.body.is_some().then(|| request.json());
        entry.extend(body.map(|body| ("body".to_owned(), body)));
        entry.insert("answer".to_owned(), json!({"status": 200}));
    }
    let text = serde_saphyr::to_string(&[entry]);
    text.unwrap_or_else(|error| format!("# no YAML: {error}\n"))
}

#[cfg(test)]
mod tests;
