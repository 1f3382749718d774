//! The checks of a RateLimit, with the original's messages.

use std::collections::BTreeMap;

use mortise_sdk::{Error, Host, Selection, duration, object::Metadata};
use serde::Deserialize;

use crate::{
    api::{Bucket, RateLimit},
    workload::{self, Pod},
};

/// The fields that are read of the other RateLimits of a namespace.
pub(crate) const OTHERS: [&str; 1] = ["spec.selectorLabels"];
/// The shortest time between two fillings, in nanoseconds.
const MIN_FILL_INTERVAL_NANOSECONDS: i64 = 50_000_000;

/// Checks a RateLimit. The inner error is the first fault.
pub(crate) fn check(limit: &RateLimit, host: &Host) -> Result<Result<(), String>, Error> {
    if let Err(fault) = intervals(limit) {
        return Ok(Err(fault));
    }
    let namespace = limit.metadata.namespace.as_deref().unwrap_or_default();
    let pods = workload::pods(host, namespace, &limit.spec.selector_labels)?;
    if pods.is_empty() {
        let labels = map_text(&limit.spec.selector_labels);
        let fault =
            format!("no pods found with the given selectors: {labels} in namespace {namespace}");
        return Ok(Err(fault));
    }
    let others = conflicts(limit, namespace, &pods, host)?;
    if !others.is_empty() {
        let others = others.join(", ");
        return Ok(Err(format!("conflicting with the following RateLimit CRs: {others}")));
    }
    Ok(sidecars(&pods))
}

/// Returns the nanoseconds between two fillings of a bucket.
pub(crate) fn interval(bucket: &Bucket) -> Result<i64, String> {
    if bucket.fill_interval.is_empty() {
        return Ok(0);
    }
    duration::parse(&bucket.fill_interval).map_err(|error| format!("fillInterval: {error}"))
}

fn intervals(limit: &RateLimit) -> Result<(), String> {
    let checked = |name: &str, bucket: &Bucket| {
        let interval = interval(bucket).map_err(|error| format!("{name}: {error}"))?;
        if interval < MIN_FILL_INTERVAL_NANOSECONDS {
            return Err(format!("{name}: fillInterval must be greater or equal 50ms"));
        }
        Ok(interval)
    };
    let default = checked("defaultBucket", &limit.spec.local.default_bucket)?;
    for (index, matched) in limit.spec.local.buckets.iter().enumerate() {
        let name = format!("bucket '[{index}]'");
        if checked(&name, &matched.bucket)? % default != 0 {
            return Err(format!(
                "{name}: fillInterval must be a multiple of defaultBucket fillInterval"
            ));
        }
    }
    Ok(())
}

/// Returns the names of the other RateLimits that select one of the Pods.
fn conflicts(
    limit: &RateLimit,
    namespace: &str,
    pods: &[Pod],
    host: &Host,
) -> Result<Vec<String>, Error> {
    let others = Selection::of::<RateLimit>().namespace(namespace).fields(OTHERS);
    let mut conflicting = Vec::new();
    for other in host.list::<Other>(&others)? {
        let is_other = other.metadata.name != limit.metadata.name;
        if is_other && pods.iter().any(|pod| pod.has(&other.spec.selector_labels)) {
            conflicting.push(other.metadata.name);
        }
    }
    Ok(conflicting)
}

/// Another RateLimit, of which only the Pods that it selects matter.
#[derive(Deserialize)]
struct Other {
    metadata: Metadata,
    #[serde(default)]
    spec: Selected,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Selected {
    selector_labels: BTreeMap<String, String>,
}

fn sidecars(pods: &[Pod]) -> Result<(), String> {
    if pods.iter().all(Pod::is_ingress_gateway) {
        return Ok(());
    }
    let name = |pod: &Pod| {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        format!("{namespace}/{}", pod.metadata.name)
    };
    let without: Vec<String> = pods.iter().filter(|pod| !pod.has_sidecar()).map(name).collect();
    if without.is_empty() {
        return Ok(());
    }
    let without = without.join(", ");
    Err(format!("sidecar injection is not enabled for the following pods: {without}"))
}

/// Returns a map in Go's notation.
fn map_text(map: &BTreeMap<String, String>) -> String {
    let entries: Vec<String> = map.iter().map(|(key, value)| format!("{key}:{value}")).collect();
    format!("map[{}]", entries.join(" "))
}

#[cfg(test)]
mod tests {
    use mortise_sdk::testing::Stub;
    use serde_json::{Value, json};

    use super::*;

    fn limit(intervals: &[&str]) -> Value {
        let bucket =
            |interval: &&str| json!({"maxTokens": 1, "tokensPerFill": 1, "fillInterval": interval});
        let (default, others) = intervals.split_first().unwrap();
        let others: Vec<Value> =
            others.iter().map(|of| json!({"path": "/a", "bucket": bucket(of)})).collect();
        json!({
            "apiVersion": "gateway.kyma-project.io/v1alpha1", "kind": "RateLimit",
            "metadata": {"name": "rl", "namespace": "default"},
            "spec": {
                "selectorLabels": {"tier": "web", "app": "shop"},
                "local": {"defaultBucket": bucket(default), "buckets": others},
            },
        })
    }

    fn pod(name: &str, labels: &Value, has_sidecar: bool) -> Value {
        let annotations = if has_sidecar { json!({SIDECAR: "{}"}) } else { json!({}) };
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": labels, "annotations": annotations},
        })
    }

    const SIDECAR: &str = "sidecar.istio.io/status";

    fn fault(limit: &Value, objects: impl IntoIterator<Item = Value>) -> String {
        let stub = Stub::new().objects(objects).objects([limit.clone()]);
        let limit = serde_json::from_value(limit.clone()).unwrap();
        check(&limit, &stub.host()).unwrap().err().unwrap_or_default()
    }

    #[test]
    fn intervals_are_long_enough_and_multiples() {
        let cases = [
            (&["50ms"][..], ""),
            (&["49999999ns"], "defaultBucket: fillInterval must be greater or equal 50ms"),
            (&["-1h"], "defaultBucket: fillInterval must be greater or equal 50ms"),
            (&[""], "defaultBucket: fillInterval must be greater or equal 50ms"),
            (&["1x"], r#"defaultBucket: fillInterval: time: unknown unit "x" in duration "1x""#),
            (&["1m", "1m", "2m", "1h"], ""),
            (&["1m", "40ms"], "bucket '[0]': fillInterval must be greater or equal 50ms"),
            (
                &["30s", "1m", "45s"],
                "bucket '[1]': fillInterval must be a multiple of defaultBucket fillInterval",
            ),
            (
                &["1m", "30s"],
                "bucket '[0]': fillInterval must be a multiple of defaultBucket fillInterval",
            ),
        ];
        let pod = pod("p", &json!({"tier": "web", "app": "shop"}), true);
        for (intervals, expected) in cases {
            assert_eq!(fault(&limit(intervals), [pod.clone()]), expected, "{intervals:?}");
        }
    }

    #[test]
    fn there_must_be_pods_with_sidecars_of_no_other_limit() {
        let limit = limit(&["1m"]);
        let web = json!({"tier": "web", "app": "shop"});
        let ingress = json!({"tier": "web", "app": "shop", "istio": "ingressgateway"});
        let none =
            "no pods found with the given selectors: map[app:shop tier:web] in namespace default";
        let cases = [
            (vec![], none),
            (vec![pod("p", &json!({"app": "shop"}), true)], none),
            (vec![pod("p", &web, true)], ""),
            (vec![pod("p", &ingress, false)], ""),
            (
                vec![pod("p", &ingress, false), pod("q", &web, true), pod("r", &web, false)],
                "sidecar injection is not enabled for the following pods: default/p, default/r",
            ),
        ];
        for (objects, expected) in cases {
            assert_eq!(fault(&limit, objects), expected);
        }
    }

    #[test]
    fn other_limits_of_the_namespace_must_not_select_a_common_pod() {
        let limit = limit(&["1m"]);
        let other = |name: &str, namespace: &str, labels: Value| {
            let mut other = limit.clone();
            other["metadata"] = json!({"name": name, "namespace": namespace});
            other["spec"]["selectorLabels"] = labels;
            other
        };
        let pod = pod("p", &json!({"tier": "web", "app": "shop", "more": "x"}), false);
        let others = [
            pod,
            other("b", "default", json!({"more": "x"})),
            other("a", "default", json!({"app": "shop"})),
            other("c", "default", json!({"app": "other"})),
            other("d", "elsewhere", json!({"app": "shop"})),
        ];
        let expected = "conflicting with the following RateLimit CRs: a, b";
        assert_eq!(fault(&limit, others), expected);
    }
}
