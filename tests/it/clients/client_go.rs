//! Kubernetes' own client for Go: a program in tests/clients tries the API and prints its results.

use std::process::Command;

use mortise_tests::go;
use serde::Deserialize;

use super::Served;

/// Fewer changes than the program makes before it asks for a version from before them.
const HISTORY: usize = 200;
/// Number of checks in the program, so that a check without a result is a failure too.
const CHECKS: usize = 22;

#[derive(Deserialize)]
struct Checked {
    check: String,
    error: String,
}

fn try_with(feature: &str) {
    let Some(program) = go::clients().unwrap() else { return };
    let served = Served::new(HISTORY);
    let output = Command::new(program)
        .args(["-server", &served.url()])
        .env("KUBE_FEATURE_WatchListClient", feature)
        .output()
        .unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let checks: Vec<Checked> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let log = String::from_utf8_lossy(&output.stderr);
    let failed: Vec<String> = checks
        .iter()
        .filter(|checked| !checked.error.is_empty())
        .map(|checked| format!("{}: {}", checked.check, checked.error))
        .collect();
    assert!(failed.is_empty(), "{}\n{log}", failed.join("\n"));
    assert!(output.status.success(), "{log}");
    assert_eq!(checks.len(), CHECKS);
}

#[test]
fn informers_that_list_and_watch_are_served() {
    try_with("false");
}

#[test]
fn informers_that_stream_their_list_are_served() {
    try_with("true");
}
