use serde_json::json;

use super::*;

#[test]
fn null_and_absent_are_the_same() {
    let absent: ApiRule = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
    let null: ApiRule = serde_json::from_value(
        json!({"metadata": {"name": "a"}, "spec": {"rules": null, "hosts": null}, "status": null}),
    )
    .unwrap();
    assert_eq!(absent, null);
    let rule: Rule =
        serde_json::from_value(json!({"jwt": {"authorizations": [null, {"audiences": null}]}}))
            .unwrap();
    assert_eq!(
        rule.jwt.unwrap().authorizations.unwrap(),
        [None, Some(JwtAuthorization::default())]
    );
}

#[test]
fn the_namespace_of_the_specs_service_counts_for_a_rules_own() {
    let service = |namespace: Option<&str>| {
        Some(Service {
            name: Some("a".to_owned()),
            namespace: namespace.map(ToOwned::to_owned),
            ..Service::default()
        })
    };
    let cases = [
        ("nowhere", None, None, "own"),
        ("in the spec", service(Some("spec")), None, "spec"),
        ("in the spec, for the rule's", service(Some("spec")), service(None), "spec"),
        ("in the rule", service(Some("spec")), service(Some("rule")), "rule"),
    ];
    for (case, of_spec, of_rule, expected) in cases {
        let mut api_rule =
            ApiRule { metadata: Metadata::new("a").namespace("own"), ..ApiRule::default() };
        api_rule.spec.service = of_spec;
        let rule = Rule { service: of_rule, ..Rule::default() };
        assert_eq!(api_rule.service_namespace(&rule), expected, "{case}");
    }
}

#[test]
fn the_definition_is_that_of_the_original() {
    let definition = definition();
    let spec = |pointer: &str| {
        definition.pointer(&format!("/spec{pointer}")).unwrap_or_else(|| panic!("{pointer}"))
    };
    assert_eq!(definition["metadata"]["name"], "apirules.gateway.kyma-project.io");
    assert_eq!(spec("/conversion/strategy"), "None");
    assert_eq!(spec("/names/categories"), &json!(["kyma-api-gateway"]));
    let versions: Vec<_> = spec("/versions")
        .as_array()
        .unwrap()
        .iter()
        .map(|version| {
            (
                version["name"].as_str().unwrap(),
                version["storage"].as_bool().unwrap(),
                version["served"].as_bool().unwrap(),
                version["schema"]["openAPIV3Schema"].get("required"),
            )
        })
        .collect();
    let expected = [
        ("v2", false, true, Some(&json!(["spec"]))),
        ("v2alpha1", true, true, None),
        ("v1beta1", false, false, None),
    ];
    assert_eq!(versions, expected);

    let fields = "/versions/0/schema/openAPIV3Schema/properties/spec";
    assert_eq!(spec(&format!("{fields}/required")), &json!(["hosts", "rules"]));
    let gateway = spec(&format!("{fields}/properties/gateway"));
    assert_eq!(gateway["maxLength"], 127);
    assert_eq!(
        gateway["x-kubernetes-validations"][0]["rule"],
        "self.matches('^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)$')"
    );
    let rule = spec(&format!("{fields}/properties/rules/items"));
    assert_eq!(rule["required"], json!(["path", "methods"]));
    assert_eq!(rule["properties"]["timeout"]["maximum"], 3900);
    assert_eq!(rule["properties"]["noAuth"]["type"], "boolean");
    let service = &rule["properties"]["service"];
    assert_eq!(
        (&service["required"], &service["properties"]["port"]["format"]),
        (&json!(["name", "port"]), &json!("int32"))
    );
    let status = spec("/versions/1/schema/openAPIV3Schema/properties/status");
    assert_eq!(
        (&status["required"], &status["properties"]["lastProcessedTime"]["format"]),
        (&json!(["state"]), &json!("date-time"))
    );
    let old = "/versions/2/schema/openAPIV3Schema/properties";
    let old_spec = spec(&format!("{old}/spec"));
    assert_eq!(old_spec["required"], json!(["gateway", "host", "rules"]));
    assert_eq!(old_spec["properties"]["corsPolicy"]["properties"]["maxAge"]["format"], "duration");
    let strategy =
        &old_spec["properties"]["rules"]["items"]["properties"]["accessStrategies"]["items"];
    assert_eq!(strategy["required"], json!(["handler"]));
    assert_eq!(
        strategy["properties"]["config"]["x-kubernetes-preserve-unknown-fields"],
        json!(true)
    );
    assert_eq!(
        spec(&format!("{old}/status/properties/APIRuleStatus/properties/code"))["type"],
        "string"
    );
    let text = definition.to_string();
    for word in ["null", "$ref", "\"default\"", "uint", "title"] {
        assert!(!text.contains(word), "{word}");
    }
}
