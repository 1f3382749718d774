//! Bindings of plugins: the entities that a plugin applies to.

use mortise_sdk::Error;
use serde_json::Value;

use super::{
    reference::{not_found, shown},
    run::Run,
};
use crate::kind::{self, text};

impl Run<'_> {
    /// Finds the IDs of the targets, or the message that says which one has none.
    pub(crate) fn find_targets(&mut self) -> Result<Result<(), String>, Error> {
        let mut targets = Vec::new();
        for reference in self.entity.references.iter().filter(|of| of.condition.is_empty()) {
            let Some(name) = reference.names(self.object).into_iter().next() else { continue };
            let Some(target) = kind::find(reference.to) else { continue };
            let kind = text(self.object, &format!("{}.kind", reference.at));
            if let Some(kind) = kind.filter(|kind| *kind != reference.to) {
                let what = reference.to.trim_start_matches("Kong").to_lowercase();
                return Ok(Err(format!("unsupported {what} target kind \"{kind}\"")));
            }
            let Some(found) = self.read(target, &name, &["status"])? else {
                return Ok(Err(not_found(target, &name)));
            };
            targets.push((reference.id, target, name, found));
        }
        // As with the original, all must be there before one without an ID is told.
        for (field, target, name, found) in targets {
            let Some(id) = target.id(&found, "id") else {
                return Ok(Err(format!(
                    "{} {} is not configured in Konnect yet",
                    target.kind,
                    shown(&name)
                )));
            };
            self.resolved.ids.insert(field.to_owned(), Value::from(id));
        }
        Ok(Ok(()))
    }
}
