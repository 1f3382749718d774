//! The cells of built-in kinds, one for each column.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{age, autoscaler, network, pod, storage};
use crate::builtin::edit::{at, items, members, text};

pub(super) const NONE: &str = "<none>";
pub(super) const UNSET: &str = "<unset>";

/// Returns the cells of an object.
pub(super) fn of(kind: &str, object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let name = Value::from(text(&object["metadata"], "name"));
    let old = age::since(at(object, &["metadata", "creationTimestamp"]), now);
    match kind {
        "ConfigMap" => {
            vec![name, (count(&object["data"]) + count(&object["binaryData"])).into(), old]
        }
        "Secret" => vec![name, object["type"].clone(), count(&object["data"]).into(), old],
        "ServiceAccount" => vec![name, items(&object["secrets"]).len().into(), old],
        "Namespace" => vec![name, text(status, "phase").into(), old],
        "Lease" => vec![name, text(spec, "holderIdentity").into(), old],
        "Scale" => {
            let count = |part: &Value| Value::from(part["replicas"].as_i64().unwrap_or(0));
            vec![name, count(spec), count(status), old]
        }
        "Service" => network::service(name, spec, status, old),
        "Pod" => pod::cells(object, old, now),
        "Deployment" | "ReplicaSet" | "ReplicationController" | "StatefulSet" | "DaemonSet" => {
            workload(kind, name, spec, status, old)
        }
        "Job" | "CronJob" => job(kind, name, object, old, now),
        "Ingress" => network::ingress(name, spec, status, old),
        "NetworkPolicy" => vec![name, labels(&spec["podSelector"]).into(), old],
        "PodDisruptionBudget" => {
            let bound = |key: &str| scalar(&spec[key], "N/A");
            let allowed = status["disruptionsAllowed"].as_i64().unwrap_or(0);
            vec![name, bound("minAvailable"), bound("maxUnavailable"), allowed.into(), old]
        }
        "HorizontalPodAutoscaler" => autoscaler::cells(name, spec, status, old),
        "RoleBinding" | "ClusterRoleBinding" => binding(name, object, old),
        "PriorityClass" => {
            let global = object["globalDefault"] == true;
            vec![
                name,
                object["value"].clone(),
                global.into(),
                old,
                text(object, "preemptionPolicy").into(),
            ]
        }
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => {
            vec![name, items(&object["webhooks"]).len().into(), old]
        }
        "ControllerRevision" => {
            let owner = items(at(object, &["metadata", "ownerReferences"]))
                .iter()
                .find(|owner| owner["controller"] == true);
            let owner = owner.map_or(NONE.to_owned(), |owner| {
                format!(
                    "{}/{}",
                    qualified(text(owner, "apiVersion"), text(owner, "kind")),
                    text(owner, "name")
                )
            });
            vec![name, owner.into(), object["revision"].clone(), old]
        }
        "Endpoints" => vec![name, network::endpoints(object).into(), old],
        "EndpointSlice" => network::endpoint_slice(name, object, old),
        "Event" => event(object, now),
        "PersistentVolume" => storage::volume(name, object, old),
        "PersistentVolumeClaim" => storage::claim(name, object, old),
        "StorageClass" => storage::storage_class(object, old),
        "IngressClass" => storage::ingress_class(name, spec, old),
        "ResourceQuota" => quota(name, status, old),
        "Node" => node(name, object, old),
        _ => vec![name, text(&object["metadata"], "creationTimestamp").into()],
    }
}

/// Returns the qualified name of a kind and its API version: `deployment.apps`.
fn qualified(api_version: &str, kind: &str) -> String {
    match api_version.split_once('/') {
        Some((group, _)) => format!("{}.{group}", kind.to_lowercase()),
        None => kind.to_lowercase(),
    }
}

fn count(map: &Value) -> usize {
    map.as_object().map_or(0, serde_json::Map::len)
}

/// Returns a text or number as a text.
pub(super) fn scalar(value: &Value, absent: &str) -> Value {
    match value {
        Value::Null => absent.into(),
        Value::String(text) => text.clone().into(),
        other => other.to_string().into(),
    }
}

pub(super) fn or_none(text: &str) -> Value {
    if text.is_empty() { NONE } else { text }.into()
}

/// Joins texts by commas.
pub(super) fn join<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> String {
    let texts: Vec<_> = texts.into_iter().map(|text| text.as_ref().to_owned()).collect();
    texts.join(",")
}

/// Returns a map of labels as the text of a selector.
pub(super) fn map(labels: &Value) -> String {
    let pairs =
        members(labels).map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or("")));
    let text = join(pairs);
    if text.is_empty() { NONE.to_owned() } else { text }
}

/// Returns a label selector as a text.
fn labels(selector: &Value) -> String {
    let expressions = items(&selector["matchExpressions"]);
    let pairs = members(&selector["matchLabels"])
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or("")));
    let more = expressions.iter().map(|expression| {
        let key = text(expression, "key");
        let values = || join(items(&expression["values"]).iter().filter_map(Value::as_str));
        match text(expression, "operator") {
            "In" => format!("{key} in ({})", values()),
            "NotIn" => format!("{key} notin ({})", values()),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        }
    });
    let text = join(pairs.chain(more));
    if text.is_empty() { NONE.to_owned() } else { text }
}

/// Returns the names and the images of the containers of a template.
fn containers(template: &Value) -> [Value; 2] {
    let containers = items(at(template, &["spec", "containers"]));
    ["name", "image"]
        .map(|key| join(containers.iter().map(|container| text(container, key))).into())
}

fn workload(kind: &str, name: Value, spec: &Value, status: &Value, old: Value) -> Vec<Value> {
    let number = |key: &str| status[key].as_i64().unwrap_or(0);
    let wanted = spec["replicas"].as_i64().unwrap_or(0);
    let [names, images] = containers(&spec["template"]);
    let selector = match kind {
        "ReplicationController" => map(&spec["selector"]),
        _ => labels(&spec["selector"]),
    };
    let selector = Value::from(selector);
    let ready = Value::from(format!("{}/{wanted}", number("readyReplicas")));
    match kind {
        "Deployment" => {
            let (updated, available) = (number("updatedReplicas"), number("availableReplicas"));
            vec![name, ready, updated.into(), available.into(), old, names, images, selector]
        }
        "ReplicaSet" | "ReplicationController" => {
            let (current, ready) = (number("replicas"), number("readyReplicas"));
            vec![name, wanted.into(), current.into(), ready.into(), old, names, images, selector]
        }
        "StatefulSet" => vec![name, ready, old, names, images],
        _ => {
            let counts = [
                "desiredNumberScheduled",
                "currentNumberScheduled",
                "numberReady",
                "updatedNumberScheduled",
                "numberAvailable",
            ];
            let nodes = Value::from(map(at(spec, &["template", "spec", "nodeSelector"])));
            let counts = counts.into_iter().map(|key| number(key).into());
            let rest = [nodes, old, names, images, selector];
            std::iter::once(name).chain(counts).chain(rest).collect()
        }
    }
}

fn job(kind: &str, name: Value, object: &Value, old: Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    if kind == "CronJob" {
        let [names, images] = containers(at(spec, &["jobTemplate", "spec", "template"]));
        let last = &status["lastScheduleTime"];
        let last = if last.is_null() { NONE.into() } else { age::since(last, now) };
        let active = items(&status["active"]).len();
        let suspend = spec["suspend"] == true;
        let zone = or_none(text(spec, "timeZone"));
        let selector = labels(at(spec, &["jobTemplate", "spec", "selector"]));
        let schedule = text(spec, "schedule").into();
        return vec![
            name,
            schedule,
            zone,
            suspend.into(),
            active.into(),
            last,
            old,
            names,
            images,
            selector.into(),
        ];
    }
    let done = status["succeeded"].as_i64().unwrap_or(0);
    let completions = match (spec["completions"].as_i64(), spec["parallelism"].as_i64()) {
        (Some(wanted), _) => format!("{done}/{wanted}"),
        (None, Some(parallel)) if parallel > 1 => format!("{done}/1 of {parallel}"),
        (None, _) => format!("{done}/1"),
    };
    let start = &status["startTime"];
    let end: Option<Timestamp> =
        status["completionTime"].as_str().and_then(|time| time.parse().ok());
    let duration = if start.is_null() { "".into() } else { age::since(start, end.unwrap_or(now)) };
    let [names, images] = containers(&spec["template"]);
    let selector = labels(&spec["selector"]);
    vec![
        name,
        job_state(object).into(),
        completions.into(),
        duration,
        old,
        names,
        images,
        selector.into(),
    ]
}

fn job_state(object: &Value) -> &'static str {
    let conditions = items(at(object, &["status", "conditions"]));
    let holds = |kind: &str| {
        conditions
            .iter()
            .any(|condition| condition["type"] == kind && condition["status"] == "True")
    };
    if holds("Complete") {
        "Complete"
    } else if holds("Failed") {
        "Failed"
    } else if !at(object, &["metadata", "deletionTimestamp"]).is_null() {
        "Terminating"
    } else if holds("Suspended") {
        "Suspended"
    } else if holds("FailureTarget") {
        "FailureTarget"
    } else if holds("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

fn binding(name: Value, object: &Value, old: Value) -> Vec<Value> {
    let role = format!("{}/{}", text(&object["roleRef"], "kind"), text(&object["roleRef"], "name"));
    let subjects = |kind: &str| {
        let subjects = items(&object["subjects"]).iter().filter(|subject| subject["kind"] == kind);
        let names = subjects.map(|subject| match text(subject, "namespace") {
            "" => text(subject, "name").to_owned(),
            namespace => format!("{namespace}/{}", text(subject, "name")),
        });
        Value::from(names.collect::<Vec<_>>().join(", "))
    };
    vec![name, role.into(), old, subjects("User"), subjects("Group"), subjects("ServiceAccount")]
}

/// Returns the cells of an event, in either form.
fn event(object: &Value, now: Timestamp) -> Vec<Value> {
    let first = |keys: &[&str]| {
        let values = keys.iter().map(|key| &object[key]);
        values.into_iter().find(|value| !value.is_null()).cloned().unwrap_or_default()
    };
    let about = first(&["involvedObject", "regarding"]);
    let subject = format!("{}/{}", text(&about, "kind").to_lowercase(), text(&about, "name"));
    let began = first(&["firstTimestamp", "deprecatedFirstTimestamp", "eventTime"]);
    let series = &object["series"];
    let mut seen = first(&["lastTimestamp", "deprecatedLastTimestamp"]);
    if !series.is_null() {
        seen = series["lastObservedTime"].clone();
    }
    let seen = if seen.is_null() { &began } else { &seen };
    let source = first(&["source", "deprecatedSource"]);
    let component = match text(&source, "component") {
        "" => {
            first(&["reportingComponent", "reportingController"]).as_str().unwrap_or("").to_owned()
        }
        component => component.to_owned(),
    };
    let source = match text(&source, "host") {
        "" => component,
        host => format!("{component}, {host}"),
    };
    let counted = first(&["count", "deprecatedCount"]).as_i64().unwrap_or(0);
    let count = series["count"].as_i64().unwrap_or(counted).max(1);
    let message = first(&["message", "note"]);
    vec![
        age::since(seen, now),
        text(object, "type").into(),
        text(object, "reason").into(),
        subject.into(),
        text(&about, "fieldPath").into(),
        source.into(),
        message.as_str().unwrap_or("").trim().into(),
        age::since(&began, now),
        count.into(),
        text(&object["metadata"], "name").into(),
    ]
}

fn quota(name: Value, status: &Value, old: Value) -> Vec<Value> {
    let list = |limits: bool| {
        let hard = members(&status["hard"]).filter(|(key, _)| key.starts_with("limits.") == limits);
        let texts = hard.map(|(key, hard)| {
            let used = at(status, &["used", key]).as_str().unwrap_or("0");
            format!("{key}: {used}/{}", hard.as_str().unwrap_or(""))
        });
        Value::from(texts.collect::<Vec<_>>().join(", "))
    };
    vec![name, list(false), list(true), old]
}

fn node(name: Value, object: &Value, old: Value) -> Vec<Value> {
    const ROLE: &str = "node-role.kubernetes.io/";
    let status = &object["status"];
    let ready = items(&status["conditions"]).iter().find(|condition| condition["type"] == "Ready");
    let mut state = vec![match ready.map(|ready| text(ready, "status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }];
    if at(object, &["spec", "unschedulable"]) == true {
        state.push("SchedulingDisabled");
    }
    let roles =
        members(at(object, &["metadata", "labels"])).filter_map(|(key, _)| key.strip_prefix(ROLE));
    let address = |kind: &str| {
        let found = items(&status["addresses"]).iter().find(|address| address["type"] == kind);
        or_none(found.map_or("", |address| text(address, "address")))
    };
    let fact = |key: &str| match text(&status["nodeInfo"], key) {
        "" => json!("<unknown>"),
        fact => fact.into(),
    };
    vec![
        name,
        join(state).into(),
        or_none(&join(roles)),
        old,
        text(&status["nodeInfo"], "kubeletVersion").into(),
        address("InternalIP"),
        address("ExternalIP"),
        fact("osImage"),
        fact("kernelVersion"),
        fact("containerRuntimeVersion"),
    ]
}
