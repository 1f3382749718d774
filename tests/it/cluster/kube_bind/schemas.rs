//! Schemas that home cannot have: the binding says so, and others go on.

use std::fs;

use serde_json::Value;

use super::{
    Side,
    backend::{self, EXPORTS, Export, NAMESPACED, kube_bind, within},
    consumer::{Stand, bind, binding},
    killed,
};
use crate::cluster::program::Program;

/// Bytes by which the memory of a host may grow at its peak: many times the largest schema.
const MAX_GROWTH: u64 = 96 << 20;
/// A list of lists of lists without bounds, and a rule that compares all of their items.
const COSTLY: &str = r#"{"type": "object", "properties": {"spec": {
    "type": "object", "properties": {"parts": {
        "type": "array",
        "items": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}},
        "x-kubernetes-validations": [{"rule": "self.all(a, self.all(b, a.all(c, b.all(d, c == d))))"}]
    }}
}}}"#;
const COST_TOLD: &str = "estimated rule cost exceeds budget";

/// A schema, and what is said of it.
struct Case {
    export: Export,
    schema: String,
    /// The reason, and a part of the message.
    told: [&'static str; 2],
}

fn cases() -> [Case; 3] {
    let export =
        |plural, kind| Export::new(plural, kind, (NAMESPACED, NAMESPACED), NAMESPACED, "Prefixed");
    let created = "CustomResourceDefinitionCreateFailed";
    // An API server accepts JSON of 10,000 levels, of which a level of a schema takes two.
    let levels = 4_900;
    let deep = format!(
        r#"{}{{"type": "string"}}{}"#,
        r#"{"type":"object","properties":{"a":"#.repeat(levels),
        "}}".repeat(levels)
    );
    let large = format!(r#"{{"type": "object", "description": "{}"}}"#, "x".repeat(1 << 20));
    [
        Case {
            export: export("wheels", "Wheel"),
            schema: COSTLY.to_owned(),
            told: [created, COST_TOLD],
        },
        Case {
            export: export("towers", "Tower"),
            schema: deep,
            told: ["BoundSchemaFetchFailed", "towers.example.com"],
        },
        Case {
            export: export("walls", "Wall"),
            schema: large,
            told: [created, "is larger than 1024 KiB"],
        },
    ]
}

/// Gives a `BoundSchema` another schema, as text: it may be deeper than a parser here allows.
async fn set_schema(stand: &Stand, export: &Export, schema: &str) {
    let path = stand.provider.path(&bound_schema(stand, export)).await;
    let version =
        r#""name": "v1", "served": true, "storage": true, "subresources": {"status": {}}"#;
    let body = format!(r#"{{"spec": {{"versions": [{{{version}, "schema": {schema}}}]}}}}"#);
    let request = http::Request::patch(format!("{path}?fieldManager=somebody"))
        .header("content-type", "application/merge-patch+json")
        .body(body.into_bytes())
        .unwrap();
    stand.provider.plane.client().await.unwrap().request_text(request).await.unwrap();
}

fn bound_schema(stand: &Stand, export: &Export) -> Value {
    within(kube_bind("BoundSchema", &export.title()), &stand.consumers[0].place)
}

/// Waits until an object has a condition of this type and status, which holds a text.
async fn until_told(side: &Side, of: &Value, [condition, status]: [&str; 2], text: &str) {
    let is_it = |one: &Value| {
        let is_of_type = one["type"] == condition && one["status"] == status;
        is_of_type && one.to_string().contains(text)
    };
    let is_told = |of: Option<&Value>| {
        let conditions = of.and_then(|of| of["status"]["conditions"].as_array());
        conditions.into_iter().flatten().any(is_it)
    };
    side.until(of, &format!("{of}: {condition} is {status}: {text}"), is_told).await;
}

/// Waits until conditions of a binding are False, with a reason and a text in the message.
async fn until_false(stand: &Stand, of: &Export, conditions: &[&str], [reason, text]: [&str; 2]) {
    for condition in conditions {
        for text in [reason, text] {
            let told = [*condition, "False"];
            until_told(&stand.consumers[0].home, &binding(of), told, text).await;
        }
    }
}

/// Returns the memory that a host had at its peak, in bytes.
fn peak(host: &Program) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", host.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts two control planes"]
async fn a_schema_that_home_cannot_have_is_told_and_harms_no_other_binding() {
    let Some(mut stand) = Stand::open(&["cluster-a"]).await else { return };
    let host = stand.consumers[0].host.take().unwrap();
    let consumer = &stand.consumers[0];
    consumer.until_bound().await;
    let moons = &EXPORTS[2];
    killed::life(&stand, moons).await;
    let before = peak(&host);
    for Case { export, schema, told } in cases() {
        backend::offer(&stand.provider, &consumer.place, &export).await;
        set_schema(&stand, &export, &schema).await;
        bind(&consumer.home, &export).await;
        until_false(&stand, &export, &["Connected", "Ready"], told).await;
        killed::life(&stand, moons).await;
        let grown = peak(&host) - before;
        println!("{told:?}: the peak of memory has grown by {} KiB", grown >> 10);
        assert!(grown < MAX_GROWTH, "{grown}");
    }
    consumer.until_bound().await;
    stand.nothing_was_refused().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts two control planes"]
async fn a_bound_schema_that_turns_costly_leaves_its_definition_in_use() {
    let Some(stand) = Stand::open(&["cluster-a"]).await else { return };
    let (provider, consumer) = (&stand.provider, &stand.consumers[0]);
    consumer.until_bound().await;
    let rockets = &EXPORTS[0];
    let of_rockets = bound_schema(&stand, rockets);
    let former = provider.get(&of_rockets).await.unwrap()["spec"]["versions"][0]["schema"].clone();
    set_schema(&stand, rockets, COSTLY).await;
    let told = ["CustomResourceDefinitionUpdateFailed", COST_TOLD];
    until_false(&stand, rockets, &["Connected", "SchemaInSync", "Ready"], told).await;
    let export = within(kube_bind("APIServiceExport", rockets.plural), &consumer.place);
    until_told(provider, &export, ["ConsumerInSync", "False"], COST_TOLD).await;
    for condition in ["Established", "Ready"] {
        until_told(provider, &of_rockets, [condition, "True"], "").await;
    }
    killed::life(&stand, rockets).await;
    set_schema(&stand, rockets, &former.to_string()).await;
    consumer.until_bound().await;
    stand.nothing_was_refused().await;
}
