//! What the objects of a state ask for now. Ours brings it about at once; the original only with
//! the next event of an export or a binding, without which a scenario may end.

use serde_json::{Value, json};

use super::{
    super::{
        format::Side,
        state::{EXTENSIONS, GROUP, Key, State},
    },
    Facts,
    claims::{OWNER, is_claimed},
    deletion::definition_of,
    objects::{
        CONSUMER_UID, PROVIDER_UID, add_finalizer, condition, is_deleting, marked, named, place_of,
        set_condition, source_of, summarize,
    },
    rules::SYNCER,
};
use crate::goldens::scenario::{merged, text};

/// Returns the form of an object that the others ask for.
pub(super) fn present(key: &Key, state: &State, facts: &Facts<'_>) -> Option<Value> {
    let ours = facts.actual;
    if key.is_definition() {
        definition(key, state, ours)
    } else if key.is(Side::P, GROUP, "BoundSchema") {
        schema(key, state, ours)
    } else if key.is(Side::C, GROUP, "APIServiceBinding") {
        binding(key, state)
    } else if key.is(Side::P, GROUP, "APIServiceExport") {
        export(key, state, ours)
    } else if key.is_custom() {
        synchronised(key, state, ours)
    } else if key.is(Side::P, GROUP, "APIServiceNamespace") || key.is(Side::P, "", "Namespace") {
        asked_for(key, state, facts)
    } else if key.group.is_empty() {
        shared(key, state, facts)
    } else {
        None
    }
}

/// Returns the definition of ours if it is what its schema says, and a binding of the schema's
/// export owns it.
fn definition(key: &Key, state: &State, ours: &State) -> Option<Value> {
    let held = ours.get(key)?;
    let owner = owner(held)?;
    let is = |of: &Key, side, kind| of.is(side, GROUP, kind) && owner == of.name;
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
    let is_its = |(of, export): &(&Key, &Value)| {
        of.is(Side::P, GROUP, "APIServiceExport")
            && of.namespace == key.namespace
            && resources(export).any(|resource| resource == key.name)
    };
    state.iter().find(is_its)?;
    for field in ["acceptedNames", "storedVersions"] {
        schema["status"][field] = definition.pointer("/status")?[field].clone();
    }
    let told = definition.pointer("/status/conditions")?.as_array()?.iter();
    let told = told.filter(|of| of["type"] != "Terminating").cloned().map(|mut of| {
        if of["status"] != "True" {
            of["severity"] = "Error".into();
        }
        of
    });
    for condition in told.chain([json!({"type": "Ready"})]) {
        set_condition(&mut schema, condition);
    }
    summarize(&mut schema);
    Some(schema)
}

/// Returns the names of the schemas of an export.
fn resources(export: &Value) -> impl Iterator<Item = String> {
    let resources = export.pointer("/spec/resources").and_then(Value::as_array);
    let name = |of: &Value| format!("{}.{}", text(of, "/resource"), text(of, "/group"));
    resources.into_iter().flatten().map(name)
}

/// Returns the binding with the name that its provider has now, and with what is to be said of its
/// definitions now.
fn binding(key: &Key, state: &State) -> Option<Value> {
    let mut binding = state.get(key)?.clone();
    condition(&binding, "Connected")?;
    let place = place_of(&binding, state)?;
    let provider = state
        .iter()
        .find(|(of, _)| of.is(Side::P, GROUP, "ClusterBinding") && of.namespace == place);
    let status = binding.get_mut("status")?.as_object_mut()?;
    match provider {
        Some((_, of)) => {
            let name = text(of, "/spec/providerPrettyName");
            status.insert("providerPrettyName".to_owned(), name.into())
        }
        None => status.remove("providerPrettyName"),
    };
    let is_export = |of: &Key| {
        of.is(Side::P, GROUP, "APIServiceExport")
            && (&of.namespace, &of.name) == (&place, &key.name)
    };
    if let Some((_, export)) = state.iter().find(|(of, _)| is_export(of)) {
        match refusal(key, export, &place, state) {
            Some(connected) => set_condition(&mut binding, connected),
            None => {
                for of in ["Connected", "SchemaInSync"] {
                    set_condition(&mut binding, json!({"type": of, "status": "True"}));
                }
            }
        }
    }
    summarize(&mut binding);
    Some(binding)
}

/// Returns what `Connected` says if a schema is missing, or a definition belongs to somebody else.
fn refusal(binding: &Key, export: &Value, place: &str, state: &State) -> Option<Value> {
    let mut refusal = None;
    for name in resources(export) {
        let is_schema = |of: &Key| {
            of.is(Side::P, GROUP, "BoundSchema")
                && (of.namespace.as_str(), &of.name) == (place, &name)
        };
        if !state.keys().any(is_schema) {
            let message = format!(
                "Failed to fetch BoundSchema objects: failed to get Schema {name}: boundschemas.kube-bind.io \"{name}\" not found"
            );
            return Some(not_connected("BoundSchemaFetchFailed", &message));
        }
        let is_foreign = |(of, definition): (&Key, &Value)| {
            of.is_definition() && of.name == name && owner(definition) != Some(&binding.name)
        };
        if state.iter().any(is_foreign) {
            let message = format!("CustomResourceDefinition {name} is not owned by kube-bind.io.");
            refusal = Some(not_connected("ForeignCustomResourceDefinition", &message));
        }
    }
    refusal
}

fn not_connected(reason: &str, message: &str) -> Value {
    json!({
        "type": "Connected", "status": "False", "severity": "Error", "reason": reason, "message": message,
    })
}

/// Returns the name of the binding that owns a definition.
fn owner(definition: &Value) -> Option<&str> {
    let owners = definition.pointer("/metadata/ownerReferences")?.as_array()?;
    owners.iter().find(|owner| owner["kind"] == "APIServiceBinding")?["name"].as_str()
}

/// Returns the export as the binding of its name, which leads there, is in sync or not.
fn export(key: &Key, state: &State, ours: &State) -> Option<Value> {
    let mut export = state.get(key)?.clone();
    let is_its = |of: &&Key| of.is(Side::C, GROUP, "APIServiceBinding") && of.name == key.name;
    let binding = ours.keys().find(is_its)?;
    let leads_here = place_of(&ours[binding], state).is_some_and(|place| place == key.namespace);
    let in_sync = condition(&ours[binding], "SchemaInSync").filter(|_| leads_here)?;
    set_condition(&mut export, json!({"type": "Connected", "status": "True"}));
    set_condition(&mut export, named(in_sync, "ConsumerInSync"));
    Some(export)
}

/// Returns whether an object at home is of a kind that is synchronised.
fn is_bound(home: &Key, state: &State) -> bool {
    let Some((definition, binding)) = definition_of(home, state) else { return false };
    let is = |of: &Key, kind, name: &str| of.is(Side::P, GROUP, kind) && of.name == name;
    let places = state.keys().filter(|of| is(of, "APIServiceExport", &binding));
    let mut places = places.map(|of| &of.namespace);
    places.any(|place| {
        state.keys().any(|of| is(of, "BoundSchema", &definition) && of.namespace == *place)
    })
}

/// Returns the copy of ours of an object at home, or that object with what belongs to its copy.
fn synchronised(key: &Key, state: &State, ours: &State) -> Option<Value> {
    let held = ours.get(key)?;
    if key.side == Side::P {
        let home = source_of(held)?;
        let object = state.get(&home).filter(|object| !is_deleting(object))?;
        let is_so = held.get("spec") == object.get("spec") && is_bound(&home, state);
        return is_so.then(|| match state.get(key) {
            Some(former) => {
                let mut form = former.clone();
                form["spec"] = held["spec"].clone();
                form
            }
            None => held.clone(),
        });
    }
    let there = marked(held, PROVIDER_UID, Side::P)?;
    let copy = ours.get(&there).filter(|copy| source_of(copy).as_ref() == Some(key))?;
    let is_so = held.get("status") == copy.get("status") && is_bound(key, state);
    let object = state.get(key).filter(|object| is_so && !is_deleting(object))?;
    let marks = json!({"kube-bind.io/provider-namespace": there.namespace, "kube-bind.io/provider-uid": held.pointer(PROVIDER_UID)});
    let mut form = merged(object, &json!({"metadata": {"annotations": marks}}));
    form["status"] = held["status"].clone();
    add_finalizer(&mut form, SYNCER);
    Some(form)
}

/// Returns the request of ours for a namespace of objects at home that are synchronised or claimed,
/// or that namespace. Once it was asked for, it stays as long as the namespace at home.
fn asked_for(key: &Key, state: &State, facts: &Facts<'_>) -> Option<Value> {
    let held = facts.actual.get(key)?;
    let title = text(held, "/metadata/annotations/kube-bind.io~1api-service-namespace");
    let name = title.split_once('/').map_or(key.name.as_str(), |(_, name)| name);
    let asks = |(home, object): (&Key, &Value)| {
        if home.namespace != name {
            let was_asked_for = facts.before.contains_key(key) && !facts.deleted.contains(key);
            home.is(Side::C, "", "Namespace") && home.name == name && was_asked_for
        } else if home.is_custom() {
            is_bound(home, state)
        } else {
            is_claimed(home, object, state)
        }
    };
    state.iter().filter(|(of, _)| of.side == Side::C).any(asks).then(|| held.clone())
}

/// Returns the copy of ours of an object at home that a claim takes now, or that object with the
/// label of its owner.
fn shared(key: &Key, state: &State, facts: &Facts<'_>) -> Option<Value> {
    let ours = facts.actual;
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
    // The label stays when the object is claimed no longer.
    let was_shared = facts.before.get(key).is_some_and(|held| text(held, OWNER) == "consumer");
    if !was_shared {
        copies.map(|(_, copy)| copy).find(|copy| is_its(copy))?;
    }
    let label = json!({"metadata": {"labels": {"kube-bind.io/owner": "consumer"}}});
    state.get(key).map(|object| merged(object, &label))
}
