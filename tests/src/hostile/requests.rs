//! The requests that the host sends to the API server as itself.

use std::path::Path;

use anyhow::{Context as _, Result};
use mortise::files;
use serde_json::{Value, json};

use super::tenants::{HOME, certificate_rule};
use crate::cluster::{Audit, Event};

/// Number of unexpected requests that are shown.
const MAX_LISTED_REQUESTS: usize = 5;
/// Kinds that every account may create for itself.
const OF_ITSELF: [(&str, &str); 2] = [
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
];

/// Parameters that the host uses in queries.
const PARAMETERS: [&str; 12] = [
    "allowWatchBookmarks",
    "continue",
    "fieldManager",
    "fieldSelector",
    "force",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
];

/// Returns the number of requests that the host sent as itself, and the unexpected ones: those that
/// it does not need, and requests on behalf of processors for a subresource that no processor
/// declares.
pub(super) async fn of_host(audit: &Audit) -> Result<(usize, Vec<String>)> {
    let own = format!("system:serviceaccount:{HOME}:{HOME}");
    let mut events = audit.events().await?;
    events.retain(|event| event.user.username == own);
    let (own, others): (Vec<_>, Vec<_>) =
        events.into_iter().partition(|event| event.impersonated_user.is_none());
    let rules = rules()?;
    let is_subresource = |event: &&Event| event.resource().ends_with("/scale");
    let strange = own.iter().filter(|event| !is_expected(event, &rules));
    let strange = strange.chain(others.iter().filter(is_subresource));
    let told = strange.map(|event| format!("{} {}", event.verb, event.request_uri));
    Ok((own.len(), told.take(MAX_LISTED_REQUESTS).collect()))
}

/// Returns the rules of all roles of the installation.
fn rules() -> Result<Vec<Value>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let objects = files::load(&root.join("deploy/install.yaml"))?;
    let stated = objects.iter().filter_map(|object| object["rules"].as_array());
    let rules: Vec<Value> = stated.flatten().cloned().collect();
    // Of a host with webhooks; the second one only shows more in conditions.
    let configurations = json!({
        "apiGroups": ["admissionregistration.k8s.io"], "verbs": ["list"],
        "resources": ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
    });
    let more = [certificate_rule(), configurations];
    let rules: Vec<Value> = rules.into_iter().chain(more).collect();
    (rules.len() > 2).then_some(rules).context("the installation has rules")
}

/// Returns whether a rule of the installation allows the request, or the request only lists kinds.
fn is_expected(event: &Event, rules: &[Value]) -> bool {
    let (path, query) = event.request_uri.split_once('?').unwrap_or((&event.request_uri, ""));
    let parameter = |part: &str| part.split('=').next().unwrap_or_default().to_owned();
    let mut parameters = query.split('&').filter(|part| !part.is_empty()).map(parameter);
    if !parameters.all(|parameter| PARAMETERS.contains(&&*parameter)) {
        return false;
    }
    let Some(of) = &event.object_ref else { return is_discovery(path) };
    let resource = event.resource();
    let holds = |rule: &Value, key: &str, value: &str| {
        rule[key].as_array().into_iter().flatten().any(|one| one == value)
    };
    let is_stated = rules.iter().any(|rule| {
        holds(rule, "apiGroups", &of.api_group)
            && holds(rule, "resources", &resource)
            && holds(rule, "verbs", &event.verb)
    });
    is_stated || OF_ITSELF.iter().any(|one| *one == (&*of.api_group, &*resource))
}

/// Returns whether a path lists the kinds of a group that the API server may have, and contains no
/// guest's text.
fn is_discovery(path: &str) -> bool {
    let is_plain = |part: &str| {
        let is_sign =
            |sign: char| sign.is_ascii_lowercase() || sign.is_ascii_digit() || ".-".contains(sign);
        part.chars().all(is_sign) && !part.starts_with("none")
    };
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    parts.iter().all(|part| is_plain(part))
        && match *parts.as_slice() {
            ["api" | "apis" | "version"] | ["api", _] => true,
            ["apis", ..] => parts.len() <= 3,
            _ => false,
        }
}
