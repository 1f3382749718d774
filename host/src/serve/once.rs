//! `mortise run --once`: detects that all objects have been reconciled, and the result.

use mortise_core::contract::display_kind;
use tokio::sync::watch as latest;
use tracing::{info, warn};

use crate::{cluster::lease::Guard, host::Host, operator::Progress};

/// The result of reconciling all objects.
pub(super) struct End {
    /// The number of keys whose last run failed.
    failing: usize,
    /// The number of Processors that do not run as their specs require.
    faulty: usize,
}

/// Waits until every Processor has been handled once, all objects of the Processors are known, and
/// no key is ready or running.
pub(super) async fn done(
    host: &Host,
    operator: &mut latest::Receiver<Progress>,
    lease: &Guard,
) -> End {
    lease.held().await;
    loop {
        host.drive().settled().await;
        let progress = *operator.borrow_and_update();
        let all_loaded = progress.listed && progress.pending + progress.pulling == 0;
        if all_loaded && host.drive().is_settled() {
            return End::of(host, &progress);
        }
        if !all_loaded && operator.changed().await.is_err() {
            // The operator has ended; its own task reports that.
            std::future::pending::<()>().await;
        }
    }
}

// === impl End ===

impl End {
    fn of(host: &Host, progress: &Progress) -> Self {
        let status = host.status();
        let failing = status.iter().map(|of| of.failing).sum();
        let runs: u64 = status.iter().map(|of| of.runs).sum();
        let faulty = progress.faulty;
        info!(processors = status.len(), runs, failing, faulty, "reconciled all objects");
        for of in status.iter().filter(|of| !of.missing.is_empty()) {
            let missing: Vec<String> = of.missing.iter().map(display_kind).collect();
            warn!(processor = %of.version.processor, ?missing, "kinds are not served");
        }
        Self { failing, faulty }
    }

    pub(super) fn is_well(&self) -> bool {
        self.failing == 0 && self.faulty == 0
    }
}
