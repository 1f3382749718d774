use mortise_sdk::testing::Stub;
use serde_json::{Value, json};

use crate::{
    annotation::{ORIGINAL_VERSION, V1BETA1_SPEC},
    api::ApiRule,
    config::Handler,
    v1beta1::validate,
};

const ISTIO: Handler = Handler::Istio;
const ORY: Handler = Handler::Ory;
const STRATEGY: &str = ".spec.rules[0].accessStrategies[0]";

fn spec() -> Value {
    json!({
        "host": "web.example.com", "gateway": "edge/gw", "service": {"name": "web", "port": 80},
        "rules": [{"path": "/a", "methods": ["GET"], "accessStrategies": [{"handler": "noop"}]}],
    })
}

/// Returns a spec whose only rule has these strategies.
fn with(strategies: &Value) -> Value {
    let mut spec = spec();
    spec["rules"][0]["accessStrategies"] = strategies.clone();
    spec
}

fn jwt(config: &Value) -> Value {
    with(&json!([{"handler": "jwt", "config": config}]))
}

fn cluster() -> Stub {
    Stub::new().objects([
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"selector": {"app": "web"}},
        }),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "none", "namespace": "shop"},
        }),
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "bare", "namespace": "shop", "labels": {"app": "bare"}},
            "spec": {"containers": [{"name": "main"}]},
        }),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "bare", "namespace": "shop"},
            "spec": {"selector": {"app": "bare"}},
        }),
    ])
}

fn failures(spec: &Value, handler: Handler, cluster: &Stub) -> Vec<(String, String)> {
    let rule: ApiRule = serde_json::from_value(json!({
        "metadata": {
            "name": "web", "namespace": "shop",
            "annotations": {ORIGINAL_VERSION: "v1beta1", V1BETA1_SPEC: spec.to_string()},
        },
    }))
    .unwrap();
    let failures = validate(&rule, handler, &cluster.host()).unwrap().into_iter();
    failures.map(|failure| (failure.attribute_path, failure.message)).collect()
}

fn check(case: &str, spec: &Value, handler: Handler, expected: &[(&str, &str)]) {
    let expected: Vec<(String, String)> =
        expected.iter().map(|(path, message)| (path.to_string(), message.to_string())).collect();
    assert_eq!(failures(spec, handler, &cluster()), expected, "{case}, {handler:?}");
}

#[test]
fn what_both_handlers_take_has_no_failure() {
    let strategies = [
        "allow",
        "no_auth",
        "noop",
        "unauthorized",
        "anonymous",
        "cookie_session",
        "oauth2_client_credentials",
        "oauth2_introspection",
    ];
    for handler in [ISTIO, ORY] {
        for strategy in strategies {
            for config in [json!(null), json!({})] {
                let strategies = json!([{"handler": strategy, "config": config}]);
                check(strategy, &with(&strategies), handler, &[]);
            }
        }
        for strategy in ["oauth2_client_credentials", "oauth2_introspection"] {
            let strategies = json!([{"handler": strategy, "config": {"required_scope": ["a"]}}]);
            check(strategy, &with(&strategies), handler, &[]);
        }
    }
}

#[test]
fn a_host_needs_a_domain_and_nobody_else() {
    let taken = "This host is occupied by another Virtual Service";
    let no_domain = "Host does not contain a domain name and no default domain name is configured";
    let mut spec = spec();
    for (host, expected) in [
        (json!(null), vec!["Host was nil"]),
        (json!("web"), vec![no_domain]),
        (json!("taken"), vec![no_domain, taken]),
        (json!("taken.example.com"), vec![taken, taken]),
        (json!("own.example.com"), vec![]),
        (json!("former.example.com"), vec![]),
        (json!("other.example.com"), vec![taken]),
    ] {
        spec["host"] = host.clone();
        let service = |name: &str, host: &str, labels: Value| {
            json!({
                "apiVersion": "networking.istio.io/v1beta1", "kind": "VirtualService",
                "metadata": {"name": name, "namespace": "else", "labels": labels},
                "spec": {"hosts": [host]},
            })
        };
        let owner = |name: &str| {
            json!({
                "apirule.gateway.kyma-project.io/name": name,
                "apirule.gateway.kyma-project.io/namespace": "shop",
            })
        };
        let former = json!({"apirule.gateway.kyma-project.io/v1beta1": "web.shop"});
        let cluster = cluster().objects([
            service("a", "taken", json!({})),
            service("b", "taken.example.com", json!({})),
            service("c", "taken.example.com", owner("other")),
            service("d", "own.example.com", owner("web")),
            service("e", "former.example.com", former),
            service("f", "other.example.com", owner("other")),
        ]);
        let messages: Vec<String> =
            failures(&spec, ORY, &cluster).into_iter().map(|(_, message)| message).collect();
        assert_eq!(messages, expected, "{host}");
    }
}

#[test]
fn rules_are_told_apart_by_path_and_method() {
    let rule = |path: &str, methods: &[&str]| json!({"path": path, "methods": methods, "accessStrategies": [{"handler": "allow"}]});
    let duplicate = [(".spec.rules", "multiple rules defined for the same path and method")];
    let cases = [
        ("no rule", json!([]), &[(".spec.rules", "No rules defined")][..]),
        ("other methods", json!([rule("/a", &["GET"]), rule("/a", &["PUT"])]), &[]),
        ("a common method", json!([rule("/a", &["GET", "PUT"]), rule("/a", &["PUT"])]), &duplicate),
        ("no methods", json!([rule("/a", &[]), rule("/a", &[])]), &duplicate),
        ("a method twice in one rule", json!([rule("/a", &["GET", "GET"])]), &[]),
        (
            "a method twice in one of two rules",
            json!([rule("/a", &["GET", "GET"]), rule("/b", &["GET"])]),
            &duplicate,
        ),
    ];
    for (case, rules, expected) in cases {
        let mut spec = spec();
        spec["rules"] = rules;
        check(case, &spec, ORY, expected);
        check(case, &spec, ISTIO, expected);
    }
    let mut null = spec();
    null["rules"] = json!(null);
    check("null", &null, ORY, &[(".spec.rules", "No rules defined")]);
    let mut no_gateway = spec();
    no_gateway["gateway"] = json!(null);
    check("no gateway", &no_gateway, ORY, &[(".spec.gateway", "Gateway was nil")]);
}

#[test]
fn a_rule_without_a_service_is_not_looked_at_further() {
    let mut spec = with(&json!([]));
    spec.as_object_mut().unwrap().remove("service");
    let message = "No service defined with no main service on spec level";
    check("no service", &spec, ORY, &[(".spec.rules[0].service", message)]);
    spec["rules"][0]["service"] = json!({"name": "web", "port": 80});
    let message = "No accessStrategies defined";
    check("no strategies", &spec, ISTIO, &[(".spec.rules[0].accessStrategies", message)]);
}

#[test]
fn some_strategies_stand_alone() {
    let names = |names: &[&str]| -> Value {
        with(&names.iter().map(|name| json!({"handler": name})).collect())
    };
    let alone = |name: &str, index: usize| {
        (
            format!(".spec.rules[0].accessStrategies.accessStrategies[{index}].handler"),
            format!(
                "{name} access strategy is not allowed in combination with other access strategies"
            ),
        )
    };
    let mixed = (
        ".spec.rules[0].accessStrategies".to_owned(),
        "Secure access strategies cannot be used in combination with unsecure access strategies"
            .to_owned(),
    );
    let cases = [
        (
            ORY,
            names(&["noop", "no_auth", "allow"]),
            vec![alone("allow", 2), alone("no_auth", 1), alone("noop", 0)],
        ),
        (ORY, names(&["allow", "allow"]), vec![alone("allow", 0)]),
        (ORY, names(&["anonymous", "unauthorized"]), vec![]),
        (ORY, names(&["cookie_session", "oauth2_client_credentials"]), vec![]),
        (ORY, names(&["cookie_session", "unauthorized"]), vec![mixed.clone()]),
        (ORY, names(&["oauth2_introspection", "noop"]), vec![alone("noop", 1), mixed]),
    ];
    for (handler, spec, expected) in cases {
        assert_eq!(failures(&spec, handler, &cluster()), expected, "{spec}");
    }
    let spec = names(&["jwt", "oauth2_introspection"]);
    assert!(failures(&spec, ISTIO, &cluster()).contains(&alone("jwt", 0)));
    assert!(!failures(&spec, ORY, &cluster()).contains(&alone("jwt", 0)));
}

#[test]
fn only_some_strategies_take_a_configuration() {
    let unsupported = ["allow", "no_auth", "noop", "unauthorized", "anonymous", "cookie_session"];
    for name in unsupported {
        let message = format!("strategy: {name} does not support configuration");
        let expected = [(".spec.rules[0].accessStrategies[0].config", message.as_str())];
        let strategies = json!([{"handler": name, "config": {"a": 1}}]);
        check(name, &with(&strategies), ORY, &expected);
        check(name, &with(&strategies), ISTIO, &expected);
    }
    let message = "Unsupported accessStrategy: oauth2";
    let path = format!("{STRATEGY}.handler");
    check("unknown", &with(&json!([{"handler": "oauth2"}])), ORY, &[(&path, message)]);
}

#[test]
fn istio_takes_its_own_configuration_of_tokens() {
    let authentication = json!({"issuer": "https://i", "jwksUri": "https://i/j"});
    let empty = "supplied config cannot be empty";
    let none = "Authentications are required when using JWT access handler";
    let of = |field: &str| {
        let message = format!("Configuration for {field} is not supported with Istio handler");
        (format!("{STRATEGY}.config.{field}"), message)
    };
    let config = |message: &str| (format!("{STRATEGY}.config"), message.to_owned());
    let unreadable = "Can't read json: invalid type: string \"a\", expected a sequence";
    let cases = [
        (json!({"authentications": [authentication]}), vec![]),
        (json!({"authentications": [authentication], "jwks_urls": []}), vec![]),
        (json!({}), vec![config(empty)]),
        (json!(null), vec![config(empty)]),
        (
            json!({"jwks_urls": ["a"], "required_scope": ["b"], "trusted_issuers": ["c"]}),
            vec![
                of("jwks_urls"),
                of("required_scopes"),
                of("trusted_issuers"),
                (STRATEGY.to_owned(), none.to_owned()),
            ],
        ),
        (
            json!({"authentications": "a"}),
            vec![
                config(unreadable),
                (".spec.rules[0].accessStrategy[0]".to_owned(), unreadable.to_owned()),
            ],
        ),
        (json!({"authentications": [authentication], "jwks_urls": "a"}), vec![config(unreadable)]),
    ];
    for (value, expected) in cases {
        assert_eq!(failures(&jwt(&value), ISTIO, &cluster()), expected, "{value}");
    }
}

#[test]
fn istio_takes_issuers_and_addresses_that_are_uris() {
    let path = |field: &str| format!("{STRATEGY}.config.authentications[0].{field}");
    let cases = [
        ("name", "/j", None),
        ("a:b:", "/j", None),
        ("", "/j", Some(("issuer", "value is empty"))),
        (":", "/j", Some(("issuer", "parse \":\": missing protocol scheme"))),
        ("i", "", Some(("jwksUri", "value is empty"))),
        ("i", "j", Some(("jwksUri", "parse \"j\": invalid URI for request"))),
    ];
    for (issuer, jwks_uri, expected) in cases {
        let spec = jwt(&json!({"authentications": [{"issuer": issuer, "jwksUri": jwks_uri}]}));
        let expected: Vec<(String, String)> = expected
            .into_iter()
            .map(|(field, error)| {
                (path(field), format!("value is empty or not a valid uri err={error}"))
            })
            .collect();
        assert_eq!(failures(&spec, ISTIO, &cluster()), expected, "{issuer} {jwks_uri}");
    }
}

#[test]
fn istio_takes_a_token_from_one_place() {
    let path = format!("{STRATEGY}.config.authentications");
    let mixed = "mixture of multiple fromHeaders and fromParams is not supported";
    let (headers, params) = (json!([{"name": "a"}]), json!(["p"]));
    let two = (json!([{"name": "a"}, {"name": "b"}]), json!(["p", "q"]));
    let authentication = |name: &str, headers: &Value, params: &Value| json!({"issuer": name, "jwksUri": "/j", "fromHeaders": headers, "fromParams": params});
    let none = json!([]);
    let cases = [
        (
            json!([authentication("a", &headers, &none), authentication("b", &headers, &none)]),
            vec![],
        ),
        (
            json!([authentication("a", &headers, &none), authentication("b", &none, &params)]),
            vec![(format!("{path}[1].fromParams"), mixed)],
        ),
        (
            json!([authentication("a", &none, &params), authentication("b", &headers, &none)]),
            vec![(format!("{path}[1].fromHeaders"), mixed)],
        ),
        (
            json!([authentication("a", &two.0, &two.1)]),
            vec![
                (format!("{path}[0].fromParams"), mixed),
                (format!("{path}[0].fromHeaders"), "multiple fromHeaders are not supported"),
                (format!("{path}[0].fromParams"), "multiple fromParams are not supported"),
            ],
        ),
    ];
    for (authentications, expected) in cases {
        let spec = jwt(&json!({"authentications": authentications}));
        let expected: Vec<(String, String)> =
            expected.into_iter().map(|(path, message)| (path, message.to_owned())).collect();
        assert_eq!(failures(&spec, ISTIO, &cluster()), expected, "{authentications}");
    }
}

#[test]
fn istio_demands_that_authorizations_say_something() {
    let path = format!("{STRATEGY}.config.authorizations");
    let cases = [
        (json!(null), vec![]),
        (json!([{}]), vec![]),
        (json!([]), vec![(path.clone(), "value is empty")]),
        (json!([null]), vec![(format!("{path}[0]"), "authorization is empty")]),
        (
            json!([{"requiredScopes": [], "audiences": []}]),
            vec![
                (format!("{path}[0].requiredScopes"), "value is empty"),
                (format!("{path}[0].audiences"), "value is empty"),
            ],
        ),
        (
            json!([{}, {"requiredScopes": ["", ""], "audiences": ["a", ""]}]),
            vec![
                (format!("{path}[1].requiredScopes"), "scope value is empty"),
                (format!("{path}[1].audiences"), "audience value is empty"),
            ],
        ),
    ];
    for (authorizations, expected) in cases {
        let spec = jwt(&json!({
            "authentications": [{"issuer": "i", "jwksUri": "/j"}], "authorizations": authorizations,
        }));
        let expected: Vec<(String, String)> =
            expected.into_iter().map(|(path, message)| (path, message.to_owned())).collect();
        assert_eq!(failures(&spec, ISTIO, &cluster()), expected, "{authorizations}");
    }
}

#[test]
fn ory_takes_its_own_configuration_of_tokens() {
    let config = format!("{STRATEGY}.config");
    let istio = format!("{config}.authentications");
    let message = "Configuration for authentications is not supported with Ory handler";
    let unreadable = "Can't read json: invalid type: integer `1`, expected a sequence";
    let cases = [
        ("no fields of its own", json!({"more": 1}), vec![]),
        ("fine", json!({"trusted_issuers": ["https://i"], "jwks_urls": ["/j"]}), vec![]),
        ("empty", json!({}), vec![(config.as_str(), "supplied config cannot be empty")]),
        (
            "Istio's",
            json!({"authentications": [{}], "trusted_issuers": []}),
            vec![(istio.as_str(), message)],
        ),
        ("only Istio's authorizations", json!({"authorizations": [{}]}), vec![]),
        ("another shape", json!({"jwks_urls": 1}), vec![(config.as_str(), unreadable)]),
        (
            "another shape of what Istio takes",
            json!({"authentications": 1}),
            vec![(config.as_str(), unreadable)],
        ),
    ];
    for (case, value, expected) in cases {
        check(case, &jwt(&value), ORY, &expected);
    }
}

#[test]
fn istio_guards_only_workloads_with_a_sidecar() {
    let path = format!("{STRATEGY}.injection");
    let no_labels = format!("{path}.injection");
    let config = json!({"authentications": [{"issuer": "i", "jwksUri": "/j"}]});
    let pod = "Pod shop/bare does not have an injected istio sidecar";
    let cases = [
        ("web", vec![]),
        ("none", vec![(no_labels.as_str(), "Target service label selectors are not defined")]),
        ("bare", vec![(path.as_str(), pod)]),
        // The original looks at all Pods of the namespace, and tells of `bare`.
        ("missing", vec![]),
    ];
    for (name, expected) in cases {
        let mut spec = jwt(&config);
        spec["rules"][0]["service"] = json!({"name": name, "port": 80});
        check(name, &spec, ISTIO, &expected);
    }
    let mut noop = spec();
    noop["service"]["name"] = "bare".into();
    check("no token is demanded", &noop, ISTIO, &[]);
    let rule = |spec: &Value| failures(spec, ISTIO, &cluster().unavailable("VirtualService"));
    assert!(std::panic::catch_unwind(|| rule(&spec())).is_err(), "a read has no answer");
}

#[test]
fn istio_takes_two_mutators_for_tokens() {
    let config = json!({"authentications": [{"issuer": "i", "jwksUri": "/j"}]});
    let path = ".spec.rules[0].mutators[0].handler";
    let of_config = format!("{path}.config");
    let unreadable = "Can't read json: invalid type: string \"a\", expected a map";
    let cases = [
        (json!({"handler": ""}), vec![(path, "mutator handler cannot be empty")]),
        (json!({"handler": "id_token"}), vec![(path, "unsupported mutator: id_token")]),
        (json!({"handler": "header"}), vec![(of_config.as_str(), "headers cannot be empty")]),
        (
            json!({"handler": "cookie", "config": {"cookies": {}}}),
            vec![(of_config.as_str(), "cookies cannot be empty")],
        ),
        (
            json!({"handler": "cookie", "config": {"cookies": "a"}}),
            vec![(of_config.as_str(), unreadable)],
        ),
        (
            json!({"handler": "cookie", "config": {"cookies": {"": "a"}}}),
            vec![(".spec.rules[0].mutators[0].handler.config.cookies.name", "cannot be empty")],
        ),
        (json!({"handler": "header", "config": {"headers": {"a": ""}}}), vec![]),
    ];
    for (mutator, expected) in cases {
        let mut spec = jwt(&config);
        spec["rules"][0]["mutators"] = json!([mutator]);
        check(&mutator.to_string(), &spec, ISTIO, &expected);
        spec["rules"][0]["accessStrategies"] = json!([{"handler": "noop"}]);
        check(&mutator.to_string(), &spec, ISTIO, &[]);
        check(&mutator.to_string(), &spec, ORY, &[]);
    }
}

#[test]
fn an_issuer_has_one_configuration() {
    let rule = |path: &str, strategies: Value| json!({"path": path, "methods": ["GET"], "accessStrategies": strategies});
    let one = json!({"issuer": "i", "jwksUri": "/j"});
    let other = json!({"issuer": "i", "jwksUri": "/j", "fromParams": ["p"]});
    let strategy = |handler: &str, authentications: Value| json!({"handler": handler, "config": {"authentications": authentications}});
    let mut spec = spec();
    // Also in a configuration that has no use for it.
    spec["rules"] = json!([
        rule("/a", json!([strategy("jwt", json!([one]))])),
        rule("/b", json!([strategy("oauth2_introspection", json!([one, other]))])),
        rule("/c", json!([strategy("jwt", json!([one]))])),
    ]);
    let expected = [(
        ".spec.rules[1].accessStrategy[0].config.authentications[1]",
        "multiple jwt configurations that differ for the same issuer",
    )];
    check("differing", &spec, ISTIO, &expected);
}
