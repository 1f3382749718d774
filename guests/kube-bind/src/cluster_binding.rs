//! The `ClusterBinding` at the provider: the heartbeat, and the kubeconfig that the provider hands
//! out.

use std::time::Duration;

use mortise_sdk::{
    Action, Error, Event, Failure, Host, Manifest, Object, ObjectRef, Outcome, Request, Selection,
    WriteFailure, kubernetes::Secret, object::Metadata, time,
};
use serde_json::json;

use crate::{
    api::{
        Binding, ClusterBinding, ClusterBindingStatus, Condition, ConsumerSecretRef, Severity, set,
        summarize,
    },
    exports::here,
    kubeconfig::SECRET_VALID,
    mark,
    place::Place,
};

/// The longest time between two heartbeats, as the provider is told.
pub(crate) const INTERVAL: Duration = Duration::from_mins(5);
const INTERVAL_TEXT: &str = "5m0s";
/// The time after which the next heartbeat is sent.
const DUE: Duration = Duration::from_secs(150);
/// The reason of an event and a condition: another consumer uses this `ClusterBinding`.
pub(crate) const IN_USE: &str = "ClusterBindingInUse";
/// The version that the provider is told.
const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// Reconciles the `ClusterBinding`.
pub(crate) fn reconcile(request: &Request, host: &Host) -> Result<Outcome, Failure> {
    let Some(object) = request.object::<ClusterBinding>()? else { return Ok(Outcome::new()) };
    let Some(place) = here(request, host)? else { return Ok(Outcome::new()) };
    if let Some(conflict) = request.failed_writes.iter().find(|write| is_conflict(write)) {
        return Ok(in_use(host, &place, conflict)?);
    }
    if let Some(rest) = other_sends(host, &place, &object.status)? {
        return Ok(Outcome::new().requeue_after(rest));
    }
    let of = &object.spec.kubeconfig_secret_ref;
    let theirs = match place.get::<Secret>(host, &of.name, &["data", "type"]) {
        Err(denied @ Error::Denied { .. }) => Err(denied),
        theirs => Ok(theirs?),
    };
    let title = format!("Provider secret {}/{}", place.namespace, of.name);
    let warning = |reason, message: String| {
        Condition::is_false(SECRET_VALID, Severity::Warning, reason, message)
    };
    let missing = |key: &str| {
        warning("ProviderSecretInvalid", format!("{title} is missing \"{key}\" string key."))
    };
    let own = place.secret();
    let mut outcome = Outcome::new();
    let valid = match theirs {
        Err(denied) => warning("ProviderSecretDenied", format!("{title}: {denied}")),
        Ok(None) => warning("ProviderSecretNotFound", format!("{title} not found")),
        Ok(Some(theirs)) if !theirs.data.contains_key(&of.key) => missing(&of.key),
        Ok(Some(theirs)) if !theirs.data.contains_key(&own.key) => missing(&own.key),
        Ok(Some(theirs)) => {
            outcome = outcome.patch(handed_out(host, &place, &theirs)?);
            Condition::is_true(SECRET_VALID)
        }
    };
    let now = host.now();
    let last = object.status.last_heartbeat_time.as_deref().and_then(time::parse);
    let age = last.map(|last| Duration::from_millis(now.saturating_sub(last)));
    let is_due = age.is_none_or(|age| age >= DUE);
    let mut conditions = object.status.conditions;
    set(&mut conditions, [valid, Condition::is_true("ValidVersion")], host);
    summarize(&mut conditions, host);
    let status = ClusterBindingStatus {
        last_heartbeat_time: if is_due {
            Some(time::rfc3339(now))
        } else {
            object.status.last_heartbeat_time
        },
        heartbeat_interval: INTERVAL_TEXT.to_owned(),
        konnector_version: VERSION.to_owned(),
        consumer_secret_ref: Some(ConsumerSecretRef { name: own.name, namespace: own.namespace }),
        conditions,
    };
    let rest = age.filter(|_| !is_due).map_or(DUE, |age| DUE.saturating_sub(age));
    Ok(outcome.status(request, &status).requeue_after(rest.max(Duration::from_secs(1))))
}

/// Reads whether the heartbeat is sent by the connection of another Secret at home, which leads to
/// the same place; returns for how long it counts.
fn other_sends(
    host: &Host,
    place: &Place,
    of: &ClusterBindingStatus,
) -> Result<Option<Duration>, Failure> {
    let last = of.last_heartbeat_time.as_deref().and_then(time::parse);
    let (Some(last), Some(other)) = (last, &of.consumer_secret_ref) else { return Ok(None) };
    let age = Duration::from_millis(host.now().saturating_sub(last));
    let rest = INTERVAL.checked_sub(age).map(|rest| rest.max(Duration::from_secs(1)));
    Ok(if place.is_shared_with(host, other)? { rest } else { None })
}

/// Returns the part of the Secret at home with the kubeconfig that the provider hands out.
fn handed_out(host: &Host, place: &Place, theirs: &Secret) -> Result<Manifest, Failure> {
    let own = place.secret();
    let former: Option<Secret> = host.get(Some(&own.namespace), &own.name, &["data"])?;
    let metadata = Metadata::new(own.name).namespace(own.namespace);
    let part = json!({"metadata": metadata, "data": theirs.data});
    let former = former.map(|former| former.data).unwrap_or_default();
    let gone = former.into_keys().filter(|key| !theirs.data.contains_key(key)).take(100);
    Ok(gone.fold(Manifest::with_kind(&Secret::kind(), &part), |part, key| {
        part.absent(mark::path("data", &key))
    }))
}

fn is_conflict(write: &WriteFailure) -> bool {
    write.action == Action::Status && write.code == 409
}

/// Tells the bindings of the place that somebody else sends the heartbeat.
fn in_use(host: &Host, place: &Place, conflict: &WriteFailure) -> Result<Outcome, Error> {
    let bindings: Vec<Binding> = host.list(&Selection::of::<Binding>().fields(["spec"]))?;
    let secret = place.secret();
    let message = format!(
        "another consumer writes the status of ClusterBinding {}/{}: {}",
        place.namespace, conflict.ref_.name, conflict.message
    );
    let ours = bindings.iter().filter(|binding| binding.spec.kubeconfig_secret_ref == secret);
    // Nobody tells when the other one lets go.
    let outcome = Outcome::new().requeue_after(INTERVAL);
    Ok(ours.take(100).fold(outcome, |outcome, binding| {
        let on = ObjectRef::of::<Binding>(None, &binding.metadata.name);
        outcome.event(Event::warning(IN_USE, message.clone()).on(on))
    }))
}
