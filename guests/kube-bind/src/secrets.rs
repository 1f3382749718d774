//! Secrets at home whose label says that they hold a kubeconfig of a provider: the provider is told
//! that the consumer is there, although nothing is bound yet.

use mortise_sdk::{
    Event, Failure, Host, Outcome, Request, Selection, kubernetes::Secret, object::Metadata,
};

use crate::{
    api::SecretRef,
    place::Place,
    start::{self, BOUND_EXCEEDED, MAX_LABELLED},
};

/// The label of these Secrets, which is `true`.
pub(crate) const LABEL: &str = "kube-bind.io/provider-kubeconfig";
/// The label selector of these Secrets.
pub(crate) const LABELS: &str = "kube-bind.io/provider-kubeconfig=true";
/// The key of the kubeconfig in them.
const KEY: &str = "kubeconfig";

/// Returns whether a Secret has the label.
pub(crate) fn is_labelled(secret: &Metadata) -> bool {
    secret.labels.get(LABEL).is_some_and(|found| found == "true")
}

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
    let Ok(place) = Place::read(host, &of, "")? else { return Ok(outcome) };
    let all = Selection::of::<Secret>().labels(LABELS).fields(["metadata.name"]);
    let all: Vec<Secret> = host.list(&all)?;
    let name = |of: &Secret| (of.metadata.namespace.clone(), of.metadata.name.clone());
    let own = (request.ref_.namespace.clone(), request.ref_.name.clone());
    if all.iter().filter(|other| name(other) < own).count() >= MAX_LABELLED {
        let message = format!(
            "{} Secrets have the label {LABELS}: the provider is told of the first {MAX_LABELLED} \
             of them, by namespace and name, and of those that a binding names",
            all.len()
        );
        return Ok(outcome.event(Event::warning(BOUND_EXCEEDED, message)));
    }
    Ok(start::place(outcome, &place))
}
