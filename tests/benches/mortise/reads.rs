//! Reads through the contract: the difference between a call with many reads and a call with none.

use std::time::{Duration, Instant};

use mortise_core::{grant::Grant, store::Stores};
use serde_json::{Value, json};

use crate::{
    calls::{Callee, runtime},
    samples::{self, IN_NAMESPACE, OBJECTS, OF_OWNER},
    table::{Table, Times, micros},
};

const CALLS: usize = 15;

/// Adds the cost of a get, a list and a list by a field's value.
///
/// # Errors
///
/// Fails if a guest does not build or load, or a call fails.
pub(crate) fn run(table: &mut Table) -> anyhow::Result<()> {
    let runtime = runtime(1, "reads")?;
    let callee = runtime.block_on(puppet())?;
    let of_namespace = selection(&kind(), Some("ns-3"), None);
    let of_owner = selection(&kind(), None, Some("owner-5"));
    let get = json!({"get": {"ref": {"cluster": "", "kind": kind(), "namespace": "ns-3", "name": "thing-3003"}}});
    let cases = [
        ("get of 3 KB".to_owned(), get, 200),
        (format!("list of {IN_NAMESPACE}, 3 KB each"), json!({"list": {"of": of_namespace}}), 10),
        (format!("list of {OF_OWNER} by a field's value"), json!({"list": {"of": of_owner}}), 100),
    ];
    for (name, read, times) in cases {
        let none = runtime.block_on(median(&callee, &read, 0))?;
        let many = runtime.block_on(median(&callee, &read, times))?;
        let each = many.saturating_sub(none) / times;
        table.row(format!("{name}, of {OBJECTS} objects"), micros(each), "");
    }
    Ok(())
}

async fn median(puppet: &Callee, read: &Value, times: u32) -> anyhow::Result<Duration> {
    let config = config(&json!({"reads": [read], "repeat": times}));
    let mut took = Vec::new();
    for _ in 0..CALLS {
        let start = Instant::now();
        let called = puppet.call(Some(&config)).await?;
        took.push(start.elapsed());
        called.outcome?.map_err(|failure| anyhow::anyhow!("a call failed: {}", failure.message))?;
        let read = called.outside.view.finish().records().len();
        anyhow::ensure!(times == 0 || read > 0, "the call has read no object");
    }
    Ok(Times::new(took).median())
}

async fn puppet() -> anyhow::Result<Callee> {
    let loaded = mortise_tests::loaded("tests/guests/puppet", &config(&json!({}))).await?;
    let stores = Stores::new();
    for (kind, scope, wanted) in Grant::new(&loaded.description)?.wanted() {
        if *kind == samples::kind() {
            samples::fill_stores(&stores, scope, wanted);
        }
    }
    let map = json!({"metadata": {"name": "map", "namespace": "default"}});
    Callee::new(loaded, stores, &map)
}

fn config(script: &Value) -> String {
    let maps = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
    let (maps, all) = (selection(&maps, None, None), selection(&kind(), None, None));
    let by_owner = selection(&kind(), None, Some("*"));
    let reconciler = json!({
        "name": "config-maps", "of": maps, "finalizers": [], "resync": 0, "triggered_by_status": false, "min_interval": 0, "on_demand": false, "whole_status": false,
    });
    let description = json!({
        "name": "puppet", "version": "1.0.0", "reconcilers": [reconciler], "reads": [all, by_owner], "writes": [],
        "grants": [], "outbound": [], "config_schema": null,
    });
    json!({"description": description, "script": script}).to_string()
}

fn kind() -> Value {
    json!({"group": "example.com", "version": "v1", "kind": "Thing"})
}

fn selection(kind: &Value, namespace: Option<&str>, owner: Option<&str>) -> Value {
    let matching: Vec<[&str; 2]> = owner.map(|owner| ["spec.owner", owner]).into_iter().collect();
    json!({
        "cluster": "", "kind": kind, "namespace": namespace, "name": null, "labels": "", "matching": matching, "fields": [],
    })
}
