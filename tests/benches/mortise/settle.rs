//! Waits until a host has nothing left to do.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, ensure};
use mortise_host::host::Host;

/// Timeout that only a fault reaches.
const DEADLINE: Duration = Duration::from_mins(20);

/// The measurements until a host had nothing left to do.
pub(crate) struct Settled<T> {
    /// The measurement when each object had been reconciled once; `None` if some were not, since
    /// nothing had changed for them.
    pub(crate) all_ran: Option<T>,
    pub(crate) end: T,
}

/// Waits until a host knows `objects` objects of its processor and has nothing left to do.
///
/// # Errors
///
/// Fails if a reconcile fails, the host does not settle, or `measure` fails.
pub(crate) async fn settled<T>(
    host: &Host,
    objects: usize,
    measure: impl Fn() -> anyhow::Result<T>,
) -> anyhow::Result<Settled<T>> {
    let is_over = |_: &Option<T>| {
        host.status().first().is_some_and(|status| status.objects == objects)
            && host.drive().is_settled()
    };
    let waiting = wait(host, objects, &measure, is_over);
    let all_ran =
        tokio::time::timeout(DEADLINE, waiting).await.context("the host does not settle")??;
    Ok(Settled { all_ran, end: measure()? })
}

/// Waits until `objects` objects have been reconciled from now on, and nothing is left to do.
/// Returns the measurement at the moment when the last of them had been reconciled.
///
/// # Errors
///
/// Fails as [`settled`] does.
pub(crate) async fn all_run<T>(
    host: &Host,
    objects: usize,
    measure: impl Fn() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let is_over = |all_ran: &Option<T>| all_ran.is_some() && host.drive().is_settled();
    let waiting = wait(host, objects, &measure, is_over);
    let all_ran =
        tokio::time::timeout(DEADLINE, waiting).await.context("the host does not settle")??;
    all_ran.context("each of them has run")
}

async fn wait<T>(
    host: &Host,
    objects: usize,
    measure: &impl Fn() -> anyhow::Result<T>,
    is_over: impl Fn(&Option<T>) -> bool,
) -> anyhow::Result<Option<T>> {
    let (mut activity, mut seen, mut all_ran) = (host.activity(), BTreeSet::new(), None);
    let mut has_moved = true;
    loop {
        tokio::select! {
            biased;
            report = host.next_report() => {
                let report = report?;
                ensure!(report.failure.is_none(), "{}: {:?}", report.key, report.failure);
                seen.insert(report.key);
                if seen.len() == objects && all_ran.is_none() {
                    all_ran = Some(measure()?);
                }
                has_moved = true;
            }
            () = host.drive().settled(), if has_moved => {
                if is_over(&all_ran) {
                    return Ok(all_ran);
                }
                has_moved = false;
            }
            changed = activity.changed(), if !has_moved => {
                changed?;
                has_moved = true;
            }
        }
    }
}
