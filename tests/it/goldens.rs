//! Recorded cases of the original systems, compared with ours.
//!
//! The three parts of an APIRule's case were recorded separately. Status and requeue are compared
//! with those of the real component, with objects loaded without validation. The changes are the
//! component's too if that status is Ready, else those of the guest's own function. The validation
//! failures are compared with those of the guest's own function.

mod gateway;
mod istio;

use std::{collections::BTreeSet, path::Path};

use api_rule::{api::ApiRule, change::Change};
use mortise::commands::simulate::{End, Input, simulate};
use mortise_sdk::testing::{Stub, request_for};
use mortise_tests::{
    definitions,
    goldens::{self, Case, Tally, sorted, without_nulls},
    loaded,
};
use serde_json::{Map, Value, json};

/// The mode of the cases that `api-rule` covers.
const V2: &str = "v2";
/// The original that `api-rule` replaces.
const ORIGINAL: &str = "api-gateway";
/// The original whose cases are in groups, which have tests of their own.
const IN_GROUPS: &str = "istio";
/// The folder of cases for the embedded API's own tests.
const SCENARIOS: &str = "kubernetes-api";
const GUEST: &str = "guests/api-rule";
const NOW: &str = "2026-01-01T00:00:00Z";
const FINALIZER: &str = "gateway.kyma-project.io/subresources";

#[tokio::test]
async fn api_rules_are_as_the_original_left_them() {
    let root = goldens::root();
    let cases = goldens::cases(&root, ORIGINAL).unwrap();
    let deviations = Path::new(env!("CARGO_MANIFEST_DIR")).join("goldens-differ.yaml");
    let mut tally = Tally::new(&deviations).unwrap();
    let loaded = loaded(GUEST, "{}").await.unwrap();
    for case in &cases {
        match case.input["mode"].as_str() {
            Some(V2) => run(case, &loaded, &mut tally).await,
            Some(mode) if gateway::covers(mode) => {}
            mode => tally.not_covered(format!("api-gateway, mode {}", mode.unwrap_or("none"))),
        }
    }
    for (original, cases) in goldens::others(&root, &[ORIGINAL, IN_GROUPS, SCENARIOS]).unwrap() {
        for _ in 0..cases {
            tally.not_covered(original.as_str());
        }
    }
    println!("{}", tally.report());
    tally.check(&cases).unwrap();
}

async fn run(case: &Case, loaded: &mortise_host::host::Loaded, tally: &mut Tally) {
    let end = simulate(loaded.clone(), input_of(case)).await;
    let status = match &end {
        Ok(end) => status_of(end, case),
        Err(error) => return tally.failed(&case.name, "controller", &format!("{error:#}")),
    };
    let expected = &case.expected;
    if let Some(controller) = expected.get("controller") {
        tally.compare(&case.name, "controller", &controller_expected(controller), &status);
    }
    let (rule, stub) = natively(case);
    if let Some(failures) = expected.get("validationFailures") {
        let ours = api_rule::reconcile::validate(&rule, &stub.host());
        let ours =
            ours.map_or_else(|error| json!(error.to_string()), |failures| failures_of(&failures));
        tally.compare(&case.name, "validationFailures", failures, &ours);
    }
    if let Some(changes) = expected.get("changes") {
        let expected = sorted(changes.as_array().unwrap().iter().map(change).collect());
        let ours = match &end {
            Ok(end) if status["state"] == "Ready" => Ok(folded(end).iter().map(change).collect()),
            _ => api_rule::reconcile::changes_unchecked(&rule, &stub.host())
                .map(|changes| changes.iter().map(native).collect()),
        };
        match ours {
            Ok(ours) => tally.compare(&case.name, "changes", &expected, &sorted(ours)),
            Err(stop) => tally.failed(&case.name, "changes", &format!("{stop:?}")),
        }
    }
}

/// Returns the objects that the guest's own function applies, in the cases that it covers and in
/// which the rule is valid, each with the name of the case.
pub(crate) fn applied() -> Vec<(String, Value)> {
    let cases = goldens::cases(&goldens::root(), ORIGINAL).unwrap();
    let mut applied = Vec::new();
    for case in cases.iter().filter(|case| case.input["mode"].as_str() == Some(V2)) {
        let (rule, stub) = natively(case);
        let host = stub.host();
        // No object is applied for an invalid rule.
        let failures = api_rule::reconcile::validate(&rule, &host);
        if !failures.is_ok_and(|failures| failures.is_empty()) {
            continue;
        }
        let changes = api_rule::reconcile::changes_unchecked(&rule, &host);
        for change in changes.unwrap_or_default() {
            if let Change::Create(manifest) | Change::Update(manifest) = change {
                let object = serde_json::from_str(&manifest.object).unwrap();
                applied.push((format!("golden {}", case.name), object));
            }
        }
    }
    applied
}

/// Returns the status that the guest sets on each rule of the cases that it covers, each with the
/// name of the case.
pub(crate) fn statuses() -> Vec<(String, Value)> {
    let cases = goldens::cases(&goldens::root(), ORIGINAL).unwrap();
    let mut statuses = Vec::new();
    for case in cases.iter().filter(|case| case.input["mode"].as_str() == Some(V2)) {
        let (_, stub) = natively(case);
        let request = request_for(&objects(case)[0]);
        let outcome = api_rule::reconcile::reconcile(&request, &stub.host());
        let status = outcome.map_or_else(|failure| failure.status, |outcome| outcome.status);
        let status = status.map(|status| serde_json::from_str(&status).unwrap());
        statuses.extend(status.map(|status| (format!("golden {}", case.name), status)));
    }
    statuses
}

// === input ===

/// Returns the objects of a case, the one under test first: in the storage version, with the
/// finalizer, as the original's test double had it.
fn objects(case: &Case) -> Vec<Value> {
    let mut object = case.input["object"].clone();
    object["apiVersion"] = json!("gateway.kyma-project.io/v2alpha1");
    object["metadata"]["finalizers"] = json!([FINALIZER]);
    let mut objects = vec![object];
    objects.extend(case.input["cluster"].as_array().cloned().unwrap_or_default());
    if let Some(handler) = case.input["jwtHandler"].as_str().filter(|handler| !handler.is_empty()) {
        objects.push(json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "api-gateway-config", "namespace": "kyma-system"},
            "data": {"api-gateway-config": format!("jwtHandler: {handler}")},
        }));
    }
    objects
}

fn missing_kinds(case: &Case) -> Vec<String> {
    let names = case.input["missingCRDs"].as_array().cloned().unwrap_or_default();
    names.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn input_of(case: &Case) -> Input {
    let metadata = &case.input["object"]["metadata"];
    let only = format!(
        "APIRule/{}/{}",
        metadata["namespace"].as_str().unwrap(),
        metadata["name"].as_str().unwrap()
    );
    Input {
        objects: objects(case),
        crds: definitions(GUEST).unwrap(),
        now: NOW.parse().unwrap(),
        missing_kinds: missing_kinds(case),
        validate: false,
        only: Some(only.parse().unwrap()),
        rounds: None,
    }
}

fn natively(case: &Case) -> (ApiRule, Stub) {
    let objects = objects(case);
    let rule = serde_json::from_value(objects[0].clone()).unwrap();
    (rule, Stub::new().objects(objects).at(NOW))
}

// === output ===

fn controller_expected(controller: &Value) -> Value {
    let mut expected = json!({
        "state": controller["status"]["state"],
        "description": controller["status"]["description"],
    });
    // The original backs off after a failed reconcile; ours intentionally comes back after a
    // minute.
    expected["requeueAfterSeconds"] =
        controller.get("requeueAfterSeconds").cloned().unwrap_or_else(|| json!(60));
    expected
}

fn status_of(end: &End, case: &Case) -> Value {
    let name = &case.input["object"]["metadata"]["name"];
    let namespace = &case.input["object"]["metadata"]["namespace"];
    let is_it = |object: &&Value| {
        object["kind"] == "APIRule"
            && object["metadata"]["name"] == *name
            && object["metadata"]["namespace"] == *namespace
    };
    let object = end.objects.iter().find(is_it).unwrap();
    let again = end.requeues.iter().find(|again| again.object["name"] == *name);
    json!({
        "state": object["status"]["state"].as_str().unwrap_or_default(),
        "description": object["status"]["description"].as_str().unwrap_or_default(),
        "requeueAfterSeconds": again.map(|again| &again.after_seconds),
    })
}

fn failures_of(failures: &[api_rule::validation::Failure]) -> Value {
    failures
        .iter()
        .map(|failure| json!({"attributePath": failure.attribute_path, "message": failure.message}))
        .collect()
}

fn is_produced(object: &Value) -> bool {
    let kinds =
        BTreeSet::from(["VirtualService", "AuthorizationPolicy", "RequestAuthentication", "Rule"]);
    object["kind"].as_str().is_some_and(|kind| kinds.contains(kind))
}

/// Returns the writes to produced objects, merged to one for each object: several of our writes
/// were one write of the original.
fn folded(end: &End) -> Vec<Value> {
    let mut folded: Vec<Value> = Vec::new();
    for written in end.changes.iter().filter(|change| is_produced(&change.object)) {
        let mut written = json!(written);
        let place =
            |of: &Value| (of["object"]["kind"].clone(), of["object"]["metadata"]["uid"].clone());
        match folded.iter_mut().find(|earlier| place(earlier) == place(&written)) {
            Some(earlier) if earlier["action"] == "create" && written["action"] == "update" => {
                earlier["object"] = written["object"].take();
            }
            Some(earlier) => *earlier = written,
            None => folded.push(written),
        }
    }
    folded
}

fn native(change: &Change) -> Value {
    let object =
        |manifest: &mortise_sdk::Manifest| serde_json::from_str::<Value>(&manifest.object).unwrap();
    self::change(&match change {
        Change::Create(manifest) => json!({"action": "create", "object": object(manifest)}),
        Change::Update(manifest) => json!({"action": "update", "object": object(manifest)}),
        Change::Delete { reference, .. } => json!({"action": "delete", "object": {
            "apiVersion": format!("{}/{}", reference.kind.group, reference.kind.version),
            "kind": reference.kind.kind,
            "metadata": {"name": reference.name, "namespace": reference.namespace},
        }}),
    })
}

/// Normalises a change for comparison: without fields that the server adds, without generated names
/// and without versions, since any served version of a kind is the same object. A deletion is
/// reduced to the object's identity.
fn change(change: &Value) -> Value {
    let (action, object) = (&change["action"], without_nulls(&change["object"]));
    let group = object["apiVersion"].as_str().unwrap_or_default().split('/').next();
    let metadata = &object["metadata"];
    let mut kept = Map::new();
    kept.insert("namespace".to_owned(), metadata["namespace"].clone());
    if action != "create" {
        kept.insert("name".to_owned(), metadata["name"].clone());
    }
    let mut compared = json!({"group": group, "kind": object["kind"], "metadata": kept});
    if action != "delete" {
        compared["metadata"]["labels"] = metadata["labels"].clone();
        compared["spec"] = object["spec"].clone();
        sort_cookies(&mut compared["spec"]);
    }
    json!({"action": action, "object": compared})
}

/// Sorts cookies, which the original writes in the order of a Go map.
fn sort_cookies(spec: &mut Value) {
    for route in spec.get_mut("http").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(cookie) = route.pointer_mut("/headers/request/set/Cookie") {
            let mut pairs: Vec<&str> = cookie.as_str().unwrap_or_default().split("; ").collect();
            pairs.sort_unstable();
            *cookie = json!(pairs.join("; "));
        }
    }
}
