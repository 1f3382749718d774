//! The objects that exist for an APIRule. They are found by labels, in all namespaces.
//!
//! Labels can be changed by anybody, names cannot. So an object whose labels name another APIRule, or none, is still found by
//! its name: the one that is derived for it, or one that the original generated.

use std::collections::BTreeMap;

use mortise_sdk::{Error, Host, Kind, ObjectRef, Selection, derived_name, object::Metadata};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::api::ApiRule;

/// Whose object it is: the name of the APIRule.
pub(crate) const OWNER_NAME: &str = "apirule.gateway.kyma-project.io/name";
/// Whose object it is: the namespace of the APIRule.
pub(crate) const OWNER_NAMESPACE: &str = "apirule.gateway.kyma-project.io/namespace";
/// Whose object it is, in former times: `<name>.<namespace>`. It wins over the two others.
pub(crate) const LEGACY_OWNER: &str = "apirule.gateway.kyma-project.io/v1beta1";
/// The hash by which an `AuthorizationPolicy` is found again.
pub(crate) const HASH: &str = "gateway.kyma-project.io/hash";
/// Which of the policies with one hash it is.
pub(crate) const INDEX: &str = "gateway.kyma-project.io/index";

/// The longest value of a label.
pub(crate) const LONGEST_LABEL: usize = 63;

/// Which module an object is of.
const MODULE: &str = "kyma-project.io/module";
const MODULE_LABELS: [&str; 4] = [
    "app.kubernetes.io/component",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/part-of",
    MODULE,
];

/// What generated names end with.
const GENERATED: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const GENERATED_LENGTH: usize = 5;
/// The most that Kubernetes keeps of what comes before the generated part.
const LONGEST_BASE: usize = 58;

/// An object that exists.
#[derive(Debug, Deserialize)]
pub(crate) struct Existing {
    pub(crate) metadata: Metadata,
    /// As text, since it is seldom looked into.
    pub(crate) spec: Option<Box<RawValue>>,
}

/// What is read of an object that may be changed: all that an update replaces.
pub(crate) const FIELDS: [&str; 2] = ["metadata.labels", "spec"];
/// What is read of an object that may belong to another APIRule, or to nobody.
pub(crate) const OWNERS: [&str; 4] = [
    "metadata.labels[\"apirule.gateway.kyma-project.io/name\"]",
    "metadata.labels[\"apirule.gateway.kyma-project.io/namespace\"]",
    "metadata.labels[\"apirule.gateway.kyma-project.io/v1beta1\"]",
    "metadata.labels[\"kyma-project.io/module\"]",
];
/// What is read of an object that can only be deleted.
pub(crate) const NAME_ONLY: [&str; 1] = ["metadata.uid"];

/// The objects of a kind that belong to an APIRule, ordered by namespace and name.
pub(crate) fn list(
    host: &Host,
    kind: &Kind,
    rule: &ApiRule,
    fields: &[&str],
) -> Result<Vec<Existing>, Error> {
    let (name, namespace) = (rule.metadata.name.as_str(), rule.namespace());
    let mut found = BTreeMap::new();
    let legacy = format!("{name}.{namespace}");
    let mut selectors = vec![format!("{OWNER_NAME}={name},{OWNER_NAMESPACE}={namespace}")];
    if legacy.len() <= LONGEST_LABEL {
        selectors.push(format!("{LEGACY_OWNER}={legacy}"));
    }
    for selector in selectors {
        let selection =
            Selection::new(kind.clone()).labels(selector).fields(fields.iter().copied());
        for existing in host.objects::<Existing>(&selection, 0) {
            let existing = existing?;
            let place = (existing.metadata.namespace.clone(), existing.metadata.name.clone());
            found.entry(place).or_insert(existing);
        }
    }
    Ok(found.into_values().collect())
}

/// The object of this name, whatever its labels say.
pub(crate) fn get(
    host: &Host,
    kind: &Kind,
    namespace: &str,
    name: &str,
    fields: &[&str],
) -> Result<Option<Existing>, Error> {
    host.get_ref(&ObjectRef::new(kind.clone(), Some(namespace), name), fields)
}

/// The name of an object that is made for the APIRule `namespace`/`name`, told from others of its kind by its own namespace and
/// its key.
pub(crate) fn name_for(
    (namespace, name): (&str, &str),
    kind: &Kind,
    own_namespace: &str,
    key: &str,
) -> String {
    derived_name(name, &[namespace, &kind.kind, own_namespace, key])
}

/// Whether the original generated the name of an object for an APIRule. Names that people give can look so too: a label must
/// say that the object is of this module.
pub(crate) fn is_generated(metadata: &Metadata, rule: &ApiRule) -> bool {
    let mut base = format!("{}-", rule.metadata.name);
    base.truncate(LONGEST_BASE);
    let is_generated = |end: &str| {
        end.len() == GENERATED_LENGTH && end.bytes().all(|byte| GENERATED.contains(&byte))
    };
    let labels = &metadata.labels;
    let is_of_module = labels.get(MODULE).is_some_and(|module| module == "api-gateway")
        || [OWNER_NAME, OWNER_NAMESPACE, LEGACY_OWNER]
            .iter()
            .any(|label| labels.contains_key(*label));
    is_of_module && metadata.name.strip_prefix(&base).is_some_and(is_generated)
}

/// Whether labels say that an object belongs to an APIRule.
pub(crate) fn is_owned(labels: &BTreeMap<String, String>, rule: &ApiRule) -> bool {
    let (name, namespace) = (rule.metadata.name.as_str(), rule.namespace());
    if let Some(owner) = labels.get(LEGACY_OWNER) {
        return owner.strip_prefix(name).and_then(|rest| rest.strip_prefix('.')) == Some(namespace);
    }
    let is = |label, value: &str| labels.get(label).is_some_and(|other| other == value);
    is(OWNER_NAME, name) && is(OWNER_NAMESPACE, namespace)
}

/// The labels that an object of an APIRule carries.
pub(crate) fn labels(rule: &ApiRule) -> BTreeMap<String, String> {
    let owner = [(OWNER_NAME, rule.metadata.name.as_str()), (OWNER_NAMESPACE, rule.namespace())];
    let module = MODULE_LABELS.map(|label| (label, "api-gateway"));
    owner.into_iter().chain(module).map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}
