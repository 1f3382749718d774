//! Outcomes that cost more to check than to produce.

use std::time::Duration;

use mortise_sdk::{
    Deletion, Event, Manifest, ObjectRef, Outcome, Request, Selection,
    bindings::mortise::host::cluster,
    kubernetes::{ConfigMap, Secret},
};
use serde_json::{Value, json};

use crate::{Play, reads};

/// Number of lists that are read before owners are named, each of all objects of the namespace.
const LISTS: u32 = 600;

/// Returns an outcome without writes that requests another run at once.
pub(crate) fn again() -> Outcome {
    Outcome::new().requeue_after(Duration::ZERO)
}

pub(crate) fn deep(play: &Play) -> Outcome {
    let depth = play.times as usize;
    let inner = format!("{}{}", r#"{"a":"#.repeat(depth), "1".to_owned() + &"}".repeat(depth));
    again().apply(text(play, "deep", &format!(r#""data":{{"a":{inner}}}"#)))
}

pub(crate) fn wide(play: &Play) -> Outcome {
    let fields: Vec<String> = (0..play.times).map(|number| format!(r#""k{number}":"""#)).collect();
    again().apply(text(play, "wide", &format!(r#""data":{{{}}}"#, fields.join(","))))
}

pub(crate) fn nested(play: &Play) -> Outcome {
    let depth = play.times as usize;
    let zeros = "0,".repeat(play.bytes / 2);
    let data = format!(r#""data":{}{zeros}0{}"#, "[".repeat(depth), "]".repeat(depth));
    again().apply(text(play, "nested", &data))
}

pub(crate) fn labels(play: &Play) -> Outcome {
    let labels: Vec<String> = (0..play.times).map(|number| format!(r#""l{number}":"v""#)).collect();
    let metadata = format!(
        r#"{{"name":"labels","namespace":"{}","labels":{{{}}}}}"#,
        play.namespace,
        labels.join(",")
    );
    let object = format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{metadata}}}"#);
    again().apply(Manifest::text(object))
}

/// Applies an object whose owners are all the object that was read last.
pub(crate) fn owners(play: &Play) -> Outcome {
    let all = Selection::of::<ConfigMap>().namespace(&play.namespace);
    for _ in 0..LISTS {
        let _ = cluster::list(&all, 0, None);
    }
    let last = ObjectRef::of::<Secret>(Some(&play.namespace), "treasure");
    let last = cluster::get(&last, &[]).ok().flatten().unwrap_or_default();
    let last: Value = serde_json::from_str(&last).unwrap_or_default();
    let uid = last.pointer("/metadata/uid");
    let owner = json!({"apiVersion": "v1", "kind": "Secret", "name": "treasure", "uid": uid});
    let owners: Vec<_> = (0..play.times).map(|_| &owner).collect();
    let metadata = json!({"name": "owned", "namespace": play.namespace, "ownerReferences": owners});
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    again().apply(Manifest::json(&object))
}

pub(crate) fn finalizers(play: &Play) -> Outcome {
    again().finalizers((0..play.times).map(|number| format!("hostile.mortise.dev/f{number}")))
}

pub(crate) fn events(play: &Play) -> Outcome {
    let event = |number: u32| Event::warning("Hostile", format!("event {number}"));
    (0..play.times).map(event).fold(again(), Outcome::event)
}

pub(crate) fn status(play: &Play, request: &Request) -> Outcome {
    again().status(request, &json!({"text": "x".repeat(play.bytes)}))
}

pub(crate) fn leave(play: &Play) -> Outcome {
    let path = format!("data{}", "[]".repeat(play.bytes));
    let manifest = text(play, "leave", r#""data":{}"#);
    again().apply((0..play.times).fold(manifest, |manifest, _| manifest.leave(path.clone())))
}

pub(crate) fn delete(play: &Play) -> Outcome {
    again().delete(Deletion::new(reads::strange(play)))
}

/// Counts on in the other one of the objects `-0` and `-1`.
pub(crate) fn ping(play: &Play, request: &Request) -> Outcome {
    let object: Value =
        serde_json::from_str(request.object.as_deref().unwrap_or_default()).unwrap_or_default();
    let count = object.pointer("/data/count").and_then(Value::as_str);
    let next = count.and_then(|count| count.parse::<u64>().ok()).unwrap_or_default() + 1;
    let other = u8::from(request.ref_.name.ends_with('0'));
    let metadata = json!({"name": format!("{}-{other}", play.name), "namespace": play.namespace});
    let data = json!({"count": next.to_string()});
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
    Outcome::new().apply(Manifest::json(&object))
}

/// Returns a `ConfigMap` of the namespace with an additional JSON field.
fn text(play: &Play, name: &str, besides: &str) -> Manifest {
    let metadata = format!(r#"{{"name":"{name}","namespace":"{}"}}"#, play.namespace);
    let object =
        format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{metadata},{besides}}}"#);
    Manifest::text(object)
}
