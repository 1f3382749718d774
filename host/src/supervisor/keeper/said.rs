//! Writes the status of one Processor.

use std::time::Duration;

use tokio::time::Instant;

use super::{BETWEEN_LOOKS, Keeper, wait_after};
use crate::{
    api::{Processor, ProcessorStatus},
    run, status,
};

/// The longest time between two attempts to write a status that is refused again and again, so that
/// a repair shows soon.
const LAST_SAID: Duration = Duration::from_mins(1);

impl Keeper {
    /// Writes the status if it differs from the last one, at most once in [`BETWEEN_LOOKS`]. Does
    /// nothing on a standby.
    pub(super) async fn say(&mut self, newest: &Processor) {
        if !self.shared.lease.is_held() {
            return;
        }
        if Instant::now() < self.may_say {
            self.owes = true;
            return;
        }
        self.owes = false;
        self.may_say = Instant::now() + BETWEEN_LOOKS;
        let status = self.status(newest);
        if status == self.said {
            return;
        }
        match self.resource.write_status(&self.shared.cluster, &status).await {
            Ok(()) => {
                self.said = status;
                self.refusals = 0;
            }
            Err(refusal) => {
                tracing::warn!(processor = %self.name, %refusal, "the status of a Processor is not written");
                self.refusals = self.refusals.saturating_add(1);
                self.may_say = Instant::now() + wait_after(self.refusals).min(LAST_SAID);
                self.owes = true;
            }
        }
    }

    fn status(&mut self, newest: &Processor) -> ProcessorStatus {
        let host = self.shared.host.status_of(&self.name);
        if let (Some(running), Some(host)) = (&mut self.running, &host) {
            let known = (host.objects + host.ready) as u64;
            running.is_new &= host.ready + host.running > 0 && host.runs < known;
        }
        let running = self.running.as_ref().zip(host.as_ref()).map(|(running, host)| {
            let description = &*running.served.loaded.description;
            status::Running { description, status: host, is_new: running.is_new }
        });
        let state = match (&self.waits, self.running.as_ref()) {
            (Some(waits), _) => status::State::Ends(waits),
            (None, Some(running)) if running.pace.concurrency == 0 => status::State::Suspended,
            (None, Some(running)) if running.served.recipe.mode == run::Mode::Observe => {
                status::State::Observes
            }
            _ => status::State::Runs,
        };
        status::compute(&status::Known {
            generation: newest.metadata.generation,
            fault: self.fault.as_ref(),
            lowered: self.shared.largest.lowered(&newest.spec),
            running,
            finalizers: self.shared.claims.of(&self.name),
            state,
            before: &self.said,
            now: (self.shared.now)(),
        })
    }
}
