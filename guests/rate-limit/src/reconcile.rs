//! The reconciliation of a RateLimit.

use api_gateway_module::api::{self, ApiGateway};
use mortise_sdk::{
    Error, Failure, Host, Manifest, ObjectRef, Outcome, Request, Selection, object::Metadata,
};
use serde::Deserialize;

use crate::{
    api::{RateLimit, RateLimitStatus},
    envoy_filter, validation,
};

/// The fields that are read of APIGateways.
pub(crate) const MODULE_FIELDS: [&str; 2] = ["metadata.creationTimestamp", "status.state"];
/// The field that is read of an `EnvoyFilter`, of which only its kind matters.
pub(crate) const NAME_ONLY: [&str; 1] = ["metadata.name"];
const CRD: &str = "envoyfilters.networking.istio.io";

/// The reason why no `EnvoyFilter` can be written.
enum Stop {
    /// A state, with its description.
    Status(&'static str, String),
    /// A read that cannot be answered now.
    Unavailable(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        match error {
            Error::Unavailable { .. } => Self::Unavailable(error),
            error => Self::Status("Error", format!("failed to validate RateLimit: {error}")),
        }
    }
}

/// Reconciles one RateLimit.
///
/// # Errors
///
/// Fails if the RateLimit is not valid, if the module is not ready, or if a read is not possible.
pub fn reconcile(request: &Request, host: &Host) -> Result<Outcome, Failure> {
    let Some(limit) = request.object::<RateLimit>()? else {
        return Ok(Outcome::new().requeue_never());
    };
    if limit.metadata.is_deleted() {
        return Ok(Outcome::new().requeue_never());
    }
    if let Some(failure) = request.failed_writes.first() {
        let description = format!("failed to create EnvoyFilter: {}", failure.message);
        return Ok(Outcome::new().status(request, &status("Error", description)));
    }
    match check(&limit, host) {
        Ok(()) => Ok(Outcome::new()
            .apply(Manifest::json(&envoy_filter::build(&limit)))
            .status(request, &status("Ready", "Finished reconciliation".to_owned()))),
        Err(Stop::Status(state, description)) => Err(Failure::new(&description)
            .retry_on_change()
            .status(request, &status(state, description))),
        Err(Stop::Unavailable(error)) => Err(error.into()),
    }
}

fn status(state: &str, description: String) -> RateLimitStatus {
    RateLimitStatus { state: state.to_owned(), description }
}

fn check(limit: &RateLimit, host: &Host) -> Result<(), Stop> {
    check_kind(limit, host)?;
    check_module(host)?;
    validation::check(limit, host)?
        .map_err(|fault| Stop::Status("Error", format!("failed to validate RateLimit: {fault}")))
}

/// Fails if the cluster does not know `EnvoyFilter`s.
fn check_kind(limit: &RateLimit, host: &Host) -> Result<(), Stop> {
    #[derive(Deserialize)]
    struct Named {
        #[serde(rename = "metadata")]
        _metadata: Metadata,
    }
    let namespace = limit.metadata.namespace.as_deref();
    let filter = ObjectRef::new(envoy_filter::kind(), namespace, &limit.metadata.name);
    match host.get_ref::<Named>(&filter, &NAME_ONLY) {
        Err(error) if error.is_unknown_kind() => {
            let cause =
                format!("customresourcedefinitions.apiextensions.k8s.io \"{CRD}\" not found");
            Err(Stop::Status("Error", format!("dependency missing '{CRD}': {cause}")))
        }
        read => Ok(read.map(drop)?),
    }
}

/// Fails if the module is not ready: there is no APIGateway, or the oldest is in another state.
fn check_module(host: &Host) -> Result<(), Stop> {
    let all = Selection::of::<ApiGateway>().fields(MODULE_FIELDS);
    let all = match host.list::<ApiGateway>(&all) {
        Err(error) if error.is_unknown_kind() => Vec::new(),
        all => all?,
    };
    let Some(gateway) = api::oldest(&all) else {
        let description =
            "failed to reconcile RateLimit CR because of missing APIGateway CR in the cluster";
        return Err(Stop::Status("Warning", description.to_owned()));
    };
    let state = gateway.status.as_ref().map(|status| status.state.as_str()).unwrap_or_default();
    if state == "Ready" {
        return Ok(());
    }
    let description =
        format!("failed to create RateLimit CR because APIGateway CR is in {state} state");
    Err(Stop::Status("Warning", description))
}

#[cfg(test)]
mod tests;
