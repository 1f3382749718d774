//! What is deleted, and what goes with it.

use serde_json::{Value, json};

use super::{
    super::{
        super::{
            request::{Answer, Request},
            state::{Key, conditions, key_of},
        },
        Consequences, Facts,
    },
    is_refused, set_programmed, uid_of,
};
use crate::goldens::scenario::text;

/// The finalizer on objects that have an entity.
pub(super) const CLEANUP: &str = "gateway.konghq.com/konnect-cleanup";
/// The message of a deletion for which there is no token.
const WITHOUT_TOKEN: &str = "the entity cannot be deleted without its token; the annotation \
                             mortise.dev/konnect-abandon-entity: \"true\" gives it up";
const SERVICE: &str = "KongService";
/// The conditions of the certificates of a service.
const CERTIFICATES: [&str; 2] = ["KongCertificateRefValid", "KongCACertificateRefsValid"];
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

/// The deletion of an object without a token that may be used says so in `Programmed`, too.
pub(super) fn deletions_without_token_say_so(_: &Facts<'_>, expected: &mut Consequences) {
    let lacks_token = |object: &Value| {
        let conditions = conditions(object);
        let is_false = |of: &str| conditions.get(of).is_some_and(|held| held["status"] == "False");
        is_false("APIAuthResolvedRef") || is_false("APIAuthValid")
    };
    for object in expected.objects.values_mut() {
        if object["deleting"] == true && is_held(object) && lacks_token(object) {
            set_programmed(object, "KonnectAPIOpFailed", WITHOUT_TOKEN);
        }
    }
}

/// A service whose certificate is gone keeps its finalizer, as its entity is still there, and is
/// deleted with it; the original takes the finalizer, and leaves the entity.
pub(super) fn services_take_their_entities_along(facts: &Facts<'_>, expected: &mut Consequences) {
    let is_left = |finalizers: &[Value], status: &Value| {
        let of = json!({"status": status});
        let conditions = conditions(&of);
        let is_gone = |of: &str| {
            let held = conditions.get(of).cloned().unwrap_or_default();
            held["status"] == "False" && text(&held, "/message").ends_with(" not found")
        };
        finalizers.is_empty()
            && status.pointer("/konnect/id").is_some()
            && CERTIFICATES.into_iter().any(is_gone)
    };
    for (_, object) in expected.objects.iter_mut().filter(|(key, _)| key.kind == SERVICE) {
        let finalizers = object["finalizers"].as_array().cloned().unwrap_or_default();
        if is_left(&finalizers, &object["status"]) {
            object["finalizers"] = json!([CLEANUP]);
        }
    }
    for gone in facts.step.gone.iter().filter(|gone| gone.kind == SERVICE) {
        let key = Key::named(gone);
        let mut before = facts.earlier.iter().rev().flat_map(|step| &step.objects);
        let before = before.find(|object| key_of(object) == key);
        let finalizers = before.map(|object| json!(object.finalizers)).unwrap_or_default();
        let finalizers = finalizers.as_array().cloned().unwrap_or_default();
        if before.is_some_and(|object| is_left(&finalizers, &object.status)) {
            expected.requests.extend(deletion(facts, &key));
        }
    }
}

/// Returns whether an object holds the finalizer of its entity.
fn is_held(object: &Value) -> bool {
    object["finalizers"].as_array().is_some_and(|all| all.iter().any(|one| one == CLEANUP))
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
