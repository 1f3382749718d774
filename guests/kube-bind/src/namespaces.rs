//! `APIServiceNamespace`s at the provider, and the namespaces at home that they stand for.

use mortise_sdk::{
    Deletion, Error, Failure, Host, Manifest, Outcome, Request, Selection, kubernetes::Namespace,
    object::Metadata,
};

use crate::{
    api::ServiceNamespace,
    exports::here,
    mark::{OWNER, PROVIDER},
    place::Place,
};

/// The most namespaces that one provider has at home.
const MAX_OF_PROVIDER: usize = 100;
/// The most namespaces that all providers have at home. They stay when nobody asks for them any
/// more: a provider that asks for others again and again would have any number.
const MAX_MADE: usize = 1_000;

/// Reconciles an `APIServiceNamespace`: one of the provider makes the namespace at home, another
/// one goes with the namespace at home.
pub(crate) fn reconcile(request: &Request, host: &Host) -> Result<Outcome, Failure> {
    let Some(object) = request.object::<ServiceNamespace>()? else { return Ok(Outcome::new()) };
    let metadata = object.metadata;
    let Some(place) = here(request, host)?.filter(|_| !metadata.is_deleted()) else {
        return Ok(Outcome::new());
    };
    let name = metadata.name.as_str();
    if host.get::<Namespace>(None, name, &["metadata.name"])?.is_some() {
        return Ok(Outcome::new());
    }
    if metadata.labels.get(OWNER).is_some_and(|owner| owner == PROVIDER) {
        let asked = asked(host, &place)?;
        let is_within = asked.iter().take(MAX_OF_PROVIDER).any(|asked| asked == name);
        if !is_within || made(host)? >= MAX_MADE {
            // The bindings of the provider tell it.
            return Ok(Outcome::new());
        }
        let namespace = Namespace { metadata: Metadata::new(name).label(OWNER, PROVIDER) };
        return Ok(Outcome::new().apply(Manifest::of(&namespace).create_only()));
    }
    let deletion = Deletion::new(request.ref_.clone());
    Ok(Outcome::new().delete(deletion.uid(metadata.uid.unwrap_or_default())))
}

/// Reads which namespaces a provider asks for and does not get, in words.
pub(crate) fn refused(host: &Host, place: &Place) -> Result<Option<String>, Error> {
    let asked = asked(host, place)?;
    if let Some(first) = asked.get(MAX_OF_PROVIDER) {
        return Ok(Some(format!(
            "{MAX_OF_PROVIDER} of {} namespaces that the provider asks for are made, not {first:?} \
             and those after it",
            asked.len()
        )));
    }
    Ok(if !asked.is_empty() && made(host)? >= MAX_MADE {
        Some(format!(
            "no more namespaces are made for the provider: {MAX_MADE} have the label \
             {OWNER}={PROVIDER}"
        ))
    } else {
        None
    })
}

/// Reads the names of the namespaces that a provider asks for, in order.
fn asked(host: &Host, place: &Place) -> Result<Vec<String>, Error> {
    let of = place.all::<ServiceNamespace>().labels(format!("{OWNER}={PROVIDER}"));
    let all: Vec<ServiceNamespace> = host.list(&of.fields(["metadata.name"]))?;
    let mut names: Vec<String> = all.into_iter().map(|of| of.metadata.name).collect();
    names.sort();
    Ok(names)
}

/// Reads how many namespaces at home were made for providers.
fn made(host: &Host) -> Result<usize, Error> {
    let of = Selection::of::<Namespace>().labels(format!("{OWNER}={PROVIDER}"));
    Ok(host.list::<Namespace>(&of.fields(["metadata.name"]))?.len())
}
