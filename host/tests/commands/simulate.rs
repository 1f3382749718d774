use std::{
    path::{Path, PathBuf},
    process::Output,
    sync::OnceLock,
};

use mortise_host::guest::Guest;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{mortise, root};

/// The component of `api-rule`, built once.
fn module() -> &'static Path {
    static MODULE: OnceLock<PathBuf> = OnceLock::new();
    MODULE.get_or_init(|| Guest::open(&root().join("guests/api-rule")).unwrap().build().unwrap())
}

/// Files in a folder of their own, and what `simulate` makes of them.
struct Case {
    folder: TempDir,
}

impl Case {
    fn new(objects: &[Value]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("objects.json"), json!(objects).to_string()).unwrap();
        Self { folder }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = mortise();
        command.arg("simulate").arg("--module").arg(module());
        command.arg("--objects").arg(self.folder.path().join("objects.json"));
        command.args(["--crds", "crds/gateway.kyma-project.io", "--now", "2026-01-01T00:00:00Z"]);
        command.args(arguments).output().unwrap()
    }

    fn json(&self, arguments: &[&str]) -> (Option<i32>, Value) {
        let output = self.run(&[arguments, &["-o", "json"]].concat());
        let stdout = String::from_utf8(output.stdout).unwrap();
        let document = serde_json::from_str(&stdout).unwrap_or_else(|error| {
            panic!("{error}: {stdout}{}", String::from_utf8_lossy(&output.stderr))
        });
        (output.status.code(), document)
    }
}

fn rule() -> Value {
    json!({
        "apiVersion": "gateway.kyma-project.io/v2", "kind": "APIRule",
        "metadata": {"name": "orders", "namespace": "shop"},
        "spec": {
            "hosts": ["orders.example.com"], "gateway": "kyma-system/kyma-gateway",
            "service": {"name": "orders", "port": 8080},
            "rules": [{"path": "/*", "methods": ["GET"], "noAuth": true}],
        },
    })
}

fn cluster() -> Vec<Value> {
    vec![
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "orders", "namespace": "shop"},
            "spec": {"selector": {"app": "orders"}, "ports": [{"port": 8080}]}}),
        json!({"apiVersion": "networking.istio.io/v1beta1", "kind": "Gateway",
            "metadata": {"name": "kyma-gateway", "namespace": "kyma-system"},
            "spec": {"servers": [{"port": {"number": 443, "name": "https", "protocol": "HTTPS"}, "hosts": ["*.example.com"]}]}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "api-gateway-config", "namespace": "kyma-system"},
            "data": {"api-gateway-config": "jwtHandler: istio"}}),
    ]
}

fn with(rule: Value) -> Case {
    let mut objects = cluster();
    objects.insert(0, rule);
    Case::new(&objects)
}

fn status(end: &Value) -> &Value {
    let objects = end["objects"].as_array().unwrap();
    &objects.iter().find(|object| object["kind"] == "APIRule").unwrap()["status"]
}

fn kinds(changes: &Value) -> Vec<String> {
    let changes = changes.as_array().unwrap();
    let mut kinds: Vec<String> = changes
        .iter()
        .map(|change| {
            format!(
                "{} {}",
                change["action"].as_str().unwrap(),
                change["object"]["kind"].as_str().unwrap()
            )
        })
        .collect();
    kinds.sort();
    kinds
}

#[test]
fn one_document_says_what_is_there_and_what_was_done() {
    let (code, end) = with(rule()).json(&[]);
    assert_eq!(code, Some(0), "{end:#}");
    assert_eq!(status(&end)["state"], "Ready", "{end:#}");
    let expected =
        ["create AuthorizationPolicy", "create VirtualService", "status APIRule", "update APIRule"];
    assert_eq!(kinds(&end["changes"]), expected);
    assert_eq!(
        end["requeues"][0],
        json!({"object": {"apiVersion": "gateway.kyma-project.io/v2alpha1", "kind": "APIRule",
        "namespace": "shop", "name": "orders"}, "afterSeconds": 1800})
    );
    // The second round sees the objects that the first one made, whose uids only the API knows, and writes nothing.
    assert_eq!((&end["failures"], &end["rounds"]), (&json!([]), &json!(2)));
    let names: Vec<_> =
        end["objects"].as_array().unwrap().iter().map(|object| &object["kind"]).collect();
    assert!(!names.contains(&&json!("Namespace")), "only what was given or made: {names:?}");
}

#[test]
fn the_same_input_gives_the_same_output() {
    let case = with(rule());
    let without_uids = |text: Vec<u8>| {
        let mut end: Value = serde_json::from_slice(&text).unwrap();
        for object in end["objects"].as_array_mut().unwrap() {
            object["metadata"].as_object_mut().unwrap().remove("uid");
        }
        end["objects"].take()
    };
    let once = without_uids(case.run(&["-o", "json"]).stdout);
    assert_eq!(once, without_uids(case.run(&["-o", "json"]).stdout));
}

#[test]
fn a_reconcile_that_fails_gives_exit_code_3_and_is_listed() {
    let mut rule = rule();
    rule["spec"]["service"]["name"] = json!("absent");
    let (code, end) = with(rule).json(&[]);
    assert_eq!(code, Some(3), "{end:#}");
    assert_eq!(status(&end)["state"], "Error");
    assert_eq!(end["failures"][0]["object"]["name"], "orders");
    assert_eq!(end["requeues"][0]["afterSeconds"], 60, "{end:#}");
}

#[test]
fn a_missing_kind_is_unknown_to_the_processor() {
    let (code, end) = with(rule()).json(&["--missing-kind", "virtualservices.networking.istio.io"]);
    assert_eq!(code, Some(0), "{end:#}");
    assert_eq!(status(&end)["state"], "Warning");
    let description = status(&end)["description"].as_str().unwrap();
    assert!(
        description.contains("CRD virtualservices.networking.istio.io is not present"),
        "{description}"
    );
}

#[test]
fn an_object_that_breaks_its_schema_is_refused_unless_loaded_past_it() {
    let mut rule = rule();
    rule["spec"]["rules"][0]["methods"] = json!(["FETCH"]);
    let case = with(rule);
    let refused = case.run(&["-o", "json"]);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{message}");
    assert!(
        message.contains("spec.rules[0].methods[0]: Unsupported value: \"FETCH\""),
        "{message}"
    );
    let (code, _) = case.json(&["--no-validate"]);
    assert!(code == Some(0) || code == Some(3), "{code:?}");
}

#[test]
fn only_one_object_is_reconciled_if_one_is_named() {
    let mut other = rule();
    other["metadata"]["name"] = json!("other");
    other["spec"]["hosts"] = json!(["other.example.com"]);
    let mut objects = cluster();
    objects.extend([rule(), other]);
    let (_, end) = Case::new(&objects).json(&["--only", "APIRule/shop/other"]);
    let changes = end["changes"].as_array().unwrap();
    let virtual_services: Vec<_> =
        changes.iter().filter(|change| change["object"]["kind"] == "VirtualService").collect();
    assert_eq!(virtual_services.len(), 1, "{end:#}");
    assert_eq!(virtual_services[0]["object"]["spec"]["hosts"], json!(["other.example.com"]));
    let output = Case::new(&objects).run(&["--only", "APIRule/shop/absent"]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_kind_without_a_crd_is_served_and_one_line_says_so() {
    let output = with(rule()).run(&["-o", "json"]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines = message
        .lines()
        .filter(|line| line.contains("VirtualService") && line.contains("without a schema"));
    assert_eq!(lines.count(), 1, "{message}");
}

#[test]
fn values_of_secrets_are_masked_unless_they_are_asked_for() {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key", "namespace": "shop"},
        "data": {"key": "aGlkZGVu"}});
    let case = Case::new(&[secret]);
    for arguments in [&["-o", "json"][..], &[]] {
        let output = case.run(arguments);
        assert!(!String::from_utf8_lossy(&output.stdout).contains("aGlkZGVu"));
    }
    let output = case.run(&["-o", "json", "--show-secrets"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("aGlkZGVu"));
}

#[test]
fn a_person_reads_a_difference() {
    let output = with(rule()).run(&[]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for part in [
        "+ networking.istio.io/v1beta1 VirtualService shop/orders-",
        "~ gateway.kyma-project.io/v2alpha1 APIRule shop/orders",
        "4 written, 0 failed, 2 rounds",
    ] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
}

#[test]
fn text_that_does_not_parse_is_named_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broken.yaml");
    std::fs::write(&file, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\nkind: [\n")
        .unwrap();
    let output = mortise()
        .arg("simulate")
        .arg("--module")
        .arg(module())
        .arg("--objects")
        .arg(&file)
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    for part in [file.to_str().unwrap(), "document 2", "line", "column"] {
        assert!(message.contains(part), "{part} is missing in: {message}");
    }
}
