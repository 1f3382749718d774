//! Recorded scenarios of the consumer side of kube-bind, compared with `kube-bind`.
//!
//! Each scenario runs on two APIs in memory, with the processor as a native function and with
//! driven time; with `--ignored`, all of them run on two real control planes, too. After each step
//! both clusters must be as the original left its own, but for the intended differences. The state is
//! compared, not the way there: what a step waits for only says how long to wait.

mod backend;
mod differences;
mod format;
mod hand_over;
mod memory;
mod names;
mod real;
mod run;
mod stage;
mod state;

use std::time::Instant;

use mortise_sdk::testing::{Settled, Stub};
use mortise_tests::goldens;
use serde_json::Value;

use self::{differences::Differences, format::Scenario};
use super::scenario;

/// The original whose consumer side `kube-bind` replaces.
const ORIGINAL: &str = "kube-bind";
/// The first word of the names of all scenarios.
const GROUPS: [&str; 15] = [
    "bundle",
    "claims",
    "connected",
    "crd",
    "delete",
    "isolation",
    "konnector",
    "kubeconfig",
    "multi",
    "namespace",
    "provider",
    "ready",
    "schema",
    "stop",
    "sync",
];
/// The configuration of the processor: the original binds and claims everything.
const CONFIG: &str =
    r#"{"groups": ["*"], "claims": [{"resources": ["configmaps", "secrets", "serviceaccounts"]}]}"#;

fn settle(stub: &Stub) -> Settled {
    stub.settle::<kube_bind::KubeBind>(CONFIG)
}

/// Returns the scenarios, and the definitions of the original's kinds.
fn recorded() -> (Vec<Scenario>, Vec<Value>) {
    let folder = goldens::root().join(ORIGINAL);
    (format::scenarios(&folder).unwrap(), scenario::definitions(&folder.join("crds")).unwrap())
}

fn check(is_meant: impl Fn(&Scenario) -> bool) {
    let (scenarios, definitions) = recorded();
    let intended = Differences::read();
    let scenarios = scenarios.iter().filter(|scenario| is_meant(scenario));
    let named = scenarios.map(|scenario| (&*scenario.name, scenario));
    let run = |scenario: &Scenario| memory::run(scenario, &definitions, settle, &intended);
    scenario::check("states of both clusters", named, run);
}

fn check_group(group: &str) {
    assert!(GROUPS.contains(&group), "{group}");
    check(|scenario| scenario::subject(&scenario.name) == group);
}

/// `cargo test -p mortise-tests --test it -- --ignored --nocapture kube_bind_whole`
#[test]
#[ignore = "starts two control planes for each of the scenarios"]
fn kube_bind_whole_record_on_control_planes_ends_as_recorded() {
    let (scenarios, definitions) = recorded();
    let intended = Differences::read();
    let folders = real::Folders::new().unwrap();
    let named = scenarios.iter().map(|scenario| (&*scenario.name, scenario));
    let run = |scenario: &Scenario| {
        let begun = Instant::now();
        let report = real::run(scenario, &definitions, &folders, &intended);
        let differences = report.iter().flat_map(|report| &report.differences);
        println!("{}: {:.1?}", scenario.name, begun.elapsed());
        // A run of all takes long: what differs is told at once.
        differences.for_each(|difference| println!("  {difference}"));
        // Without Go that has been said already.
        report.unwrap_or_default()
    };
    scenario::check("states of two control planes", named, run);
}

#[test]
fn kube_bind_bundle_ends_as_recorded() {
    check_group("bundle");
}

#[test]
fn kube_bind_claims_ends_as_recorded() {
    check_group("claims");
}

#[test]
fn kube_bind_connected_ends_as_recorded() {
    check_group("connected");
}

#[test]
fn kube_bind_crd_ends_as_recorded() {
    check_group("crd");
}

#[test]
fn kube_bind_delete_ends_as_recorded() {
    check_group("delete");
}

#[test]
fn kube_bind_isolation_ends_as_recorded() {
    check_group("isolation");
}

#[test]
fn kube_bind_konnector_ends_as_recorded() {
    check_group("konnector");
}

#[test]
fn kube_bind_kubeconfig_ends_as_recorded() {
    check_group("kubeconfig");
}

#[test]
fn kube_bind_multi_ends_as_recorded() {
    check_group("multi");
}

#[test]
fn kube_bind_namespace_ends_as_recorded() {
    check_group("namespace");
}

#[test]
fn kube_bind_provider_ends_as_recorded() {
    check_group("provider");
}

#[test]
fn kube_bind_ready_ends_as_recorded() {
    check_group("ready");
}

#[test]
fn kube_bind_schema_ends_as_recorded() {
    check_group("schema");
}

#[test]
fn kube_bind_stop_ends_as_recorded() {
    check_group("stop");
}

#[test]
fn kube_bind_sync_ends_as_recorded() {
    check_group("sync");
}

#[test]
fn kube_bind_scenarios_of_other_groups_end_as_recorded() {
    check(|scenario| !GROUPS.contains(&scenario::subject(&scenario.name)));
}
