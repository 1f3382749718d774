//! The part of the merge that concerns the mesh configuration.

use mortise_sdk::duration;
use serde_json::{Map, Value, json};

use super::{at, push, set};
use crate::api::{Authorizer, Config};

const NANOSECONDS_PER_SECOND: i64 = 1_000_000_000;

/// Merges the settings of the whole mesh.
pub(super) fn merge(mesh: &mut Value, config: &Config) -> Result<(), String> {
    let topology = ["defaultConfig", "gatewayTopology"];
    if let Some(number) = config.num_trusted_proxies {
        set(at(mesh, &topology), &["numTrustedProxies"], number);
    }
    if let Some(details) = &config.forward_client_cert_details {
        set(at(mesh, &topology), &["forwardClientCertDetails"], details.as_str());
    }
    for authorizer in config.authorizers() {
        push(mesh, &["extensionProviders"], provider(authorizer)?);
    }
    set(mesh, &["enablePrometheusMerge"], config.telemetry.metrics.prometheus_merge);
    if let Some(domain) = &config.trust_domain {
        set(mesh, &["trustDomain"], domain.as_str());
    }
    if let Some(is_on) = config.enable_dns_proxying {
        proxy_metadata(mesh, "ISTIO_META_DNS_CAPTURE", if is_on { "true" } else { "false" });
    }
    let matcher = config.proxy_stats_matcher.as_ref();
    if let Some(matcher) = matcher.filter(|matcher| !matcher.inclusion_regexps.is_empty()) {
        let path = ["defaultConfig", "proxyStatsMatcher", "inclusionRegexps"];
        set(mesh, &path, matcher.inclusion_regexps.as_slice());
    }
    Ok(())
}

/// Sets an environment variable of all proxies.
pub(super) fn proxy_metadata(mesh: &mut Value, name: &str, value: &str) {
    set(mesh, &["defaultConfig", "proxyMetadata", name], value);
}

fn provider(authorizer: &Authorizer) -> Result<Value, String> {
    let mut http = Map::new();
    let mut put = |key: &str, value: Value| {
        http.insert(key.to_owned(), value);
    };
    // The original writes a message of Protobuf, whose JSON has no fields with default values.
    let prefix = authorizer.path_prefix.as_deref().unwrap_or_default();
    for (key, text) in [("service", authorizer.service.as_str()), ("pathPrefix", prefix)] {
        if !text.is_empty() {
            put(key, text.into());
        }
    }
    if authorizer.port != 0 {
        put("port", authorizer.port.into());
    }
    if let Some(timeout) = &authorizer.timeout {
        put("timeout", format!("{}s", duration::parse(timeout)? / NANOSECONDS_PER_SECOND).into());
    }
    let headers = authorizer.headers.clone().unwrap_or_default();
    let in_check = headers.in_check.unwrap_or_default();
    let to_downstream = headers.to_downstream.unwrap_or_default();
    for (key, list) in [
        ("includeRequestHeadersInCheck", in_check.include),
        ("headersToUpstreamOnAllow", headers.to_upstream.unwrap_or_default().on_allow),
        ("headersToDownstreamOnAllow", to_downstream.on_allow),
        ("headersToDownstreamOnDeny", to_downstream.on_deny),
    ] {
        if !list.is_empty() {
            put(key, list.into());
        }
    }
    if !in_check.add.is_empty() {
        put("includeAdditionalHeadersInCheck", json!(in_check.add));
    }
    let mut provider = json!({"envoyExtAuthzHttp": http});
    if !authorizer.name.is_empty() {
        set(&mut provider, &["name"], authorizer.name.as_str());
    }
    Ok(provider)
}
