use std::{path::Path, process::Output};

use crate::mortise;

#[test]
fn a_port_in_use_is_reported_in_one_line_with_the_remedy() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = mortise().args(["dev", "--api-only", "--port", &port]).output().unwrap();
    let message = only_line(&output);
    assert!(message.contains(&port) && message.contains("--port"), "{message}");
}

#[test]
fn an_unreadable_input_is_reported_in_one_line_with_its_path() {
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

#[test]
fn dev_reports_invalid_input_before_it_builds() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let file = |name: &str, text: &str| {
        let file = folder.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    };
    let package = |name: &str, more: &str| {
        let begin = format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\n");
        file(&format!("{name}/Cargo.toml"), &format!("{begin}[workspace]\n{more}"));
        // Whoever compiles it fails in another way.
        file(&format!("{name}/src/lib.rs"), "this is no Rust");
    };
    let component = "[lib]\ncrate-type = [\"cdylib\"]\n";
    package("plain", "");
    package("guest", component);
    package("astray", &format!("{component}[package.metadata.mortise]\ncrds = [\"nowhere\"]\n"));
    file("list.yaml", "- a\n");
    file("theirs", "contexts: [{name: kind, context: {cluster: kind, user: kind}}]\n");
    let cases: [(&str, &[&str], &[&str]); 6] = [
        ("no component", &["plain"], &["`plain`", "cdylib"]),
        ("CRDs that are absent", &["astray"], &["astray/nowhere"]),
        ("objects that are absent", &["guest", "--apply", "absent"], &["absent"]),
        ("a configuration that is a list", &["guest", "--config", "list.yaml"], &["list.yaml"]),
        ("a kubeconfig of others", &["guest", "--kubeconfig", "theirs"], &["theirs", "`kind`"]),
        ("no place for it", &["guest", "--kubeconfig", "no/place"], &["no/place", "--kubeconfig"]),
    ];
    for (case, arguments, named) in cases {
        let arguments = arguments.iter().map(|argument| {
            if argument.starts_with("--") { (*argument).to_owned() } else { path(argument) }
        });
        let message = only_line(&mortise().arg("dev").args(arguments).output().unwrap());
        for part in named {
            assert!(message.contains(part), "{case}: {part} is missing in: {message}");
        }
    }
}

#[test]
fn an_object_that_is_refused_is_named_with_its_file_document_and_field() {
    let folder = tempfile::tempdir().unwrap();
    let rule = "apiVersion: gateway.kyma-project.io/v2\nkind: APIRule\nmetadata: {name: a}\nspec: {gateway: kyma/gw}\n";
    let path = folder.path().join("rule.yaml");
    std::fs::write(
        &path,
        format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: b}}\n---\n{rule}"),
    )
    .unwrap();
    let apply = |more: &[&str]| {
        let arguments = ["dev", "--api-only", "--apply", path.to_str().unwrap()];
        only_line(&mortise().args(arguments).args(more).output().unwrap())
    };
    let message = apply(&["--crds", "crds/gateway.kyma-project.io"]);
    for part in ["rule.yaml`, document 2", "APIRule gateway.kyma-project.io/v2 a)", "spec.rules"] {
        assert!(message.contains(part), "{part} is missing in: {message}");
    }
    assert_eq!(message.matches("spec.rules").count(), 1, "{message}");
    assert!(!message.contains('{'), "no debug output: {message}");
    let message = apply(&[]);
    for part in ["rule.yaml`, document 2", "APIRule", "--crds", "package.metadata.mortise"] {
        assert!(message.contains(part), "{part} is missing in: {message}");
    }
}

fn only_line(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

#[test]
fn a_failed_target_installation_is_reported_in_one_line_with_the_remedy() {
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
fn an_invalid_command_line_exits_with_1_and_names_the_argument() {
    let output = mortise()
        .args(["simulate", "--now", "noon", "--module", "a", "--objects", "b"])
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("--now"), "{message}");
    assert!(mortise().arg("--help").output().unwrap().status.success());
}
