//! The steps of a run once the Istio resource is deleted: the sidecars are removed.

use std::{cell::RefCell, collections::BTreeSet, fmt::Write as _};

use istio::{
    action::RESTARTED_AT,
    api::{FINALIZER as INSTALLATION, ISTIO_NAMESPACE, Istio},
    predicate::is_left_behind,
};
use mortise_sdk::{Event, Failure, Host, Level, Outcome, Request, kubernetes::Namespace, time};

use crate::{
    config::Config,
    describe::FINALIZER,
    injection::Injector,
    plan::{Bounds, Due, RETRY_DELAY},
    record::{Cause, Causes, Record},
    survey::{Namespaces, Owner, Replacements, Survey},
    workload::Workloads,
};

/// The most Pods and workloads that an event names.
const MAX_LISTED_OBJECTS: usize = 10;

/// Removes the sidecars once the injector is gone, which would make them anew.
pub(crate) fn uninstall(
    request: &Request,
    istio: &Istio,
    config: &Config,
    host: &Host,
) -> Result<Outcome, Failure> {
    let holds = |finalizer: &str| istio.metadata.finalizers.iter().any(|held| held == finalizer);
    let (is_held, is_installed) = (holds(FINALIZER), holds(INSTALLATION));
    if !is_held && !is_installed {
        return Ok(Outcome::new());
    }
    let is_gone = Injector::read(host)?.is_gone();
    if is_installed && (!is_gone || !namespace_goes(host)?) {
        host.log(Level::Debug, "waits", &[("reason", "Istio is not uninstalled yet")]);
        return Ok(Outcome::new());
    }
    if !is_gone {
        // Istio is there, but not that of this resource.
        return Ok(Outcome::new().finalizers::<&str>([]));
    }
    remove(request, istio, config, host)
}

fn namespace_goes(host: &Host) -> Result<bool, Failure> {
    let namespace: Option<Namespace> = host.get(None, ISTIO_NAMESPACE, &["metadata.labels"])?;
    Ok(namespace.is_none_or(|namespace| namespace.metadata.is_deleted()))
}

fn remove(
    request: &Request,
    istio: &Istio,
    config: &Config,
    host: &Host,
) -> Result<Outcome, Failure> {
    let former = Record::read(istio).unwrap_or_default();
    let changed = former.after(&[(Cause::Uninstall, true.into())], || host.now());
    let mut outcome = Outcome::new();
    if let Some(record) = &changed {
        outcome = outcome.patch(record.patch(istio));
    }
    let record = changed.unwrap_or(former);
    let now = host.now();
    let since = record.since(Cause::Uninstall).unwrap_or(now);
    let restarted = RefCell::new(BTreeSet::new());
    let replacements = RefCell::new(Replacements::default());
    let namespaces = Namespaces::read(host)?;
    let survey = Survey::read(host, |pod| {
        let restarted_at = pod.metadata.annotations.get(RESTARTED_AT);
        if restarted_at.and_then(|at| time::parse(at)).is_some_and(|at| at >= since) {
            restarted.borrow_mut().insert(Owner::of(pod));
        } else {
            replacements.borrow_mut().add(pod);
        }
        let mut causes = Causes::default();
        let is_over = matches!(pod.status.phase.as_str(), "Succeeded" | "Failed");
        let is_included = namespaces.get(pod).is_some();
        if is_included && is_left_behind(pod) && !is_over && !pod.metadata.is_deleted() {
            causes.add(Cause::Uninstall);
        }
        Ok(causes)
    })?;
    let mut workloads = Workloads::new(host);
    let due = Due::of(survey, &record, &mut workloads)?;
    let mut left: Vec<String> = due
        .kyma
        .iter()
        .chain(&due.customers)
        .map(|warning| {
            format!("{} {}/{}", warning.pod.kind, warning.pod.namespace, warning.pod.name)
        })
        .collect();
    if due.is_done() {
        return Ok(done(outcome, left));
    }
    let evicted = workloads.replacements(&replacements.borrow(), |created| created >= since)?;
    let all = restarted.borrow().len() + evicted + due.all();
    if now >= since.saturating_add(longest(all, config)) {
        left.extend(due.names());
        return Ok(done(outcome, left));
    }
    let plan = due.plan(Bounds::of(config, request, &record, now), &mut workloads)?;
    Ok(plan.add_to(outcome, &record.restart_time(now)).requeue_after(RETRY_DELAY))
}

/// Returns the longest time, in milliseconds, that the removal of so many sidecars' workloads may
/// take: each is awaited for no longer than the patience, and so many at a time.
fn longest(all: usize, config: &Config) -> u64 {
    let patience = u64::try_from(config.patience().as_millis()).unwrap_or(u64::MAX);
    let turns = u64::try_from(all.div_ceil(config.limit())).unwrap_or(u64::MAX);
    patience.saturating_mul(turns)
}

/// Lets the resource go, and names what could not be restarted.
fn done(outcome: Outcome, mut left: Vec<String>) -> Outcome {
    let outcome = outcome.finalizers::<&str>([]);
    if left.is_empty() {
        return outcome;
    }
    let more = left.len().saturating_sub(MAX_LISTED_OBJECTS);
    left.truncate(MAX_LISTED_OBJECTS);
    let mut message = format!("still have sidecars: {}", left.join(", "));
    if more > 0 {
        let _ = write!(message, " and {more} more");
    }
    outcome.event(Event::warning("SidecarsLeft", message))
}
