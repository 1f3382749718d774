//! Deleted objects at home of which nothing at the provider is synchronised any more.

use std::slice;

use serde_json::Value;

use super::{
    super::{
        format::Side,
        state::{GROUP, Key, State},
    },
    Facts,
    foreign::without_namespaces,
    objects::{copies, is_deleting},
    rules::SYNCER,
};
use crate::goldens::scenario::text;

/// A deleted object is let go when its export or its schema is gone; in the original it hangs. The
/// object at the provider goes, too, if only the schema is gone.
pub(super) fn deleted_objects_are_let_go(facts: &Facts<'_>, expected: &mut State) {
    if !facts.is_running {
        return;
    }
    let deleted: Vec<Key> = expected
        .iter()
        .filter(|(key, object)| key.side == Side::C && key.is_custom() && is_deleting(object))
        .map(|(key, _)| key.clone())
        .collect();
    // What asked for a namespace was let go before.
    let asked = facts.deleted.iter().filter(|key| key.side == Side::C && key.is_custom());
    let asked = asked.filter(|key| !facts.before.contains_key(key));
    let is_there = |name: &String| {
        let mut keys = facts.actual.keys();
        keys.any(|key| key.is(Side::P, GROUP, "APIServiceNamespace") && key.name == *name)
    };
    let asked = asked.map(|key| key.namespace.clone()).filter(|name| !is_there(name));
    let asked: Vec<String> = asked.collect();
    without_namespaces(facts, expected, &asked);
    for home in deleted {
        let Some((definition, owner)) = definition_of(&home, expected) else { continue };
        let mut keys = expected.keys();
        let export =
            keys.find(|key| key.is(Side::P, GROUP, "APIServiceExport") && key.name == owner);
        let is_schema = |key: &Key| key.is(Side::P, GROUP, "BoundSchema") && key.name == definition;
        let gone = match export {
            None => Vec::new(),
            Some(_) if expected.keys().any(is_schema) => continue,
            Some(_) => copies(slice::from_ref(&home), expected),
        };
        expected.retain(|key, _| !gone.contains(key));
        release(&home, expected);
    }
}

/// Returns the name of the definition of an object, and that of the binding that owns it.
pub(super) fn definition_of(home: &Key, state: &State) -> Option<(String, String)> {
    let is_of = |of: &Value| {
        (text(of, "/spec/group"), text(of, "/spec/names/kind"))
            == (home.group.as_str(), home.kind.as_str())
    };
    let (key, definition) = state.iter().find(|(key, of)| key.is_definition() && is_of(of))?;
    let owners = definition.pointer("/metadata/ownerReferences")?.as_array()?;
    let owner = owners.iter().find(|owner| owner["kind"] == "APIServiceBinding")?;
    let name = owner["name"].as_str()?;
    let is_binding = |key: &Key| key.is(Side::C, GROUP, "APIServiceBinding") && key.name == name;
    state.keys().any(is_binding).then(|| (key.name.clone(), name.to_owned()))
}

/// Takes the finalizer off an object, which is gone with the last one.
fn release(home: &Key, state: &mut State) {
    let Some(object) = state.get_mut(home) else { return };
    let Some(held) = object.pointer_mut("/metadata/finalizers").and_then(Value::as_array_mut)
    else {
        return;
    };
    held.retain(|name| name != SYNCER);
    if held.is_empty() {
        state.remove(home);
    }
}
