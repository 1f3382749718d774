//! The objects of Istio's kinds that guests produce, and the `IstioOperators` that Istio is rendered
//! from, judged by Istio's own validation.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
    thread,
};

use serde_json::Value;

use super::produced::{self, Said, Way};
use crate::goldens;

/// The end of the groups of Istio, with what follows.
const GROUP: &str = ".istio.io/";

/// Returns the judgement of each object, in their order.
fn judgements(program: &Path, objects: &[Value]) -> Vec<Value> {
    let mut child =
        Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let lines: Vec<String> = objects.iter().map(|object| format!("{object}\n")).collect();
    // It answers while it is still read to.
    let writing = thread::spawn(move || {
        for line in lines {
            input.write_all(line.as_bytes()).unwrap();
        }
    });
    let answers = BufReader::new(child.stdout.take().unwrap()).lines();
    let answers = answers.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    writing.join().unwrap();
    assert!(child.wait().unwrap().success());
    answers
}

/// Returns the objects to judge, each once, with the name of a case that it is from.
fn judged() -> Vec<(String, Value)> {
    let mut distinct = BTreeMap::new();
    for produced in produced::all().sources.into_iter().flat_map(|(_, produced)| produced) {
        let is_istio_s = produced.object["apiVersion"].as_str().unwrap().contains(GROUP);
        if is_istio_s && produced.way == Way::Apply && matches!(produced.said, Said::ByGuest) {
            distinct.entry(produced.object.to_string()).or_insert((produced.case, produced.object));
        }
    }
    distinct.into_values().chain(goldens::operators()).collect()
}

#[test]
#[ignore = "Istio's validation takes minutes to build"]
fn istio_accepts_all_that_guests_produce() {
    let Some(program) = mortise_tests::go::validate().unwrap() else { return };
    let (cases, mut objects): (Vec<String>, Vec<Value>) = judged().into_iter().unzip();
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for object in &objects {
        *kinds.entry(object["kind"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    println!("{kinds:?}");
    // It refuses what Istio refuses.
    let mut bad = objects.iter().find(|one| one["kind"] == "VirtualService").unwrap().clone();
    bad["spec"]["hosts"] = serde_json::json!(["no host"]);
    objects.push(bad);
    let answers = judgements(&program, &objects);
    assert_eq!(answers.len(), objects.len());
    assert_ne!(answers.last().unwrap()["error"], "", "a host with a space");
    for (case, (object, answer)) in cases.iter().zip(objects.iter().zip(&answers)) {
        assert_eq!(answer["error"], "", "{case}: {object:#}");
        if answer["warning"] != "" {
            println!("{case}: {}", answer["warning"]);
        }
    }
}
