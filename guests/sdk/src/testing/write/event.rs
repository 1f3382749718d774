//! Events: made, or counted where the same was said before.

use serde_json::{Map, Value, json};

use super::Run;
use crate::{
    Event, EventType, ObjectRef,
    testing::{
        cluster::Method,
        identity::{Identity, text},
    },
};

/// The API server's limit for a message.
const LONGEST_MESSAGE: usize = 1024;

impl Run<'_> {
    /// An event that is refused is no failure of the run.
    pub(super) fn event(&mut self, event: &Event) {
        let reconciled = self.reconciled();
        let on = event.on.as_ref().unwrap_or(&reconciled.reference);
        let live = match reconciled.object.as_ref().filter(|_| *on == reconciled.reference) {
            Some(object) => Some(object.clone()),
            None => self.cluster.get(on),
        };
        let involved = involved(on, live.as_ref());
        let namespace = on.namespace.as_deref().unwrap_or("default");
        let path = format!("/api/v1/namespaces/{namespace}/events");
        let now = self.cluster.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let made = self.body(event, &involved, namespace, &now);
        let manager = super::encoded(&self.managers.edit);
        let sent = if let Some(former) = self.said_before(&made) {
            let count = former.get("count").and_then(Value::as_u64).unwrap_or(1) + 1;
            let name = text(&former, "/metadata/name");
            let path = format!("{path}/{name}?fieldManager={manager}");
            let counted = json!({"count": count, "lastTimestamp": now});
            self.cluster.send(Method::MergePatch, &path, Some(&counted))
        } else {
            let path = format!("{path}?fieldManager={manager}");
            self.cluster.send(Method::Post, &path, Some(&made))
        };
        if let Ok(answer) = sent {
            self.changed("event", answer.body);
        }
    }

    fn body(&self, event: &Event, involved: &Value, namespace: &str, now: &str) -> Value {
        let processor = &self.check.description.name;
        let kind = if event.event_type == EventType::Warning { "Warning" } else { "Normal" };
        // The host's names hold a digest; here it is enough that none is like another.
        let number = self.cluster.api().revision();
        json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": format!("{}.{number:016x}", text(involved, "/name")), "namespace": namespace},
            "involvedObject": involved, "type": kind, "reason": event.reason, "message": shortened(&event.message),
            "source": {"component": processor}, "reportingComponent": processor, "reportingInstance": "",
            "firstTimestamp": now, "lastTimestamp": now, "count": 1,
        })
    }

    /// The event that says the same of the same object.
    fn said_before(&self, made: &Value) -> Option<Value> {
        let of = Identity::of(made);
        let path = format!("/api/v1/namespaces/{}/events", of.namespace);
        let list = self.cluster.send(Method::Get, &path, None).ok()?.body;
        let same = |event: &&Value| {
            let involved = ["apiVersion", "kind", "namespace", "name", "uid"];
            let of = |event: &Value, key: &str| {
                text(event, &format!("/involvedObject/{key}")).to_owned()
            };
            ["/type", "/reason", "/message", "/source/component"]
                .iter()
                .all(|pointer| text(event, pointer) == text(made, pointer))
                && involved.iter().all(|key| of(event, key) == of(made, key))
        };
        list.get("items")?.as_array()?.iter().find(same).cloned()
    }
}

/// An `ObjectReference`.
fn involved(on: &ObjectRef, live: Option<&Value>) -> Value {
    let mut involved = Map::new();
    let held = |pointer: &str| live.map(|live| text(live, pointer).to_owned());
    let parts = [
        ("apiVersion", Some(on.kind.api_version())),
        ("kind", Some(on.kind.kind.clone())),
        ("namespace", on.namespace.clone()),
        ("name", Some(on.name.clone())),
        ("uid", held("/metadata/uid")),
        ("resourceVersion", held("/metadata/resourceVersion")),
    ];
    for (key, value) in parts {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            involved.insert(key.to_owned(), value.into());
        }
    }
    Value::Object(involved)
}

fn shortened(message: &str) -> String {
    const MORE: &str = "...";
    if message.len() <= LONGEST_MESSAGE {
        return message.to_owned();
    }
    let end = (0..=LONGEST_MESSAGE - MORE.len()).rev().find(|end| message.is_char_boundary(*end));
    format!("{}{MORE}", message.get(..end.unwrap_or_default()).unwrap_or_default())
}
