//! What the objects of a state ask for now. Ours brings it about at once; the original only with
//! the next event of an export or a binding, without which a scenario may end.

use serde_json::{Value, json};

use super::{
    super::{
        format::Side,
        state::{EXTENSIONS, GROUP, Key, State},
    },
    claims::{OWNER, is_claimed},
    objects::{CONSUMER_UID, condition, marked, place_of, summarize},
};
use crate::goldens::scenario::{conditions_mut, merged, text};

/// Returns the form of an object that the others ask for.
pub(super) fn present(key: &Key, state: &State, ours: &State) -> Option<Value> {
    if key.is_definition() {
        definition(key, state, ours)
    } else if key.is(Side::P, GROUP, "BoundSchema") {
        schema(key, state, ours)
    } else if key.is(Side::C, GROUP, "APIServiceBinding") {
        binding(key, state)
    } else if key.group.is_empty() {
        shared(key, state, ours)
    } else {
        None
    }
}

/// Returns the definition of ours if it is what its schema says, and a binding of the schema's
/// export owns it.
fn definition(key: &Key, state: &State, ours: &State) -> Option<Value> {
    let held = ours.get(key)?;
    let owners = held.pointer("/metadata/ownerReferences")?.as_array()?;
    let owner = owners.iter().find(|owner| owner["kind"] == "APIServiceBinding")?;
    let is = |of: &Key, side, kind| of.is(side, GROUP, kind) && owner["name"] == of.name;
    let export = state.keys().find(|of| is(of, Side::P, "APIServiceExport"))?;
    let (_, schema) = state.iter().find(|(of, _)| {
        let is_meant = (&of.namespace, &of.name) == (&export.namespace, &key.name);
        of.is(Side::P, GROUP, "BoundSchema") && is_meant
    })?;
    let is_bound = state.keys().any(|of| is(of, Side::C, "APIServiceBinding"));
    if !is_bound || !says(&schema["spec"], &held["spec"]) {
        return None;
    }
    let mut form = state.get(key).unwrap_or(held).clone();
    for field in ["spec", "status"] {
        form[field] = held[field].clone();
    }
    Some(form)
}

/// Returns whether a definition is what a schema says.
fn says(schema: &Value, definition: &Value) -> bool {
    let versions = |of: &Value| {
        let plain = |version: &Value| {
            let mut version = version.clone();
            if let Some(inner) = version.pointer("/schema/openAPIV3Schema").cloned() {
                version["schema"] = inner;
            }
            version
        };
        of["versions"].as_array().into_iter().flatten().map(plain).collect::<Vec<_>>()
    };
    let mut names = schema["names"].as_object().into_iter().flatten();
    names.all(|(field, name)| definition["names"].get(field) == Some(name))
        && ["group", "scope"].iter().all(|field| schema[*field] == definition[*field])
        && versions(schema) == versions(definition)
}

/// Returns the schema with the state of the definition of ours.
fn schema(key: &Key, state: &State, ours: &State) -> Option<Value> {
    let mut schema = state.get(key)?.clone();
    let is_meant = |of: &Key| of.side == Side::C && of.group == EXTENSIONS && of.name == key.name;
    let (_, definition) = ours.iter().find(|(of, _)| is_meant(of))?;
    for field in ["acceptedNames", "storedVersions"] {
        schema.get_mut("status")?[field] = definition.pointer("/status")?[field].clone();
    }
    let told = definition.pointer("/status/conditions")?.as_array()?;
    for condition in conditions_mut(&mut schema) {
        let same = told.iter().find(|of| of["type"] == condition["type"]);
        if let Some(same) = same.filter(|of| of["type"] != "Terminating") {
            *condition = same.clone();
            if same["status"] != "True" {
                condition["severity"] = "Error".into();
            }
        }
    }
    summarize(&mut schema);
    Some(schema)
}

/// Returns the binding with the name that its provider has now.
fn binding(key: &Key, state: &State) -> Option<Value> {
    let mut binding = state.get(key)?.clone();
    condition(&binding, "Connected")?;
    let place = place_of(&binding, state)?;
    let (_, of) = state
        .iter()
        .find(|(of, _)| of.is(Side::P, GROUP, "ClusterBinding") && of.namespace == place)?;
    binding["status"]["providerPrettyName"] = text(of, "/spec/providerPrettyName").into();
    Some(binding)
}

/// Returns the copy of ours of an object at home that a claim takes now, or that object with the
/// label of its owner.
fn shared(key: &Key, state: &State, ours: &State) -> Option<Value> {
    let source_of = |copy: &Value| {
        let source = marked(copy, CONSUMER_UID, Side::C)?;
        let object = state.get(&source)?;
        let is_so = text(copy, OWNER) == "consumer"
            && copy.get("data") == object.get("data")
            && is_claimed(&source, object, state);
        is_so.then_some(source)
    };
    if key.side == Side::P {
        return ours.get(key).filter(|copy| source_of(copy).is_some()).cloned();
    }
    let copies = ours.iter().filter(|(of, _)| of.side == Side::P && of.kind == key.kind);
    let is_its = |copy: &Value| source_of(copy).is_some_and(|source| source == *key);
    copies.map(|(_, copy)| copy).find(|copy| is_its(copy))?;
    let label = json!({"metadata": {"labels": {"kube-bind.io/owner": "consumer"}}});
    state.get(key).map(|object| merged(object, &label))
}
