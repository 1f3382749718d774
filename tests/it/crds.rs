//! The definitions in `crds/`, installed in the embedded API, which enforces them.

use kube::{
    Client,
    api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams},
};
use mortise_embedded_api::{EmbeddedApi, Options};
use serde_json::{Value, json};

/// An API in which the definitions are installed.
async fn api() -> Client {
    with(definitions()).await
}

fn definitions() -> Vec<Value> {
    let files = mortise_tests::crds::files().unwrap();
    files.values().map(|text| serde_saphyr::from_str(text).unwrap()).collect()
}

/// An API in which all versions of the definitions are served.
async fn api_of_all_versions() -> Client {
    let mut definitions = definitions();
    for definition in &mut definitions {
        for version in definition["spec"]["versions"].as_array_mut().unwrap() {
            version["served"] = true.into();
        }
    }
    with(definitions).await
}

/// An API in which these definitions are installed.
pub(crate) async fn with(definitions: impl IntoIterator<Item = Value>) -> Client {
    let api = EmbeddedApi::new(Options::default());
    api.serve_untyped("networking.istio.io", "v1beta1", "Gateway", "gateways", true);
    let client = Client::new(api.router(), "default");
    for definition in definitions {
        create(&client, definition).await.unwrap();
    }
    client
}

/// Creates an object; the error is the reason of the refusal.
pub(crate) async fn create(client: &Client, object: Value) -> Result<(), String> {
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let types = object.types.clone().unwrap();
    let kind = GroupVersionKind::try_from(types).unwrap();
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let created = api.create(&PostParams::default(), &object).await;
    created.map(|_| ()).map_err(|error| error.to_string())
}

fn rule() -> Value {
    json!({
        "apiVersion": "gateway.kyma-project.io/v2", "kind": "APIRule", "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "hosts": ["web.example.com"], "gateway": "edge/gw", "service": {"name": "web", "port": 80},
            "rules": [{"path": "/a", "methods": ["GET"], "noAuth": true}],
        },
    })
}

#[tokio::test]
async fn the_examples_of_guests_are_accepted() {
    let guests = [
        "api-gateway",
        "api-rule",
        "external-gateway",
        "ingress-gateway-restart",
        "kube-bind",
        "peer-authentication",
        "rate-limit",
        "secret-copy",
    ];
    for guest in guests {
        // The examples of each guest are for a cluster of their own.
        let api = api().await;
        for file in examples(guest) {
            let documents: Vec<Value> =
                serde_saphyr::from_multiple(&std::fs::read_to_string(&file).unwrap()).unwrap();
            for object in documents {
                let name = format!("{} in {}", object["metadata"]["name"], file.display());
                create(&api, object).await.unwrap_or_else(|failure| panic!("{name}: {failure}"));
            }
        }
    }
}

fn examples(guest: &str) -> Vec<std::path::PathBuf> {
    let folder = format!("{}/../guests/{guest}/examples", env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{guest}");
    files
}

#[tokio::test]
async fn an_api_rule_that_breaks_the_schema_is_refused() {
    let one_of = "One of the following fields must be set: noAuth, jwt, extAuth";
    let methods = r#"Unsupported value: "FETCH": supported values: "GET", "HEAD", "POST""#;
    let cases = [
        (
            "/spec/hosts",
            json!([]),
            "spec.hosts: Invalid value: 0: spec.hosts in body should have at least 1 items",
        ),
        ("/spec/hosts", json!(["a", "b"]), "spec.hosts: Too many: 2: must have at most 1 item"),
        (
            "/spec/hosts/0",
            json!("Web"),
            "spec.hosts[0]: Invalid value: \"string\": Host must be a lowercase RFC 1123 label",
        ),
        (
            "/spec/gateway",
            json!("gw"),
            "spec.gateway: Invalid value: \"string\": Gateway must be in the namespace/name format",
        ),
        (
            "/spec/rules",
            json!([]),
            "spec.rules: Invalid value: 0: spec.rules in body should have at least 1 items",
        ),
        (
            "/spec/rules/0/path",
            json!("a"),
            "spec.rules[0].path: Invalid value: \"a\": spec.rules[0].path in body should match",
        ),
        ("/spec/rules/0/path", json!("/a/{*}b"), "spec.rules[0].path in body should match"),
        ("/spec/rules/0/methods/0", json!("FETCH"), methods),
        ("/spec/rules/0/noAuth", json!(false), one_of),
        (
            "/spec/service/port",
            json!(70000),
            "spec.service.port in body should be less than or equal to 65535",
        ),
        ("/spec", json!({}), "spec.hosts: Required value"),
    ];
    refuses(&rule(), &cases).await;
}

/// Checks that an object is accepted, and that it is refused with the value at a pointer, with a
/// part of the expected message.
async fn refuses(object: &Value, cases: &[(&str, Value, &str)]) {
    let api = api_of_all_versions().await;
    for (pointer, value, expected) in cases {
        let mut changed = object.clone();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        match changed.pointer_mut(parent).unwrap() {
            Value::Array(items) => items[field.parse::<usize>().unwrap()] = value.clone(),
            parent => parent[field] = value.clone(),
        }
        let text = changed["spec"].to_string();
        let failure = create(&api, changed).await.expect_err(&text);
        assert!(failure.contains(expected), "{text}: {failure}");
    }
    create(&api, object.clone()).await.unwrap();
}

#[tokio::test]
async fn an_api_rule_of_v1beta1_that_breaks_the_schema_is_refused() {
    let rule = json!({
        "apiVersion": "gateway.kyma-project.io/v1beta1", "kind": "APIRule", "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "host": "web.example.com", "gateway": "edge/gw", "service": {"name": "web", "port": 80}, "timeout": 60,
            "rules": [{"path": "/.*", "methods": ["GET"], "accessStrategies": [{"handler": "allow"}]}],
        },
    });
    let cases = [
        ("/spec/host", json!("w"), "spec.host in body should be at least 3 chars long"),
        ("/spec/host", json!("web example"), "spec.host in body should match"),
        ("/spec/gateway", json!("Edge/gw"), "spec.gateway in body should match"),
        (
            "/spec/service/port",
            json!(0),
            "spec.service.port in body should be greater than or equal to 1",
        ),
        ("/spec/timeout", json!(3901), "spec.timeout in body should be less than or equal to 3900"),
        ("/spec/timeout", json!("60s"), "spec.timeout in body must be of type integer"),
        (
            "/spec/corsPolicy",
            json!({"maxAge": "soon"}),
            "spec.corsPolicy.maxAge in body must be of type duration",
        ),
        ("/spec/rules", json!([]), "spec.rules in body should have at least 1 items"),
        ("/spec/rules/0/path", json!("[a]"), "spec.rules[0].path in body should match"),
        (
            "/spec/rules/0/methods",
            json!([]),
            "spec.rules[0].methods in body should have at least 1 items",
        ),
        (
            "/spec/rules/0/methods/0",
            json!("get"),
            r#"spec.rules[0].methods[0]: Unsupported value: "get""#,
        ),
        (
            "/spec/rules/0/accessStrategies",
            json!([]),
            "spec.rules[0].accessStrategies in body should have at least 1 items",
        ),
        (
            "/spec/rules/0/accessStrategies/0",
            json!({}),
            "spec.rules[0].accessStrategies[0].handler: Required value",
        ),
        (
            "/spec/rules/0/timeout",
            json!(0),
            "spec.rules[0].timeout in body should be greater than or equal to 1",
        ),
        ("/spec", json!({}), "spec.host: Required value"),
    ];
    refuses(&rule, &cases).await;
}

#[tokio::test]
async fn a_rate_limit_that_breaks_the_schema_is_refused() {
    let bucket = json!({"maxTokens": 100, "tokensPerFill": 50, "fillInterval": "30s"});
    let limit = json!({
        "apiVersion": "gateway.kyma-project.io/v1alpha1", "kind": "RateLimit", "metadata": {"name": "orders", "namespace": "default"},
        "spec": {
            "selectorLabels": {"app": "orders"},
            "local": {"defaultBucket": bucket, "buckets": [{"path": "/export", "bucket": bucket}]},
        },
    });
    let cases = [
        (
            "/spec/selectorLabels",
            json!({}),
            "spec.selectorLabels in body should have at least 1 properties",
        ),
        ("/spec/local", json!({}), "spec.local.defaultBucket: Required value"),
        (
            "/spec/local/defaultBucket/fillInterval",
            json!("30"),
            "spec.local.defaultBucket.fillInterval in body must be of type duration",
        ),
        (
            "/spec/local/defaultBucket/maxTokens",
            json!("100"),
            "spec.local.defaultBucket.maxTokens in body must be of type integer",
        ),
        (
            "/spec/local/buckets/0",
            json!({"bucket": bucket}),
            "At least one of 'path' or 'headers' must be set",
        ),
        (
            "/spec/local/buckets/0",
            json!({"path": "/export"}),
            "spec.local.buckets[0].bucket: Required value",
        ),
        ("/spec/enforce", json!("yes"), "spec.enforce in body must be of type boolean"),
        ("/spec", json!({}), "spec.selectorLabels: Required value"),
    ];
    refuses(&limit, &cases).await;
}

#[tokio::test]
async fn an_external_gateway_that_breaks_the_schema_is_refused() {
    let gateway = json!({
        "apiVersion": "gateway.kyma-project.io/v1alpha1", "kind": "ExternalGateway", "metadata": {"name": "acme", "namespace": "default"},
        "spec": {
            "externalDomain": "api.acme.org", "internalDomain": {"kymaSubdomain": "acme"}, "region": "eu10",
            "regionsConfigMap": "regions", "caSecretRef": {"name": "acme-ca"},
        },
    });
    let cases = [
        ("/spec/externalDomain", json!("API.acme.org"), "spec.externalDomain in body should match"),
        (
            "/spec/externalDomain",
            json!("a.".repeat(128)),
            "spec.externalDomain: Too long: may not be more than 255 bytes",
        ),
        (
            "/spec/internalDomain/kymaSubdomain",
            json!("a.b"),
            "spec.internalDomain.kymaSubdomain in body should match",
        ),
        (
            "/spec/regionsConfigMap",
            json!(""),
            "spec.regionsConfigMap in body should be at least 1 chars long",
        ),
        ("/spec/regionsConfigMap", json!("Regions"), "spec.regionsConfigMap in body should match"),
        ("/spec/region", json!(10), "spec.region in body must be of type string"),
        ("/spec", json!({}), "spec.externalDomain: Required value"),
    ];
    refuses(&gateway, &cases).await;
}

#[tokio::test]
async fn an_api_gateway_that_breaks_the_schema_is_refused() {
    let gateway = json!({
        "apiVersion": "operator.kyma-project.io/v1alpha1", "kind": "APIGateway", "metadata": {"name": "default"},
        "spec": {"enableKymaGateway": true, "networkPoliciesEnabled": true},
    });
    let cases = [
        (
            "/spec/enableKymaGateway",
            json!("yes"),
            "spec.enableKymaGateway in body must be of type boolean",
        ),
        (
            "/spec/networkPoliciesEnabled",
            json!(1),
            "spec.networkPoliciesEnabled in body must be of type boolean",
        ),
    ];
    refuses(&gateway, &cases).await;
}

#[tokio::test]
async fn hosts_of_all_forms_are_accepted() {
    let api = api().await;
    for (index, host) in
        ["web", "9-a", "web.example.com", "*.example.com", "a.b.c.io"].iter().enumerate()
    {
        let mut rule = rule();
        rule["metadata"]["name"] = format!("web-{index}").into();
        rule["spec"]["hosts"] = json!([host]);
        create(&api, rule).await.unwrap_or_else(|failure| panic!("{host}: {failure}"));
    }
}

#[tokio::test]
async fn only_the_stored_version_takes_a_rule_without_a_spec() {
    let api = api().await;
    for (version, accepted) in [("v2", false), ("v2alpha1", true)] {
        let mut rule = rule();
        rule["apiVersion"] = format!("gateway.kyma-project.io/{version}").into();
        rule.as_object_mut().unwrap().remove("spec");
        assert_eq!(create(&api, rule).await.is_ok(), accepted, "{version}");
    }
}

fn processor() -> Value {
    json!({
        "apiVersion": "mortise.dev/v1alpha1", "kind": "Processor", "metadata": {"name": "rules", "namespace": "default"},
        "spec": {"module": {"path": "/modules/api-rule.wasm"}, "serviceAccountName": "rules"},
    })
}

#[tokio::test]
async fn a_processor_that_breaks_the_schema_is_refused() {
    let one_of =
        "spec.module: Invalid value: \"object\": exactly one of image and path must be given";
    let cases = [
        ("no module", json!({"module": {}}), one_of),
        ("two modules", json!({"module": {"image": "a", "path": "b.wasm"}}), one_of),
        (
            "a path that leads out",
            json!({"module": {"path": "../a.wasm"}}),
            "spec.module.path in body should match",
        ),
        (
            "another folder",
            json!({"module": {"path": "/etc/passwd"}}),
            "spec.module.path in body should match",
        ),
        (
            "an account of elsewhere",
            json!({"serviceAccountName": "kube-system/a"}),
            "spec.serviceAccountName in body should match",
        ),
        (
            "no account",
            json!({"serviceAccountName": null}),
            "spec.serviceAccountName: Required value",
        ),
    ];
    refuses_processors(&cases).await;
}

#[tokio::test]
async fn a_processor_that_is_to_run_otherwise_than_it_can_is_refused() {
    let cases = [
        (
            "config that is no object",
            json!({"config": "a"}),
            "spec.config in body must be of type object",
        ),
        (
            "an unknown mode",
            json!({"mode": "Dry"}),
            r#"spec.mode: Unsupported value: "Dry": supported values: "Reconcile", "Observe""#,
        ),
        (
            "an unknown end",
            json!({"onDelete": "Orphan"}),
            r#"supported values: "Finalize", "Release""#,
        ),
        (
            "memory without a unit known",
            json!({"limits": {"memory": "64MB"}}),
            "spec.limits.memory in body should match",
        ),
        (
            "a deadline without a unit",
            json!({"limits": {"deadline": "5"}}),
            "spec.limits.deadline in body should match",
        ),
        (
            "no concurrency",
            json!({"limits": {"concurrency": 0}}),
            "spec.limits.concurrency in body should be greater than or equal to 1",
        ),
        (
            "no rate",
            json!({"limits": {"rate": 0}}),
            "spec.limits.rate in body should be greater than or equal to 1",
        ),
        (
            "our own managers",
            json!({"takeOver": ["mortise/a/b/c"]}),
            "fields of other Processors are never taken over",
        ),
        (
            "a manager twice",
            json!({"takeOver": ["a", "a"]}),
            "spec.takeOver[1]: Duplicate value: \"a\"",
        ),
    ];
    refuses_processors(&cases).await;
}

/// Checks the refusal of Processors; each case is the change of the spec and a part of the expected
/// message.
async fn refuses_processors(cases: &[(&str, Value, &str)]) {
    let mut servers = vec![("embedded", api().await)];
    if let Some(cluster) = mortise_tests::cluster::shared().await.unwrap() {
        cluster.install(&[mortise_host::operator::api::definition::processors()]).await.unwrap();
        servers.push(("real", cluster.client().await.unwrap()));
    }
    for (server, client) in &servers {
        for (case, spec, expected) in cases {
            let mut processor = processor();
            let fields = spec.as_object().unwrap().clone();
            processor["spec"].as_object_mut().unwrap().extend(fields);
            let failure = create(client, processor).await.expect_err(case);
            assert!(failure.contains(expected), "{server}, {case}: {failure}");
        }
    }
}

#[tokio::test]
async fn a_processor_needs_no_more_than_a_module_and_an_account() {
    let api = api().await;
    create(&api, processor()).await.unwrap();
    let kind = GroupVersionKind::gvk("mortise.dev", "v1alpha1", "Processor");
    let processors: Api<DynamicObject> =
        Api::namespaced_with(api, "default", &ApiResource::from_gvk(&kind));
    let spec = processors.get("rules").await.unwrap().data["spec"].clone();
    assert_eq!(
        spec,
        json!({
            "module": {"path": "/modules/api-rule.wasm"}, "serviceAccountName": "rules", "mode": "Reconcile",
            "onDelete": "Finalize", "suspend": false, "limits": {"memory": "64Mi", "deadline": "5s", "concurrency": 4},
        })
    );
}
