use std::{path::Path, process::Output};

use crate::mortise;

#[test]
fn a_port_in_use_is_one_line_that_says_what_to_do() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = mortise().args(["dev", "--api-only", "--port", &port]).output().unwrap();
    let message = only_line(&output);
    assert!(message.contains(&port) && message.contains("--port"), "{message}");
}

#[test]
fn what_cannot_be_read_is_one_line_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let broken = folder.path().join("broken.yaml");
    std::fs::write(&broken, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\nkind: [\n")
        .unwrap();
    let module = folder.path().join("garbage.wasm");
    std::fs::write(&module, "garbage").unwrap();
    let absent = folder.path().join("absent");
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let simulate = |module: &Path, objects: &Path| {
        mortise()
            .args(["simulate", "--module", &text(module), "--objects", &text(objects)])
            .output()
            .unwrap()
    };
    let cases = [
        ("a module that is absent", simulate(&absent, &broken), text(&absent)),
        ("a module that is none", simulate(&module, &broken), text(&module)),
        (
            "a guest without a package",
            mortise().args(["dev", &text(&empty)]).output().unwrap(),
            text(&empty),
        ),
    ];
    for (case, output, named) in cases {
        let message = only_line(&output);
        assert!(message.contains(&named), "{case}: {message}");
    }
}

fn only_line(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

#[test]
fn a_target_that_cannot_be_added_is_one_line_that_says_what_to_do() {
    let programs = tempfile::tempdir().unwrap();
    program(programs.path(), "rustc", "echo /nowhere");
    program(programs.path(), "rustup", "echo 'error: no network' >&2; exit 1");
    let path = format!("{}:{}", programs.path().display(), std::env::var("PATH").unwrap());
    let output = mortise().args(["dev", "guests/api-rule"]).env("PATH", path).output().unwrap();
    let message = only_line(&output);
    for part in ["wasm32-wasip2", "no network", "rustup target add wasm32-wasip2"] {
        assert!(message.contains(part), "{part} is missing in: {message}");
    }
}

fn program(folder: &Path, name: &str, body: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    let path = folder.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_command_line_that_does_not_parse_ends_with_1_and_says_what_would() {
    let output = mortise()
        .args(["simulate", "--now", "noon", "--module", "a", "--objects", "b"])
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("--now"), "{message}");
    assert!(mortise().arg("--help").output().unwrap().status.success());
}
