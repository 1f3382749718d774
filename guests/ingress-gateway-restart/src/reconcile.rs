//! The reconciliation of an Istio resource: from its settings to restarts.

use std::time::Duration;

use istio::{
    api::{ISTIO_NAMESPACE, Istio, IstioStatus, MODULE_NAMESPACE},
    check,
    condition::{GATEWAY, USER_RESOURCE},
    last_applied::{self, LastApplied},
    user_filter::{self, EnvoyFilter},
};
use mortise_sdk::{
    Error, Failure, Host, Kind, Level, Manifest, ObjectRef, Outcome, Request, Selection,
    WriteFailure, object::Condition,
};
use serde::Deserialize;
use serde_json::json;

use crate::{
    Config, condition, mesh,
    record::{self, Record, Restart, Settings, Step},
    workload::Workload,
};

/// The fields that are read of Istio resources.
pub(crate) const FIELDS: [&str; 7] = [
    "metadata.annotations[\"operator.kyma-project.io/ingress-gateway-restart\"]",
    "metadata.annotations[\"operator.kyma-project.io/lastAppliedConfiguration\"]",
    "metadata.creationTimestamp",
    "metadata.generation",
    "spec",
    "status.conditions[type=IngressGatewayRestarted]",
    "status.conditions[type=IngressTargetingUserResourceFound]",
];
/// The fields by which the oldest Istio resource is found.
const AGE: [&str; 1] = ["metadata.creationTimestamp"];
/// The network policy that is written last: when it is there or gone, so are all others.
pub(crate) const LAST_POLICY: &str = "kyma-project.io--istio-pilot-jwks";
/// The fields that are read of it.
pub(crate) const POLICY_FIELDS: [&str; 1] = ["metadata.name"];
/// The fields that are read of `EnvoyFilter`s.
const FILTER_FIELDS: [&str; 4] = [
    "metadata.labels[\"kyma-project.io/module\"]",
    "metadata.ownerReferences",
    "spec.workloadSelector.labels.istio",
    "spec.workloadSelector.labels.app",
];
/// The HTTP status of a write to an object that is gone.
const NOT_FOUND: u16 = 404;

/// The reason why restarts are not possible.
#[derive(Debug)]
enum Stop {
    /// An error, with the description for the condition.
    Failed(String),
    /// A read that cannot be answered now.
    Unavailable(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        match error {
            Error::Unavailable { .. } => Self::Unavailable(error),
            error => Self::Failed(condition::could_not_restart(None, &error.to_string())),
        }
    }
}

/// Returns the `EnvoyFilter`s among which those of users are looked for.
pub(crate) fn envoy_filters() -> Selection {
    Selection::of::<EnvoyFilter>().namespace(ISTIO_NAMESPACE).fields(FILTER_FIELDS)
}

/// Returns the kind of network policies.
pub(crate) fn network_policy() -> Kind {
    Kind::new("networking.k8s.io", "v1", "NetworkPolicy")
}

/// Reconciles one Istio resource.
///
/// # Errors
///
/// Fails if an annotation of the resource, or something that decides on restarts, cannot be read.
pub fn reconcile(request: &Request, config: &Config, host: &Host) -> Result<Outcome, Failure> {
    let Some(istio) = request.object::<Istio>()? else {
        return Ok(Outcome::new().requeue_never());
    };
    let all = Selection::of::<Istio>().namespace(MODULE_NAMESPACE).fields(AGE);
    let is_refused = check::check(&istio, config.flavour()).is_err()
        || check::is_oldest(&istio, &host.list::<Istio>(&all)?).is_err();
    if is_refused || istio.metadata.is_deleted() {
        return Ok(Outcome::new());
    }
    let status = |restarted: Option<Condition>, user| {
        let given = restarted.into_iter().chain([user]);
        IstioStatus::of_conditions(&[GATEWAY, USER_RESOURCE], given, &istio, host)
    };
    if !request.failed_writes.is_empty() {
        let failed = failed_writes(&request.failed_writes).map(condition::not_restarted);
        return Ok(Outcome::new().status(request, &status(failed, user_resource(host)?)));
    }
    let restarted = match last_applied(&istio) {
        Ok(last) if last.tag.is_empty() => {
            return Ok(before(&istio, &Settings::of(&last.spec), host));
        }
        Ok(last) => restart(&istio, &Settings::of(&last.spec), host),
        Err(stop) => Err(stop),
    };
    match restarted {
        Ok((outcome, restarted)) => {
            Ok(outcome.status(request, &status(restarted, user_resource(host)?)))
        }
        Err(Stop::Failed(description)) => {
            let failed = condition::not_restarted(&description);
            let status = status(Some(failed), user_resource(host)?);
            Err(Failure::new(description).retry_on_change().status(request, &status))
        }
        Err(Stop::Unavailable(error)) => Err(error.into()),
    }
}

/// Returns the configuration that was applied last; the default one if there is none.
fn last_applied(istio: &Istio) -> Result<LastApplied, Stop> {
    let last = LastApplied::read(istio);
    let last =
        last.map_err(|error| Stop::Failed(condition::unreadable(last_applied::ANNOTATION, &error)));
    Ok(last?.unwrap_or_default())
}

/// Returns the outcome while Istio is not installed. A restart for the settings begins already:
/// once Istio is installed, it concerns workloads that were there before, and none that the
/// installation makes.
fn before(istio: &Istio, last_applied: &Settings, host: &Host) -> Outcome {
    let wanted = Settings::of(&istio.spec);
    let record = match Record::read(istio) {
        Ok(record) => record,
        Err(error) => {
            let fields = [("annotation", record::ANNOTATION), ("error", error.as_str())];
            host.log(Level::Warn, "cannot read the record, which is left as it is", &fields);
            return Outcome::new();
        }
    };
    match Record::step(record.as_ref(), last_applied, &wanted) {
        Step::Begin(workloads) => {
            Outcome::new().patch(begin(wanted, workloads, host).manifest(istio))
        }
        Step::Rest | Step::TakeOver | Step::Continue(_) => Outcome::new(),
    }
}

/// Returns the record of a restart that begins now.
fn begin(settings: Settings, workloads: Vec<Workload>, host: &Host) -> Record {
    Record { settings, restarting: Some(Restart { at: host.now_text(), workloads }) }
}

/// Returns the outcome of the next step, and the condition; `None`: it stays as it was.
fn restart(
    istio: &Istio,
    last_applied: &Settings,
    host: &Host,
) -> Result<(Outcome, Option<Condition>), Stop> {
    let wanted = Settings::of(&istio.spec);
    let record = Record::read(istio)
        .map_err(|error| Stop::Failed(condition::unreadable(record::ANNOTATION, &error)))?;
    let keep = |settings: Settings| Record { settings, restarting: None };
    match Record::step(record.as_ref(), last_applied, &wanted) {
        Step::Rest => Ok((Outcome::new(), Some(condition::restarted()))),
        Step::TakeOver => {
            let outcome = Outcome::new().patch(keep(wanted).manifest(istio));
            Ok((outcome, Some(condition::restarted())))
        }
        Step::Continue(restart) => {
            let outcome = carry_on(&restart, host)?;
            if !outcome.patch.is_empty() {
                return Ok((outcome, None));
            }
            let outcome = outcome.patch(keep(wanted).manifest(istio));
            Ok((outcome, Some(condition::restarted())))
        }
        Step::Begin(workloads) => {
            let former = record.as_ref().map_or(last_applied, |record| &record.settings);
            if is_in_effect(&wanted, former, host)? {
                let record = begin(wanted, workloads, host);
                return Ok((again(Outcome::new().patch(record.manifest(istio))), None));
            }
            // The annotation of the last applied configuration may change before the restart.
            let outcome = match record {
                Some(_) => Outcome::new(),
                None => Outcome::new().patch(keep(last_applied.clone()).manifest(istio)),
            };
            Ok((outcome, None))
        }
    }
}

/// Returns the outcome that restarts the workloads which were not restarted yet; without patches if
/// there are none.
fn carry_on(restart: &Restart, host: &Host) -> Result<Outcome, Stop> {
    let mut outcome = Outcome::new();
    for workload in &restart.workloads {
        let awaits = workload.awaits(&restart.at, host).map_err(|error| match error {
            Error::Unavailable { .. } => Stop::Unavailable(error),
            error => {
                Stop::Failed(condition::could_not_restart(Some(*workload), &error.to_string()))
            }
        })?;
        if awaits {
            outcome = again(outcome.patch(workload.restart(&restart.at)));
        }
    }
    Ok(outcome)
}

/// Makes the next run follow at once. Its own writes alone do not trigger a processor, and the next
/// step must come after these writes have succeeded.
fn again(outcome: Outcome) -> Outcome {
    outcome.requeue_after(Duration::ZERO)
}

/// Returns whether changed settings have reached the place from which workloads read them: the
/// mesh's settings, and the network policies.
fn is_in_effect(wanted: &Settings, former: &Settings, host: &Host) -> Result<bool, Error> {
    #[derive(Deserialize)]
    struct Any {}
    if wanted.network_policies_enabled != former.network_policies_enabled {
        let policy = ObjectRef::new(network_policy(), Some(ISTIO_NAMESPACE), LAST_POLICY);
        let is_there = host.get_ref::<Any>(&policy, &POLICY_FIELDS)?.is_some();
        if is_there != wanted.network_policies_enabled {
            return Ok(false);
        }
    }
    Ok(!wanted.mesh_differs(former) || mesh::has(wanted, host)?)
}

impl Record {
    /// Returns the manifest that writes the record into the annotation of a resource.
    fn manifest(&self, istio: &Istio) -> Manifest {
        let text = serde_json::to_string(self).expect("a record is JSON");
        let metadata = json!({
            "name": istio.metadata.name,
            "namespace": istio.metadata.namespace,
            "annotations": {record::ANNOTATION: text},
        });
        Manifest::with_kind(&<Istio as mortise_sdk::Object>::kind(), &json!({"metadata": metadata}))
    }
}

/// Returns the condition for `EnvoyFilter`s of users.
fn user_resource(host: &Host) -> Result<Condition, Error> {
    match host.list(&envoy_filters()) {
        Err(error @ Error::Unavailable { .. }) => Err(error),
        Err(error) => Ok(condition::unknown_user_resource(&error.to_string())),
        Ok(filters) => Ok(condition::user_resource(user_filter::warning(&filters).as_deref())),
    }
}

/// Returns the description of failed writes; `None` if only workloads were gone, which need no
/// restart.
fn failed_writes(failures: &[WriteFailure]) -> Option<String> {
    let descriptions: Vec<String> = failures
        .iter()
        .map(|failure| (Workload::of(&failure.ref_), failure))
        .filter(|(workload, failure)| workload.is_none() || failure.code != NOT_FOUND)
        .map(|(workload, failure)| condition::could_not_restart(workload, &failure.message))
        .collect();
    (!descriptions.is_empty()).then(|| descriptions.join("; "))
}

#[cfg(test)]
mod tests;
