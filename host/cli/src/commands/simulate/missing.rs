//! Kinds that are not served, as if their CRDs were not installed.

use std::collections::{BTreeMap, BTreeSet};

use mortise_core::contract::{Description, Kind};
use mortise_embedded_api::EmbeddedApi;
use serde_json::Value;

use crate::local;

/// Group and name of a kind, in all its versions.
type Versionless = (String, String);

/// The kinds that are not served.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Missing(BTreeSet<Versionless>);

// === impl Missing ===

impl Missing {
    /// Finds kinds by their names, `plural.group`. `objects` may hold CRDs.
    ///
    /// # Errors
    ///
    /// Fails for a name that is neither of a kind that the processor declares nor of a CRD among
    /// `objects`, and for the name of a kind that every cluster has.
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

    /// Returns whether a kind is missing.
    pub fn holds(&self, kind: &Kind) -> bool {
        self.0.iter().any(|(group, name)| *group == kind.group && *name == kind.kind)
    }

    /// Returns whether an object cannot exist: its kind is missing, or it is the CRD of a missing
    /// kind.
    pub fn takes(&self, object: &Value) -> bool {
        let defined = defined(object).is_some_and(|(_, kind)| self.0.contains(&kind));
        defined || self.holds(&local::kind_of(object))
    }
}

/// Returns the kinds that a cluster may lack, by their names `plural.group`.
fn removable<'a>(
    api: &EmbeddedApi,
    description: &Description,
    objects: impl Iterator<Item = &'a Value>,
) -> BTreeMap<String, Versionless> {
    let mut known: BTreeMap<String, Versionless> = objects.filter_map(defined).collect();
    for kind in description.kinds() {
        let of = (kind.group.clone(), kind.kind.clone());
        let is_built_in = api.serves(&kind.group, &kind.version, &kind.kind);
        if !is_built_in && !known.values().any(|known| *known == of) {
            known.insert(format!("{}.{}", local::plural(&kind), kind.group), of);
        }
    }
    known
}

/// Returns the name (`plural.group`) and the kind that a CRD defines; `None` for other objects.
fn defined(object: &Value) -> Option<(String, Versionless)> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    if text("/kind")? != "CustomResourceDefinition" {
        return None;
    }
    Some((text("/metadata/name")?, (text("/spec/group")?, text("/spec/names/kind")?)))
}
