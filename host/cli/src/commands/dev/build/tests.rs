use super::*;

#[test]
fn progress_and_messages_of_cargo_are_told_apart() {
    let cases = [
        ("   Compiling serde v1.0.228", true),
        ("    Finished `release` profile [optimized] target(s) in 1.10s", true),
        (" Downloading crates ...", true),
        ("error: could not compile `a` (lib) due to 1 previous error", false),
        ("  failed to parse manifest at `/a/Cargo.toml`", false),
        ("", false),
    ];
    for (line, expected) in cases {
        assert_eq!(is_progress(line), expected, "{line}");
    }
}

#[test]
fn compiler_messages_are_picked_from_the_output_of_cargo() {
    let line = r#"{"reason":"compiler-message","message":{"rendered":"error: no\n\n"}}"#;
    assert_eq!(rendered(line).as_deref(), Some("error: no"));
    assert_eq!(rendered(r#"{"reason":"build-finished","success":false}"#), None);
}
