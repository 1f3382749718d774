//! The objects that are made for APIRules in v1beta1.

use super::*;
use crate::{config::Handler, v1beta1::changes_unchecked};

#[test]
fn the_route_follows_the_handler_and_the_strategies() {
    let oathkeeper = "ory-oathkeeper-proxy.kyma-system.svc.cluster.local";
    let web = "web.shop.svc.cluster.local";
    let (get, prefix) = (json!({"regex": "^(GET)$"}), json!({"prefix": "/"}));
    let regex = |path: &str| json!({"regex": path});
    let strategy = |name: &str| json!([{"handler": name}]);
    let cases = [
        ("istio", rule("/*", &noop()), oathkeeper, Some(&get), prefix.clone()),
        ("istio", rule("/.*", &strategy("allow")), web, None, regex("/.*")),
        ("istio", rule("/a", &strategy("no_auth")), web, Some(&get), regex("/a")),
        ("istio", rule("/a", &json!([jwt()])), web, Some(&get), regex("/a")),
        ("istio", rule("/a", &strategy("cookie_session")), oathkeeper, Some(&get), regex("/a")),
        ("ory", rule("/*", &noop()), oathkeeper, None, regex("/*")),
        ("ory", rule("/a", &strategy("allow")), web, None, regex("/a")),
        ("ory", rule("/a", &strategy("no_auth")), web, Some(&get), regex("/a")),
        ("ory", rule("/a", &strategy("oauth2_introspection")), oathkeeper, None, regex("/a")),
    ];
    for (handler, rule, host, method, uri) in cases {
        let outcome = run(&object(&spec(std::slice::from_ref(&rule))), &cluster(handler)).unwrap();
        let objects = applied(&outcome);
        let route = &of_kind(&objects, "VirtualService")[0]["spec"]["http"][0];
        assert_eq!(route["route"][0]["destination"]["host"], host, "{handler} {rule}");
        assert_eq!(route["match"][0].get("method"), method, "{handler} {rule}");
        assert_eq!(route["match"][0]["uri"], uri, "{handler} {rule}");
    }
}

#[test]
fn the_route_has_one_entry_for_each_path() {
    let mut second = rule("/a", &json!([{"handler": "allow"}]));
    second["methods"] = json!(["PUT"]);
    let rules = [rule("/a", &noop()), second.clone(), rule("/b", &noop())];
    let outcome = run(&object(&spec(&rules)), &cluster("ory")).unwrap();
    let objects = applied(&outcome);
    let service = &of_kind(&objects, "VirtualService")[0]["spec"];
    assert_eq!(service["gateways"], json!(["gw.edge.svc.cluster.local"]));
    let paths: Vec<&Value> = service["http"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["match"][0]["uri"]["regex"])
        .collect();
    assert_eq!(paths, ["/a", "/b"]);
    // Rules of Oathkeeper are made for all of them.
    second["accessStrategies"] = noop();
    let rules = [rule("/a", &noop()), second];
    let outcome = run(&object(&spec(&rules)), &cluster("ory")).unwrap();
    assert_eq!(of_kind(&applied(&outcome), "Rule").len(), 2);
}

#[test]
fn mutators_of_rules_with_tokens_are_carried_out_by_istio() {
    let mut of = rule("/a", &json!([jwt()]));
    of["mutators"] = json!([
        {"handler": "header", "config": {"headers": {"x-forwarded-host": "other", "a": "1"}}},
        {"handler": "cookie", "config": {"cookies": {"b": "2", "a": "1"}}},
    ]);
    let outcome = run(&object(&spec(&[of])), &cluster("istio")).unwrap();
    let objects = applied(&outcome);
    let set =
        &of_kind(&objects, "VirtualService")[0]["spec"]["http"][0]["headers"]["request"]["set"];
    let expected = json!({"Cookie": "a=1; b=2", "a": "1", "x-forwarded-host": "other"});
    assert_eq!(*set, expected);
}

#[test]
fn cors_has_a_default_and_keeps_parts_of_a_second() {
    let cases = [
        (
            json!(null),
            Some(json!({
                "allowHeaders": ["Authorization", "Content-Type", "*"],
                "allowMethods": ["GET", "POST", "PUT", "DELETE", "PATCH"],
                "allowOrigins": [{"regex": ".*"}],
            })),
            0,
        ),
        (json!({"allowMethods": ["GET"]}), None, 6),
        (
            json!({"allowOrigins": [{"exact": "a", "other": "b"}], "maxAge": "1m30.7s", "allowCredentials": false}),
            Some(json!({
                "allowCredentials": false, "allowOrigins": [{"exact": "a"}, {"prefix": "b"}], "maxAge": "90.700s",
            })),
            6,
        ),
    ];
    for (policy, expected, removed) in cases {
        let mut spec = spec(&[rule("/a", &noop())]);
        spec["corsPolicy"] = policy.clone();
        let outcome = run(&object(&spec), &cluster("ory")).unwrap();
        let objects = applied(&outcome);
        let route = &of_kind(&objects, "VirtualService")[0]["spec"]["http"][0];
        assert_eq!(route.get("corsPolicy"), expected.as_ref(), "{policy}");
        let remove = route["headers"]["response"].get("remove").and_then(Value::as_array);
        assert_eq!(remove.map_or(0, Vec::len), removed, "{policy}");
    }
    let mut spec = spec(&[rule("/a", &noop())]);
    spec["corsPolicy"] = json!({"maxAge": "soon"});
    let failure = run(&object(&spec), &cluster("ory")).unwrap_err();
    let said = status(failure.status.as_ref()).1;
    assert!(said.ends_with("spec.corsPolicy.maxAge: time: invalid duration \"soon\""), "{said}");
}

#[test]
fn authorizations_are_those_of_the_first_strategy() {
    let mut strategy = jwt();
    strategy["config"]["authorizations"] = json!([{"audiences": ["a"]}, {"audiences": ["b"]}]);
    let second =
        json!({"handler": "oauth2_introspection", "config": {"authorizations": [{}, {}, {}]}});
    // Without a validation that keeps the two apart.
    let rule_of = |strategies: Value| {
        let object = object(&spec(&[rule("/.*", &strategies)]));
        let rule = serde_json::from_value(object).unwrap();
        let host = cluster("istio").host();
        changes_unchecked(&rule, Handler::Istio, &host).unwrap()
    };
    let policies = |strategies: Value| {
        let changes = rule_of(strategies).into_iter().filter_map(|change| match change {
            crate::change::Change::Create(manifest) => {
                Some(serde_json::from_str::<Value>(&manifest.object).unwrap())
            }
            _ => None,
        });
        changes.filter(|object| object["kind"] == "AuthorizationPolicy").collect::<Vec<Value>>()
    };
    let first = policies(json!([strategy, second]));
    assert_eq!(first.len(), 2);
    let operation = &first[0]["spec"]["rules"][0]["to"][0]["operation"];
    assert_eq!(*operation, json!({"methods": ["GET"], "paths": ["/*"]}));
    assert_eq!(
        first[0]["spec"]["rules"][0]["from"],
        json!([{"source": {"requestPrincipals": ["i/*"]}}])
    );
    assert_eq!(policies(json!([second, strategy])).len(), 3);
}

#[test]
fn a_service_without_labels_has_policies_for_its_namespace() {
    let mut spec = spec(&[rule("/a", &json!([{"handler": "no_auth"}]))]);
    spec["service"]["name"] = "all".into();
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "all", "namespace": "shop"},
    });
    let outcome = run(&object(&spec), &cluster("istio").objects([service])).unwrap();
    let objects = applied(&outcome);
    assert_eq!(of_kind(&objects, "AuthorizationPolicy")[0]["spec"].get("selector"), None);
}
