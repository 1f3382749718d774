use std::{path::Path, process::Output};

use serde_json::{Value, json};

use crate::{
    mortise,
    simulate::{Case, cluster, module, rule, with},
};

fn bench(modules: &[&Path], case: &Case, arguments: &[&str]) -> Output {
    let mut command = mortise();
    command.arg("bench").args(modules);
    command.arg("--objects").arg(case.folder.path().join("objects.json"));
    command.args(["--crds", "crds/gateway.kyma-project.io", "--seconds", "0"]);
    command.args(arguments).output().unwrap()
}

fn table(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn bench_prints_its_figures_as_one_json_document() {
    let mut other = rule();
    other["metadata"]["name"] = json!("other");
    other["spec"]["hosts"] = json!(["other.example.com"]);
    let mut objects = cluster();
    objects.extend([rule(), other]);
    let output = bench(&[module()], &Case::new(&objects), &["-o", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let table = table(&output);
    let figures = &table["modules"][0];
    assert_eq!(figures["module"], module().to_str().unwrap());
    let keys = figures["keys"].as_array().unwrap();
    let names: Vec<_> = keys.iter().map(|key| key["object"].as_str().unwrap()).collect();
    assert_eq!(names, ["APIRule/shop/orders", "APIRule/shop/other"]);
    for key in keys {
        assert!(key["reads"].as_u64().unwrap() >= 2, "{key:#}");
        assert!(key["readBytes"].as_u64().unwrap() > 100, "{key:#}");
        let memory = key["memoryBytes"].as_u64().unwrap();
        assert!(memory > 1 << 20, "linear memory, and the rest of the instance: {key:#}");
    }
    let processors = std::thread::available_parallelism().unwrap().get();
    let paces = figures["paces"].as_array().unwrap();
    assert_eq!(paces[0]["threads"], 1);
    assert_eq!(paces.last().unwrap()["threads"], processors);
    for pace in paces {
        // No time to measure: each object once, in each thread.
        assert_eq!(pace["calls"].as_u64().unwrap(), 2 * pace["threads"].as_u64().unwrap());
        let (median, p99) = (&pace["medianMicroseconds"], &pace["p99Microseconds"]);
        assert!(median.as_f64().unwrap() > 0.0 && median.as_f64() <= p99.as_f64(), "{pace:#}");
    }
}

#[test]
fn two_modules_are_measured_side_by_side() {
    let output = bench(&[module(), module()], &with(rule()), &[]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert_eq!(text.matches(module().to_str().unwrap()).count(), 2, "{text}");
    for part in ["the second takes ", "  memory  ", "outcomes are not written", "1 thread"] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
}

#[test]
fn a_call_that_fails_gives_exit_code_3_and_is_named() {
    let mut broken = rule();
    broken["metadata"]["name"] = json!("broken");
    broken["spec"]["hosts"] = json!(["broken.example.com"]);
    broken["spec"]["service"]["name"] = json!("absent");
    let mut objects = cluster();
    objects.extend([rule(), broken]);
    let case = Case::new(&objects);
    let output = bench(&[module()], &case, &[]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{message}");
    assert!(message.contains("failed: APIRule/shop/broken of"), "{message}");
    let output = bench(&[module()], &case, &["--only", "apirule/shop/orders", "-o", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(table(&output)["modules"][0]["keys"].as_array().unwrap().len(), 1);
}

#[test]
fn bench_without_matching_objects_fails_and_names_accepted_ones() {
    let output = bench(&[module()], &Case::new(&cluster()), &[]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("reconciles none of the objects"), "{message}");
    assert!(message.contains("APIRule gateway.kyma-project.io/"), "{message}");
    let output = bench(&[module()], &with(rule()), &["--only", "apirule/shop/absent"]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("accepted: APIRule/shop/orders"), "{message}");
}
