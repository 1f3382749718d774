//! The order of the steps, and what becomes of an ExternalGateway.

use std::time::Duration;

use mortise_sdk::{Error, Failure, Host, Outcome, Request, WriteFailure};

use crate::{
    Config,
    api::ExternalGateway,
    describe::FINALIZER,
    gardener,
    names::Names,
    owned,
    status::{Fault, Of, State, reason, status},
    step::{self, Steps},
};

/// The time until the run that follows one whose writes must come first.
const NEXT_RUN_DELAY: Duration = Duration::from_millis(1);

/// Reconciles one ExternalGateway.
///
/// # Errors
///
/// Fails if the ExternalGateway has a fault and no object can be written, or if a read is not
/// possible now.
pub fn reconcile(request: &Request, config: &Config, host: &Host) -> Result<Outcome, Failure> {
    let Some(gateway) = request.object::<ExternalGateway>()? else {
        return Ok(Outcome::new().requeue_never());
    };
    if gateway.metadata.is_deleted() {
        return delete(&gateway, host);
    }
    let mut steps = step::steps(&gateway, host)?;
    if let Some(failure) = request.failed_writes.first() {
        steps.fail(&gateway, failure);
    } else if steps.waits_for_filters {
        let outcome = steps.apply.into_iter().fold(Outcome::new(), Outcome::apply);
        return Ok(outcome.finalizers([FINALIZER]).requeue_after(NEXT_RUN_DELAY));
    }
    conclude(request, &gateway, steps, config, host)
}

fn conclude(
    request: &Request,
    gateway: &ExternalGateway,
    mut steps: Steps,
    config: &Config,
    host: &Host,
) -> Result<Outcome, Failure> {
    let (state, description) = match &steps.fault {
        Some(fault) => {
            steps.conditions.fail(Of::Ready, fault);
            (State::Error, fault.message.clone())
        }
        None if steps.is_pending => {
            let message = "Waiting for sub-resources to become ready";
            steps.conditions.wait(message);
            (State::Processing, message.to_owned())
        }
        None => {
            let message = "All resources reconciled successfully";
            steps.conditions.set(Of::Ready, true, reason::READY, message);
            (State::Ready, message.to_owned())
        }
    };
    let status = status(gateway, state, description.clone(), &steps.conditions, host);
    let holds = gateway.metadata.finalizers.iter().any(|held| held == FINALIZER);
    if state == State::Error && steps.apply.is_empty() && holds {
        return Err(Failure::new(description).retry_on_change().status(request, &status));
    }
    let outcome = steps.apply.into_iter().fold(Outcome::new(), Outcome::apply);
    let outcome = outcome.finalizers([FINALIZER]).status(request, &status);
    Ok(match state {
        State::Processing => outcome.requeue_after(config.pending()),
        State::Error => outcome.requeue_never(),
        State::Ready => outcome,
    })
}

impl Steps {
    /// Notes a write that failed.
    fn fail(&mut self, gateway: &ExternalGateway, failure: &WriteFailure) {
        let names = Names::of(gateway);
        let (of, attempt) = match failure.ref_.kind.kind.as_str() {
            "DNSEntry" => (Of::Dns, "failed to reconcile DNSEntry"),
            "Certificate" => (Of::Certificate, "failed to reconcile Certificate"),
            "Secret" => (Of::Gateway, step::AUTHORITIES),
            "Gateway" => (Of::Gateway, step::GATEWAY),
            _ if failure.ref_.name == names.forwarding => (Of::Gateway, step::FORWARDING),
            _ => (Of::Gateway, step::VALIDATION),
        };
        let fault = Fault::new(reason::FAILED, &failure.message);
        self.conditions.fail(of, &fault);
        let fault = fault.while_doing(attempt);
        self.fault = Some(match self.fault.take() {
            Some(earlier) => {
                let message = format!("{}\n{}", earlier.message, fault.message);
                Fault { message, ..earlier }
            }
            None => fault,
        });
    }
}

/// Deletes the `Gateway`, then all others, then removes the finalizer: the filters stay as long as
/// there are requests to filter.
fn delete(gateway: &ExternalGateway, host: &Host) -> Result<Outcome, Failure> {
    if !gateway.metadata.finalizers.iter().any(|held| held == FINALIZER) {
        return Ok(Outcome::new().requeue_never());
    }
    let (first, mut others, of_gardener) = step::references(gateway);
    if let Some(existing) = owned::find(&first, gateway, host)? {
        let outcome = Outcome::new().requeue_after(NEXT_RUN_DELAY);
        return Ok(match existing.deletion(first) {
            Some(deletion) => outcome.delete(deletion),
            // A change wakes the ExternalGateway as soon as the `Gateway` is gone.
            None => Outcome::new().requeue_never(),
        });
    }
    if gardener::is_available(host)? {
        others.extend(of_gardener);
    }
    let mut outcome = Outcome::new().finalizers::<&str>([]).requeue_never();
    for of in others {
        let found: Result<_, Error> = owned::find(&of, gateway, host);
        if let Some(deletion) = found?.and_then(|existing| existing.deletion(of)) {
            outcome = outcome.delete(deletion);
        }
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests;
