//! The scripts of the whole run, which a newcomer starts.
//!
//! `cargo test -p mortise-tests --test it -- --ignored --nocapture whole_run::`

use std::{path::Path, process::Command};

use mortise_tests::tool;

/// Runs a script, unless a program that it needs is missing.
fn run(script: &str, needs: &[&str]) {
    let of = format!("tests/{script}");
    if !needs.iter().all(|program| tool::is_there(program, &of)) {
        return;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(script);
    let status = Command::new(path).status().unwrap();
    assert!(status.success(), "{of}: {status}; what it says stands above");
}

#[test]
#[ignore = "takes minutes"]
fn after_the_whole_run_nothing_is_left() {
    run("whole-run", &["go", "kubectl"]);
}

#[test]
#[ignore = "takes minutes"]
fn processors_come_from_a_registry_the_whole_way() {
    run("whole-run-registry", &["go", "kubectl", "docker-registry", "openssl"]);
}
