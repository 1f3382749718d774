//! A processor that declares, reads and returns what it is told, in JSON with the contract's words: fields in snake case (`ref`
//! is `ref_`), cases of enums and variants in upper camel case, all fields given.
//!
//! The configuration is a [`Play`]: the description, and what `reconcile` does. An object can carry another script, in the
//! `ConfigMap` key or annotation `script`. In the configuration's, `$(name)` stands for the object's name and `$(sequence)` for its
//! `data.sequence`. What the reads answered is in the log, a line `read` each, in JSON.

#[allow(
    missing_docs,
    unsafe_code,
    unreachable_pub,
    unused,
    clippy::pedantic,
    clippy::indexing_slicing,
    reason = "generated from wit/"
)]
mod bindings;

use bindings::exports::mortise::host::reconciliation::{
    Description, Failure, Guest, Outcome, Request, Retry, Verbs,
};
use bindings::mortise::host::types::{ObjectRef, Selection};
use bindings::mortise::host::{clock, cluster, log};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// The processor.
pub struct Puppet;

/// All that it does: its configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Play {
    description: Description,
    #[serde(default)]
    script: Script,
}

/// What one call does, in this order.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Script {
    ask_clock: bool,
    reads: Vec<Read>,
    /// The reads are made so many times and nothing is said of them: for benchmarks.
    repeat: Option<u32>,
    /// None: an outcome in which there is nothing.
    returns: Option<Returns>,
    /// What is returned instead where writes were refused; which ones is in the log, a line `refused`. None: the same.
    refused: Option<Returns>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Read {
    Get {
        #[serde(rename = "ref")]
        of: ObjectRef,
        #[serde(default)]
        fields: Vec<String>,
    },
    /// All pages.
    List {
        of: Selection,
        #[serde(default)]
        limit: u32,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Returns {
    Outcome(Box<Outcome>),
    Failure(Failure),
}

impl Guest for Puppet {
    fn describe(config: String) -> Result<Description, String> {
        play(&config).map(|play| play.description)
    }

    fn reconcile(request: Request) -> Result<Outcome, Failure> {
        let script = script(&request).map_err(failure)?;
        if script.ask_clock {
            say("clock", clock::now().to_string());
        }
        match script.repeat {
            None => script.reads.iter().for_each(|read| say("read", answer(read))),
            Some(times) => (0..times).flat_map(|_| &script.reads).for_each(discard),
        }
        let mut returns = script.returns;
        if !request.failed_writes.is_empty() {
            say("refused", json(&request.failed_writes));
            returns = script.refused.or(returns);
        }
        match returns {
            None => serde_json::from_value(nothing()).map_err(|error| failure(error.to_string())),
            Some(Returns::Outcome(outcome)) => Ok(*outcome),
            Some(Returns::Failure(failure)) => Err(failure),
        }
    }
}

#[cfg(target_family = "wasm")]
#[allow(unsafe_code, unreachable_pub, clippy::pedantic, reason = "generated from wit/")]
const _: () = {
    bindings::export!(Puppet with_types_in bindings);
};

fn play(config: &str) -> Result<Play, String> {
    serde_json::from_str(config).map_err(|error| format!("the play cannot be read: {error}"))
}

/// The object's script, else that of the configuration.
fn script(request: &Request) -> Result<Script, String> {
    let text = request.object.as_deref().unwrap_or("null");
    let object: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let places = ["/data/script", "/metadata/annotations/script"];
    let own = places.iter().find_map(|place| object.pointer(place)).and_then(Value::as_str);
    match own {
        Some(script) => serde_json::from_str(script)
            .map_err(|error| format!("the script cannot be read: {error}")),
        None => {
            let sequence = object.pointer("/data/sequence").and_then(Value::as_str);
            let config = request.config.replace("$(name)", &request.ref_.name);
            Ok(play(&config.replace("$(sequence)", sequence.unwrap_or_default()))?.script)
        }
    }
}

fn answer(read: &Read) -> String {
    match read {
        Read::Get { of, fields } => json(&cluster::get(of, fields)),
        Read::List { of, limit } => json(&list(of, *limit)),
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| error.to_string())
}

fn discard(read: &Read) {
    match read {
        Read::Get { of, fields } => drop(cluster::get(of, fields)),
        Read::List { of, limit } => drop(list(of, *limit)),
    }
}

fn list(
    of: &Selection,
    limit: u32,
) -> Result<Vec<String>, bindings::mortise::host::types::ReadError> {
    let mut objects = Vec::new();
    let mut from: Option<String> = None;
    loop {
        let page = cluster::list(of, limit, from.as_deref())?;
        objects.extend(page.objects);
        let Some(next) = page.next else { return Ok(objects) };
        from = Some(next);
    }
}

fn say(message: &str, answer: String) {
    log::write(log::Level::Info, message, &[("answer".to_owned(), answer)]);
}

fn failure(message: String) -> Failure {
    Failure { message, status: None, events: Vec::new(), retry: Retry::OnChange }
}

fn nothing() -> Value {
    serde_json::json!({
        "apply": [], "patch": [], "evict": [], "delete": [], "prune": [], "status": null, "events": [], "requeue": "ByDefault",
        "finalizers": null, "children": [],
    })
}

/// The verbs by their names in the contract.
const VERBS: [(&str, Verbs); 5] = [
    ("create", Verbs::CREATE),
    ("update", Verbs::UPDATE),
    ("delete", Verbs::DELETE),
    ("evict", Verbs::EVICT),
    ("status", Verbs::STATUS),
];

impl Serialize for Verbs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let held = VERBS.iter().filter(|(_, verb)| *self & *verb == *verb);
        serializer.collect_seq(held.map(|(name, _)| name))
    }
}

/// A list of names: `["create", "update"]`.
impl<'de> Deserialize<'de> for Verbs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?;
        names.iter().try_fold(Self::empty(), |verbs, name| {
            let verb = VERBS.iter().find(|(known, _)| known == name);
            let (_, verb) =
                verb.ok_or_else(|| serde::de::Error::custom(format!("no verb `{name}`")))?;
            Ok(verbs | *verb)
        })
    }
}
