//! The `VirtualService` of an APIRule: where requests go.

use std::collections::BTreeMap;

use mortise_sdk::object::Metadata;

use crate::{
    api::{ApiRule, CorsPolicy, Rule},
    existing, istio, path,
};

/// How many seconds a request may take where nothing says so.
const TIMEOUT: i64 = 180;

/// There is one for an APIRule: nothing tells it from others.
pub(crate) const KEY: &str = "";

/// Headers of answers that only the Gateway may give.
const CORS_HEADERS: &[&str] = &[
    "Access-Control-Allow-Origin",
    "Access-Control-Expose-Headers",
    "Access-Control-Allow-Headers",
    "Access-Control-Allow-Credentials",
    "Access-Control-Allow-Methods",
    "Access-Control-Max-Age",
];

/// The spec, for fully qualified hosts and an Istio `Gateway` as namespace/name.
pub(crate) fn build(rule: &ApiRule, hosts: &[String], gateway: &str) -> istio::VirtualServiceSpec {
    let http = rule.spec.rules.iter().map(|of| route(rule, of, hosts)).collect();
    istio::VirtualServiceSpec { gateways: vec![gateway.to_owned()], hosts: hosts.to_vec(), http }
}

/// Whether its name says that a `VirtualService` was made for an APIRule, whatever its labels say.
pub(crate) fn is_made_for(rule: &ApiRule, metadata: &Metadata) -> bool {
    metadata.namespace.as_deref() == Some(rule.namespace())
        && (metadata.name == name(rule) || existing::is_generated(metadata, rule))
}

/// The name of the one that is made for an APIRule, in its namespace.
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
    let timeout = of.timeout.or(rule.spec.timeout).unwrap_or(TIMEOUT);
    istio::HttpRoute {
        cors_policy: rule.spec.cors_policy.as_ref().and_then(cors_policy),
        headers: istio::Headers {
            request: istio::RequestHeaders { set: request_headers(of, hosts) },
            response: istio::ResponseHeaders { remove: CORS_HEADERS },
        },
        matches: [istio::HttpMatch {
            method: istio::StringMatch::Regex(format!("^({})$", of.methods.join("|"))),
            uri: path::uri_match(&of.path),
        }],
        route: [istio::Route { destination, weight: 100 }],
        timeout: format!("{timeout}s"),
    }
}

/// The headers that are set: what the rule says wins over what is always there, and its cookies over its headers.
fn request_headers(of: &Rule, hosts: &[String]) -> BTreeMap<String, String> {
    let forwarded = match hosts.first() {
        Some(wildcard) if wildcard.starts_with("*.") => "%REQ(:AUTHORITY)%",
        host => host.map_or("", String::as_str),
    };
    let mut set = BTreeMap::from([("x-forwarded-host".to_owned(), forwarded.to_owned())]);
    let Some(change) = &of.request else { return set };
    set.extend(change.headers.iter().flatten().map(|(name, value)| (name.clone(), value.clone())));
    // No cookies at all are as good as none said: an empty header would take away those of the client.
    if let Some(cookies) = change.cookies.as_ref().filter(|cookies| !cookies.is_empty()) {
        let cookies: Vec<String> =
            cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        set.insert("Cookie".to_owned(), cookies.join("; "));
    }
    set
}

/// Without any origin the whole policy has no effect, as in the original.
fn cors_policy(policy: &CorsPolicy) -> Option<istio::CorsPolicy> {
    let allow_origins: Vec<istio::StringMatch> =
        policy.allow_origins.iter().flatten().map(|(kind, value)| origin(kind, value)).collect();
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

fn origin(kind: &str, value: &str) -> istio::StringMatch {
    match kind {
        "exact" => istio::StringMatch::Exact(value.to_owned()),
        "regex" => istio::StringMatch::Regex(value.to_owned()),
        _ => istio::StringMatch::Prefix(value.to_owned()),
    }
}
