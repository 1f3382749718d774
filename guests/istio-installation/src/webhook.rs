//! The fields of webhooks that istiod sets, and webhooks that are in the way.

use istio::installed::{MutatingWebhookConfiguration, stale_tags};
use mortise_sdk::{Deletion, Error, Host, Manifest, ObjectRef, Selection};
use serde_json::Value;

pub(crate) const FIELDS: [&str; 3] = [
    "metadata.labels",
    "webhooks[].namespaceSelector.matchLabels",
    "webhooks[].objectSelector.matchLabels",
];

/// The fields of a webhook that istiod sets: its certificate authority, and what happens if it does
/// not answer, which becomes `Fail` once it does.
const SET_BY_ISTIOD: [&str; 2] = ["clientConfig.caBundle", "failurePolicy"];

/// Leaves alone what istiod sets in each webhook.
pub(crate) fn leave(manifest: Manifest, object: &Value) -> Manifest {
    let webhooks = object.get("webhooks").and_then(Value::as_array).into_iter().flatten();
    let names = webhooks.filter_map(|webhook| webhook.get("name")?.as_str());
    names.fold(manifest, |manifest, name| {
        SET_BY_ISTIOD.iter().fold(manifest, |manifest, field| {
            manifest.leave(format!("webhooks[name={}].{field}", Value::from(name)))
        })
    })
}

/// Returns the webhooks of the default tag that do what an active webhook of the default revision
/// does too.
///
/// The original deletes them after a failed installation only. Here they go whenever both are
/// there: the original's own installer makes such a pair, of which it deactivates the other one.
pub(crate) fn deletions(host: &Host) -> Result<Vec<Deletion>, Error> {
    let of = Selection::of::<MutatingWebhookConfiguration>().fields(FIELDS);
    let all: Vec<MutatingWebhookConfiguration> = host.list(&of)?;
    let deletion = |stale: &MutatingWebhookConfiguration| {
        let metadata = &stale.metadata;
        let deletion =
            Deletion::new(ObjectRef::of::<MutatingWebhookConfiguration>(None, &metadata.name));
        deletion.uid(metadata.uid.clone().unwrap_or_default())
    };
    Ok(stale_tags(&all).into_iter().map(deletion).collect())
}
