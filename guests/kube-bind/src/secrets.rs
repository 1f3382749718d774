//! Secrets at home whose label says that they hold a kubeconfig of a provider: the provider is told
//! that the consumer is there, although nothing is bound yet.

use mortise_sdk::{Failure, Host, Outcome, Request};

use crate::{api::SecretRef, place::Place, start};

/// The label selector of these Secrets.
pub(crate) const LABELS: &str = "kube-bind.io/provider-kubeconfig=true";
/// The key of the kubeconfig in them.
const KEY: &str = "kubeconfig";

/// Reconciles a labelled Secret.
pub(crate) fn reconcile(request: &Request, host: &Host) -> Result<Outcome, Failure> {
    let outcome = Outcome::new();
    if request.object.is_none() {
        return Ok(outcome);
    }
    let of = SecretRef {
        namespace: request.ref_.namespace.clone().unwrap_or_default(),
        name: request.ref_.name.clone(),
        key: KEY.to_owned(),
    };
    Ok(match Place::read(host, &of, "")? {
        Ok(place) => start::place(outcome, &place),
        Err(_) => outcome,
    })
}
