//! The native program, and the record of its answers.

use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use istio_client_build::Version;

use super::{
    answer::Answer,
    case::{self, Case},
};

/// The environment variable that makes the ignored test write the record.
const UPDATE: &str = "MORTISE_UPDATE";

/// Builds the native program, and returns its answers.
pub(crate) fn answers(version: &Version, cases: &[Case]) -> BTreeMap<String, Answer> {
    let mut program = Command::new(version.native().unwrap())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = program.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || {
            for case in cases {
                serde_json::to_writer(&mut input, case).unwrap();
                input.write_all(b"\n").unwrap();
            }
        });
        program.wait_with_output().unwrap()
    });
    assert!(output.status.success());
    let answers = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
    let answers = answers.map(|answer| answer.expect("an answer of the native program"));
    cases.iter().map(|case| case.name.clone()).zip(answers).collect()
}

/// Returns the recorded answers of a version, by the names of their cases.
pub(crate) fn record(version: &str) -> BTreeMap<String, String> {
    serde_json::from_str(&fs::read_to_string(file(version)).unwrap()).unwrap()
}

/// Compares the record with the answers, or writes it.
pub(crate) fn check_record(version: &str, answers: &BTreeMap<String, Answer>) {
    let cases = case::recorded().into_iter().map(|case| case.name);
    let answers: BTreeMap<String, String> = cases
        .map(|name| {
            let answer = answers[&name].record();
            (name, answer)
        })
        .collect();
    if std::env::var_os(UPDATE).is_some() {
        let text = serde_json::to_string_pretty(&answers).unwrap() + "\n";
        fs::write(file(version), text).unwrap();
    }
    assert_eq!(record(version), answers);
}

fn file(version: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("it/istio_client");
    folder.join(format!("{version}.json"))
}
