//! Logs finished reconciles and keeps their reports.

use std::sync::Arc;

use mortise_core::{reconcile::Report, write::Clock};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    host::{Host, log_lines},
    operator::admin::Reports,
};

/// Logs the reports of a host and keeps the last ones, until `stop` is cancelled.
///
/// # Errors
///
/// Fails if a task of the host has ended.
pub(super) async fn run(
    host: Arc<Host>,
    reports: Reports,
    now: Clock,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    loop {
        let report = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            report = host.next_report() => report?,
        };
        log_report(&report);
        reports.keep(&report, now());
    }
}

fn log_report(report: &Report) {
    let _span = report.span().entered();
    if let Some(failure) = &report.failure {
        warn!(attempt = report.attempt, failure, "a reconcile failed");
    }
    for note in &report.notes {
        info!(note, "note of a reconcile");
    }
    log_lines(&report.log);
}
