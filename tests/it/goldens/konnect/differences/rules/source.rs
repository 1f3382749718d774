//! Entities that are made of other objects: plugins and Secrets.

use serde_json::{Value, json};

use super::{
    super::{
        super::{format::Step, request::Request, state::Key},
        Consequences, Facts,
    },
    applied,
};
use crate::goldens::scenario::{conditions_mut, merged, text};

/// A plugin whose configuration, or a part of it, is in a Secret is sent with it.
pub(super) fn configuration_from_secrets_is_sent(facts: &Facts<'_>, expected: &mut Consequences) {
    for plugin in applied(facts, "KongPlugin") {
        let Some(configuration) = configuration(facts, plugin) else { continue };
        for request in &mut expected.requests {
            let is_plugin = request.body["name"] == plugin["plugin"]
                && request.uid().is_some_and(|uid| uid.starts_with("UID-KongPluginBinding-"));
            if is_plugin && request.body.get("config") == plugin.get("config") {
                request.body["config"] = configuration.clone();
            }
        }
    }
}

/// Returns the configuration of a plugin that is in Secrets, if they are there.
fn configuration(facts: &Facts<'_>, plugin: &Value) -> Option<Value> {
    let steps: Vec<&Step> = facts.earlier.iter().chain([facts.step]).collect();
    let value = |from: &Value| {
        let from = &from["secretKeyRef"];
        let secret = source(steps.iter().copied(), "Secret", text(from, "/name"))?;
        let held = secret["stringData"][text(from, "/key")].as_str()?.to_owned();
        Some(serde_json::from_str(&held).unwrap_or(Value::String(held)))
    };
    if plugin.get("configFrom").is_some() {
        return value(&plugin["configFrom"]).filter(Value::is_object);
    }
    let patches = plugin["configPatches"].as_array().filter(|patches| !patches.is_empty())?;
    let mut configuration = plugin.get("config").cloned().unwrap_or_else(|| json!({}));
    for patch in patches {
        let (parent, field) = text(patch, "/path").rsplit_once('/')?;
        let parent = configuration.pointer_mut(parent)?.as_object_mut()?;
        parent.insert(field.to_owned(), value(&patch["valueFrom"])?);
    }
    Some(configuration)
}

/// An entity is sent at once when a plugin or a Secret that it is made of is changed.
pub(super) fn sources_are_sent_at_once(facts: &Facts<'_>, expected: &mut Consequences) {
    for patch in &facts.step.patch {
        let of = patch.of();
        let Some(before) = source(facts.earlier.iter(), &of.kind, &of.name) else { continue };
        let after = merged(&before, &patch.merge);
        let changes = changed_values(&before, &after);
        if changes.is_empty() || !["KongPlugin", "Secret"].contains(&of.kind.as_str()) {
            continue;
        }
        for (key, object) in &mut expected.objects {
            if object.get("spec").is_some() && is_in_namespace(facts, key) {
                follow(object, &changes);
            }
        }
        let mut sent: Vec<Request> = Vec::new();
        for last in facts.history.sent.values().filter(|last| last.method != "DELETE") {
            sent.extend(sent_again(facts, last, &changes, expected));
        }
        expected.requests.extend(sent);
    }
}

/// Returns the update of an entity whose source has changed.
fn sent_again(
    facts: &Facts<'_>,
    last: &Request,
    changes: &[(Value, Value)],
    expected: &Consequences,
) -> Option<Request> {
    let mut body = last.body.clone();
    let id = last.answer.id.clone()?;
    if !replace(&mut body, changes) {
        return None;
    }
    let place = last.entity();
    let is_there = |other: &&Request| other.entity() == place && !other.is_read();
    let is_newer = last.method == "POST" && facts.history.sent.contains_key(&place);
    if is_newer || expected.requests.iter().find(is_there).is_some() {
        return None;
    }
    if let Some(generation) = generation_of(last, expected) {
        set_generation(&mut body, generation);
    }
    let mut again = last.clone();
    "PUT".clone_into(&mut again.method);
    again.path = place;
    again.body = body;
    again.answer.status = Some(200);
    again.answer.id = Some(id);
    again.repeated = false;
    again.seconds_since_previous = None;
    again.periods_since_previous = None;
    Some(again)
}

/// Returns the generation of the object that an entity is made of.
fn generation_of(request: &Request, expected: &Consequences) -> Option<u64> {
    let uid = request.uid()?;
    let is_its = |key: &&Key| uid == super::uid_of(key);
    let key = expected.objects.keys().find(is_its)?;
    expected.objects.get(key)?.get("generation")?.as_u64()
}

fn set_generation(body: &mut Value, generation: u64) {
    let tags = body.get_mut("tags").and_then(Value::as_array_mut);
    for tag in tags.into_iter().flatten() {
        if tag.as_str().is_some_and(|tag| tag.starts_with("k8s-generation:")) {
            *tag = format!("k8s-generation:{generation}").into();
        }
    }
}

/// Changes an object that is made of a source which has changed.
fn follow(object: &mut Value, changes: &[(Value, Value)]) {
    if object.get_mut("spec").is_some_and(|spec| replace(spec, changes)) {
        let generation = object["generation"].as_u64().unwrap_or_default() + 1;
        object["generation"] = generation.into();
        for condition in conditions_mut(object) {
            condition["observedGeneration"] = generation.into();
        }
    }
}

fn is_in_namespace(facts: &Facts<'_>, key: &Key) -> bool {
    facts.scenario.second_namespace.as_ref() != Some(&key.namespace)
}

/// Returns the object that steps have applied and patched.
fn source<'a>(steps: impl Iterator<Item = &'a Step>, kind: &str, name: &str) -> Option<Value> {
    let mut source = None;
    for step in steps {
        let is_it = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
        source = step.apply.iter().find(is_it).cloned().or(source);
        for patch in &step.patch {
            let of = patch.of();
            if (of.kind.as_str(), of.name.as_str()) == (kind, name) {
                source = source.map(|source: Value| merged(&source, &patch.merge));
            }
        }
    }
    source
}

/// Returns the values of a plugin's configuration or of a Secret that have changed, as they were and
/// as they are. A text that is JSON is also given as what it says.
fn changed_values(before: &Value, after: &Value) -> Vec<(Value, Value)> {
    let mut changes = Vec::new();
    for field in ["config", "stringData"] {
        let (old, new) = (&before[field], &after[field]);
        if old == new || old.is_null() {
            continue;
        }
        changes.push((old.clone(), new.clone()));
        for (key, old) in old.as_object().into_iter().flatten() {
            let new = &new[key];
            if old == new {
                continue;
            }
            changes.push((old.clone(), new.clone()));
            let parsed = |value: &Value| serde_json::from_str::<Value>(value.as_str()?).ok();
            changes.extend(parsed(old).zip(parsed(new)));
        }
    }
    changes
}

/// Replaces the fields that have one of the values. Returns whether there are any.
fn replace(value: &mut Value, changes: &[(Value, Value)]) -> bool {
    let Some(fields) = value.as_object_mut() else { return false };
    let mut is_replaced = false;
    for (name, field) in fields {
        let change = changes.iter().find(|(old, _)| old == field);
        if let Some((_, new)) = change.filter(|_| name != "name" && name != "tags") {
            *field = new.clone();
            is_replaced = true;
        }
    }
    is_replaced
}
