//! The two forms of autoscalers: `autoscaling/v2`, in which they are stored, and `autoscaling/v1`,
//! which has one metric, CPU utilization.
//!
//! Annotations carry the fields that the older form lacks, as in Kubernetes, so that a client that
//! writes it back loses nothing. Their texts are the fields of the newer form, unchanged.

use serde_json::{Map, Value, json};

use super::edit::{at, child, is_empty, items, remove, set, text};

/// The target CPU utilization of an autoscaler without metrics, in percent.
const DEFAULT_CPU_PERCENT: i64 = 80;

/// The annotations: name, the part of the object that it carries, and the field there.
const CARRIED: [(&str, &str, &str); 4] = [
    ("autoscaling.alpha.kubernetes.io/metrics", "spec", "metrics"),
    ("autoscaling.alpha.kubernetes.io/behavior", "spec", "behavior"),
    ("autoscaling.alpha.kubernetes.io/current-metrics", "status", "currentMetrics"),
    ("autoscaling.alpha.kubernetes.io/conditions", "status", "conditions"),
];

/// Converts an autoscaler to the form of `autoscaling/v2`.
pub(super) fn to_stored(object: &mut Value) {
    for (annotation, part, field) in CARRIED {
        let carried =
            object.pointer_mut("/metadata/annotations").and_then(|all| remove(all, annotation));
        let carried = carried.as_ref().and_then(Value::as_str).map(serde_json::from_str::<Value>);
        // Another text under this name is invalid: it is dropped, as in Kubernetes.
        if let (Some(Ok(value)), Some(part)) = (carried, child(object, part)) {
            set(part, field, value);
        }
    }
    drop_empty_annotations(object);
    if let Some(spec) = child(object, "spec") {
        let wanted =
            remove(spec, "targetCPUUtilizationPercentage").and_then(|wanted| wanted.as_i64());
        let others = items(&spec["metrics"]).to_vec();
        let usual = others.is_empty().then_some(DEFAULT_CPU_PERCENT);
        let first = wanted.or(usual).map(|percent| {
            json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}}})
        });
        set(spec, "metrics", first.into_iter().chain(others).collect::<Value>());
    }
    if let Some(status) = child(object, "status")
        && let Some(percent) = remove(status, "currentCPUUtilizationPercentage")
        && is_empty(&status["currentMetrics"])
    {
        let current = json!({"averageUtilization": percent, "averageValue": "0"});
        set(
            status,
            "currentMetrics",
            json!([{"type": "Resource", "resource": {"name": "cpu", "current": current}}]),
        );
    }
}

/// Converts an autoscaler to the form of `autoscaling/v1`.
pub(super) fn from_stored(object: &mut Value) {
    if let Some(spec) = child(object, "spec") {
        let metrics = items(&spec["metrics"]);
        let percent = metrics.iter().find_map(percent_wanted);
        let others: Vec<Value> =
            metrics.iter().filter(|metric| percent_wanted(metric).is_none()).cloned().collect();
        set(spec, "metrics", others);
        if let Some(percent) = percent {
            set(spec, "targetCPUUtilizationPercentage", percent);
        }
    }
    let current = items(at(object, &["status", "currentMetrics"]));
    if let Some(percent) = current.iter().find_map(|metric| percent_of(metric, "current"))
        && let Some(status) = child(object, "status")
    {
        set(status, "currentCPUUtilizationPercentage", percent);
    }
    let mut carried = Map::new();
    for (annotation, part, field) in CARRIED {
        let value = child(object, part).and_then(|part| remove(part, field));
        if let Some(value) = value.filter(|value| !is_empty(value)) {
            carried.insert(annotation.to_owned(), value.to_string().into());
        }
    }
    if carried.is_empty() {
        return;
    }
    if let Some(annotations) =
        child(object, "metadata").and_then(|metadata| child(metadata, "annotations"))
    {
        for (annotation, text) in carried {
            set(annotations, &annotation, text);
        }
    }
}

fn percent_wanted(metric: &Value) -> Option<i64> {
    percent_of(metric, "target")
}

/// Returns the CPU utilization in percent, if this metric is about that.
fn percent_of(metric: &Value, part: &str) -> Option<i64> {
    let resource = &metric["resource"];
    let is_cpu = metric["type"] == "Resource" && text(resource, "name") == "cpu";
    at(resource, &[part, "averageUtilization"]).as_i64().filter(|_| is_cpu)
}

fn drop_empty_annotations(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata")
        && metadata.get("annotations").is_some_and(is_empty)
    {
        remove(metadata, "annotations");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{from_stored, to_stored};

    fn autoscaler(metrics: &Value) -> Value {
        json!({"metadata": {"name": "web"}, "spec": {"maxReplicas": 3, "metrics": metrics}, "status": {"currentReplicas": 1}})
    }

    fn cpu(percent: i64) -> Value {
        json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}}})
    }

    #[test]
    fn fields_that_v1_lacks_are_restored_from_annotations() {
        let pods = json!({"type": "Pods", "pods": {"metric": {"name": "hits"}, "target": {"type": "AverageValue", "averageValue": "5"}}});
        let mut stored = autoscaler(&json!([cpu(60), pods]));
        stored["spec"]["behavior"] = json!({"scaleUp": {"selectPolicy": "Max"}});
        stored["status"]["conditions"] = json!([{"type": "AbleToScale", "status": "True"}]);
        let mut object = stored.clone();
        from_stored(&mut object);
        assert_eq!(object["spec"], json!({"maxReplicas": 3, "targetCPUUtilizationPercentage": 60}));
        assert_eq!(object["metadata"]["annotations"].as_object().unwrap().len(), 3);
        to_stored(&mut object);
        assert_eq!(object, stored);
    }

    #[test]
    fn the_old_form_aims_at_the_usual_use_if_it_says_nothing() {
        let cases = [
            ("a target", json!({"targetCPUUtilizationPercentage": 50}), 50),
            ("nothing", json!({}), 80),
        ];
        for (case, spec, percent) in cases {
            let mut object = json!({"metadata": {"name": "web"}, "spec": spec, "status": {}});
            to_stored(&mut object);
            assert_eq!(object["spec"], json!({"metrics": [cpu(percent)]}), "{case}");
        }
    }
}
