//! Waits until the `CustomResourceDefinition`s of a plan are established, before later writes.

use std::sync::Arc;

use super::{Run, Stop};
use crate::{
    api::NotEstablished,
    contract::{self, display_ref},
    outcome::Manifest,
    resource::Resource,
};

impl Run<'_> {
    /// Waits until all these definitions are established.
    pub(super) async fn establish(&mut self, definitions: &[Manifest]) {
        for definition in definitions {
            if let Err(stop) = self.established(definition).await {
                self.stopped(contract::Action::Apply, &definition.to, stop);
            }
        }
    }

    async fn established(&mut self, definition: &Manifest) -> Result<(), Stop> {
        let defined = Resource::of_definition(&definition.to.kind.cluster, &definition.object);
        let was_sent = self.written.changes.iter().any(|change| change.of == definition.to);
        if was_sent && let Some(resource) = defined.first() {
            self.api.forget(&resource.kind);
        }
        let mut is_known = true;
        for resource in &defined {
            is_known &= self.resource_of(&resource.kind).await?.is_some();
        }
        if is_known {
            return Ok(());
        }
        self.await_established(definition).await?;
        for resource in defined {
            self.api.forget(&resource.kind);
            self.defined.insert(resource.kind.clone(), Arc::new(resource));
        }
        Ok(())
    }

    async fn await_established(&self, definition: &Manifest) -> Result<(), Stop> {
        let Err(error) = self.api.established(&definition.to).await else { return Ok(()) };
        let fail = |code, reason: &str, what: String| {
            Err(Stop::unsent(code, reason, format!("{} {what}", display_ref(&definition.to))))
        };
        match error {
            NotEstablished::Late(limit) => {
                fail(504, "Timeout", format!("was not established within {limit:?}"))
            }
            NotEstablished::Refused(message) => {
                let what = format!("is not established, its names are not accepted: {message}");
                fail(409, "Conflict", what)
            }
            NotEstablished::Unwatched { message, forbidden } => {
                if let Some(forbidden) = forbidden {
                    self.note_forbidden(&definition.to.kind, &forbidden);
                }
                fail(0, "", format!("could not be watched: {message}"))
            }
        }
    }
}
