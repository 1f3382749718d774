//! What is deleted, and what goes with it.

use serde_json::{Value, json};

use super::{
    super::{
        super::{
            request::{Answer, Request},
            state::{Key, conditions},
        },
        Consequences, Facts,
    },
    is_refused, uid_of,
};
use crate::goldens::scenario::text;

/// The finalizer on objects that have an entity.
pub(super) const CLEANUP: &str = "gateway.konghq.com/konnect-cleanup";
/// The finalizer on targets of bindings that were made of an annotation.
const BINDING_CLEANUP: &str = "gateway.konghq.com/cleanup-plugin-binding";

/// An object whose deletion hangs in the original for want of a grant goes, and its entity before
/// it; nothing is left of them for a later step.
pub(super) fn deletions_complete(facts: &Facts<'_>, expected: &mut Consequences) {
    expected.requests.retain(|request| {
        let is_gone = facts.history.deleted.contains(&request.path);
        request.method != "DELETE" || !is_gone || request.answer.status != Some(204)
    });
    let is_hanging = |object: &Value| {
        let is_held = object["finalizers"] == json!([CLEANUP]);
        let conditions = conditions(object);
        let is_refused = conditions.values().any(|held| held["reason"] == "RefNotPermitted");
        object["deleting"] == true && is_held && is_refused
    };
    let hanging: Vec<Key> = expected
        .objects
        .iter()
        .filter(|(_, object)| is_hanging(object))
        .map(|(key, _)| key.clone())
        .collect();
    for key in hanging {
        let Some(object) = expected.objects.remove(&key) else { continue };
        expected.requests.extend(deletion(facts, &key));
        release_auth(&object, &key, expected);
    }
}

/// A deletion that Konnect refuses is tried again when what refers to the entity has gone, not with
/// growing pauses only.
pub(super) fn deletions_wait_for_children(facts: &Facts<'_>, expected: &mut Consequences) {
    expected.requests.retain(|request| {
        let last = facts.history.sent.get(&request.place());
        let is_again = request.method == "DELETE"
            && is_refused(request)
            && last.is_some_and(|last| last.answer == request.answer);
        !is_again || facts.ours.requests.iter().any(|sent| sent.key() == request.key())
    });
}

/// A target that is deleted takes along the bindings that were made of its annotation, and their
/// entities go before its own; in the original both objects stay until something else wakes it.
pub(super) fn targets_take_their_bindings_along(facts: &Facts<'_>, expected: &mut Consequences) {
    let is_left = |object: &Value| {
        object["deleting"] == true && object["finalizers"] == json!([BINDING_CLEANUP])
    };
    let left = expected.objects.iter().filter(|(_, object)| is_left(object));
    let left: Vec<Key> = left.map(|(key, _)| key.clone()).collect();
    for target in left {
        expected.objects.remove(&target);
        let is_its = |key: &Key, object: &Value| {
            let targets = object["spec"]["targets"].as_object().into_iter().flatten();
            let mut named = targets.map(|(field, of)| (kind_of(field), text(of, "/name")));
            key.kind == "KongPluginBinding" && named.any(|of| of == (&target.kind, &target.name))
        };
        let bindings = expected.objects.iter().filter(|(key, object)| is_its(key, object));
        let bindings: Vec<Key> = bindings.map(|(key, _)| key.clone()).collect();
        for binding in bindings {
            let Some(object) = expected.objects.remove(&binding) else { continue };
            expected.requests.splice(0..0, deletion(facts, &binding));
            let plugin = text(&object, "/spec/pluginRef/name");
            let is_used = expected.objects.iter().any(|(key, other)| {
                key.kind == binding.kind && text(other, "/spec/pluginRef/name") == plugin
            });
            if !is_used {
                expected.objects.retain(|key, _| !(key.kind == "KongPlugin" && key.name == plugin));
            }
        }
    }
}

/// Returns the kind of a target of a binding.
fn kind_of(field: &str) -> &str {
    match field {
        "serviceRef" => "KongService",
        "routeRef" => "KongRoute",
        "consumerRef" => "KongConsumer",
        "consumerGroupRef" => "KongConsumerGroup",
        other => other,
    }
}

/// Returns the request that deletes the entity of an object.
fn deletion(facts: &Facts<'_>, key: &Key) -> Option<Request> {
    let uid = uid_of(key);
    let mut created = facts.history.created.values();
    let mut gone = created.find(|made| made.uid().as_ref() == Some(&uid))?.clone();
    gone.path = gone.entity();
    "DELETE".clone_into(&mut gone.method);
    gone.body = Value::Null;
    gone.answer = Answer { status: Some(204), ..Answer::default() };
    Some(gone)
}

/// Takes the finalizer of an auth object that no control plane names any more.
fn release_auth(object: &Value, key: &Key, expected: &mut Consequences) {
    let resolved = conditions(object).get("APIAuthResolvedRef").cloned().unwrap_or_default();
    if key.kind != "KonnectGatewayControlPlane" || resolved.is_null() {
        return;
    }
    let message = text(&resolved, "/message").to_owned();
    for (of, auth) in &mut expected.objects {
        let is_named = message.contains(&format!("KonnectAPIAuthConfiguration {} ", of.name));
        if of.kind == "KonnectAPIAuthConfiguration" && is_named {
            auth.as_object_mut().and_then(|fields| fields.remove("finalizers"));
        }
    }
}
