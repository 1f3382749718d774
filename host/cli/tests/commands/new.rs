use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;

use crate::{mortise, root};

fn new(arguments: &[&str], within: &Path) -> Output {
    mortise().arg("new").args(arguments).current_dir(within).output().unwrap()
}

/// A folder, and one in it that is in no workspace, whatever is above.
fn outside() -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("Cargo.toml"), "[workspace]\nexclude = [\"outside\"]\n").unwrap();
    let outside = root.path().join("outside");
    fs::create_dir(&outside).unwrap();
    (root, outside)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Cargo as a user runs it in a folder, but with what this checkout has downloaded and built
/// already.
fn cargo(folder: &Path, arguments: &[&str]) -> Output {
    let target = root().join("target/new");
    fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    let output = Command::new("cargo")
        .args(arguments)
        .arg("--offline")
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", std::env::var_os("CARGO_TARGET_DIR").unwrap_or(target.into()))
        .env("CARGO_PROFILE_DEV_DEBUG", "line-tables-only")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    output
}

fn failure(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

#[test]
fn a_guest_with_a_kind_of_its_own_passes_its_cases_and_reconciles() {
    let (_root, folder) = outside();
    let output = new(&["greeter", "--kind", "example.com/v1/Status"], &folder);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(said.contains("it reconciles Status example.com/v1"), "{said}");
    assert!(said.contains("it depends on mortise-sdk by path: "), "{said}");
    simulated(&folder.join("greeter"), 2);
}

#[test]
fn a_guest_of_a_built_in_kind_passes_its_cases_and_reconciles() {
    let (_root, folder) = outside();
    let output = new(&["keeper", "--kind", "v1/ConfigMap"], &folder);
    assert!(output.status.success(), "{}", text(&output.stderr));
    simulated(&folder.join("keeper"), 2);
}

/// Their dependencies share nothing with what this checkout has built: the workspace has other
/// features and profiles.
#[test]
#[ignore = "takes minutes: `cargo test -p mortise --test commands -- --ignored new_guests`"]
fn new_guests_pass_their_own_tests() {
    let guests: [(&str, &str, &[&str]); 2] = [
        (
            "greeter",
            "example.com/v1/Status",
            &["the_text_is_kept_in_a_config_map", "the_definition_file_matches_the_type", "cases"],
        ),
        ("keeper", "v1/ConfigMap", &["a_config_map_is_kept_beside_it", "cases"]),
    ];
    for (name, kind, tests) in guests {
        let (_root, folder) = outside();
        assert!(new(&[name, "--kind", kind], &folder).status.success());
        let tested = text(&cargo(&folder.join(name), &["test"]).stdout);
        for test in tests {
            assert!(tested.contains(&format!("tests::{test} ... ok")), "{tested}");
        }
    }
}

/// Builds a guest for Wasm, runs its cases, and simulates its example, which ends with so many objects.
fn simulated(guest: &Path, objects: usize) {
    let built = cargo(
        guest,
        &["build", "--release", "--target", "wasm32-wasip2", "--message-format", "json"],
    );
    let module = text(&built.stdout).lines().find_map(component).unwrap();
    let run = |command: &mut Command| {
        let crds = guest.join("crds");
        if crds.is_dir() {
            command.arg("--crds").arg(crds);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
        output
    };
    run(mortise().arg("test").arg(&module).arg("--cases").arg(guest.join("cases")));
    let mut simulate = mortise();
    simulate.args(["simulate", "-o", "json", "--module"]).arg(&module);
    let output = run(simulate.arg("--objects").arg(guest.join("examples")));
    let end: Value = serde_json::from_slice(&output.stdout).unwrap();
    let named = end["objects"].as_array().unwrap().iter().filter(|object| {
        object["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("example"))
    });
    assert_eq!(named.count(), objects, "{end:#}");
}

fn component(line: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(line).ok()?;
    let files = message.get("filenames")?.as_array()?.iter().filter_map(Value::as_str);
    let mut files = files.map(PathBuf::from);
    files.find(|file| {
        file.extension().is_some_and(|ending| ending == "wasm")
            && !file.components().any(|part| part.as_os_str() == "deps")
    })
}

#[test]
fn within_a_workspace_it_is_a_member() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = folder.path().join("Cargo.toml");
    let before = "[workspace]\nresolver = \"3\"\nmembers = [\n  \"guests/first\", # ours\n]\n\n[workspace.dependencies]\n\
                  serde = { version = \"1\", features = [\"derive\"] }\n";
    let first = folder.path().join("guests/first");
    fs::create_dir_all(first.join("src")).unwrap();
    fs::write(first.join("src/lib.rs"), "").unwrap();
    fs::write(first.join("Cargo.toml"), "[package]\nname = \"first\"\n").unwrap();
    fs::write(&manifest, before).unwrap();

    let output = new(&["second", "--path", "guests/second"], folder.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        text(&output.stdout).contains("added it to the workspace "),
        "{}",
        text(&output.stdout)
    );
    let own = fs::read_to_string(folder.path().join("guests/second/Cargo.toml")).unwrap();
    assert!(own.contains("serde = { workspace = true, features = [\"derive\"] }"), "{own}");
    assert!(!own.contains("[workspace]"), "{own}");
    let metadata = cargo(folder.path(), &["metadata", "--no-deps", "--format-version", "1"]);
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    assert_eq!(metadata["packages"].as_array().unwrap().len(), 2);

    let taken = failure(&new(&["first", "--path", "guests/other"], folder.path()));
    assert!(taken.contains("has a member `first` already: choose another name"), "{taken}");
    assert!(!folder.path().join("guests/other").exists());
}

#[test]
fn new_reports_an_error_in_one_line_and_leaves_no_files_behind() {
    let (_root, folder) = outside();
    fs::create_dir(folder.join("taken")).unwrap();
    fs::write(folder.join("file"), "").unwrap();
    let cases: [(&[&str], &str); 5] = [
        (&["No_Name"], "`No_Name` is no name for a guest: it takes lower-case letters"),
        (&["taken"], "is there already: choose another name, or another folder with --path"),
        (
            &["greeter", "--kind", "Greeting"],
            "`Greeting` is no kind: write GROUP/VERSION/KIND, as `example.com/v1/Greeting`",
        ),
        (&["greeter", "--kind", "apps/v1/Greeting"], "Kubernetes has no kind `apps/v1/Greeting`"),
        (&["greeter", "--path", "file/greeter"], "cannot write `"),
    ];
    for (arguments, expected) in cases {
        let said = failure(&new(arguments, &folder));
        assert!(said.contains(expected), "{said}");
    }
    let mut left: Vec<_> =
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["file", "taken"]);
}
