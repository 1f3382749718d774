use serde_json::json;

use super::*;

#[test]
fn nulls_count_as_absent() {
    let istio: Istio = serde_json::from_value(json!({
        "metadata": {"name": "default"},
        "spec": {
            "config": {"authorizers": [null, {"name": "a", "service": null, "headers": null}], "telemetry": null},
            "components": null, "compatibilityMode": null,
        },
        "status": null,
    }))
    .unwrap();
    let names: Vec<_> = istio.spec.config.authorizers().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["a"]);
    assert_eq!(istio.spec.components, None);
    let empty: Istio = serde_json::from_value(json!({"spec": null})).unwrap();
    assert_eq!(empty.spec, IstioSpec::default());
}

#[test]
fn fields_that_are_always_written_are_written() {
    let cases = [
        (json!({}), r#"{"config":{"telemetry":{"metrics":{}}}}"#),
        (
            json!({"experimental": {}, "components": {"pilot": {}}}),
            r#"{"config":{"telemetry":{"metrics":{}}},"components":{"pilot":{"k8s":null}},"experimental":{"pilot":{"enableAlphaGatewayAPI":false,"enableMultiNetworkDiscoverGatewayAPI":false}}}"#,
        ),
        (
            json!({"config": {"authorizers": [], "numTrustedProxies": 0}, "compatibilityMode": false}),
            r#"{"config":{"numTrustedProxies":0,"telemetry":{"metrics":{}}}}"#,
        ),
    ];
    for (spec, expected) in cases {
        let spec: IstioSpec = serde_json::from_value(spec).unwrap();
        assert_eq!(crate::json::write(&spec).unwrap(), expected);
    }
}

#[test]
fn no_field_of_the_status_is_required() {
    let definition = definition();
    let status =
        &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"];
    assert_eq!(status.get("required"), None);
    assert_eq!(status["properties"]["conditions"]["x-kubernetes-list-map-keys"], json!(["type"]));
}
