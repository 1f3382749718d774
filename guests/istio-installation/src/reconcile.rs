//! The reconciliation of an Istio resource: what is refused, installed or uninstalled.

use istio::{
    api::{FINALIZER, Istio, MODULE_NAMESPACE},
    check, condition,
};
use mortise_sdk::{Action, Error, Failure, Host, Outcome, Request, Selection, WriteFailure};

use crate::{
    Rendering,
    config::Config,
    install,
    run::{Run, Stop},
    status::Summary,
    uninstall,
};

/// The most failed writes that a description names.
const MAX_LISTED_WRITES: usize = 3;

/// Reconciles one Istio resource.
pub(crate) fn reconcile<R: Rendering>(
    request: &Request,
    config: &Config,
    host: &Host,
) -> Result<Outcome, Failure> {
    let istio = match request.object::<Istio>() {
        Ok(Some(istio)) => istio,
        Ok(None) => return Ok(Outcome::new().requeue_never()),
        Err(error) => {
            let summary = Summary::error(condition::VALIDATION_FAILED, error.to_string());
            let status = summary.status(&Istio::default(), host);
            return Err(Failure::from(error).status(request, &status));
        }
    };
    let run = Run { request, config, host, istio: &istio };
    if !request.failed_writes.is_empty() {
        return Ok(run.told(failed(&istio, &request.failed_writes)));
    }
    let outcome = check(&run).and_then(|()| {
        if istio.metadata.is_deleted() {
            uninstall::uninstall(&run)
        } else {
            install::install::<R>(&run)
        }
    });
    match outcome {
        Ok(outcome) => Ok(outcome),
        Err(Stop::Told(summary)) => Ok(run.told(summary)),
        Err(Stop::Held(summary)) => Ok(run.told(summary).finalizers([FINALIZER])),
        Err(Stop::Read(error)) => Err(unread(&run, error)),
    }
}

/// Returns the failure of a read. The state says so, unless the read is answered soon.
fn unread(run: &Run, error: Error) -> Failure {
    if matches!(error, Error::Unavailable { .. }) {
        return error.into();
    }
    let summary = Summary::error(condition::RECONCILE_FAILED, error.to_string());
    Failure::from(error).status(run.request, &summary.status(run.istio, run.host))
}

/// Checks the resource, and that no other one is the oldest.
fn check(run: &Run) -> Result<(), Stop> {
    let istio = run.istio;
    let told = |refusal| Stop::from(Summary::from(refusal));
    check::check(istio, run.config.flavour()).map_err(told)?;
    let of = Selection::of::<Istio>().namespace(MODULE_NAMESPACE);
    let all: Vec<Istio> = run.host.list(&of.fields(["metadata.creationTimestamp"]))?;
    check::is_oldest(istio, &all).map_err(told)
}

/// Returns the state after writes that have failed.
fn failed(istio: &Istio, failures: &[WriteFailure]) -> Summary {
    let step = if istio.metadata.is_deleted() {
        "Could not uninstall istio".to_owned()
    } else {
        install::FAILED.to_owned()
    };
    let mut texts: Vec<String> = failures.iter().take(MAX_LISTED_WRITES).map(told).collect();
    if let Some(more) = failures.len().checked_sub(MAX_LISTED_WRITES).filter(|more| *more > 0) {
        texts.push(format!("and {more} more"));
    }
    let description = format!("{step}: {}", texts.join("; "));
    Summary::error(condition::INSTALL_UNINSTALL_FAILED, description)
}

fn told(failure: &WriteFailure) -> String {
    let action = match failure.action {
        Action::Apply => "apply",
        Action::Patch => "patch",
        Action::Evict => "evict",
        Action::Delete => "delete",
        Action::Prune => "prune",
        Action::Finalize => "set the finalizers of",
        Action::Status => "write the status of",
    };
    let of = &failure.ref_;
    let place = of.namespace.as_ref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    format!("cannot {action} {} {place}{}: {}", of.kind.kind, of.name, failure.message)
}
