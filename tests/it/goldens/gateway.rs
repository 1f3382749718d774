//! Recorded cases of the Kyma API Gateway operator, compared with the components of api-gateway,
//! rate-limit and external-gateway.
//!
//! The original was recorded over a double that keeps objects as they are sent. So its objects go
//! through the embedded API as ours do, which sets the same defaults in both. The text of its error
//! is only in its log and is not compared, unless the status holds it.

use std::{path::Path, time::Duration};

use mortise::commands::simulate::{End, Input, simulate};
use mortise_host::host::Loaded;
use mortise_tests::{
    definitions,
    goldens::{self, Case, Tally, group::Rules, sorted, without_nulls},
    loaded,
};
use serde_json::{Map, Value, json};

use super::api_gateway::ORIGINAL;

const NOW: &str = "2026-01-01T00:00:00Z";

/// The times of our passes after the first, in which what waits for a time goes on.
const LATER: [Duration; 2] = [Duration::from_secs(1), Duration::from_mins(10)];
/// The namespaces in which objects are made.
const NAMESPACES: [&str; 2] = ["istio-system", "kyma-system"];

/// The cases of a processor.
struct Of {
    mode: &'static str,
    guest: &'static str,
    kind: &'static str,
    /// The configuration with the recorded intervals.
    config: &'static str,
    /// Kinds that exist only where a case says so.
    optional: &'static [&'static str],
}

const GARDENER: [&str; 2] = ["dnsentries.dns.gardener.cloud", "certificates.cert.gardener.cloud"];
const AUTOSCALERS: &str = "verticalpodautoscalers.autoscaling.k8s.io";

const API_GATEWAY: Of = Of {
    mode: "apigateway",
    guest: "guests/api-gateway",
    kind: "APIGateway",
    config: r#"{"resyncMinutes": 60}"#,
    optional: &[GARDENER[0], GARDENER[1], AUTOSCALERS],
};
/// The same, where the original had its vendor's grant.
const API_GATEWAY_GRANTED: Of = Of {
    config: r#"{"resyncMinutes": 60, "v1beta1": "allowed", "images": {
        "oathkeeper": "img/oathkeeper", "oathkeeperMaester": "img/oathkeeper-maester",
        "busybox": "img/busybox"}}"#,
    ..API_GATEWAY
};
const RATE_LIMIT: Of = Of {
    mode: "ratelimit",
    guest: "guests/rate-limit",
    kind: "RateLimit",
    config: r#"{"resyncMinutes": 3}"#,
    optional: &[],
};
const EXTERNAL_GATEWAY: Of = Of {
    mode: "externalgateway",
    guest: "guests/external-gateway",
    kind: "ExternalGateway",
    config: r#"{"resyncMinutes": 60, "pendingSeconds": 5}"#,
    optional: &GARDENER,
};

/// Returns whether tests of this module cover a mode.
pub(super) fn covers(mode: &str) -> bool {
    [API_GATEWAY.mode, RATE_LIMIT.mode, EXTERNAL_GATEWAY.mode].contains(&mode)
}

#[tokio::test]
async fn api_gateways_are_as_the_original_left_them() {
    run(&[API_GATEWAY, API_GATEWAY_GRANTED]).await;
}

#[tokio::test]
async fn api_rate_limits_are_as_the_original_left_them() {
    run(&[RATE_LIMIT]).await;
}

#[tokio::test]
async fn api_external_gateways_are_as_the_original_left_them() {
    run(&[EXTERNAL_GATEWAY]).await;
}

/// Runs the cases of a mode.
async fn run(configurations: &[Of]) {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("goldens-differ-gateway.yaml");
    let rules = Rules::read(&rules).unwrap();
    let cases = goldens::cases(&goldens::root(), ORIGINAL).unwrap();
    let mut tally = Tally::default();
    for (of, component, meant) in loaded_for(configurations, &cases).await {
        for case in meant {
            compare(of, case, &component, &rules, &mut tally).await;
        }
    }
    println!("{}", tally.report());
    tally.check().unwrap();
}

/// Returns each configuration with its component and its cases: those without a grant are the
/// first's, the others the last's.
async fn loaded_for<'a>(
    configurations: &'a [Of],
    cases: &'a [Case],
) -> Vec<(&'a Of, Loaded, Vec<&'a Case>)> {
    let mut all = Vec::new();
    for (index, of) in configurations.iter().enumerate() {
        let component = loaded(of.guest, of.config).await.unwrap();
        let is_meant = |case: &&Case| {
            let is_granted = case.input["v1beta1AccessGranted"] == true;
            let meant = if is_granted { configurations.len() - 1 } else { 0 };
            case.input["mode"] == of.mode && index == meant
        };
        all.push((of, component, cases.iter().filter(is_meant).collect()));
    }
    all
}

/// Returns the objects that the components make in the cases, each with the name of the case.
pub(crate) async fn made() -> Vec<(String, Value)> {
    let cases = goldens::cases(&goldens::root(), ORIGINAL).unwrap();
    let mut all = Vec::new();
    for configurations in
        [&[API_GATEWAY, API_GATEWAY_GRANTED][..], &[RATE_LIMIT], &[EXTERNAL_GATEWAY]]
    {
        for (of, component, meant) in loaded_for(configurations, &cases).await {
            for case in meant {
                let end = settled(of, case, &component).await.unwrap();
                let made = ours(of, case, &end)["objects"].take();
                let name = format!("golden {}", case.name);
                all.extend(items(&made).map(|object| (name.clone(), object.clone())));
            }
        }
    }
    all
}

async fn compare(of: &Of, case: &Case, component: &Loaded, rules: &Rules, tally: &mut Tally) {
    let sides = async {
        let end = settled(of, case, component).await?;
        anyhow::Ok((ours(of, case, &end), original(of, case, component).await?))
    };
    let (ours, original) = match sides.await {
        Ok(sides) => sides,
        Err(error) => return tally.failed(&case.name, of.mode, &format!("{error:#}")),
    };
    for part in ["objects", "status", "finalizers", "again"] {
        let Some(original) = original.get(part) else { continue };
        let ours = &ours[part];
        let (expected, reasons) = rules.apply((of.mode, part), &case.into(), original, ours);
        tally.compare(&case.name, part, (&expected, &reasons), ours);
    }
}

// === ours ===

/// Runs the component until nothing changes any more, also after some time.
async fn settled(of: &Of, case: &Case, component: &Loaded) -> anyhow::Result<End> {
    let mut input = input(of, case)?;
    let mut end = simulate(component.clone(), input.clone()).await?;
    for by in LATER {
        input.now += by;
        input.objects = end.objects.iter().filter(|one| !is_of_cluster(one)).cloned().collect();
        input.objects.extend(namespaces());
        if !input.objects.iter().any(|object| is_under_test(of, case, object)) {
            return Ok(end);
        }
        end = simulate(component.clone(), input.clone()).await?;
    }
    Ok(end)
}

fn input(of: &Of, case: &Case) -> anyhow::Result<Input> {
    let mut object = case.input["object"].clone();
    // As each API server does.
    object["metadata"]["generation"] = json!(1);
    let mut objects = vec![object];
    objects.extend(items(&case.input["cluster"]).map(stored));
    if case.input["v1beta1AccessGranted"] == true {
        objects.push(shoot_info());
    }
    objects.extend(namespaces());
    let metadata = &case.input["object"]["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let only = format!("{}/{}/{}", of.kind, text(&metadata["namespace"]), text(&metadata["name"]));
    let extra: Vec<&str> = items(&case.input["extraCRDs"]).filter_map(Value::as_str).collect();
    let missing = items(&case.input["missingCRDs"]).filter_map(Value::as_str);
    let optional = of.optional.iter().copied().filter(|kind| !extra.contains(kind));
    Ok(Input {
        objects,
        crds: definitions(of.guest)?,
        clusters: Vec::new(),
        now: NOW.parse()?,
        missing_kinds: missing.chain(optional).map(str::to_owned).collect(),
        validate: false,
        only: Some(only.parse()?),
        rounds: None,
    })
}

/// Returns an object as it is stored: of an APIRule in version v1beta1, what the conversion keeps
/// for others to see.
fn stored(object: &Value) -> Value {
    let mut stored = object.clone();
    if object["kind"] == "APIRule" && object["apiVersion"] == "gateway.kyma-project.io/v1beta1" {
        stored["apiVersion"] = "gateway.kyma-project.io/v2alpha1".into();
        stored["metadata"]["annotations"] = json!({
            "gateway.kyma-project.io/original-version": "v1beta1",
            "gateway.kyma-project.io/v1beta1-spec": object["spec"].to_string(),
        });
        stored["spec"] =
            json!({"gateway": object["spec"]["gateway"], "hosts": [object["spec"]["host"]]});
    }
    stored
}

/// The domain of the clusters in which the original had its vendor's grant.
fn shoot_info() -> Value {
    let metadata = json!({"name": "shoot-info", "namespace": "kube-system"});
    let data = json!({"domain": "test-shoot.com"});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
}

fn namespaces() -> impl Iterator<Item = Value> {
    NAMESPACES
        .iter()
        .map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Returns the parts of our output.
fn ours(of: &Of, case: &Case, end: &End) -> Value {
    let given: Vec<Value> = items(&case.input["cluster"]).cloned().chain([shoot_info()]).collect();
    let is_made = |object: &&Value| {
        !is_of_cluster(object)
            && object["kind"] != "Event"
            && !is_under_test(of, case, object)
            && !given.iter().any(|given| is_same(given, object))
    };
    let made = end.objects.iter().filter(is_made).map(normal).collect();
    let object = end.objects.iter().find(|object| is_under_test(of, case, object));
    let again = end.requeues.first().map(|again| json!({"seconds": again.after_seconds}));
    json!({
        "objects": sorted(made),
        "status": object.map(|object| status(&object["status"])),
        "finalizers": finalizers(object.map(|object| &object["metadata"]["finalizers"])),
        "again": again,
    })
}

/// Returns whether an object is there in the cluster of each case.
fn is_of_cluster(object: &Value) -> bool {
    object["kind"] == "CustomResourceDefinition" || object["kind"] == "Namespace"
}

fn is_under_test(of: &Of, case: &Case, object: &Value) -> bool {
    object["kind"] == of.kind && is_same(&case.input["object"], object)
}

fn is_same(one: &Value, other: &Value) -> bool {
    let name = |of: &Value| {
        let metadata = &of["metadata"];
        [&of["kind"], &metadata["namespace"], &metadata["name"]].map(Clone::clone)
    };
    name(one) == name(other)
}

// === the original's ===

/// Returns the parts of the original's output.
async fn original(of: &Of, case: &Case, component: &Loaded) -> anyhow::Result<Value> {
    let expected = &case.expected;
    let mut objects: Vec<Value> = items(&expected["objects"]).map(readable).collect();
    let count = objects.len();
    objects.extend(namespaces());
    // Only objects that are checked get the defaults of their kinds.
    let input = Input { objects, validate: true, only: None, rounds: Some(0), ..input(of, case)? };
    let end = simulate(component.clone(), input).await?;
    let made = end.objects.iter().filter(|object| !is_of_cluster(object));
    let made: Vec<Value> = made.map(normal).collect();
    anyhow::ensure!(made.len() == count, "objects of the original are not there any more");
    let end = last_round(expected);
    let again = match (&end["error"], &end["requeueAfterSeconds"]) {
        (Value::Null, after) if after.as_u64().unwrap_or_default() == 0 => Value::Null,
        (Value::Null, after) => json!({"seconds": after}),
        _ => "back-off".into(),
    };
    let mut parts =
        json!({"objects": sorted(made), "status": status(&end["status"]), "again": again});
    // Recorded of the APIGateway only.
    if let Some(held) = end.get("finalizers") {
        parts["finalizers"] = finalizers(Some(held));
    }
    Ok(parts)
}

/// Returns an object that an API accepts: what was recorded of a Secret is no base64.
fn readable(object: &Value) -> Value {
    let mut object = object.clone();
    if object["kind"] == "Secret" {
        let data = object["data"].as_object_mut();
        data.into_iter().flat_map(Map::values_mut).for_each(|value| *value = "".into());
    }
    object
}

/// Returns the end of the last round, or the case itself where there is but one.
fn last_round(expected: &Value) -> &Value {
    let rounds = expected.as_object().into_iter().flatten();
    let last = rounds
        .filter_map(|(key, round)| Some((key.strip_prefix("round")?.parse::<u32>().ok()?, round)))
        .max_by_key(|(number, _)| *number);
    last.map_or(expected, |(_, round)| round)
}

// === both ===

/// Returns an object without the fields of the server, the contents of Secrets and the ids of
/// owners.
fn normal(object: &Value) -> Value {
    let mut object = without_nulls(object);
    let of_server = ["creationTimestamp", "generation", "managedFields", "resourceVersion", "uid"];
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|key, _| !of_server.contains(&key.as_str()));
        let owners = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut);
        for owner in owners.into_iter().flatten().filter_map(Value::as_object_mut) {
            owner.remove("uid");
        }
    }
    if let Some(map) = object.as_object_mut() {
        map.remove("status");
    }
    match object["kind"].as_str() {
        Some("Secret") => redact(&mut object),
        Some("Service") => {
            if let Some(spec) = object["spec"].as_object_mut() {
                spec.retain(|key, _| key != "clusterIP" && key != "clusterIPs");
            }
        }
        _ => {}
    }
    object
}

fn redact(secret: &mut Value) {
    let data: Map<String, Value> = ["data", "stringData"]
        .iter()
        .filter_map(|field| secret[*field].as_object())
        .flat_map(|data| data.keys().map(|key| (key.clone(), "<redacted>".into())))
        .collect();
    if let Some(secret) = secret.as_object_mut() {
        secret.remove("stringData");
        secret.insert("data".to_owned(), data.into());
    }
}

fn status(status: &Value) -> Value {
    let mut status = without_nulls(status);
    if let Some(status) = status.as_object_mut() {
        status.remove("lastProcessedTime");
    }
    for condition in
        status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten()
    {
        if let Some(condition) = condition.as_object_mut() {
            condition.remove("lastTransitionTime");
        }
    }
    status
}

fn finalizers(finalizers: Option<&Value>) -> Value {
    sorted(finalizers.map(|finalizers| items(finalizers).cloned().collect()).unwrap_or_default())
}
