//! The reconciliation of an Istio resource: from the cluster to the module's own objects.

use istio::{
    api::{self, ISTIO_NAMESPACE, Istio, IstioStatus, MODULE_NAMESPACE},
    check,
    condition::RESOURCES,
    features::Features,
    last_applied::{ANNOTATION, LastApplied},
    resource::{Input, Plan},
};
use mortise_sdk::{
    Error, Failure, Host, Outcome, Request, Selection, WriteFailure, kubernetes::Namespace,
};
use serde_json::Value;

use crate::{
    Config,
    condition::{self, could_not_begin, could_not_reconcile, unclear_cluster},
    object::{self, Cause},
    surroundings,
};

/// The finalizer that keeps an Istio resource until the module's own objects are deleted.
pub(crate) const FINALIZER: &str = "istios.operator.kyma-project.io/peer-authentication";

/// The fields that are read of Istio resources.
pub(crate) const FIELDS: [&str; 6] = [
    "metadata.annotations[\"operator.kyma-project.io/lastAppliedConfiguration\"]",
    "metadata.creationTimestamp",
    "metadata.finalizers",
    "metadata.generation",
    "spec",
    "status.conditions[type=CustomResourcesReconciled]",
];
/// The fields that are read of the namespace of Istio, of which only its existence matters.
pub(crate) const NAMESPACE_FIELDS: [&str; 1] = ["metadata.name"];
/// The fields by which the oldest Istio resource is found.
const AGE: [&str; 1] = ["metadata.creationTimestamp"];

/// The reason why objects cannot be reconciled.
#[derive(Debug)]
enum Stop {
    /// An error, with the description for the condition.
    Failed(String),
    /// A read that cannot be answered now.
    Unavailable(Error),
}

impl From<object::Fault> for Stop {
    fn from(fault: object::Fault) -> Self {
        match fault.cause {
            Cause::Read(error @ Error::Unavailable { .. }) => Self::Unavailable(error),
            cause => Self::Failed(could_not_reconcile(&fault.title, &cause.to_string())),
        }
    }
}

/// Reconciles one Istio resource.
///
/// # Errors
///
/// Fails if the resource has no readable annotation of the last applied configuration, or if
/// something that decides on the objects cannot be read.
pub fn reconcile(request: &Request, config: &Config, host: &Host) -> Result<Outcome, Failure> {
    let Some(istio) = request.object::<Istio>()? else {
        return Ok(Outcome::new().requeue_never());
    };
    let all = Selection::of::<Istio>().namespace(MODULE_NAMESPACE).fields(AGE);
    if check::is_oldest(&istio, &host.list::<Istio>(&all)?).is_err() {
        return Ok(Outcome::new().finalizers::<&str>([]));
    }
    let status = |condition| IstioStatus::of_conditions(&[RESOURCES], [condition], &istio, host);
    if !request.failed_writes.is_empty() {
        let failed = condition::failed(failed_writes(&request.failed_writes));
        return Ok(Outcome::new().status(request, &status(failed)));
    }
    let outcome = if istio.metadata.is_deleted() {
        delete(&istio, host)
    } else {
        apply(&istio, config, host).map(|outcome| match outcome {
            Some(outcome) => outcome.status(request, &status(condition::succeeded())),
            None => Outcome::new(),
        })
    };
    outcome.map_err(|stop| match stop {
        Stop::Failed(description) => {
            let failed = status(condition::failed(&description));
            Failure::new(description).retry_on_change().status(request, &failed)
        }
        Stop::Unavailable(error) => error.into(),
    })
}

/// Returns the outcome with all objects; `None` if nothing is to be done for the resource: Istio is
/// not installed, or istio-installation refuses the spec.
fn apply(istio: &Istio, config: &Config, host: &Host) -> Result<Option<Outcome>, Stop> {
    if check::check(istio, config.flavour()).is_err() || !is_installed(istio)? {
        return Ok(None);
    }
    let needs_proxy_protocol = surroundings::needs_proxy_protocol(config.flavour(), host)
        .map_err(Stop::begin)?
        .map_err(|cause| Stop::Failed(unclear_cluster(&cause)))?;
    let has_autoscaler_crd = object::has_autoscalers(host).map_err(Stop::begin)?;
    let features = if has_autoscaler_crd {
        surroundings::features(host).map_err(Stop::begin)?
    } else {
        Features::default()
    };
    let api_server = if istio.spec.network_policies_enabled {
        surroundings::api_server(host).map_err(Stop::begin)?
    } else {
        None
    };
    let plan = Plan::of(&Input {
        istio,
        needs_proxy_protocol,
        control_plane_autoscalers: features.enable_control_plane_vpa,
        has_autoscaler_crd,
        api_server: api_server.as_ref(),
        version: &config.module_version,
    });
    Ok(Some(object::carry_out(&plan, Outcome::new().finalizers([FINALIZER]), host)?))
}

/// Deletes the objects that do not go with Istio, once Istio is uninstalled.
fn delete(istio: &Istio, host: &Host) -> Result<Outcome, Stop> {
    let holds = |finalizer: &str| istio.metadata.finalizers.iter().any(|held| held == finalizer);
    if !holds(FINALIZER) || holds(api::FINALIZER) {
        return Ok(Outcome::new());
    }
    let mut plan = Plan::of(&Input {
        istio,
        needs_proxy_protocol: false,
        control_plane_autoscalers: false,
        has_autoscaler_crd: object::has_autoscalers(host).map_err(Stop::begin)?,
        api_server: None,
        version: "",
    });
    if !has_namespace(host).map_err(Stop::begin)? {
        // All in it goes with it, and so do the rights to read it.
        let namespace = |object: &Value| object.pointer("/metadata/namespace").cloned();
        plan.delete.retain(|object| namespace(object) != Some(ISTIO_NAMESPACE.into()));
    }
    Ok(object::carry_out(&plan, Outcome::new().finalizers::<&str>([]), host)?)
}

fn has_namespace(host: &Host) -> Result<bool, Error> {
    let namespace: Option<Namespace> = host.get(None, ISTIO_NAMESPACE, &NAMESPACE_FIELDS)?;
    Ok(namespace.is_some_and(|namespace| !namespace.metadata.is_deleted()))
}

/// Returns whether istio-installation has installed an Istio.
fn is_installed(istio: &Istio) -> Result<bool, Stop> {
    let read = LastApplied::read(istio).map_err(|error| {
        Stop::Failed(could_not_begin(&format!("annotation {ANNOTATION}: {error}")))
    })?;
    Ok(read.is_some_and(|last| !last.tag.is_empty()))
}

impl Stop {
    fn begin(error: Error) -> Self {
        match error {
            Error::Unavailable { .. } => Self::Unavailable(error),
            error => Self::Failed(could_not_begin(&error.to_string())),
        }
    }
}

/// Returns the description of failed writes: the first of each sort of objects, in the order of the
/// plan.
fn failed_writes(failures: &[WriteFailure]) -> String {
    let mut titles: Vec<String> = Vec::new();
    let mut descriptions = Vec::new();
    for failure in failures {
        let title = object::title(&failure.ref_.kind.kind, &failure.ref_.name);
        if !titles.contains(&title) {
            descriptions.push(could_not_reconcile(&title, &failure.message));
            titles.push(title);
        }
    }
    descriptions.join("; ")
}

#[cfg(test)]
mod tests;
