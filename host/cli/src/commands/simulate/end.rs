//! The result of a simulation, and its printed form.

use std::{collections::BTreeMap, time::Duration};

use mortise_core::{
    contract::{Kind, ObjectRef, api_version, bounds::text::escaped},
    outbound::Made,
    write::{self, Action},
};
use serde::Serialize;
use serde_json::{Number, Value, json};

use super::calls::Unmade;
use crate::{
    local,
    print::{self, BOLD, DIM, RED, Secrets, YELLOW},
};

/// The result of a simulation.
#[derive(Debug, Clone, Default, Serialize)]
pub struct End {
    /// The objects at the end, except those neither given nor created by the processor: the API's
    /// own namespaces and the CRDs.
    pub objects: Vec<Value>,
    /// The same of the other clusters, by their names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub clusters: BTreeMap<String, Vec<Value>>,
    /// The writes, in order.
    pub changes: Vec<Change>,
    /// The calls to systems outside of the cluster, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Called>,
    /// The events that the processor created.
    pub events: Vec<Value>,
    /// The reconciles that are due later.
    pub requeues: Vec<Again>,
    /// The reconciles whose last run failed.
    pub failures: Vec<Failed>,
    /// The call to a system outside of the cluster at which the simulation ended: it would have
    /// changed something there.
    #[serde(rename = "wouldCall", skip_serializing_if = "Option::is_none")]
    pub would_call: Option<WouldCall>,
    /// The objects in the other versions that the processor converts them to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<InVersion>,
    /// The number of rounds: in each, all waiting keys run once.
    pub rounds: u32,
    /// Notes for the user.
    #[serde(skip)]
    pub notes: Vec<String>,
    /// Kinds that were served without a schema.
    #[serde(skip)]
    pub untyped: Vec<Kind>,
    /// The objects before the first round.
    #[serde(skip)]
    pub before: Vec<Value>,
    /// The same of the other clusters.
    #[serde(skip)]
    pub before_there: BTreeMap<String, Vec<Value>>,
}

/// A write.
#[derive(Debug, Clone, Serialize)]
pub struct Change {
    /// The action: `create`, `update`, `delete` or `status`.
    pub action: &'static str,
    /// The cluster, if it is not the home cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// The object after the write; of a deletion, the object before.
    pub object: Value,
}

/// A reconcile that is due later.
#[derive(Debug, Clone, Serialize)]
pub struct Again {
    /// The reconciled object: `apiVersion`, `kind`, `namespace`, `name`.
    pub object: Value,
    /// Seconds from the last run. Keys that wait for the back-off after a failure are not listed.
    #[serde(rename = "afterSeconds")]
    pub after_seconds: Number,
}

/// A reconcile that failed.
#[derive(Debug, Clone, Serialize)]
pub struct Failed {
    /// The reconciled object: `apiVersion`, `kind`, `namespace`, `name`.
    pub object: Value,
    /// The reason of the failure.
    pub message: String,
}

/// A call to a system outside of the cluster.
#[derive(Debug, Clone, Serialize)]
pub struct Called {
    /// The reconciled object: `apiVersion`, `kind`, `namespace`, `name`.
    pub object: Value,
    /// The method, in upper case.
    pub method: &'static str,
    /// The URL without the query.
    pub url: String,
    /// The status of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The reason why there is no answer, in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'static str>,
}

/// A call to a system outside of the cluster that was not made.
#[derive(Debug, Clone, Serialize)]
pub struct WouldCall {
    /// The reconciled object: `apiVersion`, `kind`, `namespace`, `name`.
    pub object: Value,
    /// The method, in upper case.
    pub method: &'static str,
    /// The URL without the query.
    pub url: String,
}

/// An object in another version.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InVersion {
    /// The object in another version: `apiVersion`, `kind`, `namespace`, `name`.
    pub of: Value,
    /// The object; `None` if it cannot be converted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<Value>,
    /// The reason why it cannot be converted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

// === impl Change ===

impl Change {
    /// Returns a write in the form of the output; `None` for events, which have their own list.
    /// Evictions are shown as deletions.
    pub(super) fn of(change: &write::Change) -> Option<Self> {
        let action = match change.action {
            Action::Create => "create",
            Action::Update | Action::Finalizers => "update",
            Action::Delete | Action::Evict => "delete",
            Action::Status => "status",
            Action::Event => return None,
        };
        let mut object = Value::clone(&change.object);
        drop_managed_fields(&mut object);
        Some(Self { action, cluster: change.of.kind.cluster.to_string(), object })
    }
}

// === impl Again ===

impl Again {
    pub(super) fn new(of: &ObjectRef, after: Duration) -> Self {
        Self { object: reference(of), after_seconds: seconds(after) }
    }
}

// === impl Called ===

impl Called {
    pub(super) fn new(of: &ObjectRef, made: &Made) -> Self {
        let Made { method, url, status, took: _, error, refused: _ } = made;
        let (method, url) = (method.name(), url.clone());
        Self { object: reference(of), method, url, status: *status, error: *error }
    }

    /// Formats the call for people, by its answer.
    fn line(&self) -> String {
        let ended = self.status.map(|status| status.to_string());
        let ended = ended.or_else(|| self.error.map(str::to_owned)).unwrap_or_default();
        format!("{} {} {ended} for {}", self.method, escaped(&self.url), short(&self.object))
    }
}

// === impl WouldCall ===

impl WouldCall {
    pub(super) fn new(of: &ObjectRef, unmade: Unmade) -> Self {
        let Unmade { method, url } = unmade;
        Self { object: reference(of), method: method.name(), url }
    }
}

// === impl InVersion ===

impl InVersion {
    pub(super) fn new(of: &Value, version: &str, shown: Result<Value, String>) -> Self {
        let text = |pointer: &str| of.pointer(pointer).and_then(Value::as_str);
        let mut kind = local::kind_of(of);
        version.clone_into(&mut kind.version);
        let of = reference(&ObjectRef {
            kind: kind.into(),
            namespace: text("/metadata/namespace").map(str::to_owned),
            name: text("/metadata/name").unwrap_or_default().to_owned(),
        });
        let (object, error) = match shown {
            Ok(mut object) => {
                drop_managed_fields(&mut object);
                (Some(object), None)
            }
            Err(error) => (None, Some(error)),
        };
        Self { of, object, error }
    }

    /// Writes the object for people.
    fn write(&self, text: &mut String, secrets: &Secrets) {
        use std::fmt::Write as _;
        let of = short(&self.of);
        let _ = writeln!(text, "{DIM}={DIM:#} {of}");
        if let Some(error) = &self.error {
            let _ = writeln!(text, "  {RED}not shown{RED:#}: {error}");
        }
        let object = self.object.as_ref().map(|object| print::printable(object, secrets));
        let lines = object.map(|object| print::yaml(&object)).unwrap_or_default();
        for line in lines.lines() {
            let _ = writeln!(text, "    {line}");
        }
    }
}

// === impl Failed ===

impl Failed {
    pub(super) fn new(of: &ObjectRef, message: String) -> Self {
        Self { object: reference(of), message }
    }
}

// === impl End ===

impl End {
    /// Returns the result with secret values masked, unless they are asked for.
    #[must_use]
    pub fn printable(&self, secrets: &Secrets) -> Self {
        let mut end = self.clone();
        for object in (end.objects.iter_mut().chain(end.clusters.values_mut().flatten()))
            .chain(end.changes.iter_mut().map(|change| &mut change.object))
        {
            *object = print::printable(object, secrets);
        }
        for object in end.versions.iter_mut().filter_map(|shown| shown.object.as_mut()) {
            *object = print::printable(object, secrets);
        }
        end
    }

    /// Returns the changed objects as a difference, followed by events, requeues and failures.
    pub fn for_people(&self, secrets: &Secrets) -> String {
        use std::fmt::Write as _;
        let before = keyed(&self.before, &self.before_there);
        let mut text = print::difference(&before, &keyed(&self.objects, &self.clusters), secrets);
        for shown in &self.versions {
            shown.write(&mut text, secrets);
        }
        for called in &self.calls {
            let _ = writeln!(text, "{DIM}called{DIM:#} {}", called.line());
        }
        for event in &self.events {
            let _ = writeln!(text, "{DIM}event{DIM:#} {}", print::event(event));
        }
        for again in &self.requeues {
            let _ = writeln!(
                text,
                "{DIM}again after {} s: {}{DIM:#}",
                again.after_seconds,
                short(&again.object)
            );
        }
        for failed in &self.failures {
            let message = print::guest_text(&failed.message);
            let _ = writeln!(text, "{RED}failed{RED:#} {}: {message}", short(&failed.object));
        }
        if let Some(WouldCall { object, method, url }) = &self.would_call {
            let (url, of) = (escaped(url), short(object));
            let _ = writeln!(text, "{YELLOW}would {method} {url}{YELLOW:#} for {of}");
        }
        let _ = writeln!(
            text,
            "{BOLD}{} written, {} failed, {}{BOLD:#}",
            self.changes.len(),
            self.failures.len(),
            self.rounds()
        );
        text
    }

    /// Returns the number of rounds in words: `2 rounds`.
    pub(super) fn rounds(&self) -> String {
        let rounds = if self.rounds == 1 { "round" } else { "rounds" };
        format!("{} {rounds}", self.rounds)
    }
}

/// Returns objects by their titles, without events: those of home, and of the other clusters.
fn keyed(home: &[Value], there: &BTreeMap<String, Vec<Value>>) -> BTreeMap<String, Value> {
    let home = home.iter().map(|object| (print::title(object), object));
    let titled = |name: &str, object| print::in_cluster(print::title(object), name);
    let there = there.iter().flat_map(|(name, objects)| {
        objects.iter().map(move |object| (titled(name, object), object))
    });
    let all = home.chain(there).filter(|(_, object)| !is_event(object));
    all.map(|(title, object)| (title, object.clone())).collect()
}

/// Returns the reference by which the output names a reconciled object.
fn reference(of: &ObjectRef) -> Value {
    let mut object =
        json!({"apiVersion": api_version(&of.kind), "kind": of.kind.kind, "name": of.name});
    if let (Some(object), Some(namespace)) = (object.as_object_mut(), &of.namespace) {
        object.insert("namespace".to_owned(), Value::from(namespace.as_str()));
    }
    if let Some(object) = object.as_object_mut().filter(|_| !of.kind.cluster.is_empty()) {
        object.insert("cluster".to_owned(), Value::from(&*of.kind.cluster));
    }
    object
}

/// Returns seconds as an integer if they are whole, else as a fraction.
pub(crate) fn seconds(time: Duration) -> Number {
    let whole = || Number::from(time.as_secs());
    if time.subsec_nanos() == 0 {
        whole()
    } else {
        Number::from_f64(time.as_secs_f64()).unwrap_or_else(whole)
    }
}

/// Formats a [`reference`] for people.
fn short(object: &Value) -> String {
    let text = |name: &str| object.get(name).and_then(Value::as_str);
    let name = text("name").unwrap_or_default();
    let name = print::named(&print::kind_of(object), text("namespace"), name);
    print::in_cluster(name, text("cluster").unwrap_or_default())
}

pub(super) fn drop_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

pub(super) fn is_event(object: &Value) -> bool {
    object.get("kind").and_then(Value::as_str) == Some("Event")
}
