//! The builder of the `EnvoyFilter`.

use mortise_sdk::{Kind, object::OwnerReference};
use serde_json::{Value, json};

use crate::{
    api::{Bucket, MatchedBucket, RateLimit},
    validation,
};

const FILTER: &str = "envoy.filters.http.local_ratelimit";
const CONNECTION_MANAGER: &str = "envoy.filters.network.http_connection_manager";
const STRUCT: &str = "type.googleapis.com/udpa.type.v1.TypedStruct";
const LOCAL_RATE_LIMIT_TYPE: &str =
    "type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit";
/// The headers that Envoy makes of the request itself; their names begin with a colon.
const PSEUDO: [&str; 3] = ["path", "method", "scheme"];

/// Returns the kind of the produced object.
pub(crate) fn kind() -> Kind {
    Kind::new("networking.istio.io", "v1alpha3", "EnvoyFilter")
}

/// Returns the `EnvoyFilter` of a valid RateLimit, with its name and in its namespace.
pub(crate) fn build(limit: &RateLimit) -> Value {
    let spec = &limit.spec;
    let context = match spec.selector_labels.get("app").map(String::as_str) {
        Some("istio-ingressgateway") => "GATEWAY",
        _ => "SIDECAR_INBOUND",
    };
    let filter = json!({"filterChain": {"filter": {"name": CONNECTION_MANAGER}}});
    let config = typed(&json!({"stat_prefix": "http_local_rate_limiter"}));
    let insert = json!({"name": FILTER, "typed_config": config});
    let merge = json!({
        "route": {"rate_limits": rate_limits(&spec.local.buckets)},
        "typed_per_filter_config": {FILTER: typed(&limits(limit))},
    });
    json!({
        "apiVersion": kind().api_version(),
        "kind": kind().kind,
        "metadata": {
            "name": limit.metadata.name,
            "namespace": limit.metadata.namespace,
            "ownerReferences": [OwnerReference::controller::<RateLimit>(&limit.metadata)],
        },
        "spec": {
            "workloadSelector": {"labels": spec.selector_labels},
            "configPatches": [
                {
                    "applyTo": "HTTP_FILTER",
                    "match": {"context": context, "listener": filter},
                    "patch": {"operation": "INSERT_BEFORE", "value": insert},
                },
                {
                    "applyTo": "HTTP_ROUTE",
                    "match": {"context": context},
                    "patch": {"operation": "MERGE", "value": merge},
                },
            ],
        },
    })
}

fn typed(value: &Value) -> Value {
    json!({"@type": STRUCT, "type_url": LOCAL_RATE_LIMIT_TYPE, "value": value})
}

fn limits(limit: &RateLimit) -> Value {
    let spec = &limit.spec;
    let descriptor = |matched: &MatchedBucket| {
        let entries: Vec<Value> =
            entries(matched).map(|(key, value)| json!({"key": key, "value": value})).collect();
        json!({"entries": entries, "token_bucket": token_bucket(&matched.bucket)})
    };
    let descriptors: Vec<Value> = spec.local.buckets.iter().map(descriptor).collect();
    json!({
        "stat_prefix": "rate_limit",
        "enable_x_ratelimit_headers":
            if spec.enable_response_headers { "DRAFT_VERSION_03" } else { "OFF" },
        "filter_enabled": runtime("local_rate_limit_enabled", 100),
        "filter_enforced": runtime("local_rate_limit_enforced", if spec.enforce { 100 } else { 0 }),
        "always_consume_default_token_bucket": false,
        "token_bucket": token_bucket(&spec.local.default_bucket),
        "descriptors": descriptors,
    })
}

fn runtime(key: &str, percent: u8) -> Value {
    json!({
        "runtime_key": key,
        "default_value": {"numerator": percent, "denominator": "HUNDRED"},
    })
}

/// Returns what a request must have for a bucket: its path first, then its headers in order.
fn entries(matched: &MatchedBucket) -> impl Iterator<Item = (&str, &str)> {
    let path = Some(("path", matched.path.as_str())).filter(|(_, path)| !path.is_empty());
    let headers = matched.headers.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    path.into_iter().chain(headers)
}

/// Returns the headers that are compared with the buckets, each once.
fn rate_limits(buckets: &[MatchedBucket]) -> Value {
    if buckets.is_empty() {
        return json!([]);
    }
    let mut keys: Vec<&str> = Vec::new();
    for (key, _) in buckets.iter().flat_map(entries) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let action = |key: &&str| {
        let colon = if PSEUDO.contains(key) { ":" } else { "" };
        json!({"request_headers": {"header_name": format!("{colon}{key}"), "descriptor_key": key}})
    };
    let actions: Vec<Value> = keys.iter().map(action).collect();
    json!([{"actions": actions}])
}

fn token_bucket(bucket: &Bucket) -> Value {
    // A valid RateLimit has valid intervals.
    let nanoseconds = validation::interval(bucket).unwrap_or_default();
    let (seconds, rest) = (nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000);
    // Rounded to microseconds, as the original prints it.
    let microseconds = seconds * 1_000_000 + (rest + 500) / 1_000;
    let (seconds, rest) = (microseconds / 1_000_000, microseconds % 1_000_000);
    json!({
        "fill_interval": format!("{seconds}.{rest:06}s"),
        "max_tokens": bucket.max_tokens,
        "tokens_per_fill": bucket.tokens_per_fill,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(spec: &Value) -> RateLimit {
        let metadata = json!({"name": "rl", "namespace": "default", "uid": "u"});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    fn bucket(interval: &str) -> Value {
        json!({"maxTokens": 5, "tokensPerFill": 2, "fillInterval": interval})
    }

    const MERGED: &str = "/spec/configPatches/1/patch/value";

    #[test]
    fn each_header_is_compared_once_and_the_path_comes_first() {
        let filter = build(&limit(&json!({
            "selectorLabels": {"app": "web"},
            "local": {"defaultBucket": bucket("1s"), "buckets": [
                {"path": "/a", "headers": {"x-b": "1", "x-a": "2"}, "bucket": bucket("2s")},
                {"headers": {"method": "GET", "x-a": "3"}, "bucket": bucket("1s")},
                {"path": "", "headers": {"scheme": "https"}, "bucket": bucket("1s")},
            ]},
        })));
        let merged = filter.pointer(MERGED).unwrap();
        let actions = merged["route"]["rate_limits"][0]["actions"].as_array().unwrap();
        let names: Vec<_> = actions
            .iter()
            .map(|action| action["request_headers"]["header_name"].as_str().unwrap())
            .collect();
        assert_eq!(names, [":path", "x-a", "x-b", ":method", ":scheme"]);
        let limits = &merged["typed_per_filter_config"][FILTER]["value"];
        let first = json!([
            {"key": "path", "value": "/a"}, {"key": "x-a", "value": "2"}, {"key": "x-b", "value": "1"},
        ]);
        assert_eq!(limits["descriptors"][0]["entries"], first);
        assert_eq!(limits["descriptors"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn intervals_are_printed_in_microseconds() {
        let cases = [
            ("50ms", "0.050000s"),
            ("30s", "30.000000s"),
            ("1h", "3600.000000s"),
            ("1.0000015s", "1.000002s"),
            ("1.0000004s", "1.000000s"),
            ("59.9999999s", "60.000000s"),
        ];
        for (interval, expected) in cases {
            let bucket = serde_json::from_value(bucket(interval)).unwrap();
            assert_eq!(token_bucket(&bucket)["fill_interval"], expected, "{interval}");
        }
    }

    #[test]
    fn only_the_label_app_tells_the_ingress_gateway() {
        let context = |labels: Value| {
            let local = json!({"defaultBucket": bucket("1s")});
            let filter = build(&limit(&json!({"selectorLabels": labels, "local": local})));
            let patches = filter["spec"]["configPatches"].clone();
            assert_eq!(patches[0]["match"]["context"], patches[1]["match"]["context"]);
            patches[0]["match"]["context"].as_str().unwrap().to_owned()
        };
        assert_eq!(context(json!({"app": "istio-ingressgateway"})), "GATEWAY");
        assert_eq!(context(json!({"istio": "ingressgateway"})), "SIDECAR_INBOUND");
    }

    #[test]
    fn headers_are_sent_and_limits_enforced_as_asked_for() {
        let limits = |more: Value| {
            let mut spec =
                json!({"selectorLabels": {"app": "a"}, "local": {"defaultBucket": bucket("1s")}});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let merged = build(&limit(&spec)).pointer(MERGED).unwrap().clone();
            let limits = &merged["typed_per_filter_config"][FILTER]["value"];
            let enforced = limits["filter_enforced"]["default_value"]["numerator"].clone();
            (limits["enable_x_ratelimit_headers"].clone(), enforced)
        };
        assert_eq!(limits(json!({})), (json!("OFF"), json!(100)));
        assert_eq!(limits(json!({"enforce": false})), (json!("OFF"), json!(0)));
        let headers = json!({"enableResponseHeaders": true});
        assert_eq!(limits(headers), (json!("DRAFT_VERSION_03"), json!(100)));
    }
}
