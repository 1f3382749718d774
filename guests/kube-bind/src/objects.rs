//! Objects of bound kinds at home: their spec goes to the provider, the status comes back.

use std::time::Duration;

use mortise_sdk::{
    Action, Deletion, Error, Event, Failure, Host, Manifest, Object, ObjectRef, Outcome, Request,
    WriteFailure,
    object::{Metadata, OwnerReference},
};
use serde_json::{Map, Value, json};

use crate::{
    api::{Export, ServiceNamespace},
    config::Config,
    copy::{self, Content, MAX_ANNOTATIONS},
    isolation::{Isolation, Name},
    link::Link,
    mark::{self, FINALIZER},
    place::Place,
    start::BOUND_EXCEEDED,
    valid::is_dns_label,
};

/// The reason of the event on what cannot go before the provider answers, or lets it go.
pub(crate) const WAITING: &str = "WaitingForProvider";
/// The reason of the event that a read or a write is refused.
pub(crate) const REFUSED: &str = "SyncRefused";
/// The note that the provider has refused the last write of the object there.
const REFUSED_THERE: &str = "refused";
/// The same, since its schema lacks a field: an apply is refused where a creation leaves it out.
const UNDECLARED: &str = "undeclared";
/// The part of an API server's message that says so.
const NOT_DECLARED: &str = "field not declared in schema";
/// The most characters of an invalid name that are shown.
const MAX_SHOWN: usize = 100;

/// Reconciles an object of a bound kind.
pub(crate) fn reconcile(
    request: &Request,
    config: &Config,
    host: &Host,
) -> Result<Outcome, Failure> {
    let Some(object) = request.object::<Map<String, Value>>()? else { return Ok(Outcome::new()) };
    let object = Content::new(&request.ref_.kind, object);
    let metadata = &object.metadata;
    let Some(link) = Link::of_kind(host, &request.ref_.kind)? else {
        return Ok(stopped(metadata));
    };
    let run = Run { request, config, host, object: &object, metadata, link: &link };
    if !request.failed_writes.is_empty() {
        let told = refused(&request.failed_writes);
        // If the provider cannot be read any more, the next run says so.
        return Ok(run.mirror(told.clone()).unwrap_or(told));
    }
    let is_leaving = metadata.is_deleted() || link.binding.metadata.is_deleted();
    if is_leaving {
        return run.take_back().map_err(|error| {
            let event = waiting(&error.to_string());
            Failure::from(error).event(event)
        });
    }
    match run.synchronise() {
        // The object runs again when the provider is back, and the binding says that it is away. As
        // with the original, the object is held from now on: there may be one at the provider.
        Err(Error::Unavailable { .. }) => Ok(Outcome::new().finalizers([FINALIZER])),
        outcome => outcome.map_err(|error| {
            let event = not_synchronised(&error);
            Failure::from(error).event(event)
        }),
    }
}

/// Returns the outcome of an object that is not synchronised: it may go.
fn stopped(metadata: &Metadata) -> Outcome {
    if metadata.is_deleted() { released() } else { Outcome::new() }
}

fn released() -> Outcome {
    Outcome::new().finalizers::<&str>([])
}

/// Tells the user of the object why it does not go.
fn waiting(why: &str) -> Event {
    let message = format!("the object at the provider cannot be deleted now: {why}");
    Event::warning(WAITING, message)
}

fn not_synchronised(error: &Error) -> Event {
    Event::warning(REFUSED, format!("the object is not synchronised: {error}"))
}

/// Tells the user of the object which writes were refused, and the next run what the provider
/// refuses.
fn refused(failures: &[WriteFailure]) -> Outcome {
    let is_of_apply =
        |of: &&WriteFailure| of.action == Action::Apply && !of.ref_.cluster.is_empty();
    let told = match failures.iter().find(is_of_apply) {
        Some(failure) if failure.message.contains(NOT_DECLARED) => Outcome::new().note(UNDECLARED),
        Some(_) => Outcome::new().note(REFUSED_THERE),
        None => Outcome::new(),
    };
    failures.iter().take(4).fold(told, |outcome, failure| {
        if failure.action == Action::Delete {
            return outcome.event(waiting(&failure.message));
        }
        let side = if failure.ref_.cluster.is_empty() { "consumer" } else { "provider" };
        let place = failure.ref_.namespace.as_ref().map(|namespace| format!("{namespace}/"));
        let message = format!(
            "the {side} refuses {} {}{}: {}",
            failure.ref_.kind.kind,
            place.unwrap_or_default(),
            failure.ref_.name,
            failure.message
        );
        outcome.event(Event::warning(REFUSED, message))
    })
}

struct Run<'a> {
    request: &'a Request,
    config: &'a Config,
    host: &'a Host,
    object: &'a Content,
    metadata: &'a Metadata,
    link: &'a Link,
}

/// The place of the object at the provider.
enum There {
    /// No place yet: the provider has no namespace for the object.
    NoNamespace { is_asked_for: bool },
    /// No place, for this reason and with this message.
    Never(&'static str, String),
    /// This one.
    At(Name),
}

impl Run<'_> {
    /// Brings the spec to the provider and the status back.
    fn synchronise(&self) -> Result<Outcome, Error> {
        let (host, link) = (self.host, self.link);
        let Ok(place) = &link.place else { return Ok(Outcome::new()) };
        let Some(export) = link.export(host, place)? else { return Ok(Outcome::new()) };
        let Some(schema) = link.schema(host, place)? else { return Ok(Outcome::new()) };
        let isolation = link.isolation(&export);
        let to = match self.there(place, isolation)? {
            There::At(to) => to,
            There::NoNamespace { is_asked_for: true } => return Ok(Outcome::new()),
            There::NoNamespace { is_asked_for: false } => {
                let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
                return Ok(Outcome::new().apply(service_namespace(place, &export, namespace)));
            }
            There::Never(reason, message) => {
                return Ok(Outcome::new().event(Event::warning(reason, message)));
            }
        };
        let there = match self.read(place, &to) {
            // As with the original, the object is held before the provider knows its kind.
            Err(error)
                if error.is_unknown_kind() && isolation.is_watched_by_namespace(&schema.spec) =>
            {
                return Ok(Outcome::new().finalizers([FINALIZER]).event(not_synchronised(&error)));
            }
            there => there?,
        };
        let Some(there) = there else {
            let owner = self.owner(place, isolation)?;
            return Ok(self.write(place, &to, owner, None, Outcome::new()));
        };
        let found = &there.metadata;
        if let Some(other) = foreign(found, place) {
            let message = format!(
                "{} at the provider belongs to the cluster namespace {other}, not to {}",
                shown(&to),
                place.namespace
            );
            return Ok(Outcome::new().event(Event::warning("OtherConsumer", message)));
        }
        let marks = mark::of_provider(found);
        let is_marked =
            |(key, value): &(&str, String)| mark::value(self.metadata, key) == Some(value.as_str());
        let is_new = !marks.iter().all(is_marked);
        let outcome = Outcome::new().patch(self.object.part(|part| mark::annotate(part, marks)));
        let outcome = self.with_status(outcome, &there);
        if is_new && self.request.note.is_some() {
            // A write that the provider refuses does not keep the marks from the object at home.
            return Ok(outcome.finalizers([FINALIZER]).requeue_after(Duration::ZERO));
        }
        // Also to one that is being deleted: what holds it may ask for the spec.
        Ok(self.write(place, &to, self.owner(place, isolation)?, Some(&there), outcome))
    }

    /// Deletes the object at the provider. Gives up the finalizer when that one is gone.
    fn take_back(&self) -> Result<Outcome, Error> {
        let (host, link) = (self.host, self.link);
        if link.is_without_provider() {
            return Ok(released());
        }
        let place = match &link.place {
            Ok(place) => place,
            Err(condition) => {
                return Ok(Outcome::new().event(waiting(&condition.message)));
            }
        };
        let Some(export) = link.export(host, place)? else { return Ok(released()) };
        let There::At(to) = self.there(place, link.isolation(&export))? else {
            return Ok(released());
        };
        let there = match self.read(place, &to) {
            // There is no object of it either.
            Err(error) if error.is_unknown_kind() => None,
            there => there?,
        };
        let Some(there) = there else { return Ok(released()) };
        let found = &there.metadata;
        if !self.is_ours(found, place) {
            return Ok(released());
        }
        let outcome = self.with_status(Outcome::new(), &there);
        if found.is_deleted() {
            return Ok(outcome);
        }
        let deletion = Deletion::new(self.reference(place, &to));
        let outcome = outcome.delete(deletion.uid(found.uid.clone().unwrap_or_default()));
        // The provider may add a finalizer meanwhile, so the next run reads whether it is gone. Our own
        // deletion triggers nothing.
        Ok(outcome.requeue_after(Duration::ZERO))
    }

    /// Mirrors the status where writes are refused: it comes home all the same.
    fn mirror(&self, outcome: Outcome) -> Result<Outcome, Error> {
        let Ok(place) = &self.link.place else { return Ok(outcome) };
        let Some(export) = self.link.export(self.host, place)? else { return Ok(outcome) };
        let There::At(to) = self.there(place, self.link.isolation(&export))? else {
            return Ok(outcome);
        };
        Ok(match self.read(place, &to)? {
            Some(there) if foreign(&there.metadata, place).is_none() => {
                self.with_status(outcome, &there)
            }
            _ => outcome,
        })
    }

    fn there(&self, place: &Place, isolation: Isolation) -> Result<There, Error> {
        let mut namespace = None;
        if isolation == Isolation::ServiceNamespaced {
            let own = self.metadata.namespace.as_deref().unwrap_or_default();
            let found = place.service_namespace(self.host, own)?;
            let is_asked_for = found.is_some();
            namespace = found.map(|found| found.status.namespace).filter(|name| !name.is_empty());
            if namespace.is_none() {
                return Ok(There::NoNamespace { is_asked_for });
            }
            if let Some(invalid) = namespace.as_ref().filter(|name| !is_dns_label(name)) {
                let shown: String = invalid.chars().take(MAX_SHOWN).collect();
                let message =
                    format!("the provider's namespace for {own} is no namespace: {shown:?}");
                return Ok(There::Never("NamespaceInvalid", message));
            }
        }
        let name = &self.metadata.name;
        Ok(match isolation.to_provider(&place.namespace, namespace.as_deref(), name) {
            Ok(to) => There::At(to),
            Err(message) => There::Never("NameTooLong", message),
        })
    }

    fn reference(&self, place: &Place, (namespace, name): &Name) -> ObjectRef {
        place.object(self.request.ref_.kind.clone(), namespace.as_deref(), name)
    }

    fn read(&self, place: &Place, to: &Name) -> Result<Option<Content>, Error> {
        let there: Option<Map<String, Value>> =
            self.host.get_ref(&self.reference(place, to), &[])?;
        Ok(there.map(|there| Content::new(&self.request.ref_.kind, there)))
    }

    /// Returns whether the object at the provider is the one of this object. One whose marks were
    /// taken away is, if it has the uid that this object names.
    fn is_ours(&self, found: &Metadata, place: &Place) -> bool {
        match mark::value(found, mark::CLUSTER_NAMESPACE) {
            Some(namespace) => namespace == place.namespace,
            None => mark::value(self.metadata, mark::PROVIDER_UID) == found.uid.as_deref(),
        }
    }

    fn owner(&self, place: &Place, isolation: Isolation) -> Result<Option<OwnerReference>, Error> {
        if isolation.is_owned() { place.owner(self.host) } else { Ok(None) }
    }

    fn write(
        &self,
        place: &Place,
        to: &Name,
        owner: Option<OwnerReference>,
        former: Option<&Content>,
        outcome: Outcome,
    ) -> Outcome {
        let marks = [(mark::CLUSTER_NAMESPACE, place.namespace.clone())];
        let marks = marks.into_iter().chain(mark::of_consumer(self.metadata));
        // Not in the first run: where other fields are left, such as defaults, an empty map may be
        // applied, and would come back.
        let emptied = former.filter(|_| self.request.attempt > 0);
        let emptied = emptied.map(|former| self.object.without_emptied(former));
        let source = emptied.as_ref().unwrap_or(self.object);
        let copy = copy::up(source, to, marks, owner, former, self.config);
        let annotations = self.metadata.annotations.len();
        let outcome = if annotations > MAX_ANNOTATIONS {
            let message = format!("{MAX_ANNOTATIONS} of {annotations} annotations go up");
            outcome.event(Event::warning(BOUND_EXCEEDED, message))
        } else {
            outcome
        };
        let is_created = former.is_none() && self.request.note.as_deref() == Some(UNDECLARED);
        let copy = if is_created { copy.create_only() } else { copy };
        outcome.apply(copy.in_cluster(&place.cluster)).finalizers([FINALIZER])
    }

    /// Mirrors the whole status, if objects of the kind have one of their own.
    fn with_status(&self, outcome: Outcome, there: &Content) -> Outcome {
        if !self.link.definition.has_status(&self.request.ref_.kind.version) {
            return outcome;
        }
        let status = there.get("status").cloned().unwrap_or_else(|| json!({}));
        outcome.status(self.request, &status)
    }
}

/// Returns the cluster namespace of another consumer to which an object at the provider belongs.
pub(crate) fn foreign<'a>(found: &'a Metadata, place: &Place) -> Option<&'a str> {
    mark::value(found, mark::CLUSTER_NAMESPACE).filter(|namespace| *namespace != place.namespace)
}

fn shown((namespace, name): &Name) -> String {
    match namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.clone(),
    }
}

/// Returns the object that asks the provider for a namespace.
pub(crate) fn service_namespace(place: &Place, export: &Export, namespace: &str) -> Manifest {
    let owner = OwnerReference::controller::<Export>(&export.metadata);
    let metadata = Metadata::new(namespace).namespace(&place.namespace).owned_by(owner);
    let object = json!({"metadata": metadata, "spec": {}});
    let manifest = Manifest::with_kind(&ServiceNamespace::kind(), &object);
    manifest.create_only().in_cluster(&place.cluster)
}
