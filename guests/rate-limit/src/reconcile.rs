//! The reconciliation of a RateLimit.

use api_gateway_module::{
    api::{self, ApiGateway},
    object::{self, Existing},
};
use mortise_sdk::{Error, Failure, Host, ObjectRef, Outcome, Request, Selection};

use crate::{
    api::{RateLimit, RateLimitStatus},
    envoy_filter, validation,
};

/// The fields that are read of APIGateways.
pub(crate) const MODULE_FIELDS: [&str; 2] = ["metadata.creationTimestamp", "status.state"];
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
        Ok(existing) => Ok(Outcome::new()
            .apply(object::replacing(&envoy_filter::build(&limit), existing.as_ref()))
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

/// Returns the `EnvoyFilter` that exists.
fn check(limit: &RateLimit, host: &Host) -> Result<Option<Existing>, Stop> {
    let existing = existing(limit, host)?;
    check_module(host)?;
    validation::check(limit, host)?
        .map_err(|fault| Stop::Status("Error", format!("failed to validate RateLimit: {fault}")))?;
    Ok(existing)
}

/// Returns the `EnvoyFilter` that exists; fails if the cluster does not know the kind.
fn existing(limit: &RateLimit, host: &Host) -> Result<Option<Existing>, Stop> {
    let namespace = limit.metadata.namespace.as_deref();
    let filter = ObjectRef::new(envoy_filter::kind(), namespace, &limit.metadata.name);
    match Existing::read(host, &filter) {
        Err(error) if error.is_unknown_kind() => {
            let cause =
                format!("customresourcedefinitions.apiextensions.k8s.io \"{CRD}\" not found");
            Err(Stop::Status("Error", format!("dependency missing '{CRD}': {cause}")))
        }
        read => Ok(read?),
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
