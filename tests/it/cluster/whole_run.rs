//! The script of the whole run, which a newcomer starts.

use std::{path::Path, process::Command};

use mortise_tests::tool;

/// `cargo test -p mortise-tests --test it -- --ignored --nocapture whole_run::`
#[test]
#[ignore = "takes minutes"]
fn after_the_whole_run_nothing_is_left() {
    if !["go", "kubectl"].iter().all(|program| tool::is_there(program, "tests/whole-run")) {
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("whole-run");
    let status = Command::new(script).status().unwrap();
    assert!(status.success(), "tests/whole-run: {status}; what it says stands above");
}
