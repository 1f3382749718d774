use std::{
    path::{Path, PathBuf},
    process::Output,
    sync::OnceLock,
};

use mortise::guest::Guest;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{mortise, root};

/// The component of `api-rule`, built once.
pub(crate) fn module() -> &'static Path {
    static MODULE: OnceLock<PathBuf> = OnceLock::new();
    MODULE.get_or_init(|| Guest::open(&root().join("guests/api-rule")).unwrap().build().unwrap())
}

/// Files in a folder of their own, and what `simulate` makes of them.
pub(crate) struct Case {
    pub(crate) folder: TempDir,
}

impl Case {
    pub(crate) fn new(objects: &[Value]) -> Self {
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

pub(crate) fn rule() -> Value {
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

/// Returns the Service of [`rule`], and a Gateway and a `ConfigMap` as in the cases of `api-rule`.
pub(crate) fn cluster() -> Vec<Value> {
    let file = root().join("guests/api-rule/cases/exposed/objects/cluster.yaml");
    let text = std::fs::read_to_string(file).unwrap();
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    let gateway = objects.iter_mut().find(|object| object["kind"] == "Gateway").unwrap();
    gateway["spec"]["servers"][0]["hosts"] = json!(["*.example.com"]);
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "orders", "namespace": "shop"},
        "spec": {"selector": {"app": "orders"}, "ports": [{"port": 8080}]},
    });
    objects.insert(0, service);
    objects
}

pub(crate) fn with(rule: Value) -> Case {
    let mut objects = cluster();
    objects.insert(0, rule);
    Case::new(&objects)
}

/// Returns the name that `--missing-kind` accepts for a kind: its plural, with its group.
fn accepted(plural: &str) -> String {
    let output = with(rule()).run(&["--missing-kind", "nonsense"]);
    let message = String::from_utf8(output.stderr).unwrap();
    let is_name = |word: &&str| word.strip_prefix(plural).is_some_and(|at| at.starts_with('.'));
    let name = message.split([' ', ',', '\n']).find(is_name);
    name.unwrap_or_else(|| panic!("no {plural} in: {message}")).to_owned()
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
fn simulate_prints_objects_and_changes_in_one_document() {
    let (code, end) = with(rule()).json(&[]);
    assert_eq!(code, Some(0), "{end:#}");
    assert_eq!(status(&end)["state"], "Ready", "{end:#}");
    let expected =
        ["create AuthorizationPolicy", "create VirtualService", "status APIRule", "update APIRule"];
    assert_eq!(kinds(&end["changes"]), expected);
    assert_eq!(
        end["requeues"][0],
        json!({"object": {"apiVersion": "gateway.kyma-project.io/v2", "kind": "APIRule",
        "namespace": "shop", "name": "orders"}, "afterSeconds": 1800})
    );
    // What a run has written itself is no news to it.
    assert_eq!((&end["failures"], &end["rounds"]), (&json!([]), &json!(1)));
    let names: Vec<_> =
        end["objects"].as_array().unwrap().iter().map(|object| &object["kind"]).collect();
    assert!(!names.contains(&&json!("Namespace")), "only what was given or made: {names:?}");
}

#[test]
fn each_object_is_shown_in_each_version_that_the_processor_converts_it_to() {
    let (_, end) = with(rule()).json(&[]);
    let versions = end["versions"].as_array().unwrap();
    let of: Vec<&Value> = versions.iter().map(|shown| &shown["of"]["apiVersion"]).collect();
    assert_eq!(of, ["gateway.kyma-project.io/v1beta1", "gateway.kyma-project.io/v2alpha1"]);
    let [old, stored] = [0, 1].map(|index| &versions[index]["object"]);
    assert_eq!(stored["spec"], rule()["spec"]);
    let annotations = &old["metadata"]["annotations"];
    assert_eq!(annotations["gateway.kyma-project.io/original-version"], "v2");
    assert!(annotations["gateway.kyma-project.io/v2alpha1-spec"].is_string(), "{old:#}");
    assert_eq!(old["spec"], Value::Null);

    let mut written = rule();
    written["apiVersion"] = json!("gateway.kyma-project.io/v1beta1");
    written["spec"] = json!({
        "host": "orders.example.com", "gateway": "kyma-gateway.kyma-system.svc.cluster.local",
        "service": {"name": "orders", "port": 8080},
        "rules": [{
            "path": "/catalogue", "methods": ["GET"],
            "accessStrategies": [{"handler": "no_auth"}],
        }],
    });
    let case = with(written.clone());
    let (_, end) = case.json(&[]);
    let objects = end["objects"].as_array().unwrap();
    let shown = objects.iter().find(|object| object["kind"] == "APIRule").unwrap();
    assert_eq!(shown["apiVersion"], "gateway.kyma-project.io/v2");
    assert_eq!(shown["spec"]["rules"][0]["noAuth"], true, "{shown:#}");
    assert_eq!(end["versions"][0]["object"]["spec"], written["spec"], "{end:#}");
    let output = case.run(&[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("= APIRule gateway.kyma-project.io/v1beta1 shop/orders\n"), "{text}");
    let notes = String::from_utf8(output.stderr).unwrap();
    assert!(notes.contains("served because the processor converts it"), "{notes}");
}

#[test]
fn the_same_input_gives_the_same_output() {
    let mut objects = cluster();
    for number in 0..12 {
        let mut rule = rule();
        rule["metadata"]["name"] = json!(format!("orders-{number}"));
        rule["spec"]["hosts"] = json!([format!("{}.example.com", number % 10)]);
        if number % 3 == 0 {
            rule["spec"]["service"]["name"] = json!("absent");
        }
        objects.push(rule);
    }
    let case = Case::new(&objects);
    let text = |arguments| String::from_utf8(case.run(arguments).stdout).unwrap();
    let (json, people) = (text(&["-o", "json"]), text(&[]));
    assert!(json.contains("\"uid\"") && json.contains("VirtualService"), "{json}");
    for _ in 0..3 {
        assert_eq!(text(&["-o", "json"]), json);
    }
    assert_eq!(text(&[]), people);
}

#[test]
fn objects_are_printed_in_the_version_that_kubectl_would_show() {
    for version in ["v2", "v2alpha1"] {
        let mut rule = rule();
        rule["apiVersion"] = json!(format!("gateway.kyma-project.io/{version}"));
        let (_, end) = with(rule).json(&[]);
        let changed = end["changes"].as_array().unwrap().iter().map(|change| &change["object"]);
        let all = end["objects"].as_array().unwrap().iter().chain(changed);
        let rules: Vec<_> = all.filter(|object| object["kind"] == "APIRule").collect();
        assert_eq!(rules.len(), 3, "{end:#}");
        for object in rules {
            assert_eq!(object["apiVersion"], "gateway.kyma-project.io/v2", "{version}");
        }
    }
}

#[test]
fn rounds_that_end_too_early_are_told() {
    let case = with(rule());
    let output = case.run(&["--rounds", "0"]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{message}");
    assert!(message.contains("not settled after 0 rounds: more is to run"), "{message}");
    let message = String::from_utf8_lossy(&case.run(&["--rounds", "1"]).stderr).into_owned();
    assert!(!message.contains("not settled") && !message.contains('\x1b'), "{message}");
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
    let missing = accepted("virtualservices");
    let (code, end) = with(rule()).json(&["--missing-kind", &missing]);
    assert_eq!(code, Some(0), "{end:#}");
    assert_eq!(status(&end)["state"], "Warning");
    let description = status(&end)["description"].as_str().unwrap();
    assert!(description.contains(&format!("CRD {missing} is not present")), "{description}");
}

#[test]
fn a_reconciled_kind_that_is_missing_lets_its_reconciler_wait() {
    let (code, end) = with(rule()).json(&["--missing-kind", "apirules.gateway.kyma-project.io"]);
    assert_eq!((code, &end["rounds"], &end["changes"]), (Some(0), &json!(0), &json!([])));
    let kinds = end["objects"].as_array().unwrap().iter().map(|object| &object["kind"]);
    assert!(!kinds.clone().any(|kind| kind == "APIRule") && kinds.count() == 3, "{end:#}");
    let output = with(rule()).run(&["--missing-kind", "APIRules.gateway.kyma-project.io"]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    for part in [
        "1 object is left out: APIRule gateway.kyma-project.io/v2 is missing",
        "waits: APIRule gateway.kyma-project.io/v2alpha1 is missing",
    ] {
        assert!(message.contains(part), "{part} is missing in: {message}");
    }
}

#[test]
fn a_kind_that_cannot_be_missing_is_refused_with_those_that_can() {
    let plural = accepted("virtualservices");
    let singular = plural.replacen("services", "service", 1);
    for kind in [singular.as_str(), "services", "services.", "nonsense"] {
        let output = with(rule()).run(&["--missing-kind", kind]);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{kind}: {message}");
        for part in [kind, "accepted: ", "apirules.gateway.kyma-project.io", plural.as_str()] {
            assert!(message.contains(part), "{kind}: {part} is missing in: {message}");
        }
        assert!(!message.contains("services.,"), "{kind}: {message}");
    }
}

#[test]
fn an_object_of_an_unknown_kind_is_refused_with_the_remedy() {
    let widget =
        json!({"apiVersion": "example.dev/v1", "kind": "Widget", "metadata": {"name": "a"}});
    let output = Case::new(&[widget]).run(&[]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(
        message.contains("Widget example.dev/v1 a is refused") && message.contains("--crds"),
        "{message}"
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
    let case = Case::new(&objects);
    for only in
        ["apirule/shop/other", "APIRULES/shop/other", "apirules.gateway.kyma-project.io/shop/other"]
    {
        assert_eq!(case.json(&["--only", only]).1["changes"], end["changes"], "{only}");
    }
    let cases = [
        (
            "APIRule/shop/absent",
            "there is no such object; accepted: APIRule/shop/orders, APIRule/shop/other",
        ),
        (
            "APIRule//other",
            "there is no such object; accepted: APIRule/shop/orders, APIRule/shop/other",
        ),
        ("Service/shop/orders", "`Service` is not reconciled; accepted: APIRule (apirules)"),
        ("APIRule/other", "KIND/NAMESPACE/NAME is expected"),
    ];
    for (only, expected) in cases {
        let output = case.run(&["--only", only]);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains(only) && message.contains(expected), "{message}");
    }
}

#[test]
fn a_kind_without_a_crd_is_served_and_one_line_says_so() {
    let output = with(rule()).run(&["-o", "json"]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines = message
        .lines()
        .filter(|line| line.contains("VirtualService") && line.contains("without a schema"));
    assert_eq!(lines.clone().count(), 1, "{message}");
    assert!(lines.clone().all(|line| line.contains("--crds")), "{message}");
}

#[test]
fn a_configuration_that_is_no_object_is_refused_by_the_name_of_its_file() {
    let case = with(rule());
    let config = case.folder.path().join("config.yaml");
    std::fs::write(&config, "- 1\n").unwrap();
    let output = case.run(&["--config", config.to_str().unwrap()]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains(config.to_str().unwrap()), "{message}");
}

#[test]
fn objects_are_read_from_folders_in_folders() {
    let case = Case::new(&cluster());
    let deep = case.folder.path().join("more/deep");
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::write(deep.join("rule.json"), rule().to_string()).unwrap();
    let (_, end) = case.json(&["--objects", case.folder.path().join("more").to_str().unwrap()]);
    assert_eq!(status(&end)["state"], "Ready", "{end:#}");
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
    let made = |line: &str| line.contains("+ VirtualService ") && line.contains(" shop/orders-");
    assert!(text.lines().any(made), "{text}");
    for part in ["~ APIRule gateway.kyma-project.io/v2 shop/orders", "4 written, 0 failed, 1 round"]
    {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
}

#[test]
fn a_cluster_without_the_name_of_a_secret_is_refused_with_the_form_that_is_expected() {
    let output = with(rule()).run(&["--cluster", "provider=absent"]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let expected = "NAME=DIR is expected, as `shop/provider/kubeconfig=provider`";
    assert!(error.contains(expected), "{error}");
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
