//! The recorded scenarios on a real API server: the embedded one is tested against answers that a
//! real one gives.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use axum::Router;
use futures::{StreamExt as _, stream};
use mortise_tests::goldens;
use serde_json::Value;

use super::run;

/// Number of scenarios that run at the same time. Each uses namespaces and groups of its own.
const MAX_CONCURRENT_SCENARIOS: usize = 6;
/// The environment variable that selects scenarios by the beginning of their names, as for the
/// embedded API.
const ONLY: &str = "SCENARIOS";
/// The reason why a server without controllers creates no Pod.
const POD: &str = "a Pod needs the ServiceAccount that a controller makes in each namespace";
/// Scenarios whose answers depend on the setup of the server, with the reason.
const SET_UP: [(&str, &str); 5] = [
    ("apply-crd-itself", "the server's own field manager is named after its program"),
    ("host-network-template", POD),
    ("limit-range", POD),
    ("pod-update-gate", POD),
    ("watch-too-old", "how far back watches go depends on what there was when the server started"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_scenarios_are_answered_by_a_real_api_server() {
    let Some(server) = super::bare().await else { return };
    let files = files(&goldens::root().join("kubernetes-api"));
    assert!(!files.is_empty(), "no scenarios");
    let answers = stream::iter(&files).map(|file| scenario(&server, file));
    let wrong: Vec<String> = answers
        .buffer_unordered(MAX_CONCURRENT_SCENARIOS)
        .filter_map(async |answer| answer.err())
        .collect()
        .await;
    for (name, reason) in SET_UP {
        println!("not compared: {name}: {reason}");
    }
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), files.len(), wrong.join("\n"));
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let only = env::var(ONLY).unwrap_or_default();
    let entries = fs::read_dir(folder).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.retain(|file| name(file).starts_with(&only));
    files.retain(|file| SET_UP.iter().all(|(set_up, _)| *set_up != name(file)));
    files.sort();
    files
}

fn name(file: &Path) -> &str {
    file.file_stem().unwrap().to_str().unwrap()
}

async fn scenario(server: &Router, file: &Path) -> Result<(), String> {
    let text = fs::read_to_string(file).unwrap();
    let scenario: Value = serde_saphyr::from_str(&text).unwrap();
    run::scenario(server, &scenario).await.map_err(|wrong| format!("{}: {wrong}", name(file)))
}
