//! Bindings of plugins: the entities that a plugin applies to.

use mortise_sdk::Error;
use serde_json::Value;

use super::{
    reference::{not_found, shown},
    run::Run,
};
use crate::kind;

impl Run<'_> {
    /// Finds the IDs of the targets, or the message that says which one has none.
    pub(crate) fn find_targets(&mut self) -> Result<Result<(), String>, Error> {
        let targets = self.entity.references.iter();
        for reference in targets.filter(|reference| reference.condition.is_empty()) {
            let Some(name) = reference.names(self.object).into_iter().next() else { continue };
            let Some(target) = kind::find(reference.to) else { continue };
            let Some(found) = self.read(target, &name, &["status"])? else {
                return Ok(Err(not_found(target, &name)));
            };
            let Some(id) = target.id(&found, "id") else {
                return Ok(Err(format!(
                    "{} {} is not configured in Konnect yet",
                    target.kind,
                    shown(&name)
                )));
            };
            self.resolved.ids.insert(reference.id.to_owned(), Value::from(id));
        }
        Ok(Ok(()))
    }
}
