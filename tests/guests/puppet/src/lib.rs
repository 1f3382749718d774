//! A processor with a configured declaration, reads and outcome, in JSON with the contract's words:
//! fields in snake case (`ref` is `ref_`), cases of enums and variants in upper camel case, all
//! fields given.
//!
//! The configuration is a [`Play`]: the description, and the script of `reconcile`. An object can
//! carry another script, in the `ConfigMap` key or annotation `script`. In the configuration's
//! script, `$(name)` stands for the object's name and `$(sequence)` for its `data.sequence`. The
//! answers to the reads and calls are in the log, a line `read` or `called` each, in JSON.

#[cfg(target_family = "wasm")]
mod component;
#[cfg(not(target_family = "wasm"))]
mod native;

use std::hint::black_box;

use mortise_sdk::{
    Description, Failure, ObjectRef, Outcome, Request, Retry, Selection,
    bindings::mortise::host::{outbound::Call, types::ReadError},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The scripted processor.
pub struct Puppet;

/// The configuration: description and script.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Play {
    description: Description,
    #[serde(default)]
    script: Script,
    /// A call to the outside that `describe` makes. It fails with the answer.
    #[serde(default)]
    call: Option<Call>,
}

/// The steps of one call, in this order.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Script {
    ask_clock: bool,
    reads: Vec<Read>,
    /// Number of repetitions of the reads, whose answers are not logged then: for benchmarks.
    repeat: Option<u32>,
    /// Calls to the outside, after the reads.
    calls: Vec<Call>,
    /// Texts, each in parts, that are looked for in the memory of the call. The log has a line
    /// `found` each, with their number.
    seeks: Vec<Vec<String>>,
    /// True if the call never returns.
    hangs: bool,
    /// The message of a panic instead of a result, if any. The answers to the calls follow it.
    panics: Option<String>,
    /// The result; `None`: an empty outcome.
    returns: Option<Returns>,
    /// The result if writes were refused, which are in the log as a line `refused`; `None`: the
    /// same result.
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
    /// Lists all pages.
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

/// The imports in the contract's own types.
trait Ask {
    fn get(&self, of: &ObjectRef, fields: &[String]) -> Result<Option<String>, ReadError>;
    /// Returns the objects of all pages.
    fn list(&self, of: &Selection, limit: u32) -> Result<Vec<String>, ReadError>;
    /// Makes a call, and returns its answer or error in words.
    fn send(&self, call: &Call) -> String;
    /// Returns how often the parts of a text follow one another in the memory of the call.
    fn seek(&self, parts: &[String]) -> usize;
    fn now(&self) -> u64;
    fn say(&self, message: &str, answer: String);
}

fn reconcile(request: &Request, host: &impl Ask) -> Result<Outcome, Failure> {
    let script = script(request).map_err(failure)?;
    if script.ask_clock {
        host.say("clock", host.now().to_string());
    }
    match script.repeat {
        None => script.reads.iter().for_each(|read| host.say("read", answer(read, host))),
        Some(times) => {
            (0..times).flat_map(|_| &script.reads).for_each(|read| discard(read, host));
        }
    }
    let answers: Vec<String> = script.calls.iter().map(|call| host.send(call)).collect();
    for answer in &answers {
        host.say("called", answer.clone());
    }
    script.seeks.iter().for_each(|parts| host.say("found", host.seek(parts).to_string()));
    if script.hangs {
        hang();
    }
    if let Some(message) = script.panics {
        panic!("{message}{}", answers.concat());
    }
    let mut returns = script.returns;
    if !request.failed_writes.is_empty() {
        host.say("refused", json(&request.failed_writes));
        returns = script.refused.or(returns);
    }
    match returns {
        None => Ok(Outcome::new()),
        Some(Returns::Outcome(outcome)) => Ok(*outcome),
        Some(Returns::Failure(failure)) => Err(failure),
    }
}

fn hang() -> ! {
    let mut turns = 0_u64;
    loop {
        turns = black_box(turns.wrapping_add(1));
    }
}

fn play(config: &str) -> Result<Play, String> {
    serde_json::from_str(config).map_err(|error| format!("the play cannot be read: {error}"))
}

/// Returns the object's script, else that of the configuration.
fn script(request: &Request) -> Result<Script, String> {
    let text = request.object.as_deref().unwrap_or("null");
    let object: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let places = ["/data/script", "/metadata/annotations/script"];
    let own = places.iter().find_map(|place| object.pointer(place)).and_then(Value::as_str);
    if let Some(script) = own {
        return serde_json::from_str(script)
            .map_err(|error| format!("the script cannot be read: {error}"));
    }
    let sequence = object.pointer("/data/sequence").and_then(Value::as_str);
    let config = request.config.replace("$(name)", &request.ref_.name);
    Ok(play(&config.replace("$(sequence)", sequence.unwrap_or_default()))?.script)
}

fn answer(read: &Read, host: &impl Ask) -> String {
    match read {
        Read::Get { of, fields } => json(&host.get(of, fields)),
        Read::List { of, limit } => json(&host.list(of, *limit)),
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| error.to_string())
}

fn discard(read: &Read, host: &impl Ask) {
    match read {
        Read::Get { of, fields } => drop(host.get(of, fields)),
        Read::List { of, limit } => drop(host.list(of, *limit)),
    }
}

fn failure(message: String) -> Failure {
    Failure { message, status: None, events: Vec::new(), retry: Retry::OnChange, note: None }
}
