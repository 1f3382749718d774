//! The endpoints for single objects: JSON, on a port of its own. A client sees which objects exist
//! and the results of their runs, but no value of an object. All endpoints are read only.
//!
//! | path | answer |
//! | --- | --- |
//! | `/host` | the identity of the host, and whether it leads |
//! | `/processors` | each processor: version, counts, last failure, missing kinds |
//! | `/keys?processor=&state=` | the keys: `ready`, `running`, `delayed` or `failing` |
//! | `/reports?processor=&key=&failed=true` | the last reconciles, or those of failing keys |
//! | `/records?key=` | the run record of a key: what its last run read and wrote |
//! | `/started?processor=` | the selections that on-demand reconcilers run for, and the keys that ask for them |
//! | `/watches` | the watches, and the number and size of their objects |

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use axum::{
    Router,
    extract::{RawQuery, State},
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse as _, Response},
    routing::get,
};
use mortise_core::{
    contract::{bounds::text::escaped_json, display_kind},
    queue::{self, Key},
    reconcile::StartedSelection,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{Reports, reports::as_text};
use crate::{
    cluster::lease::Guard,
    host::{Host, ProcessorStatus},
};

/// The maximum number of keys in one answer.
const MAX_KEYS: usize = 1000;
/// The maximum number of keys that are named for one started selection.
const MAX_ASKERS: usize = 10;

/// The parts of a host that the endpoints for single objects report on.
#[derive(Clone)]
pub struct Objects {
    pub host: Arc<Host>,
    /// The last reports of the host.
    pub reports: Reports,
    /// The guard of the Lease: held if the host leads.
    pub lease: Guard,
    /// Further fields of `/host`: where the host runs and as whom.
    pub about: Map<String, Value>,
}

/// The parameters of a request.
struct Query(BTreeMap<String, String>);

/// An entry of `/processors`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Processor {
    name: Arc<str>,
    version: String,
    digest: String,
    since: jiff::Timestamp,
    ready: usize,
    running: usize,
    running_on_former_version: usize,
    delayed: usize,
    backing_off: usize,
    failing: usize,
    runs: u64,
    failures: u64,
    last_failure: Option<Value>,
    missing_kinds: Vec<String>,
}

/// An entry of `/keys`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Waiting {
    #[serde(serialize_with = "as_text")]
    key: Key,
    #[serde(flatten)]
    names: Key,
    state: &'static str,
    due_in_seconds: Option<f64>,
    failures: u32,
    causes: Vec<String>,
}

type Answer = Result<Value, (StatusCode, String)>;

// === impl Objects ===

impl Objects {
    /// Returns the router for all paths.
    pub fn router(self) -> Router {
        let router = Router::new()
            .route("/host", get(async |State(of): State<Self>| answer(Ok(of.host()))))
            .route("/processors", get(async |State(of): State<Self>| answer(Ok(of.processors()))))
            .route("/watches", get(async |State(of): State<Self>| answer(Ok(of.watches()))))
            .route("/started", get(async |State(of): State<Self>, query| answer(of.started(query))))
            .route("/keys", get(async |State(of): State<Self>, query| answer(of.keys(query))))
            .route("/reports", get(async |State(of): State<Self>, query| answer(of.reports(query))))
            .route("/records", get(async |State(of): State<Self>, query| answer(of.record(query))));
        router.with_state(self)
    }

    fn host(&self) -> Value {
        let mut about = self.about.clone();
        about.insert("leads".to_owned(), self.lease.is_held().into());
        about.insert("processors".to_owned(), self.host.status().len().into());
        Value::Object(about)
    }

    fn processors(&self) -> Value {
        json!(self.host.status().iter().map(Processor::of).collect::<Vec<_>>())
    }

    fn watches(&self) -> Value {
        let stores = self.host.stores();
        let memory = stores.memory_by_kind();
        let reported = self.host.watches().into_iter().map(|watch| {
            let of = memory.iter().find(|(kind, _)| **kind == watch.kind).map(|(_, memory)| memory);
            json!({
                "kind": watch.kind,
                "namespace": watch.scope.namespace, "name": watch.scope.name, "labels": watch.scope.labels,
                "served": !stores.is_unknown(&watch.kind),
                "listed": stores.is_settled(&watch.kind, &watch.scope),
                "objectsOfKind": of.map(|memory| memory.objects), "bytesOfKind": of.map(|memory| memory.total),
            })
        });
        reported.collect()
    }

    fn started(&self, RawQuery(query): RawQuery) -> Answer {
        let query = Query::of(query.as_deref(), &["processor"])?;
        let mut all = self.host.started();
        all.retain(|(name, _)| query.get("processor").is_none_or(|of| **name == *of));
        let all: Vec<_> =
            all.iter().flat_map(|(name, of)| of.iter().map(move |of| (name, of))).collect();
        let shown = |(processor, StartedSelection { of, runs, by }): &(
            &Arc<str>,
            &StartedSelection,
        )| {
            json!({
                "processor": processor, "reconciler": of.by.to_string(), "kind": of.of.kind,
                "namespace": of.of.namespace, "name": of.of.name,
                "labels": of.of.labels, "matching": of.of.matching, "runs": runs,
                "askedForBy": by.iter().take(MAX_ASKERS).map(ToString::to_string).collect::<Vec<_>>(),
                "moreAsk": by.len().saturating_sub(MAX_ASKERS),
            })
        };
        let started: Vec<Value> = all.iter().take(MAX_KEYS).map(shown).collect();
        Ok(json!({"started": started, "more": all.len().saturating_sub(MAX_KEYS)}))
    }

    fn keys(&self, RawQuery(query): RawQuery) -> Answer {
        let query = Query::of(query.as_deref(), &["processor", "state"])?;
        let state = match query.get("state") {
            None => None,
            Some(state) => Some(
                queue::Where::ALL.into_iter().find(|of| of.name() == state).ok_or_else(|| {
                    let known = queue::Where::ALL.map(queue::Where::name).join("`, `");
                    (
                        StatusCode::BAD_REQUEST,
                        format!("no state is called `{state}`; there is: `{known}`"),
                    )
                })?,
            ),
        };
        let processor = query.get("processor");
        let entries = self.host.keys(|entry| {
            state.is_none_or(|state| entry.is(state))
                && processor.is_none_or(|processor| **entry.key.processor() == *processor)
        });
        let keys: Vec<Waiting> = entries.iter().take(MAX_KEYS).map(Waiting::of).collect();
        Ok(json!({"keys": keys, "more": entries.len().saturating_sub(MAX_KEYS)}))
    }

    fn reports(&self, RawQuery(query): RawQuery) -> Answer {
        let query = Query::of(query.as_deref(), &["processor", "key", "failed"])?;
        let key = query.key()?;
        let failed = match query.get("failed") {
            None | Some("false") => false,
            Some("true") => true,
            Some(other) => {
                return Err((
                    StatusCode::BAD_REQUEST,
                    format!("`failed={other}`: it is true or false"),
                ));
            }
        };
        let mut reports = if failed {
            let failing = self.host.keys(|entry| entry.is(queue::Where::Failing));
            let failing: HashSet<Key> = failing.into_iter().map(|entry| entry.key).collect();
            self.reports.forget_failing(|key| failing.contains(key));
            self.reports.failing()
        } else {
            self.reports.last()
        };
        reports.retain(|reported| {
            key.as_ref().is_none_or(|key| reported.key == *key)
                && query.get("processor").is_none_or(|of| **reported.key.processor() == *of)
        });
        Ok(json!(reports))
    }

    fn record(&self, RawQuery(query): RawQuery) -> Answer {
        let query = Query::of(query.as_deref(), &["key"])?;
        let Some(key) = query.key()? else {
            return Err((StatusCode::BAD_REQUEST, format!("`key` is missing: {KEY}")));
        };
        let record = self.host.record(&key).ok_or_else(|| {
            (StatusCode::NOT_FOUND, format!("`{key}` has not run, or its object is gone"))
        })?;
        Ok(json!(record))
    }
}

/// The form of a key, for messages.
const KEY: &str = "a key is PROCESSOR/RECONCILER:NAMESPACE/NAME, as /keys tells it";

fn answer(answer: Answer) -> Response {
    match answer {
        Ok(value) => {
            let body = escaped_json(format!("{value:#}\n"));
            ([(CONTENT_TYPE, "application/json")], body).into_response()
        }
        Err((status, message)) => (status, message + "\n").into_response(),
    }
}

// === impl Processor ===

impl Processor {
    fn of(status: &ProcessorStatus) -> Self {
        let failure = status.last_failure.as_ref();
        Self {
            name: Arc::clone(&status.version.processor),
            version: status.version.version.clone(),
            digest: status.version.digest.to_string(),
            since: status.since,
            ready: status.ready,
            running: status.running,
            running_on_former_version: status.on_former,
            delayed: status.delayed,
            backing_off: status.backing_off,
            failing: status.failing,
            runs: status.runs,
            failures: status.failures,
            last_failure: failure
                .map(|of| json!({"key": of.key.to_string(), "at": of.at, "message": of.message})),
            missing_kinds: status.missing.iter().map(display_kind).collect(),
        }
    }
}

// === impl Waiting ===

impl Waiting {
    fn of(entry: &queue::Entry) -> Self {
        Self {
            key: entry.key.clone(),
            names: entry.key.clone(),
            state: entry.state().name(),
            due_in_seconds: entry.due_in.map(|due| due.as_secs_f64()),
            failures: entry.failures,
            causes: entry.causes.iter().map(ToString::to_string).collect(),
        }
    }
}

// === impl Query ===

impl Query {
    /// Parses a query. Fails if a parameter is not in `known`.
    fn of(query: Option<&str>, known: &[&str]) -> Result<Self, (StatusCode, String)> {
        let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let pairs: BTreeMap<String, String> =
            pairs.map(|(name, value)| (decoded(name), decoded(value))).collect();
        match pairs.keys().find(|name| !known.contains(&name.as_str())) {
            None => Ok(Self(pairs)),
            Some(name) => {
                let known = known.join("`, `");
                let message = format!("`{name}` is not known here; there is: `{known}`");
                Err((StatusCode::BAD_REQUEST, message))
            }
        }
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn key(&self) -> Result<Option<Key>, (StatusCode, String)> {
        let parse = |text: &str| {
            text.parse().map_err(|queue::NoKey| {
                (StatusCode::BAD_REQUEST, format!("`{text}` is no key: {KEY}"))
            })
        };
        self.get("key").map(parse).transpose()
    }
}

/// Percent-decodes a text of a query. Invalid escapes are kept as they are.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = |of: &[u8]| {
            // `from_str_radix` also accepts a sign.
            let digits = of.iter().all(u8::is_ascii_hexdigit).then_some(of)?;
            u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
        };
        rest = tail;
        match (first, tail.get(..2).and_then(hex)) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = tail.get(2..).unwrap_or_default();
            }
            (b'+', _) => bytes.push(b' '),
            (byte, _) => bytes.push(*byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
