//! The cells of autoscalers.

use serde_json::{Value, json};

use super::cell::{NONE, UNSET, scalar};
use crate::builtin::edit::{items, text};

/// The number of metrics shown; further ones are only counted.
const MAX_SHOWN_METRICS: usize = 2;

const UNKNOWN: &str = "<unknown>";

/// Returns the cells of an autoscaler, in either form.
pub(super) fn cells(name: Value, spec: &Value, status: &Value, old: Value) -> Vec<Value> {
    let target = &spec["scaleTargetRef"];
    let reference = format!("{}/{}", text(target, "kind"), text(target, "name"));
    let least = scalar(&spec["minReplicas"], UNSET);
    let current = status["currentReplicas"].as_i64().unwrap_or(0);
    vec![
        name,
        reference.into(),
        metrics(spec, status).into(),
        least,
        spec["maxReplicas"].clone(),
        current.into(),
        old,
    ]
}

fn metrics(spec: &Value, status: &Value) -> String {
    let (wanted, found);
    // The older form has no metric but CPU utilization.
    let (wanted, found) = match &spec["targetCPUUtilizationPercentage"] {
        Value::Null => (items(&spec["metrics"]), items(&status["currentMetrics"])),
        percent => {
            let current = &status["currentCPUUtilizationPercentage"];
            wanted = [cpu("target", percent)];
            found = [cpu("current", current)];
            (&wanted[..], &found[..])
        }
    };
    let mut texts: Vec<String> = wanted
        .iter()
        .enumerate()
        .map(|(index, metric)| self::metric(metric, found.get(index).unwrap_or(&Value::Null)))
        .collect();
    let more = texts.len().saturating_sub(MAX_SHOWN_METRICS);
    texts.truncate(MAX_SHOWN_METRICS);
    match (texts.is_empty(), more) {
        (true, _) => NONE.to_owned(),
        (_, 0) => texts.join(", "),
        _ => format!("{} + {more} more...", texts.join(", ")),
    }
}

fn cpu(part: &str, percent: &Value) -> Value {
    json!({"type": "Resource", "resource": {"name": "cpu", part: {"averageUtilization": percent}}})
}

/// Returns the current and the target value of a metric.
fn metric(spec: &Value, status: &Value) -> String {
    let source = match text(spec, "type") {
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        "Pods" => "pods",
        "Object" => "object",
        "External" => "external",
        _ => return "<unknown type>".to_owned(),
    };
    let (spec, status) = (spec.get(source), status.get(source));
    let value = |part: Option<&Value>, group: &str, field: &str| {
        part.and_then(|part| part.get(group)?.get(field)).filter(|value| !value.is_null()).cloned()
    };
    let wanted = |field: &str| value(spec, "target", field);
    let found = |field: &str| value(status, "current", field);
    let plain = |value: Option<Value>, absent: &str| {
        scalar(&value.unwrap_or_default(), absent).as_str().unwrap_or(absent).to_owned()
    };
    let percent = |value: Option<Value>, absent: &str| {
        value
            .and_then(|value| value.as_i64())
            .map_or(absent.to_owned(), |value| format!("{value}%"))
    };
    let average = wanted("averageValue");
    match source {
        "resource" | "containerResource" => {
            let name = spec.map_or("", |spec| text(spec, "name"));
            let (found, wanted) = match average {
                Some(average) => {
                    (plain(found("averageValue"), UNKNOWN), plain(Some(average), UNKNOWN))
                }
                None => (
                    percent(found("averageUtilization"), UNKNOWN),
                    percent(wanted("averageUtilization"), "<auto>"),
                ),
            };
            format!("{name}: {found}/{wanted}")
        }
        "pods" => format!("{}/{}", plain(found("averageValue"), UNKNOWN), plain(average, UNKNOWN)),
        _ => match average {
            Some(average) => {
                format!(
                    "{}/{} (avg)",
                    plain(found("averageValue"), UNKNOWN),
                    plain(Some(average), UNKNOWN)
                )
            }
            None => {
                format!("{}/{}", plain(found("value"), UNKNOWN), plain(wanted("value"), UNKNOWN))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::metrics;

    #[test]
    fn metrics_are_shown_as_current_and_target_values() {
        let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}});
        let memory = json!({"type": "ContainerResource", "containerResource": {"name": "memory", "target": {"averageValue": "1Gi"}}});
        let pods = json!({"type": "Pods", "pods": {"target": {"averageValue": "5"}}});
        let object = json!({"type": "Object", "object": {"target": {"value": "2k"}}});
        let external = json!({"type": "External", "external": {"target": {"averageValue": "30"}}});
        let used = json!({"resource": {"current": {"averageUtilization": 12}}});
        let cases = [
            ("none", json!([]), json!([]), "<none>"),
            ("a percentage", json!([cpu]), json!([used]), "cpu: 12%/80%"),
            ("a quantity", json!([memory]), json!([]), "memory: <unknown>/1Gi"),
            ("pods", json!([pods]), json!([]), "<unknown>/5"),
            ("an object", json!([object]), json!([]), "<unknown>/2k"),
            ("something else", json!([external]), json!([]), "<unknown>/30 (avg)"),
            (
                "many",
                json!([cpu, pods, object, external]),
                json!([used]),
                "cpu: 12%/80%, <unknown>/5 + 2 more...",
            ),
        ];
        for (case, wanted, found, text) in cases {
            let told = metrics(&json!({"metrics": wanted}), &json!({"currentMetrics": found}));
            assert_eq!(told, text, "{case}");
        }
        let old = json!({"targetCPUUtilizationPercentage": 50});
        assert_eq!(metrics(&old, &Value::Null), "cpu: <unknown>/50%");
    }
}
