//! Objects of 3 KB, stores filled with them, and the memory of these stores.

use std::collections::BTreeSet;

use anyhow::Context as _;
use mortise_core::{
    contract::Kind,
    path::Fields,
    store::{Scope, Stores, Wanted},
};
use serde_json::{Value, json};

use crate::{process, table::Table};

/// Number of objects in the stores.
pub(crate) const OBJECTS: usize = 10_000;
/// Number of objects in one namespace.
pub(crate) const IN_NAMESPACE: usize = 1_000;
/// Number of objects with the same owner.
pub(crate) const OF_OWNER: usize = 10;
const OBJECT_BYTES: usize = 3_000;

/// The kind of the objects in stores.
pub(crate) fn kind() -> Kind {
    Kind::home("example.com", "v1", "Thing")
}

/// An object of 3 KB as compact JSON.
pub(crate) fn thing(index: usize) -> Value {
    let metadata = json!({
        "name": format!("thing-{index}"), "namespace": format!("ns-{}", index / IN_NAMESPACE),
        "uid": format!("00000000-0000-4000-8000-{index:012}"), "resourceVersion": (index + 1).to_string(),
        "labels": {"app": format!("app-{}", index % 7)}, "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1,
    });
    let owner = format!("owner-{}", index / OF_OWNER);
    let spec = json!({"owner": owner, "replicas": 3, "rules": []});
    fill(
        json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": metadata, "spec": spec}),
        "/spec/rules",
    )
}

/// Adds to the list at `pointer` until the object has 3 KB.
pub(crate) fn fill(mut object: Value, pointer: &str) -> Value {
    while object.to_string().len() < OBJECT_BYTES {
        let Some(Value::Array(list)) = object.pointer_mut(pointer) else { return object };
        let index = list.len();
        list.push(json!({"path": format!("/some/path/{index}"), "port": 8000 + index, "methods": ["GET", "POST"], "public": true}));
    }
    object
}

/// Fills stores with [`OBJECTS`] objects.
pub(crate) fn fill_stores(stores: &Stores, scope: &Scope, wanted: &Wanted) {
    let Some(feed) = stores.open(&kind(), scope, wanted) else { return };
    feed.begin_list();
    (0..OBJECTS).for_each(|index| feed.list_item(&thing(index)));
    feed.end_list();
}

/// Adds the memory that stores need for an object, whole and projected.
///
/// # Errors
///
/// Fails on a system without Linux' /proc.
pub(crate) fn memory(table: &mut Table) -> anyhow::Result<()> {
    let few = Fields::parse(&["spec.owner", "metadata.labels"]).context("the paths are valid")?;
    let compact = thing(OBJECTS / 2).to_string().len();
    let whole = format!("< {} B: 1.5 × the compact JSON of {compact} B", compact * 3 / 2);
    // Kept to the end: memory that one store frees would hide the growth of the next.
    let mut kept = Vec::new();
    for (name, fields) in [("projected", few), ("whole", Fields::whole())] {
        let before = process::resident()?;
        let stores = Stores::new();
        let wanted = Wanted { fields, matching: BTreeSet::new(), written: false };
        fill_stores(&stores, &Scope::default(), &wanted);
        let grown = process::resident()?.saturating_sub(before);
        let memory = stores.memory();
        let (json, total) = (memory.json / OBJECTS, memory.total / OBJECTS);
        let budget = match name {
            "whole" => whole.clone(),
            _ => format!("< {} B: the projected {json} B + 500 B", json + 500),
        };
        let figure = format!("{total} B (resident: {} B)", grown / OBJECTS);
        kept.push(stores);
        table.row(format!("store, an object of 3 KB, {name}, of {OBJECTS}"), figure, &budget);
    }
    Ok(())
}
