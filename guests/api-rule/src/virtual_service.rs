//! The `VirtualService` of an APIRule, which routes requests to services.

use std::collections::BTreeMap;

use mortise_sdk::object::Metadata;

use crate::{
    api::{ApiRule, CorsPolicy, Rule},
    existing, istio, path,
};

/// The timeout of a request in seconds, if neither the rule nor the spec sets one.
pub(crate) const DEFAULT_TIMEOUT_SECONDS: i64 = 180;

/// The key of the `VirtualService`: an APIRule has only one, so nothing has to tell it from others.
pub(crate) const KEY: &str = "";

/// The response headers that only the Gateway may set.
pub(crate) const CORS_HEADERS: &[&str] = &[
    "Access-Control-Allow-Origin",
    "Access-Control-Expose-Headers",
    "Access-Control-Allow-Headers",
    "Access-Control-Allow-Credentials",
    "Access-Control-Allow-Methods",
    "Access-Control-Max-Age",
];

/// Builds the spec for fully qualified hosts and an Istio `Gateway`, given as namespace/name.
pub(crate) fn build(rule: &ApiRule, hosts: &[String], gateway: &str) -> istio::VirtualServiceSpec {
    let http = rule.spec.rules.iter().map(|of| route(rule, of, hosts)).collect();
    istio::VirtualServiceSpec { gateways: vec![gateway.to_owned()], hosts: hosts.to_vec(), http }
}

/// Returns whether the name of a `VirtualService` says that it was made for an APIRule, whatever
/// its labels say.
pub(crate) fn is_made_for(rule: &ApiRule, metadata: &Metadata) -> bool {
    metadata.namespace.as_deref() == Some(rule.namespace())
        && (metadata.name == name(rule) || existing::is_generated(metadata, rule))
}

/// Returns the name of the `VirtualService` that is made for an APIRule, in its namespace.
pub(crate) fn name(rule: &ApiRule) -> String {
    let of = (rule.namespace(), rule.metadata.name.as_str());
    existing::name_for(of, &istio::virtual_service(), rule.namespace(), KEY)
}

fn route(rule: &ApiRule, of: &Rule, hosts: &[String]) -> istio::HttpRoute {
    let service = rule.service(of);
    let name = service.and_then(|service| service.name.as_deref()).unwrap_or_default();
    let destination = istio::Destination {
        host: format!("{name}.{}.svc.cluster.local", rule.service_namespace(of)),
        port: istio::Port { number: service.map_or(0, |service| service.port) },
    };
    let timeout = of.timeout.or(rule.spec.timeout).unwrap_or(DEFAULT_TIMEOUT_SECONDS);
    istio::HttpRoute {
        cors_policy: rule.spec.cors_policy.as_ref().and_then(cors_policy),
        headers: istio::Headers {
            request: istio::RequestHeaders { set: request_headers(of, hosts) },
            response: istio::ResponseHeaders { remove: CORS_HEADERS },
        },
        matches: [istio::HttpMatch {
            method: Some(istio::StringMatch::methods(&of.methods)),
            uri: path::uri_match(&of.path),
        }],
        route: [istio::Route { destination, weight: 100 }],
        timeout: format!("{timeout}s"),
    }
}

/// Returns the request headers to set. The headers of the rule win over those that are always set,
/// and its cookies over its headers.
fn request_headers(of: &Rule, hosts: &[String]) -> BTreeMap<String, String> {
    let forwarded = match hosts.first() {
        Some(wildcard) if wildcard.starts_with("*.") => "%REQ(:AUTHORITY)%",
        host => host.map_or("", String::as_str),
    };
    let mut set = BTreeMap::from([("x-forwarded-host".to_owned(), forwarded.to_owned())]);
    let Some(change) = &of.request else { return set };
    set.extend(change.headers.iter().flatten().map(|(name, value)| (name.clone(), value.clone())));
    // Empty cookies count as absent: an empty header would remove the cookies of the client.
    if let Some(cookies) = change.cookies.as_ref().filter(|cookies| !cookies.is_empty()) {
        set.insert("Cookie".to_owned(), cookie(cookies));
    }
    set
}

/// Returns the value of the header that sets cookies.
pub(crate) fn cookie(cookies: &BTreeMap<String, String>) -> String {
    let cookies: Vec<String> =
        cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
    cookies.join("; ")
}

/// Builds the CORS policy; `None` if it allows no origin: as in the original, such a policy has no
/// effect.
fn cors_policy(policy: &CorsPolicy) -> Option<istio::CorsPolicy> {
    let allow_origins = origins(&policy.allow_origins);
    if allow_origins.is_empty() {
        return None;
    }
    Some(istio::CorsPolicy {
        allow_credentials: policy.allow_credentials,
        allow_headers: policy.allow_headers.clone(),
        allow_methods: policy.allow_methods.clone(),
        allow_origins,
        expose_headers: policy.expose_headers.clone(),
        max_age: policy.max_age.map(|seconds| format!("{seconds}s")),
    })
}

/// Returns the matches of origins, each of which may have several.
pub(crate) fn origins(origins: &[BTreeMap<String, String>]) -> Vec<istio::StringMatch> {
    origins.iter().flatten().map(|(kind, value)| origin(kind, value)).collect()
}

fn origin(kind: &str, value: &str) -> istio::StringMatch {
    match kind {
        "exact" => istio::StringMatch::Exact(value.to_owned()),
        "regex" => istio::StringMatch::Regex(value.to_owned()),
        _ => istio::StringMatch::Prefix(value.to_owned()),
    }
}
