use mortise_sdk::testing::Stub;
use serde_json::{Value, json};

use super::*;
use crate::reconcile::validate;

/// A valid APIRule, which finds everything that it needs in the cluster of `cluster`.
fn rule() -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "hosts": ["web.example.com"], "gateway": "edge/gw", "service": {"name": "web", "port": 80},
            "rules": [{"path": "/a", "methods": ["GET"], "noAuth": true}],
        },
    })
}

fn cluster() -> Stub {
    let pod = |name: &str, field: &str, container: &str| {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "shop", "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web"}]},
        });
        pod["spec"][field] = json!([{"name": container}]);
        pod
    };
    Stub::new().objects([
        json!({
            "apiVersion": "networking.istio.io/v1", "kind": "Gateway", "metadata": {"name": "gw", "namespace": "edge"},
            "spec": {"servers": [{"hosts": ["*.example.com"]}]},
        }),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"selector": {"app": "web"}},
        }),
        pod("one", "containers", "istio-proxy"),
        pod("two", "initContainers", "istio-proxy"),
    ])
}

fn failures(rule: &Value, cluster: &Stub) -> Vec<String> {
    let rule: ApiRule = serde_json::from_value(rule.clone()).unwrap();
    let failures = validate(&rule, &cluster.host()).unwrap();
    failures
        .into_iter()
        .map(|failure| format!("{}: {}", failure.attribute_path, failure.message))
        .collect()
}

fn changed(pointer: &str, value: Value) -> Value {
    let mut rule = rule();
    *rule.pointer_mut(pointer).unwrap() = value;
    rule
}

#[test]
fn a_right_rule_has_no_failures() {
    assert_eq!(failures(&rule(), &cluster()), [""; 0]);
}

#[test]
fn each_failure_is_found() {
    let jwt = |jwt: Value| {
        changed("/spec/rules/0", json!({"path": "/a", "methods": ["GET"], "jwt": jwt}))
    };
    let issuer = json!([{"issuer": "i", "jwksUri": "https://i"}]);
    let long = "Lowercase RFC 1123 label (short host) is only supported as the APIRule host when selected Gateway has a single host definition matching *.<fqdn> format";
    let cases = [
        (changed("/spec/rules", json!([])), vec![".spec.rules: No rules defined"]),
        (changed("/spec/hosts", json!([])), vec![".spec.hosts: No hosts defined"]),
        (
            changed("/spec/hosts/0", json!("Web")),
            vec![".spec.hosts[0]: Host must be a valid FQDN or short host name"],
        ),
        (
            changed("/spec/service", json!(null)),
            vec![
                ".spec.rules[0].service: The rule must define a service, because no service is defined on spec level",
                ".spec.rules[0]: Failed to execute sidecar injection validation, err: service name is required but missing",
            ],
        ),
        (
            changed("/spec/service/name", json!("none")),
            vec![
                ".spec.rules[0]: Failed to execute sidecar injection validation, err: Service \"none\" not found",
            ],
        ),
        (
            jwt(json!({"authentications": issuer, "authorizations": [null]})),
            vec![".spec.rules[0].jwt.authorizations[0]: authorization is empty"],
        ),
        (
            jwt(json!({"authentications": [
                {"issuer": "i", "jwksUri": "https://i", "fromHeaders": [{"name": "a"}, {"name": "b"}]},
                {"issuer": "i", "jwksUri": "https://i", "fromParams": ["c"]},
            ]})),
            vec![
                ".spec.rules[0].jwt.authentications[0].fromHeaders: multiple fromHeaders are not supported",
                ".spec.rules[0].jwt.authentications[1].fromParams: mixture of multiple fromHeaders and fromParams is not supported",
                ".spec.rules[0].jwt.authentications[1]: multiple jwt configurations that differ for the same issuer",
            ],
        ),
        (changed("/spec/gateway", json!("edge/none")), vec![".spec.gateway: Gateway not found"]),
    ];
    for (rule, expected) in cases {
        assert_eq!(failures(&rule, &cluster()), expected, "{}", rule["spec"]);
    }
    let mut short = changed("/spec/hosts/0", json!("web"));
    assert_eq!(failures(&short, &cluster()), [""; 0]);
    cluster_with_gateway(&json!([{"hosts": ["*.example.com"]}, {}]), |cluster| {
        assert_eq!(
            failures(&short, cluster),
            [format!(".spec.hosts[0]: {long}")],
            "a server without hosts"
        );
    });
    short["spec"]["gateway"] = json!(null);
    assert_eq!(
        failures(&short, &cluster()),
        [".spec: Either gateway or externalGateway must be specified"]
    );
}

fn cluster_with_gateway(servers: &Value, check: impl Fn(&Stub)) {
    let cluster = cluster();
    cluster.set(json!({
        "apiVersion": "networking.istio.io/v1", "kind": "Gateway", "metadata": {"name": "gw", "namespace": "edge"},
        "spec": {"servers": servers},
    }));
    check(&cluster);
}

#[test]
fn pods_without_a_sidecar_are_named() {
    let cluster = cluster();
    for (name, labels) in [("bare", json!({"app": "web"})), ("other", json!({"app": "db"}))] {
        cluster.set(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "shop", "labels": labels},
            "spec": {"containers": [{"name": "web"}]},
        }));
    }
    assert_eq!(
        failures(&rule(), &cluster),
        [".spec.rules[0]: Pod shop/bare does not have an injected istio sidecar"]
    );
    cluster.set(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"}, "spec": {}}));
    assert_eq!(
        failures(&rule(), &cluster),
        [".spec.rules[0].injection: Target service label selectors are not defined"]
    );
}

#[test]
fn a_host_is_taken_by_every_virtual_service_of_others() {
    let service = |name: &str, host: &str, labels: Value| {
        json!({
            "apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
            "metadata": {"name": name, "namespace": "x", "labels": labels}, "spec": {"hosts": ["b.com", host]},
        })
    };
    let owner = |label: &str| format!("apirule.gateway.kyma-project.io/{label}");
    let (name, namespace, legacy) = (owner("name"), owner("namespace"), owner("v1beta1"));
    let host = "web.example.com";
    let cases = [
        ("another host", service("a", "*.example.com", json!({})), 0),
        ("nobody's", service("a", host, json!({})), 1),
        ("its own", service("a", host, json!({&name: "web", &namespace: "shop"})), 0),
        ("of another namespace", service("a", host, json!({&name: "web", &namespace: "else"})), 1),
        ("its own of former times", service("a", host, json!({&legacy: "web.shop"})), 0),
        (
            "another's of former times",
            service("a", host, json!({&name: "web", &namespace: "shop", &legacy: "x.shop"})),
            1,
        ),
    ];
    for (case, service, count) in cases {
        let cluster = cluster().objects([service]);
        let expected = vec![".spec.hosts[0]: Host is occupied by another Virtual Service"; count];
        assert_eq!(failures(&rule(), &cluster), expected, "{case}");
    }
}

#[test]
fn authorizers_must_be_known_to_istio() {
    let rule = |name: &str| {
        changed(
            "/spec/rules/0",
            json!({"path": "/a", "methods": ["GET"], "extAuth": {"authorizers": [name]}}),
        )
    };
    let providers = "extensionProviders: [{name: http, envoyExtAuthzHttp: {port: 80}}, {name: empty, envoyExtAuthzHttp: }]";
    let of = ".spec.rules[0].extAuth";
    let cases = [
        (json!({"mesh": providers}), "http", None),
        (
            json!({"mesh": providers}),
            "empty",
            Some(format!(
                "{of}.externalAuthorizers.empty: EnvoyExtAuthzHttp not found in Istio ConfigMap mesh data for authorizer"
            )),
        ),
        (
            json!({"mesh": providers}),
            "none",
            Some(format!(
                "{of}.externalAuthorizers.none: Authorizer not found in Istio ConfigMap mesh data"
            )),
        ),
        (
            json!({"mesh": ""}),
            "none",
            Some(format!(
                "{of}.externalAuthorizers.none: Authorizer not found in Istio ConfigMap mesh data"
            )),
        ),
        (
            json!({}),
            "http",
            Some(format!("{of}.externalAuthorizers: Istio ConfigMap does not contain mesh key")),
        ),
        (
            json!({"mesh": "a: b: c"}),
            "http",
            Some(format!("{of}.externalAuthorizers: Failed to unmarshal mesh data")),
        ),
        (
            json!({"mesh": "extensionProviders: 1"}),
            "http",
            Some(format!("{of}.externalAuthorizers: Failed to unmarshal mesh data")),
        ),
    ];
    for (data, name, expected) in cases {
        let cluster = cluster().objects([json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "istio", "namespace": "istio-system"}, "data": data,
        })]);
        let expected: Vec<String> = expected.into_iter().collect();
        assert_eq!(failures(&rule(name), &cluster), expected, "{data} {name}");
    }
    assert_eq!(
        failures(&rule("http"), &cluster()),
        [format!("{of}: Failed to get Istio ConfigMap")]
    );
}

#[test]
fn a_path_conflicts_with_an_earlier_one_of_the_same_method_and_rule() {
    let rules = |of: &[(&str, &[&str])]| {
        let rules = of
            .iter()
            .map(|(path, methods)| json!({"path": path, "methods": methods, "noAuth": true}));
        failures(&changed("/spec/rules", rules.collect()), &cluster())
    };
    let conflict = |path, method| {
        format!(
            ".spec.rules: Path {path} with method {method} conflicts with at least one of the previous rule paths"
        )
    };
    assert_eq!(rules(&[("/a", &["GET", "PUT"]), ("/a", &["POST"])]), [""; 0]);
    assert_eq!(
        rules(&[("/a", &["GET", "PUT"]), ("/a", &["POST", "PUT"])]),
        [conflict("/a", "PUT")]
    );
    assert_eq!(rules(&[("/a", &["GET", "PUT", "GET"])]), [conflict("/a", "GET")]);
}

#[test]
fn operators_in_paths_have_an_order() {
    let cases = [
        ("/a/{*}/{**}", None),
        ("/{**}/a", None),
        ("/{**}/a/{**}", Some("Only one {**} operator is allowed in the path.")),
        ("/{**}/a/{*}", Some("The {**} operator must be the last operator in the path.")),
    ];
    for (path, expected) in cases {
        assert_eq!(validate_path(path), expected, "{path}");
    }
}

#[test]
fn a_description_shows_three_failures() {
    let failures: Vec<Failure> =
        (1..=5).map(|number| Failure::new(format!(".{number}"), "bad")).collect();
    assert_eq!(describe(&failures[..1]), "Validation errors: Attribute '.1': bad");
    assert_eq!(
        describe(&failures),
        "Validation errors: Attribute '.1': bad\nAttribute '.2': bad\nAttribute '.3': bad\n2 more error(s)..."
    );
}
