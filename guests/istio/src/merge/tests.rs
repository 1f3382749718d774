use super::*;
use crate::cluster::Objects;

fn images_of(registry: &str) -> Images {
    let variables = ["pilot", "install-cni", "proxyv2"]
        .map(|name| (name.to_owned(), format!("{registry}/{name}:1.30.2-distroless")));
    Images::read(&variables.into()).unwrap()
}

fn merged(spec: Value, change: impl Fn(&mut Input)) -> Result<Value, String> {
    let spec: IstioSpec = serde_json::from_value(spec).unwrap();
    let cluster = Cluster::of(&Objects::default(), Flavour::Regular).unwrap();
    let images = images_of("registry.example/istio");
    let mut input = Input {
        spec: &spec,
        cluster: &cluster,
        flavour: Flavour::Regular,
        features: Features::default(),
        images: &images,
        pull_secret: None,
    };
    change(&mut input);
    merge(&input)
}

fn value(spec: Value, pointer: &str) -> Value {
    merged(spec, |_| {}).unwrap().pointer(pointer).cloned().unwrap_or_default()
}

#[test]
fn amounts_that_are_given_replace_those_of_the_template_one_by_one() {
    let spec = json!({"components": {
        "pilot": {"k8s": {"resources": {"limits": {"cpu": "1500m"}}}},
        "proxy": {"k8s": {"resources": {"requests": {"memory": "1024Mi"}}}},
    }});
    assert_eq!(
        value(spec.clone(), "/spec/components/pilot/k8s/resources"),
        json!({"limits": {"cpu": "1500m", "memory": "1Gi"}, "requests": {"cpu": "50m", "memory": "128Mi"}})
    );
    assert_eq!(
        value(spec, "/spec/values/global/proxy/resources"),
        json!({"limits": {"cpu": "250m", "memory": "254Mi"}, "requests": {"cpu": "10m", "memory": "1024Mi"}})
    );
    let canonical = json!({"components": {"cni": {"k8s": {"resources": {"limits": {"cpu": "2000m", "memory": "1024Mi"}}}}}});
    assert_eq!(
        value(canonical, "/spec/components/cni/k8s/resources/limits"),
        json!({"cpu": "2", "memory": "1Gi"})
    );
}

#[test]
fn an_amount_that_is_no_quantity_fails_the_merge() {
    for (component, fails) in [
        ("pilot", true),
        ("ingressGateway", true),
        ("egressGateway", true),
        ("cni", true),
        ("proxy", false),
    ] {
        let spec =
            json!({"components": {component: {"k8s": {"resources": {"limits": {"cpu": "abc"}}}}}});
        let result = merged(spec, |_| {});
        assert_eq!(result.is_err(), fails, "{component}");
        if let Err(error) = result {
            assert!(error.starts_with("quantities must match"), "{error}");
        }
    }
}

#[test]
fn kinds_of_affinity_that_are_not_given_are_not_there() {
    let cases = [
        (json!({}), json!({"enabled": true, "k8s": {"affinity": {}}})),
        (
            json!({"affinity": {"podAffinity": {}}}),
            json!({"enabled": true, "k8s": {"affinity": {"podAffinity": {}}}}),
        ),
    ];
    for (k8s, expected) in cases {
        let spec = json!({"components": {"cni": {"k8s": k8s}}});
        assert_eq!(value(spec, "/spec/components/cni"), expected);
    }
}

#[test]
fn timeouts_are_whole_seconds() {
    let cases = [("2.9s", "2s"), ("500ms", "0s"), ("1m30s", "90s"), ("1h", "3600s")];
    for (timeout, expected) in cases {
        let spec = json!({"config": {"authorizers": [null, {"name": "a", "port": 1, "timeout": timeout}]}});
        let providers = value(spec, "/spec/meshConfig/extensionProviders");
        let last = providers.as_array().unwrap().last().unwrap();
        let http = json!({"port": 1, "timeout": expected});
        assert_eq!(*last, json!({"name": "a", "envoyExtAuthzHttp": http}));
        assert_eq!(providers.as_array().unwrap().len(), 5);
    }
    let spec = json!({"config": {"authorizers": [{"name": "a", "port": 1, "timeout": "soon"}]}});
    assert_eq!(merged(spec, |_| {}).unwrap_err(), "time: invalid duration \"soon\"");
}

#[test]
fn a_provider_has_no_fields_with_default_values() {
    let cases = [
        (json!({"name": "a", "port": 1, "pathPrefix": ""}), json!({"port": 1})),
        (json!({"name": "a", "service": "b", "port": 0}), json!({"service": "b"})),
        (
            json!({"name": "a", "port": 1, "pathPrefix": "/c"}),
            json!({"port": 1, "pathPrefix": "/c"}),
        ),
    ];
    let provider = |authorizer: Value| {
        let spec = json!({"config": {"authorizers": [authorizer]}});
        let providers = value(spec, "/spec/meshConfig/extensionProviders");
        providers.as_array().unwrap().last().unwrap().clone()
    };
    for (authorizer, http) in cases {
        assert_eq!(provider(authorizer), json!({"name": "a", "envoyExtAuthzHttp": http}));
    }
    let nameless = provider(json!({"name": "", "port": 1}));
    assert_eq!(nameless, json!({"envoyExtAuthzHttp": {"port": 1}}));
}

#[test]
fn a_setting_that_is_given_empty_is_an_empty_object_where_the_template_has_none() {
    let spec = json!({"components": {
        "cni": {"k8s": {"resources": {}}}, "pilot": {"k8s": {"strategy": {"rollingUpdate": {}}, "resources": {}}},
    }});
    let cni = value(spec.clone(), "/spec/components/cni/k8s");
    assert_eq!(cni, json!({"affinity": {}, "resources": {}}));
    let strategy = value(spec.clone(), "/spec/components/pilot/k8s/strategy");
    assert_eq!(strategy, json!({"rollingUpdate": {}}));
    let resources = value(spec, "/spec/components/pilot/k8s/resources/limits/memory");
    assert_eq!(resources, json!("1Gi"), "the template's stay");
}

#[test]
fn the_pull_secret_is_there_once() {
    let secrets = |name| {
        let operator = merged(json!({}), |input| input.pull_secret = name).unwrap();
        operator["spec"]["values"]["global"]["imagePullSecrets"].clone()
    };
    assert_eq!(secrets(None), json!([]));
    assert_eq!(secrets(Some("a")), json!(["a"]));
    assert_eq!(secrets(Some("")), json!([""]));
    let mut operator = merged(json!({}), |input| input.pull_secret = Some("a")).unwrap();
    pull_secret(&mut operator, "a");
    assert_eq!(operator["spec"]["values"]["global"]["imagePullSecrets"], json!(["a"]));
}

#[test]
fn experimental_flags_of_istiod_count_only_for_the_experimental_flavour() {
    let spec =
        json!({"experimental": {"pilot": {"enableAlphaGatewayAPI": true}, "enableAmbient": true}});
    for (flavour, flags) in [(Flavour::Regular, 3), (Flavour::Experimental, 4)] {
        let operator = merged(spec.clone(), |input| input.flavour = flavour).unwrap();
        let env = operator["spec"]["components"]["pilot"]["k8s"]["env"].as_array().unwrap();
        assert_eq!(env.len(), flags, "{flavour:?}");
        assert_eq!(operator["spec"]["components"]["ztunnel"]["enabled"], json!(true));
    }
}

#[test]
fn a_metric_of_memory_goes_with_vertical_autoscaling() {
    let component = json!({"k8s": {"hpaSpec": {"metrics": [
        {"type": "Resource", "resource": {"name": "memory"}},
        {"type": "Resource", "resource": {"name": "cpu"}},
        {"type": "Pods", "resource": {"name": "memory"}},
    ]}}});
    let mut operator = json!({"spec": {"components": {"pilot": component, "ingressGateways": [], "egressGateways": []}}});
    let features = Features { enable_control_plane_vpa: true, ..Features::default() };
    components::merge(&mut operator, None, features).unwrap();
    let metrics = &operator["spec"]["components"]["pilot"]["k8s"]["hpaSpec"]["metrics"];
    assert_eq!(metrics.as_array().unwrap().len(), 2);
}
