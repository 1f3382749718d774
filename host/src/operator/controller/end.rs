//! The deletion of a Processor: the finalizers that it holds on other objects are handled first.

use mortise_core::queue::Key;

use super::{Controller, Seen, holds};
use crate::{
    host::{self, Removal},
    operator::{
        api::{self, FINALIZER, OnDelete, Processor},
        fault::Fault,
        resource::Finalizer,
    },
};

/// The progress of the deletion of a Processor.
#[derive(Debug, Default)]
pub(super) struct Ending {
    /// The reason why the deletion is not done yet, if the Processor is being deleted.
    pub(super) waits: Option<String>,
    /// The resource state for which the finalizing version was started.
    started_for: Option<Seen>,
}

impl Controller {
    /// Ends a Processor that is being deleted: handles the finalizers that it holds on other
    /// objects, then removes the host's finalizer from the Processor.
    pub(super) async fn end(&mut self, newest: &Processor) -> Result<(), Fault> {
        if !holds(newest) {
            self.take_out().await;
            return Ok(());
        }
        if !self.shared.lease.is_held() {
            return Ok(());
        }
        if let Err(fault) = self.prepare_end(newest).await {
            self.ending.waits = Some(format!(
                "is being deleted, and its finalizers on other objects cannot be handled: {}; fix that, or remove the finalizer {FINALIZER} by hand",
                fault.message
            ));
            return Err(fault);
        }
        if self.is_ended() {
            self.set_finalizer(newest, Finalizer::Gone).await?;
            self.take_out().await;
        }
        Ok(())
    }

    /// Starts the version that finalizes or releases the objects.
    async fn prepare_end(&mut self, newest: &Processor) -> Result<(), Fault> {
        let removal = match (newest.spec.mode, newest.spec.on_delete) {
            // No outcome is written in this mode, so no finalizer can be released either.
            (api::Mode::Observe, _) => None,
            (api::Mode::Reconcile, OnDelete::Finalize) => Some(Removal::Finalize),
            (api::Mode::Reconcile, OnDelete::Release) => Some(Removal::Release),
        };
        let is_prepared = self.versions.running.as_ref().is_some_and(|running| {
            let mut finalizers =
                running.served.loaded.description.reconcilers.iter().map(|of| &of.finalizers);
            let holds_none = finalizers.all(Vec::is_empty);
            let is_started = self.ending.started_for == self.seen;
            holds_none || (running.served.recipe.removal == removal && is_started)
        });
        if is_prepared {
            return Ok(());
        }
        // If the version of the spec was refused, the running version finalizes the objects.
        if self.versions.running.is_some() && self.fault.is_some() {
            self.end_with_running(newest, removal).await?;
        } else {
            self.put_to_work(newest, removal).await?;
        }
        self.ending.started_for.clone_from(&self.seen);
        Ok(())
    }

    /// Returns whether no object holds a finalizer of the processor any more. Sets `waits`
    /// otherwise.
    fn is_ended(&mut self) -> bool {
        let Some(running) = &mut self.versions.running else { return true };
        let Some(held) = self.shared.host.holding(&self.name) else {
            self.ending.waits =
                Some("waits for the lists of the objects that may hold its finalizers".to_owned());
            return false;
        };
        if held.is_empty() {
            return true;
        }
        if !std::mem::replace(&mut running.end_queued, true) {
            self.shared.host.run_again(&held);
        }
        let is_observing = running.served.recipe.mode == host::Mode::Observe;
        self.ending.waits = Some(ending_text(&held, is_observing));
        false
    }
}

fn ending_text(held: &[Key], is_observing: bool) -> String {
    const MAX_LISTED_OBJECTS: usize = 3;
    let names: Vec<String> = held
        .iter()
        .take(MAX_LISTED_OBJECTS)
        .map(|key| {
            let namespace =
                key.namespace().map(|namespace| format!("{namespace}/")).unwrap_or_default();
            format!("{} {namespace}{}", key.reconciler(), key.name())
        })
        .collect();
    let more = if held.len() > MAX_LISTED_OBJECTS { ", …" } else { "" };
    let names = names.join(", ");
    let advice = if is_observing { "; nothing is written while spec.mode is Observe" } else { "" };
    format!(
        "is being deleted: {} objects still hold its finalizers ({names}{more}){advice}",
        held.len()
    )
}
