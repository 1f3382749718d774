//! Tests on a real control plane, which `mortise_tests::cluster` starts.

mod chart;
mod expired;
mod faults;
mod forward;
mod gone;
mod grants;
mod ground;
mod harness;
mod images;
mod install;
mod installed;
mod interrupted;
mod istio;
mod killed;
pub(crate) mod konnect;
pub(crate) mod kube_bind;
mod leases;
mod libraries;
mod line;
mod lives;
#[path = "../../host/embedded-api/tests/scenarios/normalise.rs"]
mod normalise;
mod oathkeeper;
mod permissions;
mod processors;
pub(crate) mod program;
mod random;
mod rights;
mod roles;
#[path = "../../host/embedded-api/tests/scenarios/run.rs"]
mod run;
mod scenarios;
mod shop;
pub(crate) mod side;
mod stage;
mod strict;
mod three_versions;
mod webhooks;
mod whole_run;
mod world;

use axum::Router;
use mortise::local;
use mortise_core::{contract::Kind, reconcile::Report};
use serde_json::{Value, json};

use crate::host::merge;

/// Returns a service for a control plane with few controllers; `None` without Go.
async fn bare() -> Option<Router> {
    let cluster = mortise_tests::cluster::bare().await.unwrap()?;
    Some(forward::to(cluster.client().await.unwrap()))
}

/// Parses `apiVersion/Kind`.
fn kind(text: &str) -> Kind {
    let (api_version, kind) = text.rsplit_once('/').unwrap();
    local::kind_of(&json!({"apiVersion": api_version, "kind": kind}))
}

/// Returns the answers to a puppet's reads.
fn answers(report: &Report) -> Vec<Value> {
    let reads = report.log.iter().filter(|line| line.message == "read");
    let answers = reads.flat_map(|line| &line.fields).filter(|(key, _)| key == "answer");
    answers.map(|(_, value)| serde_json::from_str(value).unwrap()).collect()
}
