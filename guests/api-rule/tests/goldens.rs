//! The recorded cases of the original operator, mode v2, natively: what is wrong, what changes, and what the status says.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::too_many_lines,
    reason = "all of it is a test"
)]

use std::{env, fs, path::PathBuf};

use api_rule::{
    api::ApiRule,
    change::Change,
    reconcile::{changes_unchecked, reconcile, validate},
};
use mortise_sdk::{
    Object,
    testing::{Stub, request_for},
};
use serde_json::{Map, Value, json};

/// Cases where this processor says something else on purpose: the part of the case, what is expected, and why.
fn wanted_differences() -> Vec<(&'static str, &'static str, Value, &'static str)> {
    let error = |description: &str| json!({"state": "Error", "description": description});
    let ready = json!({"state": "Ready", "description": "Reconciled successfully"});
    let empty = |list: &str| {
        let path = format!(".spec.rules[0].jwt.authorizations[0].{list}");
        error(&format!("Validation errors: Attribute '{path}': value is empty"))
    };
    let short_host = "Lowercase RFC 1123 label (short host) is only supported as the APIRule host when selected Gateway has a single host definition matching *.<fqdn> format";
    let failure = |path: &str, message: &str| json!({"attributePath": format!(".spec.rules[0].{path}"), "message": message});
    let line = |failure: &Value| {
        format!(
            "Attribute '{}': {}",
            failure["attributePath"].as_str().unwrap(),
            failure["message"].as_str().unwrap()
        )
    };
    let two = |one: &Value, other: &Value| {
        error(&format!("Validation errors: {}\n{}", line(one), line(other)))
    };
    let no_authorizations =
        failure("extAuth.authorizations", "authorizations defined, but no configuration exists");
    let no_authentications =
        failure("extAuth.authentications", "A JWT config must have at least one authentication");
    let no_audiences = failure("jwt.authorizations[0].audiences", "value is empty");
    let empty_audience = failure("jwt.authorizations[1].audiences", "audience value is empty");
    vec![
        (
            "v2-broken-kyma-gateway",
            "status",
            ready,
            "a broken Gateway does not stop rules that do not use it",
        ),
        (
            "v2-bad-jwt-empty-scopes",
            "status",
            empty("requiredScopes"),
            "the original loses the empty list",
        ),
        (
            "v2-bad-jwt-empty-audiences",
            "status",
            empty("audiences"),
            "the original loses the empty list",
        ),
        (
            "v2-externalgateway-short-host",
            "status",
            error(&format!("Validation errors: Attribute '.spec.hosts[0]': {short_host}")),
            "the original crashes",
        ),
        (
            "v2-externalgateway-short-host",
            "validation",
            json!([{"attributePath": ".spec.hosts[0]", "message": short_host}]),
            "the original crashes",
        ),
        (
            "v2-bad-extauth-restrictions",
            "validation",
            json!([no_authorizations, no_authentications]),
            "the original loses the empty list",
        ),
        (
            "v2-bad-extauth-restrictions",
            "status",
            two(&no_authorizations, &no_authentications),
            "the original loses the empty list",
        ),
        (
            "v2-bad-jwt-empty-audience-string",
            "validation",
            json!([no_audiences, empty_audience]),
            "the original loses the empty list",
        ),
        (
            "v2-bad-jwt-empty-audience-string",
            "status",
            two(&no_audiences, &empty_audience),
            "the original loses the empty list",
        ),
        (
            "v2-path-special-chars",
            "changes",
            Value::Null,
            "characters of regular expressions in paths are escaped",
        ),
    ]
}

#[test]
fn the_recorded_cases_give_the_same() {
    let mut counts = Map::new();
    let mut differences = Vec::new();
    let mut unused = wanted_differences();
    for (name, input, expected) in cases() {
        let stub = cluster(&input);
        let object = as_stored(&input["object"]);
        let rule: ApiRule = serde_json::from_value(object.clone()).unwrap();
        let failures: Vec<Value> = validate(&rule, &stub.host())
            .unwrap()
            .into_iter()
            .map(|failure| json!({"attributePath": failure.attribute_path, "message": failure.message}))
            .collect();
        let mut parts =
            vec![("validation", Value::from(failures), expected["validationFailures"].clone())];
        if let Some(changes) = expected.get("changes") {
            let ours = changes_unchecked(&rule, &stub.host()).unwrap();
            parts.push(("changes", described(&ours, &input), expected_changes(changes)));
        }
        if let Some(controller) = expected.get("controller") {
            let given = controller["status"].clone();
            let nothing = given == json!({"state": "", "description": ""});
            parts.push((
                "status",
                status(&stub, &object),
                if nothing { Value::Null } else { given },
            ));
        }
        for (part, ours, theirs) in parts {
            let wanted = unused.iter().position(|(case, of, ..)| *case == name && *of == part);
            let theirs = match wanted.map(|index| unused.remove(index)) {
                Some((_, "changes", ..)) => {
                    assert_ne!(ours, theirs, "{name}: no difference any more");
                    ours.clone()
                }
                Some((_, _, wanted, _)) => {
                    assert_ne!(wanted, theirs, "{name}: no difference any more");
                    wanted
                }
                None => theirs,
            };
            let count = counts.entry(part).or_insert_with(|| json!([0, 0]));
            count[1] = (count[1].as_u64().unwrap() + 1).into();
            if ours == theirs {
                count[0] = (count[0].as_u64().unwrap() + 1).into();
            } else {
                differences
                    .push(format!("{name}, {part}\n  expected {theirs:#}\n  got      {ours:#}"));
            }
        }
    }
    println!("equal, of all: {}", Value::from(counts));
    assert!(unused.is_empty(), "differences of cases that are not here: {unused:?}");
    assert!(differences.is_empty(), "{} differ\n{}", differences.len(), differences.join("\n"));
}

fn cases() -> Vec<(String, Value, Value)> {
    let folder = env::var_os("MORTISE_GOLDENS").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens"),
        PathBuf::from,
    );
    let mut cases = Vec::new();
    for entry in fs::read_dir(folder.join("api-gateway")).unwrap() {
        let path = entry.unwrap().path();
        let input: Value =
            serde_saphyr::from_str(&fs::read_to_string(path.join("input.yaml")).unwrap()).unwrap();
        if input["mode"] == "v2" {
            let expected =
                serde_json::from_str(&fs::read_to_string(path.join("expected.json")).unwrap())
                    .unwrap();
            cases.push((path.file_name().unwrap().to_string_lossy().into_owned(), input, expected));
        }
    }
    assert!(!cases.is_empty(), "there are no cases in {}", folder.display());
    cases.sort_by(|a, b| a.0.cmp(&b.0));
    cases
}

/// The cluster of a case, in which every read that was not declared is denied.
fn cluster(input: &Value) -> Stub {
    let config = api_rule::Config::default();
    let description = <api_rule::ApiRules as mortise_sdk::Processor>::describe(&config).unwrap();
    let mut stub = Stub::new()
        .declared(description)
        .objects(input["cluster"].as_array().cloned().unwrap_or_default());
    for crd in input["missingCRDs"].as_array().into_iter().flatten() {
        let (plural, group) = crd.as_str().unwrap().split_once('.').unwrap();
        let kinds = [
            ("virtualservices", "VirtualService"),
            ("authorizationpolicies", "AuthorizationPolicy"),
            ("requestauthentications", "RequestAuthentication"),
            ("gateways", "Gateway"),
            ("rules", "Rule"),
        ];
        let kind = kinds.iter().find(|(other, _)| *other == plural).unwrap().1;
        stub = stub.without_kind(group, kind);
    }
    if let Some(handler) = input["jwtHandler"].as_str().filter(|handler| !handler.is_empty()) {
        stub.set(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "api-gateway-config", "namespace": "kyma-system"},
            "data": {"api-gateway-config": format!("jwtHandler: {handler}")},
        }));
    }
    stub
}

fn as_stored(object: &Value) -> Value {
    let mut object = object.clone();
    object["apiVersion"] = ApiRule::kind().api_version().into();
    object["metadata"]["finalizers"] = json!(["gateway.kyma-project.io/subresources"]);
    object
}

fn status(stub: &Stub, object: &Value) -> Value {
    let status = match reconcile(&request_for(object), &stub.host()) {
        Ok(outcome) => outcome.status,
        Err(failure) => failure.status,
    };
    let Some(status) = status else { return Value::Null };
    let mut status = serde_json::from_str::<Value>(&status).unwrap()["status"].take();
    assert!(status.as_object_mut().unwrap().remove("lastProcessedTime").is_some());
    status
}

fn sorted(mut changes: Vec<Value>) -> Value {
    changes.sort_by_key(ToString::to_string);
    changes.into()
}

fn expected_changes(changes: &Value) -> Value {
    let mut changes = changes.as_array().unwrap().clone();
    for change in &mut changes {
        change["object"]["metadata"].as_object_mut().unwrap().remove("generateName");
        if change["action"] == "delete" {
            let object = &change["object"];
            change["object"] = json!({"kind": object["kind"], "name": object["metadata"]["name"]});
        }
    }
    sorted(changes)
}

fn described(changes: &[Change], input: &Value) -> Value {
    let describe = |change: &Change| match change {
        Change::Create(manifest) => {
            assert!(manifest.absent.is_empty());
            let mut object: Value = serde_json::from_str(&manifest.object).unwrap();
            object["metadata"].as_object_mut().unwrap().remove("name");
            json!({"action": "create", "object": object})
        }
        Change::Update(manifest) => {
            let object: Value = serde_json::from_str(&manifest.object).unwrap();
            let mut updated = existing(input, &object).clone();
            for path in &manifest.absent {
                remove(&mut updated, path);
            }
            merge(&mut updated, object);
            json!({"action": "update", "object": updated})
        }
        Change::Delete { reference, .. } => {
            json!({"action": "delete", "object": {"kind": reference.kind.kind, "name": reference.name}})
        }
    };
    sorted(changes.iter().map(describe).collect())
}

fn existing<'a>(input: &'a Value, object: &Value) -> &'a Value {
    let same = |other: &&Value| {
        other["kind"] == object["kind"]
            && other["metadata"]["name"] == object["metadata"]["name"]
            && other["metadata"]["namespace"] == object["metadata"]["namespace"]
    };
    input["cluster"].as_array().unwrap().iter().find(same).unwrap()
}

fn remove(object: &mut Value, path: &str) {
    let (parent, key) = match path.strip_suffix("\"]") {
        Some(path) => path.rsplit_once("[\"").unwrap(),
        None => path.rsplit_once('.').unwrap(),
    };
    let parent = object.pointer_mut(&format!("/{}", parent.replace('.', "/"))).unwrap();
    assert!(parent.as_object_mut().unwrap().remove(key).is_some(), "{path}");
}

fn merge(object: &mut Value, other: Value) {
    match (object, other) {
        (Value::Object(object), Value::Object(other)) => {
            for (key, value) in other {
                merge(object.entry(key).or_insert(Value::Null), value);
            }
        }
        (object, other) => *object = other,
    }
}
