use std::process::Output;

use mortise::files;
use mortise_embedded_api::{EmbeddedApi, Options};
use serde_json::{Value, json};

use crate::{mortise, simulate::module};

fn inspect(arguments: &[&str]) -> Output {
    mortise().arg("inspect").arg(module()).args(arguments).output().unwrap()
}

fn stdout(output: Output) -> String {
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{message}");
    String::from_utf8(output.stdout).unwrap()
}

/// The objects that `--rbac` printed, as `kubectl apply` would read them.
fn roles(text: &str) -> Vec<Value> {
    let objects = files::parse("roles.yaml".as_ref(), text).unwrap();
    objects.into_iter().map(|object| object.value).collect()
}

#[test]
fn inspect_describes_a_processor_in_one_document() {
    let text = stdout(inspect(&["-o", "json"]));
    let inspection: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(inspection["name"], "api-rule");
    assert_eq!(inspection["contract"], "mortise:host@0.1.0");
    assert_eq!(inspection["size"], std::fs::metadata(module()).unwrap().len());
    assert!(inspection["digest"].as_str().unwrap().starts_with("sha256:"));
    let imports = inspection["imports"].as_array().unwrap();
    assert!(imports.contains(&json!("mortise:host/cluster@0.1.0")), "{imports:?}");
    let reconciler = &inspection["reconcilers"][0];
    assert_eq!(reconciler["of"]["kind"], "APIRule");
    assert_eq!(reconciler["resyncSeconds"], 1800);
    assert_eq!(reconciler["finalizers"].as_array().unwrap().len(), 1, "{reconciler:#}");
    let yaml = stdout(inspect(&["-o", "yaml"]));
    let parsed: Value = serde_saphyr::from_str(&yaml).unwrap();
    assert_eq!(parsed, inspection);
}

#[test]
fn the_inspected_declarations_depend_on_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.yaml");
    let described = |text: &str| {
        std::fs::write(&config, text).unwrap();
        inspect(&["-o", "json", "--config", config.to_str().unwrap()])
    };
    let text = stdout(described("resyncIntervalSeconds: 60\n"));
    let inspection: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(inspection["reconcilers"][0]["resyncSeconds"], 60, "{inspection:#}");
    let refused = described("resyncIntervalSeconds: soon\n");
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{message}");
    assert!(message.contains("resyncIntervalSeconds") || message.contains("soon"), "{message}");
}

#[test]
fn a_folder_of_a_guest_is_built_and_its_crds_are_at_hand() {
    let output = mortise().args(["inspect", "guests/api-rule", "--rbac"]).output().unwrap();
    let text = stdout(output);
    assert!(!text.contains("APIRule"), "its CRD is at hand:\n{text}");
    assert!(text.contains("# Rule oathkeeper.ory.sh/v1alpha1: no CRD at hand"), "{text}");
    let page = stdout(mortise().args(["inspect", "guests/api-rule"]).output().unwrap());
    for part in [
        "api-rule ",
        "contract  mortise:host@0.1.0",
        "reconciles",
        "APIRule gateway.kyma-project.io/",
    ] {
        assert!(page.contains(part), "{part} is missing in:\n{page}");
    }
}

#[test]
fn the_roles_can_be_applied_and_bind_the_account() {
    let text = stdout(inspect(&["--rbac", "--service-account", "shop/api-rule"]));
    let objects = roles(&text);
    let api = EmbeddedApi::new(Options::default());
    let mut kinds = Vec::new();
    for object in objects {
        let namespace = object["metadata"]["namespace"].as_str().map(str::to_owned);
        kinds.push(object["kind"].as_str().unwrap().to_owned());
        if let Some(rules) = object["rules"].as_array() {
            for rule in rules {
                let text = rule.to_string();
                assert!(!text.contains('*') && !text.contains("\"update\""), "{rule:#}");
            }
        } else {
            assert_eq!(
                object["subjects"],
                json!([{"kind": "ServiceAccount", "namespace": "shop", "name": "api-rule"}])
            );
        }
        api.load(object, true).unwrap_or_else(|refusal| panic!("{refusal}: {namespace:?}"));
    }
    assert_eq!(&kinds[..2], ["ClusterRole", "ClusterRoleBinding"], "{kinds:?}");
    assert!(!text.contains("--service-account"), "{text}");
}

#[test]
fn the_roles_hold_the_declared_rights() {
    let crds = ["--crds", "crds/gateway.kyma-project.io"];
    let text = stdout(inspect(&[&["--rbac", "-o", "json"], &crds[..]].concat()));
    let list: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&list["apiVersion"], &list["kind"]), (&json!("v1"), &json!("List")));
    let items = list["items"].as_array().unwrap();
    assert!(items.iter().all(|item| item["kind"].as_str().unwrap().ends_with("Role")), "{text}");
    let all: Vec<&Value> =
        items.iter().flat_map(|role| role["rules"].as_array().unwrap()).collect();
    let verbs = |resource: &str| {
        let rule = all.iter().find(|rule| rule["resources"].to_string().contains(resource));
        rule.map(|rule| rule["verbs"].clone()).unwrap_or_default()
    };
    assert_eq!(verbs("\"apirules\""), json!(["get", "list", "patch", "watch"]));
    assert_eq!(verbs("\"apirules/status\""), json!(["patch"]));
    assert_eq!(verbs("\"events\""), json!(["create", "patch"]));
}

#[test]
fn invalid_arguments_of_inspect_are_refused_with_the_accepted_ones() {
    let cases: [(&[&str], &str); 3] = [
        (&["--rbac", "--service-account", "api-rule"], "NAMESPACE/NAME is expected"),
        (&["--service-account", "shop/api-rule"], "--rbac"),
        (&["-o", "xml"], "[possible values: json, yaml]"),
    ];
    for (arguments, expected) in cases {
        let output = inspect(arguments);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains(expected), "{message}");
    }
}
