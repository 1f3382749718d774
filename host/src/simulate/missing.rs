//! Kinds that are to be unknown, as if their CRDs were not installed.

use std::collections::{BTreeMap, BTreeSet};

use mortise_embedded_api::EmbeddedApi;
use serde_json::Value;

use crate::{
    contract::{Description, Kind},
    desk,
};

/// Group and name of a kind, in all its versions.
type Versionless = (String, String);

/// Kinds that are to be unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Missing(BTreeSet<Versionless>);

// === impl Missing ===

impl Missing {
    /// Finds kinds by their names, `plural.group`. `objects` may hold CRDs.
    ///
    /// # Errors
    ///
    /// A name of none that the processor declares or that a CRD at hand defines, or of one that every cluster has.
    pub fn find<'a>(
        api: &EmbeddedApi,
        description: &Description,
        objects: impl Iterator<Item = &'a Value>,
        names: &[String],
    ) -> anyhow::Result<Self> {
        if names.is_empty() {
            return Ok(Self::default());
        }
        let known = removable(api, description, objects);
        let find = |name: &String| {
            let accepted = || known.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            known.get(&name.to_lowercase()).cloned().ok_or_else(|| {
                anyhow::anyhow!(
                    "`--missing-kind {name}`: no such kind is declared by the processor or defined by a CRD at hand; accepted: {}",
                    accepted()
                )
            })
        };
        names.iter().map(find).collect::<anyhow::Result<_>>().map(Self)
    }

    /// Whether a kind is one of them.
    pub fn holds(&self, kind: &Kind) -> bool {
        self.0.iter().any(|(group, name)| *group == kind.group && *name == kind.kind)
    }

    /// Whether an object cannot be there since they are missing: it is of one of them, or the CRD of one.
    pub fn takes(&self, object: &Value) -> bool {
        let defined = defined(object).is_some_and(|(_, kind)| self.0.contains(&kind));
        defined || self.holds(&desk::kind_of(object))
    }
}

/// The kinds that may be there or not, by their names `plural.group`.
fn removable<'a>(
    api: &EmbeddedApi,
    description: &Description,
    objects: impl Iterator<Item = &'a Value>,
) -> BTreeMap<String, Versionless> {
    let mut known: BTreeMap<String, Versionless> = objects.filter_map(defined).collect();
    for kind in crate::run::declared_kinds(description) {
        let of = (kind.group.clone(), kind.kind.clone());
        let is_built_in = api.serves(&kind.group, &kind.version, &kind.kind);
        if !is_built_in && !known.values().any(|known| *known == of) {
            known.insert(format!("{}.{}", desk::plural(&kind), kind.group), of);
        }
    }
    known
}

/// What a CRD defines: its name, `plural.group`, and the kind.
fn defined(object: &Value) -> Option<(String, Versionless)> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    if text("/kind")? != "CustomResourceDefinition" {
        return None;
    }
    Some((text("/metadata/name")?, (text("/spec/group")?, text("/spec/names/kind")?)))
}
