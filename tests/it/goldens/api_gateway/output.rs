//! The output of a case in the form in which it is compared.

use std::collections::BTreeSet;

use api_rule::{change::Change, validation::Failure};
use mortise::commands::simulate::End;
use mortise_tests::goldens::{Case, without_nulls};
use serde_json::{Map, Value, json};

/// Returns the status and the requeue of a recorded reconcile.
pub(super) fn recorded_status(controller: &Value) -> Value {
    // The original backs off after a failed reconcile; ours intentionally comes back after a
    // minute.
    let again = controller.get("requeueAfterSeconds").cloned().unwrap_or_else(|| json!(60));
    json!({
        "state": controller["status"]["state"],
        "description": controller["status"]["description"],
        "requeueAfterSeconds": again,
    })
}

/// Returns the object under test at the end of a run, unless it is gone.
pub(super) fn object<'a>(end: &'a End, case: &Case) -> Option<&'a Value> {
    let metadata = &case.input["object"]["metadata"];
    let is_it = |object: &&Value| {
        object["kind"] == "APIRule"
            && object["metadata"]["name"] == metadata["name"]
            && object["metadata"]["namespace"] == metadata["namespace"]
    };
    end.objects.iter().find(is_it)
}

/// Returns the status and the requeue at the end of a run.
pub(super) fn status(end: &End, case: &Case) -> Value {
    let object = object(end, case);
    let name = &case.input["object"]["metadata"]["name"];
    let again = end.requeues.iter().find(|again| again.object["name"] == *name);
    let text = |field: &str| object.and_then(|object| object["status"][field].as_str());
    json!({
        "state": text("state").unwrap_or_default(),
        "description": text("description").unwrap_or_default(),
        "requeueAfterSeconds": again.map(|again| &again.after_seconds),
    })
}

pub(super) fn failures(failures: &[Failure]) -> Value {
    failures
        .iter()
        .map(|failure| json!({"attributePath": failure.attribute_path, "message": failure.message}))
        .collect()
}

/// Returns whether an object is of a kind that is made for an APIRule.
pub(super) fn is_produced(object: &Value) -> bool {
    let kinds =
        BTreeSet::from(["VirtualService", "AuthorizationPolicy", "RequestAuthentication", "Rule"]);
    object["kind"].as_str().is_some_and(|kind| kinds.contains(kind))
}

/// Returns the writes to produced objects, merged to one for each object: several of our writes
/// were one write of the original.
pub(super) fn folded(end: &End) -> Vec<Value> {
    let mut folded: Vec<Value> = Vec::new();
    for written in end.changes.iter().filter(|change| is_produced(&change.object)) {
        let mut written = json!(written);
        let place =
            |of: &Value| (of["object"]["kind"].clone(), of["object"]["metadata"]["uid"].clone());
        match folded.iter_mut().find(|earlier| place(earlier) == place(&written)) {
            Some(earlier) if earlier["action"] == "create" && written["action"] == "update" => {
                earlier["object"] = written["object"].take();
            }
            Some(earlier) => *earlier = written,
            None => folded.push(written),
        }
    }
    folded
}

/// Returns a change of the guest's own function, to be compared.
pub(super) fn native(change: &Change) -> Value {
    let object =
        |manifest: &mortise_sdk::Manifest| serde_json::from_str::<Value>(&manifest.object).unwrap();
    self::change(&match change {
        Change::Create(manifest) => json!({"action": "create", "object": object(manifest)}),
        Change::Update(manifest) => json!({"action": "update", "object": object(manifest)}),
        Change::Delete { reference, .. } => json!({"action": "delete", "object": {
            "apiVersion": format!("{}/{}", reference.kind.group, reference.kind.version),
            "kind": reference.kind.kind,
            "metadata": {"name": reference.name, "namespace": reference.namespace},
        }}),
    })
}

/// Normalises a change for comparison. A deletion is reduced to the object's identity.
pub(super) fn change(change: &Value) -> Value {
    let action = &change["action"];
    let mut compared = produced(&change["object"]);
    if action != "create" {
        compared["metadata"]["name"] = change["object"]["metadata"]["name"].clone();
    }
    if action == "delete" {
        let members = compared.as_object_mut().unwrap();
        members.remove("spec");
        members["metadata"].as_object_mut().unwrap().remove("labels");
    }
    json!({"action": action, "object": compared})
}

/// Normalises a produced object for comparison: without fields that the server adds, without
/// generated names and without versions, since any served version of a kind is the same object.
pub(super) fn produced(object: &Value) -> Value {
    let object = without_nulls(object);
    let group = object["apiVersion"].as_str().unwrap_or_default().split('/').next();
    let mut metadata = Map::new();
    for field in ["namespace", "labels"] {
        metadata.insert(field.to_owned(), object["metadata"][field].clone());
    }
    let mut spec = object["spec"].clone();
    sort_cookies(&mut spec);
    json!({"group": group, "kind": object["kind"], "metadata": metadata, "spec": spec})
}

/// Sorts cookies, which the original writes in the order of a Go map.
fn sort_cookies(spec: &mut Value) {
    for route in spec.get_mut("http").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(cookie) = route.pointer_mut("/headers/request/set/Cookie") {
            let mut pairs: Vec<&str> = cookie.as_str().unwrap_or_default().split("; ").collect();
            pairs.sort_unstable();
            *cookie = json!(pairs.join("; "));
        }
    }
}
