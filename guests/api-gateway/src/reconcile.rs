//! The reconciliation of an APIGateway: the order of the steps.

use api_gateway_module::api::{self, ApiGateway};
use mortise_sdk::{Error, Failure, Host, Level, Outcome, Request, Selection, WriteFailure};
use serde_json::Value;

use crate::{
    Config, autoscaler, blocker, kyma_gateway, names, network_policy, oathkeeper,
    status::{Reason, Report},
    work::{Stop, Work, unreadable},
};

/// The finalizer that holds an APIGateway while other objects need the module.
pub(crate) const FINALIZER: &str = "gateways.operator.kyma-project.io/api-gateway";
/// The fields that are read of the reconciled APIGateway.
pub(crate) const FIELDS: [&str; 4] =
    ["metadata.creationTimestamp", "metadata.finalizers", "spec", "status"];
/// The field by which the oldest APIGateway is found.
const AGE: [&str; 1] = ["metadata.creationTimestamp"];

/// Reconciles one APIGateway.
///
/// # Errors
///
/// Fails if the APIGateway does not fit its type, or if a read is not possible now.
pub fn reconcile(request: &Request, config: &Config, host: &Host) -> Result<Outcome, Failure> {
    let Some(gateway) = request.object::<ApiGateway>()? else {
        return Ok(Outcome::new().requeue_never());
    };
    if let Some(failure) = request.failed_writes.first() {
        let report = failed_write(failure, &gateway);
        return Ok(Outcome::new().status(request, &report.status(&gateway, host)));
    }
    let held = [FINALIZER, kyma_gateway::FINALIZER]
        .into_iter()
        .filter(|finalizer| gateway.metadata.finalizers.iter().any(|held| held == finalizer));
    let finalizers = held.collect();
    let mut work = Work { gateway: &gateway, config, host, outcome: Outcome::new(), finalizers };
    let report = match steps(&mut work) {
        Ok(()) => Report::ready(),
        Err(Stop::Report(report)) => report,
        Err(Stop::Unavailable(error)) => return Err(error.into()),
    };
    let is_gone = gateway.metadata.is_deleted() && work.finalizers.is_empty();
    let outcome = work.outcome.finalizers(work.finalizers);
    if is_gone {
        return Ok(outcome.requeue_never());
    }
    let is_other = report.reason == Reason::OlderCRExists;
    let outcome = outcome.status(request, &report.status(&gateway, host));
    Ok(if is_other { outcome.requeue_never() } else { outcome })
}

fn steps(work: &mut Work<'_>) -> Result<(), Stop> {
    check_age(work)?;
    network_policy::reconcile(work)?;
    if !work.is_deleted() {
        check_kinds(work.host)?;
        if !work.has(FINALIZER) {
            work.finalizers.insert(0, FINALIZER);
        }
    } else if work.has(FINALIZER) {
        blocker::of_module(work.host)?;
        work.finalizers.retain(|finalizer| *finalizer != FINALIZER);
    }
    kyma_gateway::reconcile(work)?;
    oathkeeper::reconcile(work)?;
    autoscaler::reconcile(work)
}

/// Fails if another APIGateway is older. Such a one is held by no finalizer.
fn check_age(work: &mut Work<'_>) -> Result<(), Stop> {
    let all = Selection::of::<ApiGateway>().fields(AGE);
    let failed = "Unable to list APIGateway CRs";
    let all: Vec<ApiGateway> =
        work.host.list(&all).map_err(unreadable(Reason::ReconcileFailed, failed, work.host))?;
    let Some(oldest) = api::oldest(&all) else { return Ok(()) };
    let name = &oldest.metadata.name;
    if *name == work.gateway.metadata.name {
        return Ok(());
    }
    if work.is_deleted() {
        work.finalizers.clear();
    }
    let description = format!(
        "stopped APIGateway CR reconciliation: only APIGateway CR {name} reconciles the module"
    );
    Err(Stop::Report(Report::warning(Reason::OlderCRExists, description, Vec::new())))
}

/// Fails if the cluster does not know the kinds of Istio.
fn check_kinds(host: &Host) -> Result<(), Stop> {
    let kinds = [
        (names::gateway(), "gateways.networking.istio.io"),
        (names::virtual_service(), "virtualservices.networking.istio.io"),
    ];
    for (kind, crd) in kinds {
        let of = Selection::new(kind).fields(["metadata.name"]);
        match host.objects::<Value>(&of, 1).next() {
            Some(Err(error)) if error.is_unknown_kind() => {
                let description = format!(
                    "CRD {crd} is not present. Make sure to install required dependencies for the \
                     component"
                );
                let report = Report::error(Reason::DependenciesMissing, description);
                return Err(Stop::Report(report));
            }
            Some(Err(error @ Error::Unavailable { .. })) => return Err(Stop::Unavailable(error)),
            Some(Err(error)) => {
                let description = "Error happened during discovering dependencies";
                host.log(Level::Warn, description, &[("error", &error.to_string())]);
                let report = Report::error(Reason::ReconcileFailed, description);
                return Err(Stop::Report(report));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns the report of a write that failed, by the step that the object belongs to.
fn failed_write(failure: &WriteFailure, gateway: &ApiGateway) -> Report {
    let of = &failure.ref_;
    let is = |other: &mortise_sdk::ObjectRef| {
        other.kind == of.kind && other.namespace == of.namespace && other.name == of.name
    };
    if oathkeeper::parts().iter().any(is) {
        return oathkeeper::failed_write(gateway.metadata.is_deleted());
    }
    if is(&network_policy::reference()) {
        return Report::error(Reason::ReconcileFailed, &failure.message);
    }
    match of.kind.kind.as_str() {
        "APIGateway" => Report::error(Reason::ReconcileFailed, "Could not change finalizers"),
        "VerticalPodAutoscaler" | "VerticalPodAutoscalerCheckpoint" => {
            Report::error(Reason::ReconcileFailed, "Error during VPA reconciliation")
        }
        _ => kyma_gateway::failed_write(),
    }
}

#[cfg(test)]
mod tests;
