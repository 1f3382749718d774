//! The consumer side of kube-bind, which "the original" calls the konnector.
//!
//! A binding names the export of a provider, in another cluster. Its schemas become CRDs at home;
//! objects of these kinds go to the provider, and their status comes back. Objects of built-in kinds
//! that the provider claims are shared. "Home" is the consumer's cluster, a "place" the namespace
//! of one consumer in the cluster of a provider.
//!
//! | module | holds |
//! | --- | --- |
//! | [`api`] | the types of the seven kinds, and their conditions |
//! | [`config`], `describe` | the configuration; the declared reads and writes |
//! | `kubeconfig`, `place`, `link` | from a Secret to a place, and from a kind to its export |
//! | `bindings`, `bundles`, `secrets` | what is reconciled at home, and what it starts (`start`) |
//! | `exports`, `schemas`, `cluster_binding`, `namespaces` | the provider's objects in a place |
//! | `definition`, `isolation`, `mark`, `copy` | CRDs from schemas, places of objects, marks, copies |
//! | `objects`, `orphans` | objects of bound kinds, and what is left of them at the provider |
//! | `claim`, `claimed` | permission claims, and the objects that are shared by them |
//! | `valid` | the forms of names and labels that a provider may write |

pub mod api;
mod bindings;
mod bundles;
mod claim;
mod claimed;
mod cluster_binding;
pub mod config;
mod copy;
mod definition;
mod describe;
mod exports;
mod isolation;
mod kubeconfig;
mod link;
mod mark;
mod namespaces;
mod objects;
mod orphans;
mod place;
mod schemas;
mod secrets;
mod start;
mod valid;

pub use claim::Claimable;
pub use config::Config;

use mortise_sdk::{Description, Failure, Host, Outcome, Processor, Request};

use start::name;

/// The processor for bindings, bundles and all that follows from them.
pub struct KubeBind;

impl Processor for KubeBind {
    type Config = Config;

    fn describe(config: &Config) -> Result<Description, String> {
        describe::describe(config)
    }

    fn reconcile(request: &Request, config: &Config, host: &Host) -> Result<Outcome, Failure> {
        match request.reconciler.as_str() {
            name::BINDINGS => bindings::reconcile(request, config, host),
            name::BUNDLES => bundles::reconcile(request, host),
            name::SECRETS => secrets::reconcile(request, host),
            name::EXPORTS => exports::reconcile(request, host),
            name::SCHEMAS => schemas::reconcile(request, host),
            name::CLUSTER_BINDING => cluster_binding::reconcile(request, host),
            name::NAMESPACES => namespaces::reconcile(request, host),
            other => of_kind(other, request, config, host),
        }
    }
}

/// Reconciles an object of a kind that is known at run time only.
fn of_kind(
    reconciler: &str,
    request: &Request,
    config: &Config,
    host: &Host,
) -> Result<Outcome, Failure> {
    if name::is_of_group(reconciler, name::OBJECTS) {
        return objects::reconcile(request, config, host);
    }
    if name::is_of_group(reconciler, name::ORPHANS) {
        return orphans::reconcile(request, host);
    }
    let is_of = |beginning: &str, resource: &Claimable| {
        reconciler.strip_prefix(beginning).is_some_and(|rest| rest == resource.resource())
    };
    if let Some(resource) = Claimable::ALL.into_iter().find(|of| is_of(name::CLAIMED, of)) {
        return claimed::reconcile(request, resource, config, host);
    }
    match Claimable::ALL.into_iter().find(|of| is_of(name::CLAIMED_BACK, of)) {
        Some(resource) => claimed::reconcile_back(request, resource, config, host),
        None => Err(Failure::new(format!("there is no reconciler `{reconciler}`"))),
    }
}

mortise_sdk::export!(KubeBind);

#[cfg(test)]
mortise_sdk::testing::cases!(KubeBind, "cases");

#[cfg(test)]
mod tests;
