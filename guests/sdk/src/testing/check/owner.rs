//! Owner references: an owner that does not exist would have the garbage collector delete the object.

use serde_json::Value;

use super::{Check, shown};
use crate::{
    ObjectRef,
    testing::identity::{Identity, kind_of, text},
};

/// The host's own bound.
const OWNERS: usize = 64;

impl Check<'_> {
    /// The owners that this outcome makes, whose uid has to be filled in.
    pub(super) fn owners(
        &self,
        to: &ObjectRef,
        object: &Value,
        applied: &[ObjectRef],
    ) -> Result<Vec<(usize, ObjectRef)>, String> {
        let Some(owners) = object.pointer("/metadata/ownerReferences") else {
            return Ok(Vec::new());
        };
        let owners = owners.as_array().ok_or("`metadata.ownerReferences`: a list")?;
        if owners.len() > OWNERS {
            let count = owners.len();
            return Err(format!(
                "`metadata.ownerReferences`: at most {OWNERS} entries, it has {count}"
            ));
        }
        let mut made = Vec::new();
        for (index, owner) in owners.iter().enumerate() {
            made.extend(self.owner(to, owner, index, applied)?.map(|owner| (index, owner)));
        }
        Ok(made)
    }

    fn owner(
        &self,
        to: &ObjectRef,
        owner: &Value,
        index: usize,
        applied: &[ObjectRef],
    ) -> Result<Option<ObjectRef>, String> {
        for key in ["apiVersion", "kind", "name"] {
            if text(owner, &format!("/{key}")).is_empty() {
                return Err(format!("`metadata.ownerReferences[{index}].{key}`: is required"));
            }
        }
        let kind = kind_of(owner);
        let name = text(owner, "/name");
        let uid = Some(text(owner, "/uid")).filter(|uid| !uid.is_empty());
        // An owner lives in the dependent's namespace, or has none.
        let places = [to.namespace.as_deref(), None];
        let candidates = places.map(|namespace| ObjectRef::new(kind.clone(), namespace, name));
        let is = |of: &ObjectRef| {
            candidates.iter().any(|owner| Identity::of_ref(owner) == Identity::of_ref(of))
        };
        let refuse = |reason: &str| {
            let accepted = "an owner is the reconciled object, an object of the same outcome's `apply`, or one that was read in this run, with its uid";
            let shown = candidates.first().map(shown).unwrap_or_default();
            Err(format!("`metadata.ownerReferences`: `{shown}`: {reason}; {accepted}"))
        };
        if is(to) {
            return refuse("an object does not own itself");
        }
        let is_reconciled = is(&self.reconciled.reference);
        let was_read = candidates.iter().any(|owner| {
            uid.is_some() && self.read.get(&Identity::of_ref(owner)).map(String::as_str) == uid
        });
        if was_read || (is_reconciled && uid.is_some() && uid == self.reconciled.uid()) {
            return Ok(None);
        }
        if let Some(made) = applied.iter().find(|applied| is(applied)) {
            return Ok(Some(made.clone()));
        }
        refuse(match uid {
            None => "it has no uid",
            Some(_) if is_reconciled => "it has another uid than the reconciled object",
            Some(_) => "it was not read in this run with this uid, or lives in another namespace",
        })
    }
}
