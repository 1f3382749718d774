//! Writes the status of one Processor.

use tokio::time::Instant;

use super::Controller;
use crate::{
    host,
    operator::{
        api::{Processor, ProcessorStatus},
        status,
    },
};

impl Controller {
    /// Writes the status if it differs from the last one, even if the last one was just written.
    pub(super) async fn write_status_at_once(&mut self, newest: &Processor) {
        self.pacing.allow_status(Instant::now());
        self.write_status(newest).await;
    }

    /// Writes the status if it differs from the last one, at most once a second. Does nothing on a
    /// standby.
    pub(super) async fn write_status(&mut self, newest: &Processor) {
        if !self.shared.lease.is_held() {
            return;
        }
        if !self.pacing.begin_status(Instant::now()) {
            return;
        }
        let status = self.status(newest);
        if status == self.last_status {
            return;
        }
        match self.resource.write_status(&self.shared.cluster, &status).await {
            Ok(()) => {
                self.last_status = status;
                self.pacing.status_written();
            }
            Err(refusal) => {
                tracing::warn!(processor = %self.name, %refusal, "the status of a Processor is not written");
                self.pacing.status_refused(Instant::now());
            }
        }
    }

    fn status(&mut self, newest: &Processor) -> ProcessorStatus {
        let host = self.shared.host.status_of(&self.name);
        if let (Some(running), Some(host)) = (&mut self.versions.running, &host) {
            let known = (host.objects + host.ready) as u64;
            running.is_new &= host.ready + host.running > 0 && host.runs < known;
        }
        let running = self.versions.running.as_ref().zip(host.as_ref()).map(|(running, host)| {
            let description = &*running.served.loaded.description;
            let images = running.served.origins.images().map(Option::<&_>::cloned).collect();
            status::Running { description, status: host, images, is_new: running.is_new }
        });
        let state = match (&self.ending.waits, self.versions.running.as_ref()) {
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
            not_started: &self.starts.refused,
            finalizers: self.shared.claims.of(&self.name),
            state,
            before: &self.last_status,
            now: (self.shared.now)(),
        })
    }
}
