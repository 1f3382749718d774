//! Entities that objects take over.

use serde_json::Value;

use super::{
    super::{
        super::{request::Request, state::conditions},
        Consequences, Facts,
    },
    applied, uid_of,
};
use crate::goldens::scenario::text;

/// The message of the original about a service that names no mode.
const NO_MODE: &str = "failed to adopt: adopt mode \"override\" not supported";

/// A service that names no mode of adoption takes its entity over, as objects of all other kinds do;
/// in the original it does not.
pub(super) fn adoptions_need_no_mode(facts: &Facts<'_>, expected: &mut Consequences) {
    let has_no_mode = |object: &&Value| {
        let adopt = &object["spec"]["adopt"];
        adopt.is_object() && text(adopt, "/mode").is_empty()
    };
    let ids = applied(facts, "KongService").filter(has_no_mode);
    let ids: Vec<&str> = ids.map(|object| text(object, "/spec/adopt/konnect/id")).collect();
    let mut uids = Vec::new();
    for (key, object) in &mut expected.objects {
        let told = |object: &Value| conditions(object).get("Adopted").cloned().unwrap_or_default();
        if text(&told(object), "/message") != NO_MODE {
            continue;
        }
        uids.push(uid_of(key));
        let Some(ours) = facts.ours.objects.get(key) else { continue };
        let is_its = ids.contains(&text(ours, "/status/konnect/id"));
        if is_its && told(ours)["status"] == "True" {
            *object = ours.clone();
        }
    }
    let is_its = |request: &Request| {
        ids.iter().any(|id| request.path.ends_with(&format!("/services/{id}")))
            || request.query.get("tags").is_some_and(|tags| uids.iter().any(|of| tags.contains(of)))
    };
    if !ids.is_empty() {
        expected.requests.retain(|request| !is_its(request));
        let ours = facts.ours.requests.iter().filter(|request| is_its(request));
        expected.requests.extend(ours.filter(|request| !request.has_failed()).cloned());
    }
}
