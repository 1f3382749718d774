//! The Secrets with tokens: each is held while a `KonnectAPIAuthConfiguration` names it.

use mortise_sdk::{Failure, Host, Outcome, Request};
use serde_json::Value;

use crate::{
    binding::{held, own},
    kind::AUTH,
};

/// The finalizer of a Secret in use.
pub(crate) const IN_USE: &str = "gateway.konghq.com/secret-in-use-by-konnect-resource";
/// The Secrets that are held: all that the processor may use, as one without the label of a token
/// may be given it later.
pub(crate) const SECRETS: &str = "konghq.com/secret=true";

/// Reconciles a Secret.
pub(crate) fn reconcile(request: &Request, host: &Host) -> Result<Outcome, Failure> {
    let Some(secret) = request.object::<Value>()? else { return Ok(Outcome::new()) };
    let (namespace, name) = (own(&secret, "namespace"), own(&secret, "name"));
    let mut is_used = false;
    for reference in AUTH.references {
        let of = AUTH.selection().matching(reference.name_path(), name).fields([reference.at]);
        let users: Vec<Value> = host.list(&of)?;
        let names = users.iter().flat_map(|user| reference.names(user));
        is_used |= names.into_iter().any(|to| to.name == name && to.namespace == namespace);
    }
    Ok(held(&secret, IN_USE, is_used))
}
