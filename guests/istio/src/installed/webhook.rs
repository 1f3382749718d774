//! Webhooks for the default tag, which a failed installation may leave beside those of a revision.

use std::collections::BTreeMap;

use mortise_sdk::{Object, object::Metadata};
use serde::Deserialize;

const TAG: &str = "istio.io/tag";
const REVISION: &str = "istio.io/rev";
const DEFAULT: &str = "default";
const DEACTIVATED: (&str, &str) = ("istio.io/deactivated", "never-match");

/// A `MutatingWebhookConfiguration`, reduced to its selectors.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct MutatingWebhookConfiguration {
    /// The metadata of the configuration.
    pub metadata: Metadata,
    /// The webhooks.
    pub webhooks: Vec<Webhook>,
}

/// A webhook.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Webhook {
    /// The namespaces that the webhook is asked for.
    pub namespace_selector: Selector,
    /// The objects that the webhook is asked for.
    pub object_selector: Selector,
}

/// A selector by labels.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Selector {
    /// The labels that must be there.
    pub match_labels: BTreeMap<String, String>,
}

impl Object for MutatingWebhookConfiguration {
    const GROUP: &'static str = "admissionregistration.k8s.io";
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "MutatingWebhookConfiguration";
}

/// Returns the configurations of the default tag that must be deleted after a failed installation,
/// because an active configuration of the default revision does the same.
pub fn stale_tags(
    configurations: &[MutatingWebhookConfiguration],
) -> Vec<&MutatingWebhookConfiguration> {
    let has = |one: &&MutatingWebhookConfiguration, label| {
        one.metadata.labels.get(label).is_some_and(|value| value == DEFAULT)
    };
    let mut revisions = configurations
        .iter()
        .filter(|one| has(one, REVISION) && !one.metadata.labels.contains_key(TAG))
        .peekable();
    if revisions.peek().is_none() || revisions.any(|one| one.webhooks.iter().any(is_deactivated)) {
        return Vec::new();
    }
    configurations.iter().filter(|one| has(one, TAG)).collect()
}

fn is_deactivated(webhook: &Webhook) -> bool {
    let never = |selector: &Selector| {
        let mut labels = selector.match_labels.iter();
        let first = labels.next().map(|(key, value)| (key.as_str(), value.as_str()));
        first == Some(DEACTIVATED) && labels.next().is_none()
    };
    never(&webhook.namespace_selector) && never(&webhook.object_selector)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn configuration(name: &str, labels: &Value, selector: &Value) -> MutatingWebhookConfiguration {
        let selector = json!({"matchLabels": selector});
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": labels},
            "webhooks": [{"namespaceSelector": selector, "objectSelector": selector}],
        }))
        .unwrap()
    }

    #[test]
    fn a_tag_is_stale_beside_an_active_revision() {
        let tag = json!({TAG: DEFAULT, REVISION: DEFAULT});
        let revision = json!({REVISION: DEFAULT});
        let never = json!({DEACTIVATED.0: DEACTIVATED.1});
        let more = json!({DEACTIVATED.0: DEACTIVATED.1, "a": "b"});
        let cases = [
            ("active revision", Some((&revision, json!({}))), 1),
            ("deactivated revision", Some((&revision, never)), 0),
            ("selectors with more labels", Some((&revision, more)), 1),
            ("no revision", None, 0),
            ("another revision", Some((&json!({REVISION: "canary"}), json!({}))), 0),
        ];
        for (case, revision, expected) in cases {
            let mut all = vec![configuration("tag", &tag, &json!({}))];
            all.extend(
                revision.map(|(labels, selector)| configuration("revision", labels, &selector)),
            );
            let stale: Vec<&str> =
                stale_tags(&all).iter().map(|one| one.metadata.name.as_str()).collect();
            assert_eq!(stale, ["tag"].repeat(expected), "{case}");
        }
    }
}
