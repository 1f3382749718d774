use serde_json::json;

use super::*;
use crate::annotation::{V1BETA1_SPEC, V2ALPHA1_RULES, V2ALPHA1_SPEC};

fn object(version: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": format!("gateway.kyma-project.io/{version}"), "kind": "APIRule",
        "metadata": {"name": "web", "namespace": "shop", "uid": "u"},
        "spec": spec,
    })
}

fn annotated_with(mut object: Value, annotations: Value) -> Value {
    object["metadata"]["annotations"] = annotations;
    object
}

fn old_spec() -> Value {
    json!({
        "host": "web", "gateway": "gw.edge", "service": {"name": "web", "port": 80},
        "rules": [{"path": "/a", "methods": ["GET"], "accessStrategies": [{"handler": "no_auth"}]}],
    })
}

fn new_spec() -> Value {
    json!({
        "hosts": ["web"], "gateway": "edge/gw", "service": {"name": "web", "port": 80},
        "rules": [{"path": "/a", "methods": ["GET"], "noAuth": true}],
    })
}

/// Returns v1beta1's spec with one rule, of this path and strategies.
fn with_rule(path: &str, strategies: Value) -> Value {
    let mut spec = old_spec();
    spec["rules"][0]["path"] = path.into();
    spec["rules"][0]["accessStrategies"] = strategies;
    spec
}

fn stored(spec: &Value) -> Value {
    convert(&object(V1BETA1, spec), V2ALPHA1).unwrap()
}

#[test]
fn other_objects_and_versions_are_refused() {
    let cases = [
        (json!({}), V2, "an object of apiVersion `` and kind ``: only `APIRule` of"),
        (
            json!({"apiVersion": "v1", "kind": "Service"}),
            V2,
            "an object of apiVersion `v1` and kind `Service`",
        ),
        (object("v3", &json!({})), V2, "version `v3` of `APIRule` is unknown: there are v1beta1"),
        (object(V2, &json!({})), "v3", "version `v3` of `APIRule` is unknown"),
        (
            object(V1BETA1, &json!({"rules": "none"})),
            V2,
            "`APIRule shop/web`: spec: invalid type: string",
        ),
        (
            object(V1BETA1, &json!({"host": "a", "corsPolicy": {"maxAge": "1 day"}})),
            V2,
            "spec.corsPolicy.maxAge: time: unknown unit \" day\" in duration \"1 day\"",
        ),
        (annotated_with(object(V2, &json!({})), json!("none")), V1BETA1, "metadata.annotations"),
    ];
    for (object, to, expected) in cases {
        let error = convert(&object, to).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_write_in_v2_makes_an_object_one_of_v2() {
    let none = json!({});
    let cases = [
        ("first", none.clone(), new_spec(), "v2"),
        ("of v1beta1", json!({ORIGINAL_VERSION: "v1beta1"}), new_spec(), "v2"),
        ("of v1beta1, without rules", json!({ORIGINAL_VERSION: "v1beta1"}), none, "v1beta1"),
        ("of v2alpha1", json!({ORIGINAL_VERSION: "v2alpha1"}), new_spec(), "v2alpha1"),
    ];
    for (case, annotations, spec, expected) in cases {
        let written = annotated_with(object(V2, &spec), annotations);
        let stored = convert(&written, V2ALPHA1).unwrap();
        assert_eq!(annotation_of(&stored, ORIGINAL_VERSION), Some(expected), "{case}");
    }
}

#[test]
fn what_is_empty_in_v2_is_dropped() {
    let jwt = json!({"authentications": [{"issuer": "i", "fromHeaders": [], "fromParams": null}]});
    let mut spec = new_spec();
    spec["corsPolicy"] = json!({"allowOrigins": [], "allowCredentials": false});
    spec["rules"][0] = json!({
        "path": "/a", "methods": [], "request": {"cookies": {}, "headers": {"a": ""}},
        "extAuth": {"authorizers": [], "restrictions": {"authorizations": []}},
        "jwt": {"authorizations": [{"requiredScopes": [], "audiences": [""]}, {}, null]},
    });
    spec["rules"].as_array_mut().unwrap().push(json!({"jwt": jwt}));
    let stored = convert(&object(V2, &spec), V2ALPHA1).unwrap();
    let expected = json!([
        {
            "path": "/a", "methods": [], "request": {"headers": {"a": ""}},
            "extAuth": {"authorizers": [], "restrictions": {}},
            "jwt": {"authorizations": [{"audiences": [""]}, {}, null]},
        },
        {"jwt": {"authentications": [{"issuer": "i"}]}},
    ]);
    assert_eq!(stored["spec"]["rules"], expected);
    assert_eq!(stored["spec"]["corsPolicy"], json!({"allowCredentials": false}));
}

#[test]
fn a_spec_of_v1beta1_is_kept_as_the_original_writes_it() {
    let mut spec = with_rule("/a&b", json!([{"handler": "noop", "config": {"z": "<", "a": 1}}]));
    spec["corsPolicy"] = json!({"maxAge": "90s", "allowOrigins": []});
    spec["timeout"] = 10.into();
    spec["unknown"] = "dropped".into();
    spec["rules"][0]["timeout"] = 20.into();
    spec["rules"][0]["service"] =
        json!({"port": 1, "namespace": "n", "external": true, "name": "b"});
    let expected = concat!(
        r#"{"host":"web","service":{"name":"web","port":80},"gateway":"gw.edge","#,
        r#""corsPolicy":{"maxAge":"1m30s"},"rules":[{"path":"/a\u0026b","#,
        r#""service":{"name":"b","namespace":"n","port":1,"external":true},"methods":["GET"],"#,
        r#""accessStrategies":[{"handler":"noop","config":{"a":1,"z":"\u003c"}}],"timeout":20}],"#,
        r#""timeout":10}"#,
    );
    assert_eq!(annotation_of(&stored(&spec), V1BETA1_SPEC), Some(expected));
    let empty = object(V1BETA1, &json!({}));
    let empty = convert(&empty, V2ALPHA1).unwrap();
    let expected = r#"{"host":null,"gateway":null,"rules":null}"#;
    assert_eq!(annotation_of(&empty, V1BETA1_SPEC), Some(expected));
}

#[test]
fn a_spec_that_is_the_same_keeps_its_annotation_word_for_word() {
    let text = format!(" {}", old_spec());
    let former = json!({ORIGINAL_VERSION: "v1beta1", V1BETA1_SPEC: text});
    let same = annotated_with(object(V1BETA1, &old_spec()), former.clone());
    assert_eq!(convert(&same, V2ALPHA1).unwrap()["metadata"]["annotations"], former);
    let other = annotated_with(object(V1BETA1, &with_rule("/b", json!([]))), former.clone());
    assert_ne!(convert(&other, V2ALPHA1).unwrap()["metadata"]["annotations"], former);
    let mut missing = annotated_with(object(V1BETA1, &json!(null)), former.clone());
    assert_eq!(convert(&missing, V2ALPHA1).unwrap()["metadata"]["annotations"], former);
    missing.as_object_mut().unwrap().remove("spec");
    assert_eq!(convert(&missing, V2ALPHA1).unwrap()["metadata"]["annotations"], former);
}

#[test]
fn rules_are_converted_if_all_of_them_can_be() {
    let issuer = json!({"issuer": "i", "jwksUri": "j"});
    let jwt = |config: Value| json!([{"handler": "jwt", "config": config}]);
    let ory =
        |issuers: Value, urls: Value| jwt(json!({"trusted_issuers": issuers, "jwks_urls": urls}));
    let ory_jwt = json!({"authentications": [issuer], "authorizations": [{}]});
    let mut scoped = ory(json!(["i"]), json!(["j"]));
    scoped[0]["config"]["required_scope"] = json!(["s"]);
    scoped[0]["config"]["target_audience"] = json!(["t"]);
    let mut scoped_jwt = ory_jwt.clone();
    scoped_jwt["authorizations"] = json!([{"requiredScopes": ["s"], "audiences": ["t"]}]);
    let cases = [
        ("no_auth", "/{*}", json!([{"handler": "no_auth"}]), Some(json!({"noAuth": true}))),
        (
            "Istio's jwt",
            "/*",
            jwt(json!({"authentications": [issuer], "more": 1})),
            Some(json!({"jwt": {"authentications": [issuer]}})),
        ),
        (
            "only authorizations",
            "/a",
            jwt(json!({"authorizations": [{"audiences": ["t"]}]})),
            Some(json!({"jwt": {"authorizations": [{"audiences": ["t"]}]}})),
        ),
        ("Ory's jwt", "/a", ory(json!(["i"]), json!(["j"])), Some(json!({"jwt": ory_jwt}))),
        ("Ory's jwt with scopes", "/a", scoped, Some(json!({"jwt": scoped_jwt}))),
        ("two issuers", "/a", ory(json!(["i", "k"]), json!(["j"])), None),
        ("no address of keys", "/a", ory(json!(["i"]), json!([])), None),
        ("no configuration", "/a", json!([{"handler": "jwt"}]), None),
        ("a configuration of another shape", "/a", jwt(json!({"authentications": "a"})), None),
        ("allow", "/a", json!([{"handler": "allow"}]), None),
        ("a regular expression", "/.*", json!([{"handler": "no_auth"}]), None),
    ];
    for (case, path, strategies, expected) in cases {
        let stored = stored(&with_rule(path, strategies));
        let expected = expected.map(|mut rule| {
            rule["path"] = path.into();
            rule["methods"] = json!(["GET"]);
            json!([rule])
        });
        assert_eq!(stored["spec"].get("rules"), expected.as_ref(), "{case}");
        assert_eq!(stored["spec"]["gateway"], "edge/gw", "{case}");
        assert_eq!(stored["spec"]["hosts"], json!(["web"]), "{case}");
    }
    let mut one_of_two = old_spec();
    let other = json!({"path": "/.*", "methods": ["GET"], "accessStrategies": []});
    one_of_two["rules"].as_array_mut().unwrap().push(other);
    assert_eq!(stored(&one_of_two)["spec"].get("rules"), None);
}

#[test]
fn mutators_become_changes_of_the_request() {
    let cases = [
        (json!(null), None),
        (json!([]), None),
        (json!([{"handler": "id_token"}]), Some(json!({}))),
        // The original crashes on these two.
        (json!([{"handler": "header"}]), Some(json!({}))),
        (json!([{"handler": "cookie", "config": {"cookies": 1}}]), Some(json!({}))),
        (
            json!([
                {"handler": "header", "config": {"headers": {"a": "1"}}},
                {"handler": "cookie", "config": {"cookies": {"c": "2"}}},
            ]),
            Some(json!({"headers": {"a": "1"}, "cookies": {"c": "2"}})),
        ),
    ];
    for (mutators, expected) in cases {
        let mut spec = old_spec();
        spec["rules"][0]["mutators"] = mutators.clone();
        let stored = stored(&spec);
        assert_eq!(stored["spec"]["rules"][0].get("request"), expected.as_ref(), "{mutators}");
    }
}

#[test]
fn rules_in_an_annotation_come_before_those_that_are_converted() {
    let rules = json!([{"path": "/b", "methods": ["GET"], "extAuth": {"authorizers": ["x"]}}]);
    let written = |version: &str, rules: &str| {
        let annotations = json!({ORIGINAL_VERSION: version, V2ALPHA1_RULES: rules});
        convert(&annotated_with(object(V1BETA1, &old_spec()), annotations), V2ALPHA1).unwrap()
    };
    let of_v2 = written("v2", &rules.to_string());
    assert_eq!(of_v2["spec"]["rules"], rules);
    assert_eq!(annotation_of(&of_v2, V1BETA1_SPEC), None);
    assert_eq!(written("v1beta1", &rules.to_string())["spec"]["rules"][0]["path"], "/a");
    assert_eq!(written("v2", "no rules")["spec"]["rules"][0]["path"], "/a");
}

#[test]
fn a_status_has_one_code_for_each_state() {
    let cases = [
        ("Ready", Some("OK"), Some("Ready")),
        ("Error", Some("ERROR"), Some("Error")),
        ("Warning", Some("WARNING"), Some("Warning")),
        ("Deleting", Some("OK"), Some("Ready")),
        ("Processing", None, None),
    ];
    for (state, code, back) in cases {
        let mut stored = object(V2ALPHA1, &new_spec());
        stored["status"] = json!({"state": state, "description": "d", "lastProcessedTime": "t"});
        let old = convert(&stored, V1BETA1).unwrap();
        let part = &old["status"]["APIRuleStatus"];
        assert_eq!(part.get("code").and_then(Value::as_str), code, "{state}");
        assert_eq!(
            (&part["desc"], &old["status"]["lastProcessedTime"]),
            (&json!("d"), &json!("t"))
        );
        let again = convert(&old, V2ALPHA1).unwrap();
        assert_eq!(again.pointer("/status/state").and_then(Value::as_str), back, "{state}");
    }
    let mut old = object(V1BETA1, &old_spec());
    old["status"] =
        json!({"APIRuleStatus": {"code": "SKIPPED"}, "virtualServiceStatus": {"code": "OK"}});
    assert_eq!(convert(&old, V2).unwrap()["status"], json!({"state": "Warning"}));
    old["status"] = json!({"APIRuleStatus": {"code": "OTHER"}});
    assert_eq!(convert(&old, V2).unwrap().get("status"), None);
}

#[test]
fn an_object_of_v1beta1_without_a_gateway_is_filled_in() {
    let mut spec = old_spec();
    spec["gateway"] = "a_b.c_d".into();
    spec["timeout"] = 5.into();
    spec["corsPolicy"] = json!({"maxAge": "1m"});
    let mut stored = stored(&spec);
    stored["spec"] = json!({"corsPolicy": {}});
    let filled = convert(&stored, V2).unwrap();
    let expected = json!({
        "hosts": ["web"], "service": {"name": "web", "port": 80}, "timeout": 5, "corsPolicy": {"maxAge": 60},
    });
    assert_eq!(filled["spec"], expected);
    stored["spec"] = json!({});
    assert_eq!(convert(&stored, V2).unwrap()["spec"].get("corsPolicy"), None);
    stored["metadata"]["annotations"][ORIGINAL_VERSION] = "v2".into();
    assert_eq!(convert(&stored, V2).unwrap()["spec"], json!({}));
}

#[test]
fn nothing_is_lost_on_the_way_to_another_version_and_back() {
    let v1beta1 = stored(&old_spec());
    let regex = stored(&with_rule("/.*", json!([{"handler": "noop"}])));
    let v2 = convert(&object(V2, &new_spec()), V2ALPHA1).unwrap();
    let v2alpha1 =
        annotated_with(object(V2ALPHA1, &new_spec()), json!({ORIGINAL_VERSION: "v2alpha1"}));
    let broken = annotated_with(
        object(V2ALPHA1, &new_spec()),
        json!({ORIGINAL_VERSION: "v1beta1", V1BETA1_SPEC: "broken"}),
    );
    let bare = json!({"apiVersion": "gateway.kyma-project.io/v2alpha1", "kind": "APIRule"});
    let bare = annotated_with(bare, json!({ORIGINAL_VERSION: "v2"}));
    let mut ready = v2.clone();
    ready["status"] = json!({"state": "Ready", "description": "d", "lastProcessedTime": "t"});
    for object in [v1beta1, regex, v2, v2alpha1, broken, bare, ready] {
        for version in VERSIONS {
            let there = convert(&object, version).unwrap();
            let mut back = convert(&there, V2ALPHA1).unwrap();
            // A write in v2 makes the object one of v2.
            if version == V2 && object.pointer("/spec/rules").is_some() {
                assert_ne!(annotation_of(&back, ORIGINAL_VERSION), Some(V1BETA1));
                let former = annotation_of(&object, ORIGINAL_VERSION);
                set_annotation(&mut back, ORIGINAL_VERSION, former).unwrap();
            }
            assert_eq!(back, object, "by {version}: {there:#}");
        }
    }
}

#[test]
fn an_object_of_v2_takes_its_spec_along() {
    let stored = annotated_with(object(V2ALPHA1, &new_spec()), json!({ORIGINAL_VERSION: "v2"}));
    let mut old = convert(&stored, V1BETA1).unwrap();
    assert_eq!(old.get("spec"), None);
    assert_eq!(annotation_of(&old, V2ALPHA1_SPEC), Some(new_spec().to_string().as_str()));
    // Somebody writes a spec in v1beta1 instead.
    old["spec"] = old_spec();
    old["spec"]["host"] = "other".into();
    let stored = convert(&old, V2ALPHA1).unwrap();
    assert_eq!(stored["spec"]["hosts"], json!(["other"]));
    assert_eq!(stored["metadata"]["annotations"], json!({ORIGINAL_VERSION: "v2"}));
}

#[test]
fn parts_of_objects_are_converted() {
    let whole =
        [object(V1BETA1, &old_spec()), object(V2, &new_spec()), object(V2ALPHA1, &new_spec())];
    for object in whole {
        let parts: Vec<String> = ["/metadata", "/spec"]
            .into_iter()
            .flat_map(|parent| {
                let keys = object.pointer(parent).unwrap().as_object().unwrap().keys();
                keys.map(move |key| format!("{parent}/{key}")).chain([parent.to_owned()])
            })
            .collect();
        for part in parts {
            let (parent, key) = part.rsplit_once('/').unwrap();
            let mut partial = object.clone();
            partial.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(key);
            for version in VERSIONS {
                convert(&partial, version)
                    .unwrap_or_else(|error| panic!("without {part}: {error}"));
            }
        }
    }
}
