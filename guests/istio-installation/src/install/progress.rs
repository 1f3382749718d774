//! The progress of an installation, told from the cluster: nothing is waited for.

use std::time::Duration;

use istio::{
    api::Istio,
    condition, installed, json,
    last_applied::{Effect, LastApplied},
    version::Version,
};
use mortise_sdk::{object::ConditionStatus, time};

use super::{FAILED, Part, Target};
use crate::{
    cause::{self, Cause},
    run::{Run, Stop},
    status::{self, Summary},
    workload::{Availability, Workload},
};

/// The time after which the run follows that sees what became of the workloads.
const NEXT_RUN_DELAY: Duration = Duration::from_millis(1);

/// The progress of an installation.
pub(super) enum Progress {
    /// Istio is installed.
    Done {
        /// The time after which fewer Pods than there should be are an error.
        again: Option<Duration>,
    },
    /// Istio is not installed, or not yet.
    Under {
        summary: Summary,
        /// The time after which more can be said though nothing changes.
        again: Option<Duration>,
    },
}

impl Progress {
    pub(super) fn of(parts: &[Part], target: &Target, run: &Run) -> Result<Self, Stop> {
        if is_new(target, run.istio) {
            return Ok(Self::Under { summary: Summary::processing(), again: Some(NEXT_RUN_DELAY) });
        }
        let was_ready = status::find(run.istio, condition::READY)
            .is_some_and(|ready| ready.status == ConditionStatus::True);
        let (mut undone, mut again) = (Vec::new(), None::<Duration>);
        for (part, workload) in
            parts.iter().flat_map(|part| part.workloads.iter().map(move |one| (part, one)))
        {
            match rest(workload, was_ready, run) {
                Rest::Undone { is_overdue } => undone.push((part, workload, is_overdue)),
                Rest::Done => {}
                Rest::DoneFor(rest) => again = Some(again.map_or(rest, |again| again.min(rest))),
            }
        }
        if undone.is_empty() {
            return verified(target, again, run);
        }
        let mut causes = Vec::new();
        for (_, workload, is_overdue) in undone.iter().filter(|(part, ..)| !part.is_held) {
            let mut cause = cause::of(workload, run.host)?;
            cause.is_certain |= is_overdue;
            causes.push(cause);
        }
        Ok(waiting(&causes, run))
    }
}

impl From<Summary> for Progress {
    fn from(summary: Summary) -> Self {
        Self::Under { summary, again: None }
    }
}

/// The judgement on one workload.
enum Rest {
    Done,
    /// It is done unless it is still the same after this time.
    DoneFor(Duration),
    Undone {
        /// It has had the time to become ready.
        is_overdue: bool,
    },
}

/// Judges a workload: its roll-out must be complete at first. After that, an autoscaler or a
/// restart makes no workload unready, unless it has too few Pods for long.
fn rest(workload: &Workload, was_ready: bool, run: &Run) -> Rest {
    let undone = |is_overdue| Rest::Undone { is_overdue };
    let of = |is_done: bool| if is_done { Rest::Done } else { undone(false) };
    if !workload.is_current() || !was_ready {
        return of(workload.is_current() && workload.is_rolled_out());
    }
    match workload.availability() {
        Availability::Full => Rest::Done,
        Availability::None => undone(false),
        Availability::Reduced { since } => left(&since, run).map_or(undone(true), Rest::DoneFor),
    }
}

/// Returns what is left at this time of the time that a workload has to become ready.
fn left(since: &str, run: &Run) -> Option<Duration> {
    let since = time::parse(since).unwrap_or_default();
    let passed = Duration::from_millis(run.host.now().saturating_sub(since));
    limit(run).checked_sub(passed).filter(|left| !left.is_zero())
}

fn limit(run: &Run) -> Duration {
    Duration::from_secs(run.config.readiness_timeout_seconds.into())
}

/// Returns whether no run has written what the resource asks for: this is the first one. The next
/// one, which sees what became of the workloads, follows at once.
fn is_new(target: &Target, istio: &Istio) -> bool {
    let ready = status::find(istio, condition::READY);
    let said = ready.and_then(|ready| ready.observed_generation);
    let wanted = LastApplied::after(istio, Effect::All(&target.tag)).ok();
    let last = target.last.as_ref().and_then(|last| json::write(last).ok());
    let is_recorded = last.is_some() && last == wanted;
    !is_recorded && said != istio.metadata.generation
}

/// Returns the progress when all workloads are ready: their Pods must be of the right version.
fn verified(target: &Target, again: Option<Duration>, run: &Run) -> Result<Progress, Stop> {
    let pods = cause::istio_pods(run.host)?;
    let checked =
        Version::parse(&target.tag).and_then(|version| installed::check_version(&pods, &version));
    Ok(match checked {
        Ok(()) => Progress::Done { again },
        Err(error) => Progress::from(error_of(format!(
            "Verifying Pod versions in istio-system namespace failed: {error}"
        ))),
    })
}

/// Returns the progress while workloads are not ready: an error as soon as one cannot become ready,
/// or if it takes too long. An error stays until they are ready.
fn waiting(causes: &[Cause], run: &Run) -> Progress {
    let certain = causes.iter().find(|cause| cause.is_certain);
    let told = |cause: &Cause| error_of(format!("{FAILED}: {}", cause.message));
    if let Some(cause) = certain {
        return Progress::from(told(cause));
    }
    let Some(cause) = causes.first() else { return Progress::from(Summary::processing()) };
    let Some(ready) = status::find(run.istio, condition::READY) else {
        return Progress::from(Summary::processing());
    };
    if ready.reason == condition::INSTALL_UNINSTALL_FAILED.name {
        return Progress::from(told(cause));
    }
    if ready.reason != condition::RECONCILE_UNKNOWN.name {
        return Progress::Under { summary: Summary::processing(), again: Some(limit(run)) };
    }
    match left(&ready.last_transition_time, run) {
        Some(left) => Progress::Under { summary: Summary::processing(), again: Some(left) },
        None => Progress::from(told(cause)),
    }
}

fn error_of(description: String) -> Summary {
    Summary::error(condition::INSTALL_UNINSTALL_FAILED, description)
}
