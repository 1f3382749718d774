//! `APIServiceNamespace`s at the provider, and the namespaces at home that they stand for.

use mortise_sdk::{
    Deletion, Failure, Host, Manifest, Outcome, Request, kubernetes::Namespace, object::Metadata,
};

use crate::{
    api::ServiceNamespace,
    exports::here,
    mark::{OWNER, PROVIDER},
};

/// Reconciles an `APIServiceNamespace`: one of the provider makes the namespace at home, another
/// one goes with the namespace at home.
pub(crate) fn reconcile(request: &Request, host: &Host) -> Result<Outcome, Failure> {
    let Some(object) = request.object::<ServiceNamespace>()? else { return Ok(Outcome::new()) };
    let metadata = object.metadata;
    if metadata.is_deleted() || here(request, host)?.is_none() {
        return Ok(Outcome::new());
    }
    let name = metadata.name.as_str();
    if host.get::<Namespace>(None, name, &["metadata.name"])?.is_some() {
        return Ok(Outcome::new());
    }
    if metadata.labels.get(OWNER).is_some_and(|owner| owner == PROVIDER) {
        let namespace = Namespace { metadata: Metadata::new(name).label(OWNER, PROVIDER) };
        return Ok(Outcome::new().apply(Manifest::of(&namespace).create_only()));
    }
    let deletion = Deletion::new(request.ref_.clone());
    Ok(Outcome::new().delete(deletion.uid(metadata.uid.unwrap_or_default())))
}
