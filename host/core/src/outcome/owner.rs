//! Checks owner references: if an owner did not exist, the garbage collector would delete the
//! object.

use std::sync::Arc;

use serde_json::Value;

use super::{Check, Fault, manifest::Part};
use crate::contract::{Kind, ObjectRef, bounds::OWNERS, display_ref};

impl Check<'_> {
    /// Returns the owners that this outcome creates: the writer has to fill in their uids.
    pub(super) fn owners(
        &self,
        to: &ObjectRef,
        object: &Value,
        part: Part,
    ) -> Result<Vec<(usize, ObjectRef)>, Fault> {
        let Some(owners) = object.pointer("/metadata/ownerReferences") else {
            return Ok(Vec::new());
        };
        if part == Part::Patch {
            return Ok(Vec::new());
        }
        let owners = owners
            .as_array()
            .ok_or_else(|| Fault::malformed("metadata.ownerReferences", "a list"))?;
        if owners.len() > OWNERS {
            let wanted = format!("at most {OWNERS} entries, it has {}", owners.len());
            return Err(Fault::malformed("metadata.ownerReferences", wanted));
        }
        let mut made = Vec::new();
        for (index, owner) in owners.iter().enumerate() {
            made.extend(self.owner(to, owner, index)?.map(|owner| (index, owner)));
        }
        Ok(made)
    }

    /// Returns the owner if this outcome creates it; `None` if it exists already.
    fn owner(
        &self,
        to: &ObjectRef,
        owner: &Value,
        index: usize,
    ) -> Result<Option<ObjectRef>, Fault> {
        let text =
            |key: &str| owner.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let field = |key: &str| format!("metadata.ownerReferences[{index}].{key}");
        let required =
            |key: &str| text(key).ok_or_else(|| Fault::malformed(field(key), "is required"));
        let api_version = required("apiVersion")?;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = Kind {
            cluster: Arc::clone(&to.kind.cluster),
            ..Kind::home(group, version, required("kind")?)
        };
        let name = required("name")?.to_owned();
        let uid = text("uid");
        // An owner lives in the dependent's namespace, or has none.
        let places = [to.namespace.clone(), None];
        let kind = Arc::new(kind);
        let candidates: Vec<ObjectRef> = places
            .into_iter()
            .map(|namespace| ObjectRef { kind: Arc::clone(&kind), namespace, name: name.clone() })
            .collect();
        let shown = candidates.first().map(display_ref).unwrap_or_default();
        let refuse =
            |reason: &str| Err(Fault::Owner { owner: shown.clone(), reason: reason.to_owned() });
        if candidates.iter().any(|owner| owner.is_same(to)) {
            return refuse("an object does not own itself");
        }
        let reconciled = self.against.reconciled;
        let is = |object: &ObjectRef| candidates.iter().any(|owner| owner.is_same(object));
        if is(&reconciled.reference) && (uid.is_some() && uid == reconciled.uid()) {
            return Ok(None);
        }
        if let Some(uid) = uid
            && candidates.iter().any(|owner| (self.against.read)(owner).as_deref() == Some(uid))
        {
            return Ok(None);
        }
        if let Some(made) = self.applied.first(&candidates) {
            return Ok(Some(made.clone()));
        }
        refuse(match uid {
            None => "it has no uid",
            Some(_) if is(&reconciled.reference) => "it has another uid than the reconciled object",
            Some(_) => "it was not read in this run with this uid, or lives in another namespace",
        })
    }
}
