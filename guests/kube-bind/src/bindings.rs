//! Bindings at home: their conditions, the CRDs, and what runs because of them.

mod dismantle;
mod install;

use std::time::Duration;

use mortise_sdk::{
    Action, Error, Event, Failure, Host, Object, Outcome, Request, Selection, WriteFailure, time,
};

use crate::{
    api::{
        Binding, BoundResource, ClusterBinding, Condition, ConsumerSecretRef, Export,
        ExportRequest, ServiceNamespace, Severity, find, set, summarize,
    },
    claim::Claimable,
    cluster_binding::{IN_USE, INTERVAL},
    config::Config,
    definition::Definition,
    kubeconfig::SECRET_VALID,
    place::{CLUSTER_BINDING, HINT, Place},
    start::{self, BOUND_EXCEEDED, Shared, Starts},
};

/// The finalizer that holds a binding until the objects of its kinds are gone at the provider.
pub(crate) const FINALIZER: &str = "kube-bind.mortise.dev/binding";
/// The condition of bindings and exports that have found each other.
pub(crate) const CONNECTED: &str = "Connected";
/// The condition of a binding whose CRDs are those of the provider.
pub(crate) const SCHEMA_IN_SYNC: &str = "SchemaInSync";
const INFORMERS_SYNCED: &str = "InformersSynced";
const HEARTBEATING: &str = "Heartbeating";
/// The condition of a binding for which not all is done that its provider wants: it is False, or not
/// there.
const WITHIN_BOUNDS: &str = "WithinBounds";
/// The reason of [`HEARTBEATING`] where the provider hears nothing.
const UPDATE_FAILED: &str = "ClusterBindingUpdateFailed";

/// The runs for which a provider may be out of reach before a condition says so. At a start, each
/// kind that is read needs a run of its own, which begins when the kind's first list has arrived.
const PATIENT_RUNS: u32 = 12;
/// The time between these runs if nothing arrives.
pub(crate) const PATIENCE: Duration = Duration::from_millis(400);

/// The input of a run, and the status that it makes.
struct Run<'a> {
    request: &'a Request,
    config: &'a Config,
    host: &'a Host,
    binding: Binding,
    /// The conditions that this run has found.
    next: Vec<Condition>,
    /// The things that a bound leaves out in this run, each with the bound.
    cut: Vec<String>,
}

/// Reconciles a binding.
pub(crate) fn reconcile(
    request: &Request,
    config: &Config,
    host: &Host,
) -> Result<Outcome, Failure> {
    let Some(binding) = request.object::<Binding>()? else { return Ok(Outcome::new()) };
    let place = Place::read(host, &binding.spec.kubeconfig_secret_ref, HINT)?;
    let mut run = Run { request, config, host, binding, next: Vec::new(), cut: Vec::new() };
    run.next.push(match &place {
        Ok(_) => Condition::is_true(SECRET_VALID),
        Err(condition) => (**condition).clone(),
    });
    if run.binding.metadata.is_deleted() {
        return run.dismantle(place.ok().as_ref());
    }
    let Ok(place) = place else { return Ok(run.end(Outcome::new())) };
    match run.connect(&place) {
        Ok(outcome) => Ok(run.end(outcome)),
        Err(error) => Err(run.unreachable(error)),
    }
}

/// Returns whether a read may succeed before the condition of reads changes, `told`. An object that
/// has none is new: it says at once how things are.
pub(crate) fn is_passing(request: &Request, error: &Error, told: Option<&Condition>) -> bool {
    let is_early = matches!(error, Error::Unavailable { .. }) && request.attempt < PATIENT_RUNS;
    is_early && told.is_none_or(Condition::holds)
}

impl Run<'_> {
    /// Adds the status to an outcome.
    fn end(mut self, outcome: Outcome) -> Outcome {
        self.merge();
        outcome.status(self.request, &self.binding.status)
    }

    fn merge(&mut self) {
        let conditions = &mut self.binding.status.conditions;
        set(conditions, std::mem::take(&mut self.next), self.host);
        summarize(conditions, self.host);
    }

    /// Returns the failure of a read at the provider, which the conditions tell. What runs goes on
    /// running.
    fn unreachable(mut self, error: Error) -> Failure {
        let told = find(&self.binding.status.conditions, INFORMERS_SYNCED);
        let is_passing = is_passing(self.request, &error, told);
        if is_passing && told.is_some() {
            return Failure::from(error).retry_after(PATIENCE);
        }
        let message = format!("The service provider cluster cannot be read: {error}");
        self.next.retain(|condition| condition.condition_type == SECRET_VALID);
        self.next.push(Condition::is_false(
            INFORMERS_SYNCED,
            Severity::Error,
            "InformerSyncTimeout",
            message,
        ));
        if find(&self.binding.status.conditions, HEARTBEATING).is_some() {
            self.next.push(not_heartbeating(UPDATE_FAILED, &failed(&error.to_string())));
        }
        self.merge();
        let failure = Failure::from(error).status(self.request, &self.binding.status);
        if is_passing { failure.retry_after(PATIENCE) } else { failure }
    }

    /// Connects the binding with its export.
    fn connect(&mut self, place: &Place) -> Result<Outcome, Error> {
        let fields = ["spec.providerPrettyName", "status"];
        let cluster_binding: Option<ClusterBinding> =
            place.get(self.host, CLUSTER_BINDING, &fields)?;
        let export: Option<Export> =
            place.get(self.host, &self.binding.metadata.name, &["spec"])?;
        let mut outcome = start::place(Outcome::new(), place);
        match export {
            None => {
                let condition = self.no_export(place)?;
                self.next.push(condition);
                outcome = self.start_home(outcome)?;
            }
            Some(export) => outcome = self.install(place, &export, outcome)?,
        }
        self.next.push(Condition::is_true(INFORMERS_SYNCED));
        self.tell_cut();
        let name = cluster_binding.as_ref().map(|found| found.spec.provider_pretty_name.clone());
        self.binding.status.provider_pretty_name = name.unwrap_or_default();
        let heartbeat = match cluster_binding {
            Some(found) => self.heartbeat(place, &found)?,
            None => None,
        };
        let Some((condition, left)) = heartbeat else { return Ok(outcome) };
        self.next.push(condition);
        Ok(match left {
            Some(left) => outcome.requeue_after(left),
            None => outcome,
        })
    }

    /// Sets or drops the condition that names what was left out.
    fn tell_cut(&mut self) {
        if self.cut.is_empty() {
            let conditions = &mut self.binding.status.conditions;
            conditions.retain(|condition| condition.condition_type != WITHIN_BOUNDS);
            return;
        }
        let cut = self.cut.join("; ");
        let bounds = Condition::is_false(WITHIN_BOUNDS, Severity::Warning, BOUND_EXCEEDED, cut);
        self.next.push(bounds);
    }

    /// Returns the condition of a binding whose export is not there.
    fn no_export(&self, place: &Place) -> Result<Condition, Error> {
        let name = &self.binding.metadata.name;
        let request = match place.get::<ExportRequest>(self.host, name, &["status"]) {
            Err(Error::Denied { .. } | Error::UnknownKind { .. }) => None,
            request => request?,
        };
        let failed = request.filter(|request| request.status.phase == "Failed");
        let (reason, message) = match failed {
            Some(failed) => ("APIServiceExportFailed", failed.status.terminal_message),
            None => (
                "APIServiceExportNotFound",
                format!("APIServiceExport {name} not found on the service provider cluster."),
            ),
        };
        Ok(Condition::is_false(CONNECTED, Severity::Error, reason, message))
    }

    /// Returns the condition of the heartbeat, and the time after which a missing one is told;
    /// `None` if there was no heartbeat yet.
    fn heartbeat(
        &self,
        place: &Place,
        of: &ClusterBinding,
    ) -> Result<Option<(Condition, Option<Duration>)>, Error> {
        let last = of.status.last_heartbeat_time.as_deref().and_then(time::parse);
        let Some(last) = last else { return Ok(None) };
        let own = place.secret();
        let other = of.status.consumer_secret_ref.as_ref().filter(|found| !found.is(&own));
        // A connection of another Secret that leads to the same place is not another consumer.
        let is_ours = |other: &ConsumerSecretRef| place.is_shared_with(self.host, other);
        let is_shared = other.map(is_ours).transpose()?.unwrap_or_default();
        if let Some(other) = other.filter(|_| !is_shared) {
            let message = format!(
                "Another consumer, with the Secret {}/{}, uses the ClusterBinding of {}",
                other.namespace, other.name, place.namespace
            );
            return Ok(Some((not_heartbeating(IN_USE, &message), None)));
        }
        let age = Duration::from_millis(self.host.now().saturating_sub(last));
        Ok(Some(match INTERVAL.checked_sub(age) {
            Some(left) => {
                let left = left + Duration::from_secs(1);
                (Condition::is_true(HEARTBEATING), Some(left))
            }
            None => (not_heartbeating(UPDATE_FAILED, &failed("no heartbeat for 5 minutes")), None),
        }))
    }
}

fn failed(message: &str) -> String {
    format!("Failed to update service provider ClusterBinding: {message}")
}

fn not_heartbeating(reason: &str, message: &str) -> Condition {
    Condition::is_false(HEARTBEATING, Severity::Warning, reason, message)
}
