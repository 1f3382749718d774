//! The native program, and the record of its answers.

use std::{
    collections::BTreeMap,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use istio_client_build::Version;

use super::{answer::Answer, case::Case};

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

/// Compares the record with the answers, or writes it.
pub(crate) fn check_record(version: &str, answers: &BTreeMap<String, Answer>) {
    let file = format!("it/istio_client/{version}.json");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let names: Vec<String> = super::case::recorded().into_iter().map(|case| case.name).collect();
    let record: BTreeMap<&String, String> =
        names.iter().map(|name| (name, answers[name].record())).collect();
    let text = serde_json::to_string_pretty(&record).unwrap() + "\n";
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
}
