//! Objects of built-in kinds that both sides share, by the claims of exports.
//!
//! The copy at the provider is written for the object at home, and the copy at home for the object
//! at the provider; a copy whose source is gone is deleted on its own behalf.

use std::collections::BTreeMap;

use mortise_sdk::{
    Deletion, Error, Event, Failure, Host, Kind, Level, ObjectRef, Outcome, Request, Selection,
    kubernetes::Namespace, object::Metadata,
};
use serde_json::{Map, Value};

use crate::{
    api::{Binding, Bundle, Export, PermissionClaim, Reference, SecretRef},
    claim::{
        Claimable, MAX_CLAIMS, Owner, Subject, decide, is_valid, matches_labels, named, refers,
        to_path,
    },
    config::{Config, is_system},
    copy::Content,
    definition::Definition,
    link::BINDING_FIELDS,
    mark::{self, CONSUMER, OWNER, PROVIDER},
    objects::{REFUSED, service_namespace},
    place::{HINT, Place},
    secrets,
    valid::is_dns_label,
};

/// Types of Secrets that are never copied: the provider could have itself tokens of home.
const NEVER_COPIED: [&str; 2] =
    ["kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token"];

/// A provider's place that claims objects of a kind.
struct Claimant {
    place: Place,
    /// An export with claims on the kind; the binding of each is there and stays.
    exports: Vec<Export>,
    /// An export that asks for namespaces.
    asks: Export,
}

/// Returns the value of the owner label.
fn owner(of: &Content) -> Option<&str> {
    of.metadata.labels.get(OWNER).map(String::as_str)
}

fn label(metadata: &mut Metadata, owner: &str) {
    metadata.labels.insert(OWNER.to_owned(), owner.to_owned());
}

fn is_never_copied(of: &Content) -> bool {
    let secret_type = of.get("type").and_then(Value::as_str);
    secret_type.is_some_and(|secret_type| NEVER_COPIED.contains(&secret_type))
}

/// Returns whether an object is the copy of another one, by the mark with the uid.
fn is_copy_of(copy: &Content, source: &Metadata, mark: &str) -> bool {
    source.uid.is_some() && mark::value(&copy.metadata, mark) == source.uid.as_deref()
}

/// Returns whether an object at home is the copy of one that is, or was so far, the provider's.
fn is_provided(home: &Content, there: &Content) -> bool {
    owner(home) == Some(PROVIDER) && is_copy_of(home, &there.metadata, mark::PROVIDER_UID)
}

struct Run<'a> {
    request: &'a Request,
    config: &'a Config,
    host: &'a Host,
    resource: Claimable,
}

/// Reconciles an object at home that a provider may claim.
pub(crate) fn reconcile(
    request: &Request,
    resource: Claimable,
    config: &Config,
    host: &Host,
) -> Result<Outcome, Failure> {
    let Some(object) = request.object::<Map<String, Value>>()? else { return Ok(Outcome::new()) };
    let run = Run { request, config, host, resource };
    if !request.failed_writes.is_empty() {
        return Ok(run.refused());
    }
    let home = Content::new(&request.ref_.kind, object);
    let namespace = home.metadata.namespace.clone().unwrap_or_default();
    if is_system(&namespace) || is_never_copied(&home) {
        return Ok(Outcome::new());
    }
    let mut outcome = Outcome::new();
    for claimant in run.claimants("")? {
        outcome = match run.home(&claimant, &home, &namespace, outcome.clone()) {
            Ok(next) => next,
            // The others do not wait for a provider that is away; this run depends on its answer.
            Err(error) => {
                let told = error.to_string();
                let fields = [("error", told.as_str())];
                host.log(Level::Warn, "a provider's claims are not looked at", &fields);
                // The bindings of a provider that is away say so.
                if matches!(error, Error::Unavailable { .. }) {
                    outcome
                } else {
                    outcome.event(Event::warning(REFUSED, told))
                }
            }
        };
    }
    Ok(outcome)
}

/// Reconciles an object at the provider that is, or may be, shared with this consumer.
pub(crate) fn reconcile_back(
    request: &Request,
    resource: Claimable,
    config: &Config,
    host: &Host,
) -> Result<Outcome, Failure> {
    let Some(object) = request.object::<Map<String, Value>>()? else { return Ok(Outcome::new()) };
    let run = Run { request, config, host, resource };
    if !request.failed_writes.is_empty() {
        return Ok(run.refused());
    }
    let there = Content::new(&request.ref_.kind, object);
    let claimants = run.claimants(&request.ref_.cluster)?;
    let Some(claimant) = claimants.into_iter().next() else { return Ok(Outcome::new()) };
    Ok(run.back(&claimant, &there)?)
}

impl Run<'_> {
    /// Carries out what follows for an object at home.
    fn home(
        &self,
        claimant: &Claimant,
        home: &Content,
        namespace: &str,
        outcome: Outcome,
    ) -> Result<Outcome, Error> {
        let place = &claimant.place;
        let name = &home.metadata.name;
        let is_claimed = self.is_claimed(claimant, namespace, home)?;
        if !is_claimed && owner(home).is_none() {
            return Ok(outcome);
        }
        let mapped = place.service_namespace(self.host, namespace)?;
        let Some(mapped) = mapped else {
            let is_asking = is_claimed && !home.metadata.is_deleted() && self.stays(namespace)?;
            return Ok(if is_asking {
                outcome.apply(service_namespace(place, &claimant.asks, namespace))
            } else {
                outcome
            });
        };
        let mapped = mapped.status.namespace;
        if !is_dns_label(&mapped) {
            return Ok(outcome);
        }
        let to = place.object(self.resource.kind(), Some(&mapped), name);
        let there = self.read(&to)?;
        let sides = (there.as_ref().map(owner), Some(owner(home)));
        match decide(sides.0, sides.1) {
            Some(Owner::Consumer) => Ok(push(is_claimed, home, there.as_ref(), place, to, outcome)),
            // The label that this reconciler has set goes, so that it belongs to the copy alone.
            Some(Owner::Provider) if owner(home) == Some(CONSUMER) => {
                Ok(outcome.patch(home.part(|_| ())))
            }
            Some(Owner::Provider) => {
                let is_gone = there.as_ref().is_none_or(|there| there.metadata.is_deleted());
                let is_of = mark::value(&home.metadata, mark::PROVIDER_NAMESPACE) == Some(&mapped);
                let is_copy = owner(home) == Some(PROVIDER) && is_of;
                Ok(if is_gone && is_copy {
                    outcome.delete(self.own_deletion(home))
                } else {
                    outcome
                })
            }
            None => Ok(outcome),
        }
    }

    /// Carries out what follows for an object at the provider.
    fn back(&self, claimant: &Claimant, there: &Content) -> Result<Outcome, Error> {
        let outcome = Outcome::new();
        let there_namespace = there.metadata.namespace.as_deref().unwrap_or_default();
        let Some(namespace) = claimant.place.mapped(self.host, there_namespace)? else {
            return Ok(outcome);
        };
        if is_system(&namespace) || is_never_copied(there) || there.metadata.is_deleted() {
            return Ok(outcome);
        }
        if self.is_kubeconfig(&namespace, &there.metadata)? {
            return Ok(outcome);
        }
        let kind = self.resource.kind();
        let to = ObjectRef::new(kind, Some(&namespace), &there.metadata.name);
        let home = self.read(&to)?;
        match decide(Some(owner(there)), home.as_ref().map(owner)) {
            Some(Owner::Consumer) => {
                let is_copy = owner(there) == Some(CONSUMER)
                    && mark::value(&there.metadata, mark::CONSUMER_UID).is_some();
                Ok(match home {
                    None if is_copy => outcome.delete(self.own_deletion(there)),
                    Some(home) if is_provided(&home, there) => {
                        // The copy at home becomes the consumer's, with all that it has.
                        outcome.apply(home.copy(&namespace, CONSUMER, [], None))
                    }
                    _ => outcome,
                })
            }
            Some(Owner::Provider) => {
                let is_copy = |home: &Content| is_provided(home, there);
                if !self.is_claimed(claimant, &namespace, there)? {
                    return Ok(match home.filter(is_copy) {
                        Some(copy) => {
                            let uid = copy.metadata.uid.unwrap_or_default();
                            outcome.delete(Deletion::new(to).uid(uid))
                        }
                        None => outcome,
                    });
                }
                // The provider chooses the labels of its own object, not those of one at home.
                let is_out = |home: &Content| !is_copy(home) && !self.is_allowed(&namespace, home);
                if home.as_ref().is_some_and(is_out) {
                    let message = "the provider's object does not replace it: no rule of `claims` in the configuration has its labels";
                    return Ok(
                        outcome.event(Event::warning("PermissionClaimRefused", message).on(to))
                    );
                }
                let is_free = home
                    .as_ref()
                    .is_none_or(|home| !home.metadata.is_deleted() && !is_never_copied(home));
                if !is_free || !self.stays(&namespace)? {
                    return Ok(outcome);
                }
                let marks = mark::of_provider(&there.metadata);
                let copy = there.copy(&namespace, PROVIDER, marks, home.as_ref());
                let outcome = outcome.apply(copy);
                if owner(there) == Some(PROVIDER) {
                    return Ok(outcome);
                }
                let label = there.part(|part| label(part, PROVIDER));
                Ok(outcome.patch(label.in_cluster(&claimant.place.cluster)))
            }
            None => Ok(outcome),
        }
    }

    fn read(&self, of: &ObjectRef) -> Result<Option<Content>, Error> {
        let fields: Option<Map<String, Value>> = self.host.get_ref(of, &[])?;
        Ok(fields.map(|fields| Content::new(&of.kind, fields)))
    }

    /// Returns the deletion of the reconciled object.
    fn own_deletion(&self, of: &Content) -> Deletion {
        let uid = of.metadata.uid.clone().unwrap_or_default();
        Deletion::new(self.request.ref_.clone()).uid(uid)
    }

    /// Reads the places that claim objects of the kind: of one cluster, or, if it is "", of all.
    fn claimants(&self, cluster: &str) -> Result<Vec<Claimant>, Error> {
        let bindings: Vec<Binding> =
            self.host.list(&Selection::of::<Binding>().fields(BINDING_FIELDS))?;
        let mut claimants: BTreeMap<String, Claimant> = BTreeMap::new();
        for binding in bindings {
            let place = Place::read(self.host, &binding.spec.kubeconfig_secret_ref, HINT)?;
            let Ok(place) = place else { continue };
            if !cluster.is_empty() && *place.cluster != *cluster {
                continue;
            }
            let export = place.get::<Export>(self.host, &binding.metadata.name, &["spec"]);
            let export = match export {
                Err(_) if cluster.is_empty() => continue,
                export => export?,
            };
            let Some(export) = export.filter(|export| self.claims(export).next().is_some()) else {
                continue;
            };
            let key = format!("{} {}", place.server, place.namespace);
            let claimant = claimants.entry(key).or_insert_with(|| Claimant {
                place,
                exports: Vec::new(),
                asks: export.clone(),
            });
            // A binding that is being deleted claims nothing any more.
            if !binding.metadata.is_deleted() {
                claimant.exports.push(export);
            }
        }
        Ok(claimants.into_values().collect())
    }

    fn claims<'a>(&self, export: &'a Export) -> impl Iterator<Item = &'a PermissionClaim> {
        let resource = self.resource;
        export
            .spec
            .permission_claims
            .iter()
            .take(MAX_CLAIMS)
            .filter(move |claim| Claimable::of(&claim.group, &claim.resource) == Some(resource))
            .filter(|claim| is_valid(&claim.selector))
    }

    /// Reads whether a namespace at home is there, and not about to go.
    fn stays(&self, name: &str) -> Result<bool, Error> {
        let namespace: Option<Namespace> = self.host.get(None, name, &["metadata.name"])?;
        Ok(namespace.is_some_and(|namespace| !namespace.metadata.is_deleted()))
    }

    /// Returns whether the configuration lets providers claim an object.
    fn is_allowed(&self, namespace: &str, object: &Content) -> bool {
        let labels = &object.metadata.labels;
        self.config.rules_of(self.resource).any(|rule| {
            (rule.namespaces.is_empty()
                || rule.namespaces.iter().any(|allowed| allowed == namespace))
                && rule.labels.iter().all(|(key, value)| labels.get(key) == Some(value))
        })
    }

    /// Reads whether an object at home is, or would be, the Secret with the kubeconfig of a
    /// provider: another provider neither gets it nor replaces it.
    fn is_kubeconfig(&self, namespace: &str, of: &Metadata) -> Result<bool, Error> {
        if self.resource != Claimable::Secrets {
            return Ok(false);
        }
        if secrets::is_labelled(of) {
            return Ok(true);
        }
        let bindings: Vec<Binding> =
            self.host.list(&Selection::of::<Binding>().fields(BINDING_FIELDS))?;
        let bundles: Vec<Bundle> = self.host.list(&Selection::of::<Bundle>().fields(["spec"]))?;
        let specs = bindings.into_iter().map(|of| of.spec);
        let mut used = specs.chain(bundles.into_iter().map(|of| of.spec));
        Ok(used.any(|used| {
            let SecretRef { namespace: of_used, name, .. } = &used.kubeconfig_secret_ref;
            (of_used.as_str(), name) == (namespace, &of.name)
        }))
    }

    /// Reads whether a claim takes an object, and the configuration allows it.
    fn is_claimed(
        &self,
        claimant: &Claimant,
        namespace: &str,
        object: &Content,
    ) -> Result<bool, Error> {
        if !self.is_allowed(namespace, object) || self.is_kubeconfig(namespace, &object.metadata)? {
            return Ok(false);
        }
        let labels = &object.metadata.labels;
        let subject = Subject { namespace, name: &object.metadata.name };
        for export in &claimant.exports {
            for claim in self.claims(export) {
                let selector = &claim.selector;
                // As with the original, the whole claim fails with one of its references.
                let referring = self.referring(export, &selector.references)?;
                let Some(referring) = referring else { continue };
                let by_labels = selector.label_selector.as_ref();
                if by_labels.is_some_and(|by| matches_labels(by, labels))
                    || named(&selector.named_resources, subject)
                    || self.is_referred(export, &referring, subject)?
                {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Reads the kinds of the objects that may refer to others; `None` if one of them is not served
    /// in a version that is asked for.
    fn referring<'a>(
        &self,
        export: &Export,
        references: &'a [Reference],
    ) -> Result<Option<Vec<(&'a Reference, Kind)>>, Error> {
        let mut kinds = Vec::new();
        for reference in references {
            let mut resources = export.spec.resources.iter();
            let exported = resources.find(|resource| {
                (&resource.group, &resource.resource) == (&reference.group, &reference.resource)
            });
            let is_meant = exported.is_some() || export.spec.isolation == "None";
            let of_export = exported.map(|resource| &resource.versions);
            let own = Some(&reference.versions).filter(|versions| !versions.is_empty());
            let versions = own.or(of_export).filter(|versions| !versions.is_empty());
            let is_allowed = is_meant && self.config.allows(&reference.group);
            let Some(versions) = versions.filter(|_| is_allowed) else { continue };
            let name = format!("{}.{}", reference.resource, reference.group);
            let definition = Definition::get(self.host, &name)?;
            let serving = definition.filter(|of| versions.iter().all(|version| of.serves(version)));
            let Some(kind) = serving.and_then(|of| of.served_kind()) else { return Ok(None) };
            kinds.push((reference, kind));
        }
        Ok(Some(kinds))
    }

    /// Reads whether an object at home refers to the subject.
    fn is_referred(
        &self,
        export: &Export,
        referring: &[(&Reference, Kind)],
        subject: Subject,
    ) -> Result<bool, Error> {
        for (reference, kind) in referring {
            let mut of = Selection::new(kind.clone());
            if let Some(path) = to_path(&reference.json_path.name) {
                of = of.matching(path, subject.name);
            }
            let is_same_namespace = export.spec.isolation == "Namespaced";
            for object in self.host.objects::<Value>(&of, 0) {
                let object = object?;
                if refers(&object, &reference.json_path, is_same_namespace, subject) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Tells which writes were refused.
    fn refused(&self) -> Outcome {
        let failures = self.request.failed_writes.iter().take(4);
        failures.fold(Outcome::new(), |outcome, failure| {
            let place = failure.ref_.namespace.as_deref().unwrap_or_default();
            let name = &failure.ref_.name;
            let message = format!("{place}/{name} is refused: {}", failure.message);
            outcome.event(Event::warning(REFUSED, message))
        })
    }
}

/// Brings an object of the consumer to the provider, or its copy away.
fn push(
    is_claimed: bool,
    home: &Content,
    there: Option<&Content>,
    place: &Place,
    to: ObjectRef,
    outcome: Outcome,
) -> Outcome {
    if !is_claimed {
        let copy = there.filter(|there| {
            is_copy_of(there, &home.metadata, mark::CONSUMER_UID) && !there.metadata.is_deleted()
        });
        return match copy {
            Some(copy) => {
                let uid = copy.metadata.uid.clone().unwrap_or_default();
                outcome.delete(Deletion::new(to).uid(uid))
            }
            None => outcome,
        };
    }
    // The copy of an object that is being deleted goes with it.
    let is_leaving = |there: &Content| there.metadata.is_deleted() || is_never_copied(there);
    if home.metadata.is_deleted() || there.is_some_and(is_leaving) {
        return outcome;
    }
    // The owner may have moved. Whoever has made the copy at home changes its label.
    let is_moved = there.is_some_and(|there| is_provided(home, there));
    let outcome = if owner(home) == Some(CONSUMER) || is_moved {
        outcome
    } else {
        outcome.patch(home.part(|part| label(part, CONSUMER)))
    };
    let marks = mark::of_consumer(&home.metadata);
    let namespace = to.namespace.as_deref().unwrap_or_default();
    let copy = home.copy(namespace, CONSUMER, marks, there);
    outcome.apply(copy.in_cluster(&place.cluster))
}
