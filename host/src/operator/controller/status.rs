//! Writes the status of one Processor.

use std::time::Duration;

use tokio::time::Instant;

use super::{Controller, STATUS_INTERVAL, wait_after};
use crate::{
    host,
    operator::{
        api::{Processor, ProcessorStatus},
        status,
    },
};

/// The longest time between two attempts to write a status that is refused again and again, so that
/// a repair shows soon.
const MAX_STATUS_WAIT: Duration = Duration::from_mins(1);

impl Controller {
    /// Writes the status if it differs from the last one, at most once in [`STATUS_INTERVAL`]. Does
    /// nothing on a standby.
    pub(super) async fn write_status(&mut self, newest: &Processor) {
        if !self.shared.lease.is_held() {
            return;
        }
        if Instant::now() < self.next_status {
            self.status_due = true;
            return;
        }
        self.status_due = false;
        self.next_status = Instant::now() + STATUS_INTERVAL;
        let status = self.status(newest);
        if status == self.last_status {
            return;
        }
        match self.resource.write_status(&self.shared.cluster, &status).await {
            Ok(()) => {
                self.last_status = status;
                self.refusals = 0;
            }
            Err(refusal) => {
                tracing::warn!(processor = %self.name, %refusal, "the status of a Processor is not written");
                self.refusals = self.refusals.saturating_add(1);
                self.next_status = Instant::now() + wait_after(self.refusals).min(MAX_STATUS_WAIT);
                self.status_due = true;
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
            let images = running.served.origins.images().map(Option::<&_>::cloned).collect();
            status::Running { description, status: host, images, is_new: running.is_new }
        });
        let state = match (&self.waits, self.running.as_ref()) {
            (Some(waits), _) => status::State::Ends(waits),
            (None, Some(running)) if running.pace.concurrency == 0 => status::State::Suspended,
            (None, Some(running)) if running.served.recipe.mode == host::Mode::Observe => {
                status::State::Observes
            }
            _ => status::State::Runs,
        };
        status::compute(&status::Known {
            generation: newest.metadata.generation,
            fault: self.fault.as_ref(),
            away: self.follower.away(),
            lowered: self.shared.largest.lowered(&newest.spec),
            running,
            finalizers: self.shared.claims.of(&self.name),
            state,
            before: &self.last_status,
            now: (self.shared.now)(),
        })
    }
}
