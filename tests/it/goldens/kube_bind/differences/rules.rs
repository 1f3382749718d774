//! The rules, each for all scenarios alike.

use std::time::Duration;

use mortise_sdk::ClusterName;
use serde_json::{Value, json};

use super::{
    super::{
        format::Side,
        state::{GROUP, Key, State},
    },
    Facts,
    claims::{
        OWNER, claims_say_what_is_shared, kubeconfigs_are_never_claimed, tokens_are_never_copied,
    },
    deletion::deleted_objects_are_let_go,
    foreign::{
        foreign_kinds_are_not_synced, objects_of_others_are_not_read, others_keep_their_places,
    },
    objects::{
        CONSUMER_UID, PROVIDER_UID, add_condition, add_finalizer, bindings_mut, condition, copies,
        has_place, is_deleting, is_marked, marked, named, of_binding, own_namespaces, place_of,
        source_of, summarize,
    },
    served::schemas_that_serve_nothing_are_refused,
};
use crate::goldens::scenario::{conditions_mut, text};

/// The finalizer on objects of bound kinds.
pub(super) const SYNCER: &str = "kubebind.io/syncer";
/// The time after which a binding says that its provider cannot be reached.
const TOLD_AFTER: Duration = Duration::from_secs(6);
/// The finalizers of ours on bindings begin so.
const OWN: &str = "kube-bind.mortise.dev/";
/// The reasons of bindings whose definitions are not those of the provider.
const OUT_OF_SYNC: [&str; 4] = [
    "BoundSchemaFetchFailed",
    "CustomResourceDefinitionCreateFailed",
    "CustomResourceDefinitionUpdateFailed",
    "ForeignCustomResourceDefinition",
];

/// A rule: changes the state of the record to what is expected of ours.
type Rule = fn(&Facts<'_>, &mut State);

pub(super) const RULES: [(&str, Rule); 20] = [
    ("claims-say-what-is-shared", claims_say_what_is_shared),
    ("kubeconfigs-are-never-claimed", kubeconfigs_are_never_claimed),
    ("tokens-are-never-copied", tokens_are_never_copied),
    ("schemas-that-serve-nothing-are-refused", schemas_that_serve_nothing_are_refused),
    ("objects-of-others-stay", objects_of_others_stay),
    ("objects-of-others-are-not-read", objects_of_others_are_not_read),
    ("foreign-kinds-are-not-synced", foreign_kinds_are_not_synced),
    ("failed-requests-are-told", failed_requests_are_told),
    ("marks-come-back", marks_come_back),
    ("provider-is-waited-for", provider_is_waited_for),
    ("deleted-objects-are-let-go", deleted_objects_are_let_go),
    ("bindings-end-in-order", bindings_end_in_order),
    ("bindings-have-a-finalizer", bindings_have_a_finalizer),
    ("connected-says-what-is", connected_says_what_is),
    ("fields-taken-out-go", fields_taken_out_go),
    ("late-bindings-are-told-all", late_bindings_are_told_all),
    ("no-sync-without-a-schema", no_sync_without_a_schema),
    ("schema-in-sync-says-what-is", schema_in_sync_says_what_is),
    ("termination-may-go-unseen", termination_may_go_unseen),
    ("unreachable-providers-are-told", unreachable_providers_are_told),
];

/// Objects at the provider that the processor has not made stay when they have no counterpart.
fn objects_of_others_stay(facts: &Facts<'_>, expected: &mut State) {
    for (key, object) in facts.removed {
        let is_of_others = key.side == Side::P && key.is_custom() && !is_marked(object, expected);
        let is_collected = object.pointer("/metadata/ownerReferences").is_some();
        if is_of_others && !is_collected && !facts.deleted.contains(key) && has_place(key, expected)
        {
            expected.insert(key.clone(), object.clone());
        }
    }
    for key in facts.lost.difference(facts.deleted) {
        let (label, mark) = match key.side {
            Side::P => ("consumer", CONSUMER_UID),
            Side::C => ("provider", PROVIDER_UID),
        };
        // A label alone does not make it a copy.
        let is_labelled = |of: &&Value| {
            text(of, OWNER) == label && text(of, mark).is_empty() && has_place(key, expected)
        };
        if let Some(object) = facts.removed.get(key).filter(is_labelled).cloned() {
            expected.insert(key.clone(), object);
        }
    }
    others_keep_their_places(facts, expected);
}

/// An object at home keeps its finalizer until the one at the provider is gone.
fn provider_is_waited_for(facts: &Facts<'_>, expected: &mut State) {
    let is_held =
        |key: &Key, object: &Value| key.side == Side::P && key.is_custom() && is_deleting(object);
    let held: Vec<(Key, Option<Value>)> = expected
        .iter()
        .filter(|(key, object)| is_held(key, object))
        .filter_map(|(_, object)| Some((source_of(object)?, object.get("status").cloned())))
        .collect();
    for (key, status) in held {
        let last = expected.get(&key).filter(|object| is_deleting(object));
        if let Some(object) = last.or_else(|| facts.removed.get(&key)) {
            let mut object = object.clone();
            // The status comes home until then.
            if let Some(status) = status {
                object["status"] = status;
            }
            object["metadata"]["deletionTimestamp"] = "TIME".into();
            add_finalizer(&mut object, SYNCER);
            expected.insert(key, object);
        }
    }
}

/// A deleted binding takes its objects at the provider, its objects at home and its definitions
/// with it, in this order, and waits for the processor if that does not run, and for the provider.
fn bindings_end_in_order(facts: &Facts<'_>, expected: &mut State) {
    let ended = facts.removed.iter().filter(|(key, _)| key.is(Side::C, GROUP, "APIServiceBinding"));
    for (binding, last) in ended {
        let mut owned = of_binding(binding, expected);
        // Without a kubeconfig, only objects that are held are waited for.
        let is_held = |key: &Key| facts.before.get(key).is_some_and(is_of_syncer);
        let is_lost = place_of(last, expected).is_none() && owned.iter().any(is_held);
        let waits = !facts.is_running || is_away(last, facts) || is_lost;
        let is_held = |before: &&Value| waits && !own_finalizers(before).is_empty();
        let Some(before) = facts.before.get(binding).filter(is_held) else {
            // Without the export, nothing is written to the provider.
            let is_export =
                |key: &Key| key.is(Side::P, GROUP, "APIServiceExport") && key.name == binding.name;
            let copies =
                if expected.keys().any(is_export) { copies(&owned, expected) } else { Vec::new() };
            let of_ours: Vec<Key> = owned.into_iter().chain(copies).collect();
            expected.retain(|key, _| !of_ours.contains(key));
            continue;
        };
        let mut waiting = before.clone();
        waiting["metadata"]["deletionTimestamp"] = "TIME".into();
        expected.insert(binding.clone(), waiting);
        let before = of_binding(binding, facts.before).into_iter();
        owned.extend(before.filter(|key| !facts.deleted.contains(key)));
        for key in owned {
            if let Some(object) = facts.before.get(&key) {
                expected.insert(key, object.clone());
            }
        }
    }
}

/// Returns the name of the cluster of a binding's provider.
fn cluster_of(binding: &Value) -> ClusterName {
    let [namespace, name, key] = ["namespace", "name", "key"]
        .map(|field| text(binding, &format!("/spec/kubeconfigSecretRef/{field}")));
    ClusterName::secret(namespace, name, key)
}

fn is_away(binding: &Value, facts: &Facts<'_>) -> bool {
    facts.unreachable.contains_key(&*cluster_of(binding))
}

/// Returns the finalizers of ours on an object.
fn own_finalizers(object: &Value) -> Vec<&str> {
    let held = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    let names = held.into_iter().flatten().filter_map(Value::as_str);
    names.filter(|name| name.starts_with(OWN)).collect()
}

/// Returns whether an object has the finalizer of objects of bound kinds.
pub(super) fn is_of_syncer(object: &Value) -> bool {
    let held = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    held.is_some_and(|held| held.iter().any(|name| name == SYNCER))
}

/// Bindings have a finalizer, so that they can end in order.
fn bindings_have_a_finalizer(facts: &Facts<'_>, expected: &mut State) {
    for (key, object) in bindings_mut(expected) {
        let held = facts.actual.get(key).map(own_finalizers);
        for name in held.into_iter().flatten() {
            add_finalizer(object, name);
        }
    }
}

/// The conditions of an export without a binding, or with one that leads to another place, say so.
fn connected_says_what_is(_: &Facts<'_>, expected: &mut State) {
    let bindings = expected.iter().filter(|(key, _)| key.is(Side::C, GROUP, "APIServiceBinding"));
    let bound: Vec<(String, Option<String>)> =
        bindings.map(|(key, binding)| (key.name.clone(), place_of(binding, expected))).collect();
    // Where no Secret leads any more, nobody writes.
    let own = own_namespaces(expected);
    let exports = expected.iter_mut().filter(|(key, _)| key.is(Side::P, GROUP, "APIServiceExport"));
    for (key, export) in exports {
        let of_name = bound.iter().find(|(name, _)| *name == key.name);
        let is_bound = of_name.is_some_and(|(_, place)| {
            let leads_here = place.as_ref().is_none_or(|place| *place == key.namespace);
            leads_here || !own.contains(&key.namespace)
        });
        if is_bound {
            continue;
        }
        for condition in conditions_mut(export) {
            let reason = match text(condition, "/type") {
                "Connected" => "APIServiceBindingNotFound",
                "ConsumerInSync" => "NA",
                _ => continue,
            };
            *condition = json!({
                "type": condition["type"], "status": "False", "severity": "Info",
                "reason": reason, "message": "No APIServiceBinding exists.",
            });
        }
    }
}

/// A binding whose request has failed says why.
fn failed_requests_are_told(_: &Facts<'_>, expected: &mut State) {
    let requests =
        expected.iter().filter(|(key, _)| key.is(Side::P, GROUP, "APIServiceExportRequest"));
    let failed: Vec<(Key, String)> = requests
        .filter(|(_, request)| text(request, "/status/phase") == "Failed")
        .map(|(key, request)| (key.clone(), text(request, "/status/terminalMessage").to_owned()))
        .collect();
    let places: Vec<(String, Option<String>)> = bindings_mut(&mut expected.clone())
        .map(|(key, binding)| (key.name.clone(), place_of(binding, expected)))
        .collect();
    for (key, binding) in bindings_mut(expected) {
        let place = places.iter().find(|(name, _)| *name == key.name);
        let is_of = |(of, _): &&(Key, String)| {
            of.name == key.name
                && place.is_some_and(|(_, place)| *place == Some(of.namespace.clone()))
        };
        let Some((_, message)) = failed.iter().find(is_of) else { continue };
        let is_missing =
            |of: &Value| of["type"] == "Connected" && of["reason"] == "APIServiceExportNotFound";
        for connected in conditions_mut(binding).filter(|of| is_missing(of)) {
            connected["reason"] = "APIServiceExportFailed".into();
            connected["message"] = message.as_str().into();
        }
        summarize(binding);
    }
}

/// The object at the provider that an object at home stands for has its marks, whatever was changed
/// there.
fn marks_come_back(facts: &Facts<'_>, expected: &mut State) {
    if !facts.is_running {
        return;
    }
    let is_held = |object: &Value| is_of_syncer(object) && !is_deleting(object);
    let homes = expected
        .iter()
        .filter(|(key, object)| key.side == Side::C && key.is_custom() && is_held(object));
    let pairs: Vec<(Key, Key)> = homes
        .filter_map(|(key, home)| Some((key.clone(), marked(home, PROVIDER_UID, Side::P)?)))
        .collect();
    for (home, there) in pairs {
        let held = facts.actual.get(&there).filter(|held| source_of(held) == Some(home.clone()));
        let marks = held.and_then(|held| held.pointer("/metadata/annotations")).cloned();
        let (Some(marks), Some(object)) = (marks, expected.get_mut(&there)) else { continue };
        for mark in ["cluster-namespace", "consumer-namespace", "consumer-uid"] {
            let mark = format!("kube-bind.io/{mark}");
            if marks.get(&mark).is_some() {
                object["metadata"]["annotations"][&mark] = marks[&mark].clone();
            }
        }
    }
}

/// A binding that joins a connection has all of its conditions at once.
fn late_bindings_are_told_all(_: &Facts<'_>, expected: &mut State) {
    let has_heartbeat = expected.iter().any(|(key, object)| {
        key.is(Side::P, GROUP, "ClusterBinding")
            && object.pointer("/status/lastHeartbeatTime").is_some()
    });
    for (_, binding) in bindings_mut(expected) {
        if condition(binding, "Connected").is_none() {
            continue;
        }
        add_condition(binding, "InformersSynced");
        if has_heartbeat {
            add_condition(binding, "Heartbeating");
        }
    }
}

/// Nothing is written to the provider for a kind whose schema is gone.
fn no_sync_without_a_schema(facts: &Facts<'_>, expected: &mut State) {
    let gone = facts.removed.iter().filter(|(key, _)| key.is(Side::P, GROUP, "BoundSchema"));
    for (_, schema) in gone {
        let (group, kind) = (text(schema, "/spec/group"), text(schema, "/spec/names/kind"));
        let copies = expected.iter_mut().filter(|(key, _)| key.is(Side::P, group, kind));
        for (key, object) in copies {
            if let Some(spec) = facts.before.get(key).and_then(|object| object.get("spec")) {
                object["spec"] = spec.clone();
            }
        }
    }
}

/// A binding whose definitions are not those of the provider is not in sync, and says why; nor is
/// its export.
fn schema_in_sync_says_what_is(_: &Facts<'_>, expected: &mut State) {
    let mut found = Vec::new();
    for (key, binding) in bindings_mut(expected) {
        let is_out_of_sync = |condition: &&Value| {
            condition["status"] == "False" && OUT_OF_SYNC.contains(&text(condition, "/reason"))
        };
        let Some(connected) = condition(binding, "Connected").filter(is_out_of_sync).cloned()
        else {
            continue;
        };
        if let Some(in_sync) = conditions_mut(binding).find(|of| of["type"] == "SchemaInSync") {
            *in_sync = named(&connected, "SchemaInSync");
            found.push((key.name.clone(), connected));
        }
    }
    for (name, connected) in found {
        let exports = expected
            .iter_mut()
            .filter(|(key, _)| key.is(Side::P, GROUP, "APIServiceExport") && key.name == name);
        let conditions = exports.flat_map(|(_, export)| conditions_mut(export));
        for condition in conditions.filter(|condition| condition["type"] == "ConsumerInSync") {
            *condition = named(&connected, "ConsumerInSync");
        }
    }
}

/// A definition that is gone at once is never seen in its termination.
fn termination_may_go_unseen(facts: &Facts<'_>, expected: &mut State) {
    let schemas = expected.iter_mut().filter(|(key, _)| key.is(Side::P, GROUP, "BoundSchema"));
    for (key, schema) in schemas {
        let is_seen =
            facts.actual.get(key).is_some_and(|held| condition(held, "Terminating").is_some());
        let conditions = schema.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
        if let (false, Some(conditions)) = (is_seen, conditions) {
            conditions.retain(|condition| condition["type"] != "Terminating");
        }
    }
}

/// A field that was taken out of spec at home goes at the provider, unless somebody there has set
/// it to another value.
fn fields_taken_out_go(facts: &Facts<'_>, expected: &mut State) {
    let copies: Vec<(Key, Key)> = expected
        .iter()
        .filter(|(key, _)| key.side == Side::P)
        .filter_map(|(key, object)| Some((key.clone(), source_of(object)?)))
        .collect();
    for (copy, source) in copies {
        let Some(former) = facts.former.get(&source) else { continue };
        let now = expected.get(&source).and_then(|source| source.get("spec")).cloned();
        let fields = expected.get_mut(&copy).and_then(Value::as_object_mut);
        let Some(fields) = fields.filter(|_| now.is_some() || facts.is_there(&source)) else {
            continue;
        };
        if let Some(spec) = fields.get_mut("spec") {
            take_out(spec, now.as_ref(), &former.iter().collect::<Vec<_>>());
        }
        fields.retain(|key, value| {
            key != "spec" || value.as_object().is_none_or(|spec| !spec.is_empty())
        });
    }
}

/// Takes out the fields that are not there `now`, and have a value that they had at home.
fn take_out(value: &mut Value, now: Option<&Value>, former: &[&Value]) {
    let Some(fields) = value.as_object_mut() else { return };
    fields.retain(|key, value| {
        let now = now.and_then(|now| now.get(key));
        let former: Vec<&Value> = former.iter().filter_map(|former| former.get(key)).collect();
        if value.is_object() {
            take_out(value, now, &former);
            return value.as_object().is_some_and(|fields| !fields.is_empty());
        }
        now.is_some() || !former.contains(&&*value)
    });
}

/// The conditions of a binding say that its provider cannot be reached, and why.
fn unreachable_providers_are_told(facts: &Facts<'_>, expected: &mut State) {
    for (key, binding) in bindings_mut(expected) {
        let since = facts.unreachable.get(&*cluster_of(binding));
        let held = facts.actual.get(key).and_then(|held| condition(held, "InformersSynced"));
        let is_told = held.is_some_and(|held| held["status"] == "False");
        // Of one that is being deleted, an event says so.
        let is_silent =
            |since: &Duration| (*since < TOLD_AFTER || is_deleting(binding)) && !is_told;
        if since.is_none_or(is_silent) {
            continue;
        }
        let message = |of: &str| {
            let held = facts.actual.get(key).and_then(|held| condition(held, of));
            held.and_then(|held| held.get("message")).cloned().unwrap_or_default()
        };
        let away = |of: &str| {
            json!({
                "type": of, "status": "False", "severity": "Error", "reason": "InformerSyncTimeout", "message": message(of),
            })
        };
        add_condition(binding, "InformersSynced");
        for condition in conditions_mut(binding) {
            match text(condition, "/type") {
                "Heartbeating" => {
                    *condition = json!({
                        "type": "Heartbeating", "status": "False", "severity": "Warning",
                        "reason": "ClusterBindingUpdateFailed", "message": message("Heartbeating"),
                    });
                }
                of @ ("InformersSynced" | "Ready") => *condition = away(of),
                _ => {}
            }
        }
    }
}
