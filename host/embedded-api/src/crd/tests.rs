use serde_json::{Value, json};

use super::{settle, validate};
use crate::kind::Registry;

const NOW: &str = "2024-01-01T00:00:00Z";

fn crd(names: &Value) -> Value {
    let plural = names["plural"].as_str().unwrap();
    json!({
        "metadata": {"name": format!("{plural}.example.dev")},
        "spec": {"group": "example.dev", "scope": "Namespaced", "names": names, "versions": [
            {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}},
        ]},
        "status": {"storedVersions": ["v1"]},
    })
}

fn widgets() -> Value {
    crd(
        &json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}),
    )
}

#[test]
fn names_that_nobody_has_are_accepted() {
    let settled = settle(&widgets(), &Registry::new(), NOW).unwrap();
    let condition = |kind: &str, reason: &str, message: &str| json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": NOW});
    let status = json!({
        "acceptedNames": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "storedVersions": ["v1"],
    });
    assert_eq!(settled["status"], status);
    assert_eq!(settle(&settled, &Registry::new(), "2025-01-01T00:00:00Z"), None);
}

#[test]
fn a_crd_in_a_group_of_kubernetes_tells_of_its_approval() {
    let url = "https://github.com/kubernetes/enhancements/pull/1111";
    let cases = [
        ("example.dev", url, ""),
        ("notk8s.io", url, ""),
        ("x.k8s.io", url, &format!("True ApprovedAnnotation approved in {url}")),
        ("kubernetes.io", url, &format!("True ApprovedAnnotation approved in {url}")),
        (
            "x.k8s.io",
            "unapproved, \"x\"",
            r#"False UnapprovedAnnotation not approved: "unapproved, \"x\"""#,
        ),
        (
            "x.k8s.io",
            "",
            &format!(
                "False MissingAnnotation protected groups must have approval annotation \"api-approved.kubernetes.io\", see {url}"
            ),
        ),
        (
            "x.k8s.io",
            "://none",
            &format!(
                "False InvalidAnnotation protected groups must have approval annotation \"api-approved.kubernetes.io\" with either a URL or a reason starting with \"unapproved\", see {url}"
            ),
        ),
    ];
    for (group, annotation, expected) in cases {
        let mut crd = widgets();
        crd["spec"]["group"] = group.into();
        crd["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": annotation});
        let settled = settle(&crd, &Registry::new(), NOW).unwrap();
        let text = |condition: &serde_json::Value| {
            ["status", "reason", "message"].map(|key| condition[key].as_str().unwrap()).join(" ")
        };
        let conditions = settled["status"]["conditions"].as_array().unwrap();
        let found = conditions
            .iter()
            .find(|condition| condition["type"] == "KubernetesAPIApprovalPolicyConformant");
        assert_eq!(found.map(text).unwrap_or_default(), expected, "{group} {annotation}");
    }
}

#[test]
fn a_name_that_another_has_is_not_accepted() {
    let first = settle(&widgets(), &Registry::new(), NOW).unwrap();
    let second = crd(
        &json!({"plural": "gadgets", "singular": "gadget", "kind": "Widget", "listKind": "GadgetList"}),
    );
    let mut registry = Registry::new();
    registry.set_crd(&first);
    let settled = settle(&second, &registry, NOW).unwrap();
    let conditions = settled["status"]["conditions"].as_array().unwrap();
    let texts = conditions.iter().map(|condition| {
        format!(
            "{} {} {} {}",
            condition["type"], condition["status"], condition["reason"], condition["message"]
        )
    });
    let texts: Vec<_> = texts.map(|text| text.replace(['"', '\\'], "")).collect();
    let expected = [
        "NamesAccepted False KindConflict Widget is already in use",
        "Established False NotAccepted not all names are accepted",
    ];
    assert_eq!(texts, expected);
    assert_eq!(settled["status"]["acceptedNames"].get("kind"), None);
}

#[test]
fn crds_are_refused_in_the_words_of_kubernetes() {
    let shown = r#"[{"Name":"v1","Served":true,"Storage":false,"Deprecated":false,"DeprecationWarning":null,"Schema":null,"Subresources":null,"AdditionalPrinterColumns":null,"SelectableFields":null}]"#;
    let label = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
    let cases = [
        ("/metadata/name", json!("other.example.dev"), vec![
            "metadata.name: Invalid value: \"other.example.dev\": must be spec.names.plural+\".\"+spec.group".to_owned(),
        ]),
        ("/spec/versions/0/storage", json!(false), vec![
            format!("spec.versions: Invalid value: {shown}: must have exactly one version marked as storage version"),
        ]),
        ("/spec/scope", json!("Galaxy"), vec![
            "spec.scope: Unsupported value: \"Galaxy\": supported values: \"Cluster\", \"Namespaced\"".to_owned(),
        ]),
        ("/spec/versions/0/schema", json!(null), vec![
            "spec.versions[0].schema.openAPIV3Schema: Required value".to_owned(),
        ]),
        ("/spec/names/kind", json!("Bad_Kind"), vec![
            format!("spec.names.kind: Invalid value: \"Bad_Kind\": may have mixed case, but should otherwise match: {label}"),
        ]),
        ("/status/storedVersions", json!(["v1", "v0"]), vec![
            "status.storedVersions[1]: Invalid value: \"v0\": missing from spec.versions; v0 was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v0 and removes v0 from status.storedVersions".to_owned(),
        ]),
        ("/spec/versions/0/schema/openAPIV3Schema/type", json!("string"), vec![
            "spec.validation.openAPIV3Schema.type: Invalid value: \"string\": must be object at the root".to_owned(),
        ]),
    ];
    for (place, value, expected) in cases {
        let mut crd = widgets();
        *crd.pointer_mut(place).unwrap() = value;
        let faults: Vec<_> = validate::validate(&crd).iter().map(ToString::to_string).collect();
        assert_eq!(faults, expected, "{place}");
    }
}

#[test]
fn selectable_fields_are_simple_fields_of_the_schema() {
    let mut crd = widgets();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] =
        json!({"spec": {"type": "object", "properties": {"color": {"type": "string"}}}});
    let cases = [
        (".spec.color", None),
        (
            ".spec.size",
            Some(
                "spec.selectableFields[0].jsonPath: Invalid value: \".spec.size\": is an invalid path: does not refer to a valid field",
            ),
        ),
        (
            ".spec",
            Some(
                "spec.selectableFields[0].jsonPath: Invalid value: \".spec\": must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.",
            ),
        ),
    ];
    for (path, expected) in cases {
        crd["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": path}]);
        let faults: Vec<_> = validate::validate(&crd).iter().map(ToString::to_string).collect();
        assert_eq!(faults.first().map(String::as_str), expected, "{path}");
    }
}

#[test]
fn a_crd_keeps_its_group_and_kind() {
    let old = settle(&widgets(), &Registry::new(), NOW).unwrap();
    let mut new = old.clone();
    new["spec"]["names"]["kind"] = json!("Gadget");
    let faults: Vec<_> =
        validate::validate_update(&new, &old).iter().map(ToString::to_string).collect();
    assert_eq!(faults, ["spec.names.kind: Invalid value: \"Gadget\": field is immutable"]);
}
