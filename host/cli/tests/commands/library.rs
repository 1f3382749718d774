//! Libraries and limits of a module, from its Cargo.toml and from options.

use std::process::Output;

use mortise::guest::Guest;
use serde_json::Value;

use crate::{mortise, root};

const GUEST: &str = "tests/guests/announce";
const INTERFACE: &str = "example:shouting/shout@1.0.0";

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = mortise().args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn a_guest_is_tested_with_the_library_that_its_cargo_toml_names() {
    let (code, output, error) = run(&["test", GUEST]);
    assert_eq!(code, Some(0), "{output}{error}");
    assert!(output.contains("2 passed") || output.contains("2 of 2"), "{output}");
}

#[test]
fn a_guest_is_simulated_inspected_and_measured_with_its_library() {
    let objects = format!("{GUEST}/examples");
    let (code, output, error) = run(&["simulate", "--module", GUEST, "--objects", &objects]);
    assert_eq!(code, Some(0), "{error}");
    assert!(output.contains("greeting-announced") && output.contains("HELLO"), "{output}");

    let (code, output, error) = run(&["inspect", GUEST, "-o", "json"]);
    assert_eq!(code, Some(0), "{error}");
    let inspected: Value = serde_json::from_str(&output).unwrap();
    let library = &inspected["libraries"][0];
    assert_eq!(
        (&inspected["version"], &library["interface"]),
        (&"1.0.0".into(), &INTERFACE.into())
    );
    let functions: Vec<&str> =
        library["functions"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let expected =
        ["version: func() -> string", "shout: func(text: string) -> result<string, string>"];
    assert!(expected.iter().all(|function| functions.contains(function)), "{functions:?}");
    let (_, output, _) = run(&["inspect", GUEST]);
    assert!(output.contains(INTERFACE) && output.contains(expected[0]), "{output}");

    let (code, output, error) =
        run(&["bench", GUEST, "--objects", &objects, "--seconds", "1", "-o", "json"]);
    assert_eq!(code, Some(0), "{output}{error}");
}

#[test]
fn a_library_is_inspected_by_its_imports_and_exports() {
    let guest = Guest::open(&root().join(GUEST)).unwrap();
    guest.build().unwrap();
    let shout = guest.libraries[0].component.path.display().to_string();
    let (code, output, error) = run(&["inspect", &shout]);
    assert_eq!(code, Some(0), "{error}");
    assert!(
        output.starts_with("a library: ") && output.contains("example:shouting@1.0.0"),
        "{output}"
    );
    let (code, output, error) = run(&["inspect", &shout, "-o", "json"]);
    assert_eq!(code, Some(0), "{error}");
    let inspected: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(inspected["exports"], serde_json::json!([INTERFACE]));
    assert_eq!(inspected["file"], shout.as_str());
    let (code, _, error) = run(&["inspect", &shout, "--rbac"]);
    assert_eq!(code, Some(1));
    assert!(error.contains("is not a processor: it does not export"), "{error}");
}

#[test]
fn options_come_before_the_cargo_toml() {
    let guest = Guest::open(&root().join(GUEST)).unwrap();
    let module = guest.build().unwrap().display().to_string();
    let shout = guest.libraries[0].component.path.display().to_string();
    let objects = format!("{GUEST}/examples");
    let simulate = ["simulate", "--module", &module, "--objects", &objects];
    let simulate = |more: &[&str]| run(&[&simulate, more].concat());

    let (code, _, error) = simulate(&[]);
    assert_eq!(code, Some(1));
    assert!(error.contains(&format!("imports `{INTERFACE}`, which is not granted")), "{error}");

    let with = |limits: &str| format!("{INTERFACE}={shout}{limits}");
    let (code, output, error) = simulate(&["--library", &with("")]);
    assert_eq!(code, Some(0), "{error}");
    assert!(output.contains("HELLO"), "{output}");

    let (code, _, error) = simulate(&["--library", &with(",memory=1Ki")]);
    assert_eq!(code, Some(1));
    assert!(error.contains("memory is `1Ki`; 1Mi to 4Gi is accepted"), "{error}");
    let (code, _, error) = simulate(&["--library", "shout.wasm"]);
    assert_eq!(code, Some(1));
    assert!(error.contains("INTERFACE=FILE is expected"), "{error}");
    let (code, _, error) = simulate(&["--deadline", "1h"]);
    assert_eq!(code, Some(1));
    assert!(error.contains("--deadline is `1h`; 1ms to 10m is accepted"), "{error}");
    let (code, _, error) = simulate(&["--library", &with(""), "--memory", "1Mi"]);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("ran out of memory") && error.contains("1048576"), "{error}");
}
