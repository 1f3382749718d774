//! Recorded scenarios of the synchronisation with Konnect, compared with `konnect`.
//!
//! Each scenario runs on an API in memory and a fake of Konnect, with the processor as a native
//! function and with driven time. After each step, the requests that Konnect saw and the objects
//! must be as the original left its own, but for the intended differences.

mod differences;
mod format;
mod names;
mod request;
mod run;
mod stage;
mod state;

use std::path::Path;

use mortise_sdk::testing::{Settled, Stub};
use mortise_tests::goldens;
use serde_json::{Value, json};

use self::{
    differences::Differences,
    format::Scenario,
    stage::{Api, Running, TIMEOUT},
};
use super::scenario;

/// The original of which `konnect` replaces the synchronisation with Konnect.
const ORIGINAL: &str = "konnect";
/// The first word of the names of all scenarios.
const SUBJECTS: [&str; 19] = [
    "answer",
    "auth",
    "ca",
    "certificate",
    "config",
    "consumer",
    "controlplane",
    "credential",
    "dp",
    "key",
    "period",
    "plugin",
    "restart",
    "route",
    "service",
    "sni",
    "target",
    "upstream",
    "vault",
];
/// Connects an operator with Konnect.
fn connect(stub: Stub, api: &Api) -> Stub {
    let api = api.clone();
    stub.outbound(move |call| api.reply(call))
}

fn settle(running: &Running) -> Settled {
    let period = running.sync_period.as_secs();
    let config = json!({"syncPeriodSeconds": period, "requestTimeoutSeconds": TIMEOUT / 1_000});
    running.stub.settle::<konnect::Konnect>(&config.to_string())
}

/// Returns the definitions of the original's kinds, which are generated from the guest's table.
fn definitions() -> Vec<Value> {
    let crds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crds");
    let groups = ["configuration.konghq.com", "konnect.konghq.com"].map(|group| crds.join(group));
    groups.iter().flat_map(|group| scenario::definitions(group).unwrap()).collect()
}

/// Runs the scenarios that are meant; a folder of other scenarios may have none.
fn check(is_meant: impl Fn(&Scenario) -> bool) {
    let scenarios = format::scenarios(&goldens::root().join(ORIGINAL)).unwrap();
    let definitions = definitions();
    let intended = Differences::read();
    let scenarios = scenarios.iter().filter(|scenario| is_meant(scenario));
    let named = scenarios.map(|scenario| (&*scenario.name, scenario));
    let run = |scenario: &Scenario| run::run(scenario, &definitions, connect, settle, &intended);
    scenario::check("requests and objects", named, run);
}

fn check_subject(subject: &str) {
    assert!(SUBJECTS.contains(&subject), "{subject}");
    check(|scenario| scenario::subject(&scenario.name) == subject);
}

#[test]
fn konnect_answer_ends_as_recorded() {
    check_subject("answer");
}

#[test]
fn konnect_auth_ends_as_recorded() {
    check_subject("auth");
}

#[test]
fn konnect_ca_ends_as_recorded() {
    check_subject("ca");
}

#[test]
fn konnect_certificate_ends_as_recorded() {
    check_subject("certificate");
}

#[test]
fn konnect_config_ends_as_recorded() {
    check_subject("config");
}

#[test]
fn konnect_consumer_ends_as_recorded() {
    check_subject("consumer");
}

#[test]
fn konnect_controlplane_ends_as_recorded() {
    check_subject("controlplane");
}

#[test]
fn konnect_credential_ends_as_recorded() {
    check_subject("credential");
}

#[test]
fn konnect_dp_ends_as_recorded() {
    check_subject("dp");
}

#[test]
fn konnect_key_ends_as_recorded() {
    check_subject("key");
}

#[test]
fn konnect_period_ends_as_recorded() {
    check_subject("period");
}

#[test]
fn konnect_plugin_ends_as_recorded() {
    check_subject("plugin");
}

#[test]
fn konnect_restart_ends_as_recorded() {
    check_subject("restart");
}

#[test]
fn konnect_route_ends_as_recorded() {
    check_subject("route");
}

#[test]
fn konnect_service_ends_as_recorded() {
    check_subject("service");
}

#[test]
fn konnect_sni_ends_as_recorded() {
    check_subject("sni");
}

#[test]
fn konnect_target_ends_as_recorded() {
    check_subject("target");
}

#[test]
fn konnect_upstream_ends_as_recorded() {
    check_subject("upstream");
}

#[test]
fn konnect_vault_ends_as_recorded() {
    check_subject("vault");
}

#[test]
fn konnect_scenarios_of_other_subjects_end_as_recorded() {
    check(|scenario| !SUBJECTS.contains(&scenario::subject(&scenario.name)));
}
