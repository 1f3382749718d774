//! The objects that exist for an APIRule. They are found by labels, in all namespaces.
//!
//! Anybody can change labels, but nobody can change names. So an object whose labels name another
//! APIRule, or none, is still found by its name: the name that is derived for it, or a name that
//! the original generated.

use std::collections::BTreeMap;

use mortise_sdk::{Error, Host, Kind, ObjectRef, Selection, derived_name, object::Metadata};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::api::ApiRule;

/// The label with the name of the APIRule that owns an object.
pub(crate) const OWNER_NAME: &str = "apirule.gateway.kyma-project.io/name";
/// The label with the namespace of the APIRule that owns an object.
pub(crate) const OWNER_NAMESPACE: &str = "apirule.gateway.kyma-project.io/namespace";
/// The former label of the owner: `<name>.<namespace>`. It takes precedence over the two other
/// labels.
pub(crate) const LEGACY_OWNER: &str = "apirule.gateway.kyma-project.io/v1beta1";
/// The label with the hash by which an `AuthorizationPolicy` is found again.
pub(crate) const HASH: &str = "gateway.kyma-project.io/hash";
/// The label with the index of a policy among those with the same hash.
pub(crate) const INDEX: &str = "gateway.kyma-project.io/index";

/// The length of the longest label value that Kubernetes allows.
pub(crate) const MAX_LABEL_BYTES: usize = 63;

/// The label with the module that an object belongs to.
const MODULE: &str = "kyma-project.io/module";
const MODULE_LABELS: [&str; 4] = [
    "app.kubernetes.io/component",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/part-of",
    MODULE,
];

/// The field in which an object keeps the prefix that its name was generated from.
pub(crate) const GENERATE_NAME: &str = "metadata.generateName";
/// The characters in the generated part of a name.
const GENERATED: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const GENERATED_LENGTH: usize = 5;
/// The number of characters that Kubernetes keeps of the part before the generated one.
const MAX_BASE_BYTES: usize = 58;

/// An object that exists in the cluster.
#[derive(Debug, Deserialize)]
pub(crate) struct Existing {
    pub(crate) metadata: Metadata,
    /// The spec as JSON text, because it is seldom parsed.
    pub(crate) spec: Option<Box<RawValue>>,
}

/// The fields that are read of an object that may be updated: everything that an update replaces.
pub(crate) const FIELDS: [&str; 2] = ["metadata.labels", "spec"];
/// The fields that are read of an object that may belong to another APIRule, or to none.
pub(crate) const OWNERS: [&str; 4] = [
    "metadata.labels[\"apirule.gateway.kyma-project.io/name\"]",
    "metadata.labels[\"apirule.gateway.kyma-project.io/namespace\"]",
    "metadata.labels[\"apirule.gateway.kyma-project.io/v1beta1\"]",
    "metadata.labels[\"kyma-project.io/module\"]",
];
/// The fields that are read of an object that can only be deleted.
pub(crate) const NAME_ONLY: [&str; 1] = ["metadata.uid"];

/// Returns the objects of a kind that belong to an APIRule by their labels, ordered by namespace
/// and name.
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
    if legacy.len() <= MAX_LABEL_BYTES {
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

/// Returns the object of this name, whatever its labels say.
pub(crate) fn get(
    host: &Host,
    kind: &Kind,
    namespace: &str,
    name: &str,
    fields: &[&str],
) -> Result<Option<Existing>, Error> {
    host.get_ref(&ObjectRef::new(kind.clone(), Some(namespace), name), fields)
}

/// Returns the name of an object that is made for the APIRule `namespace`/`name`. Objects of one
/// kind differ by their own namespace and their key.
pub(crate) fn name_for(
    (namespace, name): (&str, &str),
    kind: &Kind,
    own_namespace: &str,
    key: &str,
) -> String {
    derived_name(name, &[namespace, &kind.kind, own_namespace, key])
}

/// Returns the prefix from which the original generated the names of an APIRule's objects.
pub(crate) fn generate_name(rule: &ApiRule) -> String {
    format!("{}-", rule.metadata.name)
}

/// Returns whether the original generated the name of an object for an APIRule. People can choose
/// such names too, so a label must also say that the object belongs to this module.
pub(crate) fn is_generated(metadata: &Metadata, rule: &ApiRule) -> bool {
    let mut base = generate_name(rule);
    base.truncate(MAX_BASE_BYTES);
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

/// Returns whether labels say that an object belongs to an APIRule.
pub(crate) fn is_owned(labels: &BTreeMap<String, String>, rule: &ApiRule) -> bool {
    let (name, namespace) = (rule.metadata.name.as_str(), rule.namespace());
    if let Some(owner) = labels.get(LEGACY_OWNER) {
        return owner.strip_prefix(name).and_then(|rest| rest.strip_prefix('.')) == Some(namespace);
    }
    let is = |label, value: &str| labels.get(label).is_some_and(|other| other == value);
    is(OWNER_NAME, name) && is(OWNER_NAMESPACE, namespace)
}

/// Returns the labels that every object of an APIRule carries.
pub(crate) fn labels(rule: &ApiRule) -> BTreeMap<String, String> {
    let owner = [(OWNER_NAME, rule.metadata.name.as_str()), (OWNER_NAMESPACE, rule.namespace())];
    let module = MODULE_LABELS.map(|label| (label, "api-gateway"));
    owner.into_iter().chain(module).map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}
