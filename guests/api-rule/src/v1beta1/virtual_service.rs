//! The `VirtualService`, which routes requests to services or to Oathkeeper.

use std::collections::{BTreeMap, BTreeSet};

use mortise_sdk::duration;

use super::{
    Subject,
    strategy::{self, ALLOW, NO_AUTH},
};
use crate::{
    api::v1beta1::{CorsPolicy, Rule},
    config::Handler,
    istio::{self, StringMatch},
    json, path,
    virtual_service::{CORS_HEADERS, DEFAULT_TIMEOUT_SECONDS, cookie, origins},
};

/// The host and the port of Oathkeeper's proxy.
const OATHKEEPER: (&str, i64) = ("ory-oathkeeper-proxy.kyma-system.svc.cluster.local", 4455);

/// Builds the spec. Of several rules with one path, the first one counts.
pub(super) fn build(subject: &Subject<'_>) -> Result<istio::VirtualServiceSpec, String> {
    let cors_policy = cors_policy(subject.spec.cors_policy.as_ref())?;
    let mut paths = BTreeSet::new();
    let first = subject.spec.rules().iter().filter(|of| paths.insert(of.path.as_str()));
    Ok(istio::VirtualServiceSpec {
        gateways: vec![subject.spec.gateway.clone().unwrap_or_default()],
        hosts: vec![subject.host.clone()],
        http: first.map(|of| route(subject, of, cors_policy.clone())).collect(),
    })
}

fn route(
    subject: &Subject<'_>,
    of: &Rule,
    cors_policy: Option<istio::CorsPolicy>,
) -> istio::HttpRoute {
    let is_istio = subject.handler == Handler::Istio;
    let is_direct = !strategy::is_secured(of) || is_istio && strategy::is_jwt(of);
    let (host, number) =
        if is_direct { subject.service(of) } else { (OATHKEEPER.0.to_owned(), OATHKEEPER.1) };
    let has_method = if is_istio { !strategy::has(of, ALLOW) } else { strategy::has(of, NO_AUTH) };
    let uri = if is_istio && of.path == path::EVERY {
        StringMatch::Prefix("/".to_owned())
    } else {
        StringMatch::Regex(of.path.clone())
    };
    let timeout = of.timeout.or(subject.spec.timeout).unwrap_or(DEFAULT_TIMEOUT_SECONDS);
    let remove = if subject.spec.cors_policy.is_some() { CORS_HEADERS } else { &[] };
    istio::HttpRoute {
        cors_policy,
        headers: istio::Headers {
            request: istio::RequestHeaders { set: request_headers(subject, of) },
            response: istio::ResponseHeaders { remove },
        },
        matches: [istio::HttpMatch {
            method: has_method.then(|| StringMatch::methods(&of.methods)),
            uri,
        }],
        route: [istio::Route {
            destination: istio::Destination { host, port: istio::Port { number } },
            weight: 100,
        }],
        timeout: format!("{timeout}s"),
    }
}

/// Returns the request headers to set. Oathkeeper carries mutators out, but for those of rules
/// that Istio checks the tokens of.
fn request_headers(subject: &Subject<'_>, of: &Rule) -> BTreeMap<String, String> {
    let mut set = BTreeMap::from([("x-forwarded-host".to_owned(), subject.host.clone())]);
    if subject.handler == Handler::Ory || !strategy::is_jwt(of) {
        return set;
    }
    let cookies = mutation(of, "cookie", "cookies");
    if !cookies.is_empty() {
        set.insert("Cookie".to_owned(), cookie(&cookies));
    }
    set.extend(mutation(of, "header", "headers"));
    set
}

/// Returns the values that the mutator of this name sets; the validation lets through only one.
fn mutation(of: &Rule, handler: &str, field: &str) -> BTreeMap<String, String> {
    let mutator = of.mutators.iter().find(|mutator| mutator.name == handler);
    let values = mutator.and_then(|mutator| mutator.config.as_ref()?.get(field));
    values.and_then(|values| json::read(values).ok()).unwrap_or_default()
}

/// Builds the CORS policy; the default one if the APIRule has none.
fn cors_policy(policy: Option<&CorsPolicy>) -> Result<Option<istio::CorsPolicy>, String> {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let Some(policy) = policy else {
        return Ok(Some(istio::CorsPolicy {
            allow_credentials: None,
            allow_headers: texts(&["Authorization", "Content-Type", "*"]),
            allow_methods: texts(&["GET", "POST", "PUT", "DELETE", "PATCH"]),
            allow_origins: vec![StringMatch::Regex(".*".to_owned())],
            expose_headers: Vec::new(),
            max_age: None,
        }));
    };
    let max_age = policy.max_age.as_deref().map(duration::parse).transpose();
    let max_age = max_age.map_err(|error| format!("spec.corsPolicy.maxAge: {error}"))?;
    let allow_origins = origins(&policy.allow_origins);
    if allow_origins.is_empty() {
        return Ok(None);
    }
    Ok(Some(istio::CorsPolicy {
        allow_credentials: policy.allow_credentials,
        allow_headers: policy.allow_headers.clone(),
        allow_methods: policy.allow_methods.clone(),
        allow_origins,
        expose_headers: policy.expose_headers.clone(),
        max_age: max_age.map(protobuf_duration),
    }))
}

/// Formats nanoseconds as JSON of Protocol Buffers has them: seconds, with three, six or nine
/// digits after the point if they are not whole.
fn protobuf_duration(nanoseconds: i64) -> String {
    const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let (whole, rest) = (
        nanoseconds.unsigned_abs() / NANOSECONDS_PER_SECOND,
        nanoseconds.unsigned_abs() % NANOSECONDS_PER_SECOND,
    );
    let fraction = match rest {
        0 => String::new(),
        _ if rest % 1_000_000 == 0 => format!(".{:03}", rest / 1_000_000),
        _ if rest % 1_000 == 0 => format!(".{:06}", rest / 1_000),
        _ => format!(".{rest:09}"),
    };
    format!("{sign}{whole}{fraction}s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_protocol_buffers() {
        let cases = [
            ("90s", "90s"),
            ("1m30.7s", "90.700s"),
            ("1.000001s", "1.000001s"),
            ("1ns", "0.000000001s"),
            ("0s", "0s"),
            ("-1.5s", "-1.500s"),
        ];
        for (text, expected) in cases {
            assert_eq!(protobuf_duration(duration::parse(text).unwrap()), expected, "{text}");
        }
    }
}
