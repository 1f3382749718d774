//! The steps of a run.

use std::time::Duration;

use istio::{
    action::Object as Workload,
    api::{Istio, IstioStatus, MODULE_NAMESPACE},
    check, condition,
    kubernetes::Pod,
    last_applied::LastApplied,
};
use mortise_sdk::{
    Action, Error, Failure, Host, Level, ObjectRef, Outcome, Request, Selection, WriteFailure,
};
use serde_json::Value;

use crate::{
    config::Config,
    describe::FINALIZER,
    injection::Injector,
    mesh::{Mesh, Unknown},
    plan::{Bounds, Due, Plan, RETRY_DELAY},
    record::{Cause, Causes, Record},
    status,
    survey::{self, HOST_NETWORK, Namespaces, Survey, is_running},
    uninstall, window,
    workload::Workloads,
};

/// Reconciles an Istio resource.
///
/// # Errors
///
/// Fails if something cannot be read.
pub fn reconcile(request: &Request, config: &Config, host: &Host) -> Result<Outcome, Failure> {
    let Some(istio) = request.object::<Istio>()? else { return Ok(Outcome::new()) };
    if check::check(&istio, config.flavour()).is_err() || !is_oldest(&istio, host)? {
        // Another one is worked for, or none.
        return Ok(Outcome::new().finalizers(held(&istio)));
    }
    if istio.metadata.is_deleted() {
        return uninstall::uninstall(request, &istio, config, host);
    }
    let mesh = match Mesh::read(&istio, config, host) {
        Ok(mesh) => mesh,
        Err(Unknown::Read(error)) => return Err(error.into()),
        Err(Unknown::NotYet(reason)) => return Ok(wait(&istio, &reason, host)),
        Err(Unknown::Failed(error)) => {
            let result = status::Result { error: Some(error), ..status::Result::default() };
            return Ok(with_status(Outcome::new(), &result, request, &istio, host));
        }
    };
    restart(&Run { request, istio: &istio, config, host }, &mesh)
}

/// The input of a run.
struct Run<'a> {
    request: &'a Request,
    istio: &'a Istio,
    config: &'a Config,
    host: &'a Host,
}

/// Returns the finalizers that a resource keeps which is not worked for.
fn held(istio: &Istio) -> Vec<&'static str> {
    let holds = istio.metadata.finalizers.iter().any(|held| held == FINALIZER);
    // One that was worked for until now keeps its sidecars until it is deleted.
    if holds && !istio.metadata.is_deleted() { vec![FINALIZER] } else { Vec::new() }
}

fn is_oldest(istio: &Istio, host: &Host) -> Result<bool, Failure> {
    let all = Selection::of::<Istio>().namespace(MODULE_NAMESPACE);
    let all: Vec<Istio> = host.list(&all.fields(["metadata.creationTimestamp"]))?;
    Ok(check::is_oldest(istio, &all).is_ok())
}

/// Waits for a change. Settings that were last applied are recorded before anybody changes them.
fn wait(istio: &Istio, reason: &str, host: &Host) -> Outcome {
    host.log(Level::Debug, "waits", &[("reason", reason)]);
    let outcome = Outcome::new();
    match (Record::read(istio), LastApplied::read(istio)) {
        (None, Ok(last)) => {
            let record = Record::taken_over(&last.unwrap_or_default());
            outcome.patch(record.patch(istio))
        }
        _ => outcome,
    }
}

fn restart(run: &Run, mesh: &Mesh) -> Result<Outcome, Failure> {
    let Run { request, istio, config, host } = *run;
    let injector =
        if config.missing_sidecars { Injector::read(host)? } else { Injector::default() };
    let mut settings = mesh.settings.clone();
    if !injector.is_gone() {
        settings.push((Cause::Missing, true.into()));
    }
    let former = Record::read(istio);
    let changed = updated(former.as_ref(), istio, &settings, host);
    let has_changed = changed.is_some();
    let former = former.unwrap_or_default();
    let mut record = changed.unwrap_or_else(|| former.clone());
    let namespaces = Namespaces::read(host)?;
    let survey = Survey::read(host, |pod| {
        let Some(namespace) = namespaces.get(pod) else { return Ok(Causes::default()) };
        let mut causes = survey::causes(pod, mesh, &record);
        if is_running(pod) && injector.misses(pod, namespace) && !is_on_host_network(pod, host)? {
            causes.add(Cause::Missing);
        }
        Ok(causes)
    })?;
    let mut workloads = Workloads::new(host);
    drop_refused(&mut record, request, &workloads)?;
    let mut due = Due::of(survey, &record, &mut workloads)?;
    if !due.kyma.is_empty() {
        due.hold_customers();
    }
    let mut result = status::Result {
        kyma: due.kyma.clone(),
        customers: if due.kyma.is_empty() { due.customers.clone() } else { Vec::new() },
        refused: refused(request),
        ..status::Result::default()
    };
    let (plan, again) = plan(run, due, &record, &mut workloads)?;
    result.pending = plan.pending;
    let restarted = plan.for_missing();
    if !restarted.is_empty() {
        record.add_restarted(restarted, &workloads.uids()?);
    }
    let own = (record != former).then(|| record.patch(istio));
    // New settings are recorded before a restart for them, and restarts when they have begun.
    let (before, after) = if has_changed { (own, None) } else { (None, own) };
    let mut outcome = Outcome::new().finalizers([FINALIZER]);
    outcome.patch.extend(before);
    if !plan.is_empty() {
        outcome = plan.add_to(outcome, &record.restart_time(host.now()));
    }
    outcome.patch.extend(after);
    if let Some(again) = again {
        outcome = outcome.requeue_after(again);
    }
    Ok(with_status(outcome, &result, request, istio, host))
}

/// Returns the restarts of this run, and the time after which the next one looks for more.
fn plan(
    run: &Run,
    due: Due,
    record: &Record,
    workloads: &mut Workloads,
) -> Result<(Plan, Option<Duration>), Failure> {
    let Run { request, config, host, .. } = *run;
    if due.is_empty() {
        return Ok((Plan::default(), None));
    }
    let now = host.now();
    if let Some(wait) = window::wait(&config.windows, now) {
        let wait = if config.resync().is_zero() { wait } else { wait.min(config.resync()) };
        return Ok((Plan::later(due.len()), Some(wait)));
    }
    let bounds = Bounds::of(config, request, record, now);
    let evicts = due.evicts();
    let plan = due.plan(bounds, workloads)?;
    let again = (plan.pending > 0 || evicts).then_some(RETRY_DELAY);
    Ok((plan, again))
}

/// Drops the workloads from the record whose restarts the API server has refused.
fn drop_refused(
    record: &mut Record,
    request: &Request,
    workloads: &Workloads,
) -> Result<(), Failure> {
    for failure in request.failed_writes.iter().filter(|failure| is_roll_out(failure)) {
        let ObjectRef { kind, namespace, name, .. } = failure.ref_.clone();
        let of = Workload { kind: kind.kind, namespace: namespace.unwrap_or_default(), name };
        if let Some(uid) = workloads.get(&of)?.and_then(|workload| workload.uid) {
            record.drop_restarted(&uid);
        }
    }
    Ok(())
}

fn is_roll_out(failure: &WriteFailure) -> bool {
    failure.action == Action::Patch && failure.ref_.kind.group == "apps"
}

/// Returns the record after these settings; `None` if it stays.
fn updated(
    former: Option<&Record>,
    istio: &Istio,
    settings: &[(Cause, Value)],
    host: &Host,
) -> Option<Record> {
    if let Some(former) = former {
        return former.after(settings, || host.now());
    }
    let last = LastApplied::read(istio).ok().flatten().unwrap_or_default();
    Record::taken_over(&last).after(settings, || host.now())
}

/// Returns whether a Pod is on the network of its node: the injector makes no sidecar for such one.
fn is_on_host_network(pod: &Pod, host: &Host) -> Result<bool, Error> {
    let of = ObjectRef::of::<Pod>(Some(pod.namespace()), pod.metadata.name.as_str());
    let pod: Option<Value> = host.get_ref(&of, &[HOST_NETWORK])?;
    let field = pod.as_ref().and_then(|pod| pod.pointer("/spec/hostNetwork"));
    Ok(field == Some(&true.into()))
}

/// Returns the restarts that the API server refused, without those that budgets did.
fn refused(request: &Request) -> Vec<String> {
    let of = |failure: &&WriteFailure| {
        is_roll_out(failure) || failure.action == Action::Evict && failure.code != 429
    };
    let text = |failure: &WriteFailure| {
        let of = &failure.ref_;
        let namespace = of.namespace.as_deref().unwrap_or_default();
        format!("{} {namespace}/{}: {}", of.kind.kind, of.name, failure.message)
    };
    request.failed_writes.iter().filter(of).take(5).map(text).collect()
}

/// Adds the condition of this processor, and no other one.
fn with_status(
    outcome: Outcome,
    result: &status::Result,
    request: &Request,
    istio: &Istio,
    host: &Host,
) -> Outcome {
    let status =
        IstioStatus::of_conditions(&[condition::SIDECARS], [result.condition()], istio, host);
    outcome.status(request, &status)
}
