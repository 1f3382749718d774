//! `deploy/REFERENCE.md`, compared with the code.

use mortise_tests::reference;

#[test]
fn the_reference_file_is_current() {
    let found = std::fs::read_to_string(reference::path()).unwrap_or_default();
    assert!(
        found == reference::text(),
        "deploy/REFERENCE.md differs from the code: run `cargo reference` and look at what it changes"
    );
}
