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

#[test]
fn an_abandoned_process_is_not_started() {
    let process = Process::default();
    process.give_up();
    assert!(process.start(&mut Command::new("/nowhere")).unwrap().is_none());
}

#[test]
fn abandoning_a_process_ends_its_children_too() {
    let process = Process::default();
    let mut command = Command::new("sh");
    // The inner `sleep` keeps the output open.
    command.args(["-c", "sleep 1000 & echo started; wait"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let (stdout, _stderr) = process.start(&mut command).unwrap().unwrap();
    let mut lines = BufReader::new(stdout).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "started");
    process.give_up();
    assert!(lines.next().is_none());
    assert!(!process.wait().unwrap().unwrap().success());
}
