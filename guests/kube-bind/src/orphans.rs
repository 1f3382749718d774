//! Objects at the provider whose counterpart at home is gone.

use mortise_sdk::{Deletion, Event, Failure, Host, ObjectRef, Outcome, Request, object::Metadata};
use serde::Deserialize;

use crate::{isolation::Isolation, link::Link, mark, objects::foreign};

/// An object of any kind.
#[derive(Deserialize)]
struct Any {
    metadata: Metadata,
}

/// Reconciles an object of a bound kind at the provider: deletes it if this consumer made it, and
/// its object at home is not there.
pub(crate) fn reconcile(request: &Request, host: &Host) -> Result<Outcome, Failure> {
    let Some(object) = request.object::<Any>()? else { return Ok(Outcome::new()) };
    let found = object.metadata;
    if found.is_deleted() {
        return Ok(Outcome::new());
    }
    let Some(link) = Link::of_kind(host, &request.ref_.kind)? else { return Ok(Outcome::new()) };
    let Ok(place) = &link.place else { return Ok(Outcome::new()) };
    if *place.cluster != *request.ref_.cluster {
        return Ok(Outcome::new());
    }
    let Some(export) = link.export(host, place)? else { return Ok(Outcome::new()) };
    if link.schema(host, place)?.is_none() {
        return Ok(Outcome::new());
    }
    let isolation = link.isolation(&export);
    let namespace = found.namespace.as_deref();
    let mapped = match namespace {
        Some(namespace) if isolation == Isolation::ServiceNamespaced => {
            place.mapped(host, namespace)?
        }
        _ => None,
    };
    let home = isolation.to_consumer(&place.namespace, namespace, &found.name, mapped.as_deref());
    let Some((namespace, name)) = home else { return Ok(Outcome::new()) };
    let home = ObjectRef::new(request.ref_.kind.clone(), namespace.as_deref(), name);
    if host.get_ref::<Any>(&home, &["metadata.name"])?.is_some() {
        return Ok(Outcome::new());
    }
    if foreign(&found, place).is_some() {
        return Ok(Outcome::new());
    }
    let is_ours = mark::value(&found, mark::CLUSTER_NAMESPACE).is_some()
        && mark::value(&found, mark::CONSUMER_UID).is_some_and(|uid| !uid.is_empty());
    if !is_ours {
        let message = "no object of the consumer stands for this one, and the consumer has not \
                       made it: it stays";
        return Ok(Outcome::new().event(Event::normal("NotOfConsumer", message)));
    }
    let uid = found.uid.unwrap_or_default();
    Ok(Outcome::new().delete(Deletion::new(request.ref_.clone()).uid(uid)))
}
