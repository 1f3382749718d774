//! Objects of an ExternalGateway that exist.

use api_gateway_module::object::Existing;
use mortise_sdk::{Error, Host, ObjectRef, object::Metadata};

use crate::{
    api::ExternalGateway,
    names::{NAME_LABEL, NAMESPACE_LABEL},
    status::{Fault, reason},
};

/// Returns the namespace and the name of another ExternalGateway that an object is for.
fn other<'a>(metadata: &'a Metadata, gateway: &ExternalGateway) -> Option<(&'a str, &'a str)> {
    let label = |key: &str| metadata.labels.get(key).map(String::as_str);
    let (namespace, name) = (label(NAMESPACE_LABEL)?, label(NAME_LABEL)?);
    let is_own = (namespace, name) == (gateway.namespace(), gateway.metadata.name.as_str());
    (!is_own).then_some((namespace, name))
}

/// Fails if an object is for another ExternalGateway that exists: two of the same name have the
/// same objects in the namespace of Istio.
pub(crate) fn check(
    existing: Option<&Metadata>,
    gateway: &ExternalGateway,
    host: &Host,
) -> Result<Result<(), Fault>, Error> {
    let Some((namespace, name)) = existing.and_then(|existing| other(existing, gateway)) else {
        return Ok(Ok(()));
    };
    let of = ObjectRef::of::<ExternalGateway>(Some(namespace), name);
    if host.get_ref::<Existing>(&of, &["spec.externalDomain"])?.is_none() {
        return Ok(Ok(()));
    }
    let existing = existing.map(|existing| existing.name.as_str()).unwrap_or_default();
    let message = format!("`{existing}` belongs to ExternalGateway {namespace}/{name}");
    Ok(Err(Fault::new(reason::FAILED, message)))
}

/// Returns an object that is not for another ExternalGateway.
pub(crate) fn find(
    of: &ObjectRef,
    gateway: &ExternalGateway,
    host: &Host,
) -> Result<Option<Existing>, Error> {
    let found = Existing::find(host, of)?;
    Ok(found.filter(|found| other(&found.metadata, gateway).is_none()))
}
