use std::{
    path::{Path, PathBuf},
    process::Output,
    sync::OnceLock,
};

use mortise::guest::Guest;
use tempfile::TempDir;

use crate::{mortise, root};

/// The component of `api-rule`, built once.
fn module() -> &'static Path {
    static MODULE: OnceLock<PathBuf> = OnceLock::new();
    MODULE.get_or_init(|| Guest::open(&root().join("guests/api-rule")).unwrap().build().unwrap())
}

/// Cases of their own, in a folder that goes with them.
struct Cases(TempDir);

impl Cases {
    /// The case `exposed` of api-rule, alone.
    fn new() -> Self {
        let cases = Self(tempfile::tempdir().unwrap());
        let from = root().join("guests/api-rule/cases/exposed");
        for file in
            ["objects/cluster.yaml", "objects/orders.yaml", "objects/rules.yaml", "expected.yaml"]
        {
            cases.write(file, &std::fs::read_to_string(from.join(file)).unwrap());
        }
        cases
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join("exposed").join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let file = self.file(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    fn expected(&self) -> String {
        std::fs::read_to_string(self.file("expected.yaml")).unwrap()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = mortise();
        command.arg("test").arg(module()).arg("--cases").arg(self.0.path());
        command.args(["--crds", "crds/gateway.kyma-project.io"]).args(arguments).output().unwrap()
    }
}

fn text(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_case_passes_differs_and_is_accepted() {
    let cases = Cases::new();
    let (code, stdout, stderr) = text(&cases.run(&[]));
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert!(stdout.contains("1 passed, 0 failed"), "{stdout}");

    let right = cases.expected();
    cases.write("expected.yaml", &right.replace("state: Ready", "state: Error"));
    let (code, stdout, _) = text(&cases.run(&[]));
    assert_eq!(code, Some(3), "{stdout}");
    for part in ["FAILED", "the first reconciles", "state: Error", "state: Ready", "--update"] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }

    let (code, stdout, _) = text(&cases.run(&["--update"]));
    assert_eq!((code, stdout.contains("updated")), (Some(0), true), "{stdout}");
    assert_eq!(cases.expected(), right);

    let commented = format!("# What people wrote stays.\n{right}");
    cases.write("expected.yaml", &commented);
    assert_eq!(text(&cases.run(&["--update"])).0, Some(0));
    assert_eq!(cases.expected(), commented);
}

#[test]
fn the_result_is_xml_for_ci() {
    let cases = Cases::new();
    cases.write("expected.yaml", "{}\n");
    let reports = tempfile::tempdir().unwrap();
    let file = reports.path().join("report.xml");
    let (code, stdout, stderr) = text(&cases.run(&["-o", "junit"]));
    assert_eq!(code, Some(3), "{stderr}");
    assert!(stdout.contains("<testsuites") && stdout.contains(r#"name="exposed""#), "{stdout}");
    assert!(stdout.contains(r#"failures="1""#), "{stdout}");
    let to_file = ["-o", "junit", "--output-file", file.to_str().unwrap()];
    let (_, stdout, stderr) = text(&cases.run(&to_file));
    assert_eq!(stdout, "", "{stderr}");
    assert!(std::fs::read_to_string(&file).unwrap().starts_with("<?xml"));
}

#[test]
fn bad_input_is_told_in_a_line() {
    type Spoil = fn(&Cases);
    let spoilt: [(&str, Spoil, &[&str]); 8] = [
        (
            "a typo in a file's name",
            |cases| cases.write("expcted.yaml", "{}"),
            &["expcted.yaml` is unknown: a case holds objects.yaml"],
        ),
        (
            "a typo in a field",
            |cases| cases.write("case.yaml", "stepz: []"),
            &["case.yaml`: ", "stepz"],
        ),
        (
            "a code that no processor sees",
            |cases| cases.write("case.yaml", "refuse: [{write: '*/*/*', code: 500}]"),
            &["refuse: code 500: a 4xx other than 429"],
        ),
        (
            "a name in too few parts",
            |cases| cases.write("case.yaml", "only: orders"),
            &["only: `orders`: KIND/NAMESPACE/NAME is expected"],
        ),
        (
            "a time that is none",
            |cases| cases.write("case.yaml", "steps: [{after: soon}]"),
            &["`soon` is no time span"],
        ),
        (
            "an object without a name",
            |cases| cases.write("objects/x.yaml", "{apiVersion: v1, kind: Pod}"),
            &["x.yaml`: ", "`metadata.name` is missing"],
        ),
        (
            "more documents than steps",
            |cases| cases.write("expected.yaml", "{}\n---\n{}\n"),
            &["holds 2 documents: one for the first reconciles and one for each of 0 steps"],
        ),
        (
            "no case",
            |cases| std::fs::remove_dir_all(cases.file("")).unwrap(),
            &["holds no case: a folder with objects.yaml"],
        ),
    ];
    for (name, spoil, expected) in spoilt {
        let cases = Cases::new();
        spoil(&cases);
        let (code, stdout, stderr) = text(&cases.run(&[]));
        assert_eq!(code, Some(1), "{name}: {stdout}{stderr}");
        assert!(expected.iter().all(|part| stderr.contains(part)), "{name}: {stderr}");
        assert_eq!(stderr.trim_end().lines().count(), 1, "{name}: {stderr}");
    }
    let (code, _, stderr) = text(&Cases::new().run(&["--filter", "absent"]));
    assert_eq!(code, Some(1));
    assert!(stderr.contains("`--filter absent` leaves no case of: exposed"), "{stderr}");
    let output = mortise().arg("test").arg(module()).output().unwrap();
    let (code, _, stderr) = text(&output);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("say with --cases where its cases are"), "{stderr}");
}

#[test]
fn a_case_that_cannot_be_run_fails_alone() {
    let cases = Cases::new();
    cases.write("case.yaml", "missing: [nothing.example.com]");
    let (code, stdout, stderr) = text(&cases.run(&[]));
    assert_eq!(code, Some(3), "{stdout}{stderr}");
    assert!(
        stdout
            .contains("it could not be run: missing: no kind is defined as `nothing.example.com`"),
        "{stdout}"
    );
}

/// A conversion of api-rule.
const CONVERSION: &str = "convert/written-in-v2";

/// The case of the conversion, alone.
fn case_of_a_hook() -> Cases {
    let cases = Cases(tempfile::tempdir().unwrap());
    let from = root().join("guests/api-rule/cases").join(CONVERSION);
    for file in ["object.yaml", "case.yaml", "expected.yaml"] {
        let text = std::fs::read_to_string(from.join(file)).unwrap();
        cases.write(&format!("../{CONVERSION}/{file}"), &text);
    }
    std::fs::remove_dir_all(cases.file("")).unwrap();
    cases
}

#[test]
fn a_case_of_a_hook_passes_differs_and_is_accepted() {
    let cases = case_of_a_hook();
    let file = cases.0.path().join(CONVERSION).join("expected.yaml");
    let (code, stdout, stderr) = text(&cases.run(&[]));
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert!(stdout.contains(CONVERSION) && stdout.contains("1 passed, 0 failed"), "{stdout}");

    let right = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, right.replace("noAuth: true", "noAuth: false")).unwrap();
    let (code, stdout, _) = text(&cases.run(&["--filter", "convert/"]));
    assert_eq!(code, Some(3), "{stdout}");
    for part in ["FAILED", "the answer", "noAuth: false", "noAuth: true"] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
    let (code, stdout, _) = text(&cases.run(&["--update"]));
    assert_eq!((code, stdout.contains("updated")), (Some(0), true), "{stdout}");
    let (code, stdout, _) = text(&cases.run(&[]));
    assert_eq!(code, Some(0), "{stdout}");
}

#[test]
fn a_case_of_a_hook_that_is_not_whole_is_told() {
    for (spoilt, text_of_it, expected) in [
        ("case.yaml", None, "case.yaml` is missing"),
        ("object.yaml", None, "object.yaml` is missing"),
        ("case.yaml", Some("to: v2\nhook: mark\n"), "hook"),
        ("old.yaml", Some("{}"), "old.yaml` is unknown: a case holds object.yaml"),
        ("../../review/x/case.yaml", Some("hook: mark\n"), "neither object.yaml nor old.yaml"),
    ] {
        let cases = case_of_a_hook();
        let file = cases.0.path().join(CONVERSION).join(spoilt);
        match text_of_it {
            None => std::fs::remove_file(file).unwrap(),
            Some(text) => cases.write(&format!("../{CONVERSION}/{spoilt}"), text),
        }
        let (code, stdout, stderr) = text(&cases.run(&[]));
        assert_eq!(code, Some(1), "{spoilt}: {stdout}{stderr}");
        assert!(stderr.contains(expected), "{spoilt}: {stderr}");
    }
}
