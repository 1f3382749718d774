//! Writes events: core/v1, counted up when the same event occurs again, as client-go's recorder
//! does.
//!
//! A repeated event within [`COUNT_PERIOD`] increments `count`. Beyond [`MAX_SIMILAR_EVENTS`],
//! events that differ only in their message are combined into one. Each object has a token bucket
//! of [`MAX_BURST`] events, refilled by one every [`REFILL_INTERVAL`]; further events are dropped.
//! An event that is refused, or that an account of another cluster may not write, is logged and does
//! not fail the run.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Action, Clock, Run,
    live::{api_version, resource_version, uid},
};
use crate::{
    api::{Answer, Method, Outgoing, Refusal},
    applied_fields::digest,
    contract::{
        EventType, Kind, ObjectRef,
        bounds::text::{escaped_lines, is_name},
        display_ref,
    },
    outcome::{Event, Plan},
    resource::encoded,
    store::Known,
};

/// The period within which repeated and similar events are counted.
const COUNT_PERIOD: Duration = Duration::from_mins(10);
/// The number of events that may differ only in their message before they are combined.
const MAX_SIMILAR_EVENTS: usize = 10;
/// The number of events that an object may have at once.
const MAX_BURST: u32 = 25;
/// The interval at which an object may have one more event.
const REFILL_INTERVAL: Duration = Duration::from_mins(5);
/// The number of events, groups of similar events and objects that are remembered for the
/// processors of one namespace.
const MAX_ENTRIES: usize = 4096;
/// The API server's limit for a message.
const MAX_MESSAGE_BYTES: usize = 1024;

/// The events that were written lately.
pub(super) struct Recorder {
    clock: Clock,
    /// By namespace of the Processor: others push nothing out of its part.
    recorded: Mutex<HashMap<String, Recorded>>,
}

#[derive(Default)]
struct Recorded {
    events: HashMap<u128, Counted>,
    similar: HashMap<u128, Similar>,
    buckets: HashMap<u128, Bucket>,
    order: VecDeque<(Table, u128)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Table {
    Events,
    Similar,
    Buckets,
}

/// An event that exists in the cluster.
#[derive(Clone)]
struct Counted {
    name: String,
    count: u64,
    last: Instant,
}

#[derive(Default)]
struct Similar {
    messages: HashSet<u128>,
    last: Option<Instant>,
}

struct Bucket {
    tokens: u32,
    filled: Instant,
}

/// The decision on an event: dropped, created or counted.
enum Decision {
    Dropped,
    New { key: u128, message: String },
    Again { key: u128, name: String, count: u64, message: String },
}

impl Recorder {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, recorded: Mutex::default() }
    }

    fn now(&self) -> jiff::Timestamp {
        (self.clock)()
    }

    /// Returns what is remembered for the processors of a namespace, locked.
    fn of(&self, namespace: &str) -> MappedMutexGuard<'_, Recorded> {
        MutexGuard::map(self.recorded.lock(), |all| all.entry(namespace.to_owned()).or_default())
    }
}

impl Run<'_> {
    pub(super) async fn events(&mut self, plan: &Plan) {
        for event in &plan.events {
            self.event(event).await;
        }
    }

    async fn event(&mut self, event: &Event) {
        let reconciled = &self.context.reconciled.reference;
        let on = event.on.as_ref().unwrap_or(reconciled).clone();
        let (involved, kind) = (self.involved(&on), kind(&on.kind.cluster));
        let source =
            format!("{}/{}/{}", self.context.namespace, self.context.processor, kind.cluster);
        let decision = self.recorded().record(&source, &involved, event);
        let sent = match decision {
            Decision::Dropped => {
                tracing::debug!(key = %self.context.key, object = display_ref(&on), reason = event.reason, "too many events, dropped");
                return;
            }
            Decision::New { key, message } => {
                self.make_event(&kind, key, &involved, event, &message).await
            }
            Decision::Again { key, name, count, message } => {
                match self.count_event(&kind, key, &involved, &name, count, &message).await {
                    // The event has expired.
                    Err(refusal) if refusal.code == 404 => {
                        self.make_event(&kind, key, &involved, event, &message).await
                    }
                    sent => sent,
                }
            }
        };
        match sent {
            Ok(Some(answer)) => {
                let name = answer.pointer("/metadata/name").and_then(Value::as_str);
                let name = name.filter(|name| is_name(name)).unwrap_or_default();
                let of = ObjectRef {
                    kind: kind.into(),
                    namespace: Some(namespace_of(&involved)),
                    name: name.to_owned(),
                };
                self.changed(Action::Event, &of, answer);
            }
            Ok(None) => {}
            Err(refusal) => {
                self.written.refused_events.push(Arc::clone(&kind.cluster));
                tracing::warn!(key = %self.context.key, object = display_ref(&on), reason = event.reason, refusal = refusal.outline(), "an event was refused");
            }
        }
    }

    fn recorded(&self) -> MappedMutexGuard<'_, Recorded> {
        self.writer.recorder.of(self.context.namespace)
    }

    /// Returns an `ObjectReference` to the object of an event.
    fn involved(&self, on: &ObjectRef) -> Value {
        let mut involved =
            json!({"apiVersion": api_version(on), "kind": on.kind.kind, "name": on.name});
        let (uid, version) = if on == &self.context.reconciled.reference {
            let object = self.context.reconciled.object.as_ref();
            (
                object.and_then(uid).map(str::to_owned),
                object.and_then(resource_version).map(str::to_owned),
            )
        } else if let Known::Present(entry) = self.known(on) {
            (entry.uid().map(str::to_owned), Some(entry.resource_version().to_owned()))
        } else {
            (None, None)
        };
        if let Some(involved) = involved.as_object_mut() {
            let known =
                [("namespace", on.namespace.clone()), ("uid", uid), ("resourceVersion", version)];
            involved.extend(
                known
                    .into_iter()
                    .filter_map(|(key, held)| Some((key.to_owned(), Value::String(held?)))),
            );
        }
        involved
    }

    async fn make_event(
        &self,
        kind: &Kind,
        key: u128,
        involved: &Value,
        event: &Event,
        message: &str,
    ) -> Result<Option<Value>, Refusal> {
        let recorder = &self.writer.recorder;
        let now = recorder.now();
        let namespace = namespace_of(involved);
        let name = event_name(involved, key, now);
        let time = seconds(now);
        let object = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": involved,
            "type": if event.event_type == EventType::Warning { "Warning" } else { "Normal" },
            "reason": event.reason,
            "message": message,
            "source": {"component": self.context.processor},
            "reportingComponent": self.context.processor,
            "reportingInstance": "",
            "firstTimestamp": time,
            "lastTimestamp": time,
            "count": 1,
        });
        let path = format!(
            "{}?fieldManager={}",
            events_path(&namespace),
            encoded(&self.managers_in(&kind.cluster).edit)
        );
        let outgoing = Outgoing::new(Method::Post, path, Some(object));
        let sent = self.send_event(outgoing, kind, ("create", &namespace)).await;
        match sent {
            Ok(answer) => {
                self.recorded().remember(key, name);
                Ok(Some(answer.body))
            }
            // Created by a request whose answer was lost.
            Err(refusal) if refusal.code == 409 => {
                self.recorded().remember(key, name);
                Ok(None)
            }
            Err(refusal) => Err(refusal),
        }
    }

    async fn count_event(
        &self,
        kind: &Kind,
        key: u128,
        involved: &Value,
        name: &str,
        count: u64,
        message: &str,
    ) -> Result<Option<Value>, Refusal> {
        let recorder = &self.writer.recorder;
        let counted =
            json!({"count": count, "lastTimestamp": seconds(recorder.now()), "message": message});
        let namespace = namespace_of(involved);
        let path = format!(
            "{}/{}?fieldManager={}",
            events_path(&namespace),
            encoded(name),
            encoded(&self.managers_in(&kind.cluster).edit)
        );
        let outgoing = Outgoing::new(Method::MergePatch, path, Some(counted));
        let answer = self.send_event(outgoing, kind, ("patch", &namespace)).await;
        if answer.is_err() {
            self.recorded().events.remove(&key);
        }
        Ok(Some(answer?.body))
    }

    /// Sends an event to a cluster whose account may write it: those of other clusters often have
    /// no right to events, and each request without it is in the audit log there.
    async fn send_event(
        &self,
        outgoing: Outgoing,
        kind: &Kind,
        (verb, namespace): (&'static str, &str),
    ) -> Result<Answer, Refusal> {
        self.api.permitted(kind, verb, namespace).await?;
        self.ask(outgoing, kind).await
    }
}

// === impl Recorded ===

impl Recorded {
    /// Decides on an event and counts it as written.
    fn record(&mut self, source: &str, involved: &Value, event: &Event) -> Decision {
        let now = Instant::now();
        let object = json!([
            source,
            involved.get("apiVersion"),
            involved.get("kind"),
            involved.get("namespace"),
            involved.get("name"),
            involved.get("uid")
        ]);
        if !self.take_token(digest(&object), now) {
            return Decision::Dropped;
        }
        let group = digest(&json!([object, event.reason, event.event_type == EventType::Warning]));
        let is_combined =
            self.is_one_of_many(group, digest(&Value::String(event.message.clone())), now);
        let (key, message) = if is_combined {
            (group, format!("(combined from similar events): {}", event.message))
        } else {
            (
                digest(&json!([
                    object,
                    event.reason,
                    event.event_type == EventType::Warning,
                    event.message
                ])),
                event.message.clone(),
            )
        };
        // It may hold what another cluster has sent.
        let message = shortened(escaped_lines(&message));
        match self
            .events
            .get_mut(&key)
            .filter(|known| now.duration_since(known.last) < COUNT_PERIOD)
        {
            Some(known) => {
                known.count += 1;
                known.last = now;
                Decision::Again { key, name: known.name.clone(), count: known.count, message }
            }
            None => Decision::New { key, message },
        }
    }

    fn remember(&mut self, key: u128, name: String) {
        self.events.insert(key, Counted { name, count: 1, last: Instant::now() });
        self.bound(Table::Events, key);
    }

    /// Returns whether the event is to be combined: too many events differ only in their message.
    fn is_one_of_many(&mut self, group: u128, message: u128, now: Instant) -> bool {
        let similar = self.similar.entry(group).or_default();
        let is_new = similar.last.is_none();
        if similar.last.is_some_and(|last| now.duration_since(last) >= COUNT_PERIOD) {
            similar.messages.clear();
        }
        similar.last = Some(now);
        if similar.messages.len() < MAX_SIMILAR_EVENTS {
            similar.messages.insert(message);
        }
        let is_many = !similar.messages.contains(&message);
        if is_new {
            self.bound(Table::Similar, group);
        }
        is_many
    }

    fn take_token(&mut self, object: u128, now: Instant) -> bool {
        let is_new = !self.buckets.contains_key(&object);
        let bucket =
            self.buckets.entry(object).or_insert(Bucket { tokens: MAX_BURST, filled: now });
        let due = now.duration_since(bucket.filled).as_secs() / REFILL_INTERVAL.as_secs();
        if due > 0 {
            bucket.tokens = bucket
                .tokens
                .saturating_add(u32::try_from(due).unwrap_or(MAX_BURST))
                .min(MAX_BURST);
            bucket.filled = now;
        }
        let has = bucket.tokens > 0;
        bucket.tokens = bucket.tokens.saturating_sub(1);
        if is_new {
            self.bound(Table::Buckets, object);
        }
        has
    }

    /// Remembers a new entry and forgets the oldest ones beyond [`MAX_ENTRIES`].
    fn bound(&mut self, table: Table, key: u128) {
        self.order.push_back((table, key));
        while self.order.len() > MAX_ENTRIES {
            match self.order.pop_front() {
                Some((Table::Events, key)) => _ = self.events.remove(&key),
                Some((Table::Similar, key)) => _ = self.similar.remove(&key),
                Some((Table::Buckets, key)) => _ = self.buckets.remove(&key),
                None => break,
            }
        }
    }
}

// === texts ===

/// Returns the namespace of an event; `default` for events on objects without a namespace.
fn namespace_of(involved: &Value) -> String {
    involved.get("namespace").and_then(Value::as_str).unwrap_or("default").to_owned()
}

fn events_path(namespace: &str) -> String {
    format!("/api/v1/namespaces/{}/events", encoded(namespace))
}

fn kind(cluster: &Arc<str>) -> Kind {
    Kind { cluster: Arc::clone(cluster), ..Kind::home("", "v1", "Event") }
}

/// Returns the event's name: the object's name and a hash of the event and of the time of its
/// creation.
fn event_name(involved: &Value, key: u128, now: jiff::Timestamp) -> String {
    /// The API server's limit for a name, less a dot and 16 digits.
    const MAX_BASE_BYTES: usize = 253 - 17;
    let name: String = involved
        .get("name")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .chars()
        .take(MAX_BASE_BYTES)
        .collect();
    let hash = digest(&json!([key.to_string(), now.as_nanosecond().to_string()]));
    format!("{name}.{:016x}", hash & u128::from(u64::MAX))
}

fn seconds(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn shortened(mut message: String) -> String {
    const MORE: &str = "...";
    if message.len() > MAX_MESSAGE_BYTES {
        let end = (0..=MAX_MESSAGE_BYTES - MORE.len())
            .rev()
            .find(|end| message.is_char_boundary(*end))
            .unwrap_or_default();
        message.truncate(end);
        message.push_str(MORE);
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_with_many_events_pushes_out_none_of_others() {
        let recorder = Recorder::new(std::sync::Arc::new(|| jiff::Timestamp::UNIX_EPOCH));
        let (object, event) = (
            |name: usize| json!({"name": name.to_string()}),
            Event {
                on: None,
                event_type: EventType::Normal,
                reason: "Done".to_owned(),
                message: "done".to_owned(),
            },
        );
        let record = |of: &str, name: usize| {
            let mut of = recorder.of(of);
            let decision = of.record("", &object(name), &event);
            if let Decision::New { key, .. } = decision {
                of.remember(key, name.to_string());
            }
            matches!(decision, Decision::Again { .. })
        };
        assert!(!record("good", 0));
        (0..MAX_ENTRIES).for_each(|name| _ = record("evil", name));
        assert!(record("good", 0) && !record("evil", 0));
    }
}
