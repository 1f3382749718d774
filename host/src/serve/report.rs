//! Logs finished reconciles and keeps their reports.

use std::sync::Arc;

use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, trace, warn};

use crate::{host::Host, operator::admin::Reports, wasm::Line};
use mortise_core::{contract::Level, reconcile::Report, write::Clock};

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
        info!(note, "of a reconcile");
    }
    for Line { level, message, fields, .. } in &report.log {
        let fields: Map<String, Value> =
            fields.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
        let fields = Value::Object(fields);
        match level {
            Level::Trace => trace!(%fields, "{message}"),
            Level::Debug => debug!(%fields, "{message}"),
            Level::Info => info!(%fields, "{message}"),
            Level::Warn => warn!(%fields, "{message}"),
            Level::Error => error!(%fields, "{message}"),
        }
    }
}
