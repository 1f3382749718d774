//! What a processor returned, checked against its grant: outcome → [`Plan`].
//!
//! An outcome is refused whole or becomes a plan that `write` carries out. The message of a refusal names the object and the
//! field.
//!
//! *Guarantees*: every object in a plan has a name and a declared kind; what it holds lies within the declared fields; nothing
//! stands in it twice; its owners are known to exist or stand in the plan. *Assumptions*: what is asked of the live object
//! (labels of what is patched or deleted, owners made by this very plan) is checked by the writer.
//!
//! Pure: no I/O, no clock.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::{
    cluster::{Kinds, Resource},
    contract::{self, EventType, Kind, ObjectRef, Outcome, Propagation, Requeue},
    grant::{Grant, Writable, display_ref},
    path::Path,
    processor::bounds::text::{is_kind, is_name},
};

mod class;
mod deletion;
mod invalid;
mod manifest;
mod owner;
pub(crate) mod place;

pub use class::Class;
pub use invalid::{Fault, Invalid};
#[cfg(test)]
pub(crate) use manifest::reference;

#[cfg(test)]
mod tests;

/// The checked list of writes made from an outcome.
#[derive(Debug, Default)]
pub struct Plan {
    /// The finalizers wanted now; none: as they are.
    pub finalizers: Option<Finalizers>,
    /// In the order of writing: by class, within a class as given.
    pub apply: Vec<Manifest>,
    /// Parts of objects of others.
    pub patch: Vec<Manifest>,
    /// Pods to be evicted.
    pub evict: Vec<Deletion>,
    /// Objects to be deleted.
    pub delete: Vec<Deletion>,
    /// What of former applies is to go.
    pub prune: Vec<Prune>,
    /// What stands under `status`.
    pub status: Option<Value>,
    /// What is to be said.
    pub events: Vec<Event>,
    /// When to be called again.
    pub requeue: PlannedRequeue,
    /// It only tells how it went: what it does not hold is not given up.
    pub(crate) is_report: bool,
}

/// [`contract::Requeue`], by default by default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedRequeue(pub Requeue);

/// The finalizers of the reconciled object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finalizers {
    /// To be there.
    pub wanted: Vec<String>,
    /// Declared by the reconciler, and not to be there.
    pub released: Vec<String>,
}

/// An object to be applied, created or patched.
#[derive(Debug)]
pub struct Manifest {
    /// The object.
    pub to: ObjectRef,
    /// Its place in the order.
    pub class: Class,
    /// What is sent: JSON with apiVersion, kind and name, and a namespace where the kind has one.
    pub object: Value,
    /// Whether an object that exists is left alone.
    pub create_only: bool,
    /// Whether `object` holds the uid that the run has read: what has gone since is not to be made again from what was read.
    pub pinned: bool,
    /// Sent when the object is made, left alone afterwards.
    pub leave: Vec<Path>,
    /// Removed, whoever owns them.
    pub absent: Vec<Path>,
    /// Owners without uid, which this plan makes: index in `metadata.ownerReferences` and the object.
    pub(crate) made_owners: Vec<(usize, ObjectRef)>,
    /// Must hold of the live object, where the declaration asks for labels or fields.
    pub(crate) within: Option<Writable>,
}

/// An object to be deleted or evicted.
#[derive(Debug)]
pub struct Deletion {
    /// The object.
    pub of: ObjectRef,
    /// Only the one with this uid.
    pub uid: Option<String>,
    /// What becomes of its dependents.
    pub propagation: Propagation,
    /// Seconds; none: the kind's default.
    pub grace_period: Option<u32>,
    /// Must hold of the live object.
    pub(crate) within: Option<Writable>,
}

/// What of former applies is to go.
#[derive(Debug)]
pub struct Prune {
    /// As the processor gave it.
    pub of: contract::Selection,
    /// Its `labels`.
    pub(crate) labels: crate::labels::LabelSelector,
    /// Its `matching`.
    pub(crate) matching: Vec<(Path, String)>,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// None: on the reconciled object.
    pub on: Option<ObjectRef>,
    /// Normal or a warning.
    pub event_type: EventType,
    /// One word.
    pub reason: String,
    /// A sentence.
    pub message: String,
}

/// The object that was reconciled.
#[derive(Clone, Debug)]
pub struct Reconciled {
    /// Its name.
    pub reference: ObjectRef,
    /// Itself, whole, as it was given to the processor; none when it is gone or has left the selection.
    pub object: Option<Value>,
}

/// What an outcome is checked against.
pub struct Against<'a> {
    /// What the description declares.
    pub grant: &'a Grant,
    /// The reconciler that ran.
    pub reconciler: &'a str,
    /// The object that was reconciled.
    pub reconciled: &'a Reconciled,
    /// The kinds of [`kinds`] that the cluster knows.
    pub kinds: &'a Kinds,
    /// The uid of an object that was read in this run.
    pub read: &'a dyn Fn(&ObjectRef) -> Option<String>,
    /// How large an outcome may be.
    pub limits: Limits,
}

/// How large an outcome may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of one object. Somewhat more than etcd takes (1.5 MiB), so that the API server's own message is seen near the border.
    pub object: usize,
    /// Bytes of all.
    pub outcome: usize,
    /// Writes and events.
    pub entries: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { object: 3 << 20, outcome: 32 << 20, entries: 10_000 }
    }
}

impl Default for PlannedRequeue {
    fn default() -> Self {
        Self(Requeue::ByDefault)
    }
}

// === impl Reconciled ===

impl Reconciled {
    /// Its uid, where it is there.
    pub fn uid(&self) -> Option<&str> {
        self.object.as_ref()?.pointer("/metadata/uid")?.as_str()
    }

    /// Whether it is being deleted.
    pub(crate) fn is_deleting(&self) -> bool {
        self.object.as_ref().is_some_and(|object| {
            object.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null())
        })
    }
}

// === impl Plan ===

impl Plan {
    /// Checks an outcome.
    pub fn build(outcome: &Outcome, against: &Against<'_>) -> Result<Self, Invalid> {
        refuse_unsupported(outcome)?;
        against.limits.check(outcome)?;
        let mut kinds = against.kinds.clone();
        let heads = manifest::heads(outcome, &against.limits)?;
        for head in heads.apply.iter().filter(|head| Class::of(&head.to.kind) == Class::Definition)
        {
            for defined in Resource::of_definition(&head.object) {
                kinds.insert(defined.into());
            }
        }
        let applied: Vec<ObjectRef> = heads.apply.iter().map(|head| head.to.clone()).collect();
        let check = Check { against, kinds: &kinds, applied: Applied::of(&applied) };
        let mut plan = Self {
            apply: check.manifests(heads.apply, &outcome.apply, manifest::Part::Apply)?,
            patch: check.manifests(heads.patch, &outcome.patch, manifest::Part::Patch)?,
            evict: check.evictions(&outcome.evict)?,
            delete: check.deletions(&outcome.delete)?,
            prune: check.prunes(&outcome.prune)?,
            finalizers: check.finalizers(outcome.finalizers.as_deref())?,
            status: check.status(outcome.status.as_deref())?,
            events: check.events(&outcome.events)?,
            requeue: PlannedRequeue(outcome.requeue),
            is_report: false,
        };
        plan.refuse_duplicates(outcome)?;
        plan.apply.sort_by_key(|manifest| manifest.class);
        Ok(plan)
    }

    /// Checks what comes with a failure: a status and events.
    pub fn build_of_failure(
        failure: &contract::Failure,
        against: &Against<'_>,
    ) -> Result<Self, Invalid> {
        against.limits.check_count(failure.events.len())?;
        let check = Check { against, kinds: against.kinds, applied: Applied::default() };
        Ok(Self {
            status: check.status(failure.status.as_deref())?,
            events: check.events(&failure.events)?,
            is_report: true,
            ..Self::default()
        })
    }

    /// What is carried out of the answer to failed writes: status, events and requeue.
    #[must_use]
    pub fn only_report(self) -> Self {
        let Self { status, events, requeue, .. } = self;
        Self { status, events, requeue, is_report: true, ..Self::default() }
    }

    fn refuse_duplicates(&self, outcome: &Outcome) -> Result<(), Invalid> {
        let manifests = |name: &'static str, all: &[Manifest]| {
            all.iter()
                .enumerate()
                .map(move |(index, manifest)| (format!("{name}[{index}]"), manifest.to.clone()))
                .collect::<Vec<_>>()
        };
        let deletions = |name: &'static str, all: &[Deletion]| {
            all.iter()
                .enumerate()
                .map(move |(index, deletion)| (format!("{name}[{index}]"), deletion.of.clone()))
                .collect::<Vec<_>>()
        };
        debug_assert_eq!(outcome.apply.len(), self.apply.len(), "nothing is dropped on the way");
        let apply = manifests("apply", &self.apply);
        unique(&[&apply[..], &manifests("patch", &self.patch)].concat())?;
        unique(&[&apply[..], &deletions("delete", &self.delete)].concat())?;
        unique(&[apply, deletions("evict", &self.evict)].concat())
    }
}

/// The same object in whatever version of its kind.
pub(crate) type Identity<'a> = (&'a str, &'a str, &'a str, Option<&'a str>, &'a str);

/// What makes two references the same object.
pub(crate) fn identity(of: &ObjectRef) -> Identity<'_> {
    (&of.cluster, &of.kind.group, &of.kind.kind, of.namespace.as_deref(), &of.name)
}

fn unique(all: &[(String, ObjectRef)]) -> Result<(), Invalid> {
    let mut seen = HashMap::new();
    for (place, object) in all {
        if let Some(other) = seen.insert(identity(object), place) {
            return Err(Fault::Duplicate { other: other.clone() }.on(place.clone(), object));
        }
    }
    Ok(())
}

/// The kinds that an outcome names, to be looked up before [`Plan::build`]. Objects that cannot be read are passed over: they are
/// refused later on.
pub fn kinds(outcome: &Outcome, reconciled: &ObjectRef) -> HashSet<Kind> {
    let manifests = outcome
        .apply
        .iter()
        .chain(&outcome.patch)
        .filter_map(|manifest| manifest::kind_of(&manifest.object));
    let deletions =
        outcome.evict.iter().chain(&outcome.delete).map(|deletion| deletion.ref_.kind.clone());
    let prunes = outcome.prune.iter().map(|selection| selection.kind.clone());
    let events = outcome.events.iter().filter_map(|event| Some(event.on.as_ref()?.kind.clone()));
    manifests
        .chain(deletions)
        .chain(prunes)
        .chain(events)
        .chain([reconciled.kind.clone()])
        .collect()
}

fn refuse_unsupported(outcome: &Outcome) -> Result<(), Invalid> {
    if outcome.children.is_empty() {
        Ok(())
    } else {
        Err(Fault::NotSupported("child reconcilers").at("children"))
    }
}

// === impl Limits ===

impl Limits {
    fn check_count(&self, count: usize) -> Result<(), Invalid> {
        if count > self.entries {
            return Err(Fault::TooMany { count, limit: self.entries }.at("outcome"));
        }
        Ok(())
    }

    fn check(&self, outcome: &Outcome) -> Result<(), Invalid> {
        let count = outcome.apply.len()
            + outcome.patch.len()
            + outcome.evict.len()
            + outcome.delete.len()
            + outcome.prune.len()
            + outcome.events.len();
        self.check_count(count)?;
        let manifests =
            outcome.apply.iter().chain(&outcome.patch).map(|manifest| manifest.object.len());
        let events = outcome.events.iter().map(|event| event.reason.len() + event.message.len());
        let status = outcome.status.as_ref().map_or(0, String::len);
        // One object that is too large is refused by its name, later on.
        let bytes = manifests.map(|bytes| bytes.min(self.object)).chain(events).sum::<usize>()
            + status.min(self.object);
        if bytes > self.outcome {
            Err(Fault::TooLarge { bytes, limit: self.outcome }.at("outcome"))
        } else {
            Ok(())
        }
    }
}

/// The checks of one outcome.
struct Check<'a> {
    against: &'a Against<'a>,
    /// With those that this outcome defines.
    kinds: &'a Kinds,
    /// What this outcome applies.
    applied: Applied<'a>,
}

/// What an outcome applies, by name, with its place in the order given. Of one that stands twice, the first.
#[derive(Default)]
struct Applied<'a>(HashMap<Identity<'a>, (usize, &'a ObjectRef)>);

// === impl Applied ===

impl<'a> Applied<'a> {
    fn of(applied: &'a [ObjectRef]) -> Self {
        let mut all = HashMap::with_capacity(applied.len());
        for (index, of) in applied.iter().enumerate() {
            all.entry(identity(of)).or_insert((index, of));
        }
        Self(all)
    }

    /// The first of these that is applied.
    fn first(&self, of: &[ObjectRef]) -> Option<&'a ObjectRef> {
        let found = of.iter().filter_map(|of| self.0.get(&identity(of)));
        found.min_by_key(|(index, _)| *index).map(|(_, of)| *of)
    }
}

// === impl Check ===

impl Check<'_> {
    fn finalizers(&self, wanted: Option<&[String]>) -> Result<Option<Finalizers>, Invalid> {
        let Some(wanted) = wanted else { return Ok(None) };
        let refuse = |fault: Fault| Err(fault.on("finalizers", &self.against.reconciled.reference));
        let declared = self
            .against
            .grant
            .reconciler(self.against.reconciler)
            .map_or(&[][..], |reconciler| &reconciler.finalizers);
        for (index, name) in wanted.iter().enumerate() {
            if !declared.contains(name) {
                let accepted = if declared.is_empty() {
                    "the reconciler declares no finalizers".to_owned()
                } else {
                    format!("declared finalizers: `{}`", declared.join("`, `"))
                };
                return refuse(Fault::FieldNotDeclared { field: name.clone(), accepted });
            }
            if wanted.iter().take(index).any(|other| other == name) {
                return refuse(Fault::malformed(name, "a finalizer stands in the list once"));
            }
        }
        if self.against.reconciled.object.is_none() && !wanted.is_empty() {
            return refuse(Fault::malformed("", "there is no object to hold a finalizer"));
        }
        let released = declared.iter().filter(|name| !wanted.contains(name)).cloned().collect();
        Ok(Some(Finalizers { wanted: wanted.to_vec(), released }))
    }

    /// The status alone, or an object with it that names the reconciled object.
    fn status(&self, status: Option<&str>) -> Result<Option<Value>, Invalid> {
        let Some(text) = status else { return Ok(None) };
        let reconciled = self.against.reconciled;
        let refuse = |fault: Fault| fault.on("status", &reconciled.reference);
        let limit = self.against.limits.object;
        if text.len() > limit {
            return Err(refuse(Fault::TooLarge { bytes: text.len(), limit }));
        }
        let mut status: Value = serde_json::from_str(text)
            .map_err(|error| refuse(Fault::NotJson(error.to_string())))?;
        if status.get("apiVersion").is_some() && status.get("kind").is_some() {
            let named = manifest::reference(&status).map_err(&refuse)?;
            let same = identity(&ObjectRef {
                namespace: named
                    .namespace
                    .clone()
                    .or_else(|| reconciled.reference.namespace.clone()),
                ..named.clone()
            }) == identity(&reconciled.reference);
            if !same {
                return Err(refuse(Fault::malformed(
                    "metadata",
                    format!("the status of another object, {}", display_ref(&named)),
                )));
            }
            status = status.get_mut("status").map_or(Value::Null, Value::take);
        }
        if !status.is_object() {
            return Err(refuse(Fault::malformed("", "a status is a JSON object")));
        }
        if reconciled.object.is_none() {
            return Err(refuse(Fault::malformed("", "there is no object to hold a status")));
        }
        if self.kinds.get(&reconciled.reference.kind).is_some_and(|resource| !resource.status) {
            return Err(refuse(Fault::malformed("", "the kind has no status")));
        }
        Ok(Some(status))
    }

    fn events(&self, events: &[contract::Event]) -> Result<Vec<Event>, Invalid> {
        /// The API server's own limit.
        const LONGEST_REASON: usize = 128;
        let mut checked = Vec::with_capacity(events.len());
        for (index, event) in events.iter().enumerate() {
            let place = format!("events[{index}]");
            if let Some(on) = &event.on {
                self.check_reference(on, &format!("{place}.on"))?;
                let mentioned = identity(on) == identity(&self.against.reconciled.reference);
                if !mentioned {
                    self.against
                        .grant
                        .may_mention(on)
                        .map_err(|denied| Fault::from(denied).on(format!("{place}.on"), on))?;
                }
            }
            if event.reason.is_empty() || event.reason.len() > LONGEST_REASON {
                return Err(
                    Fault::malformed("reason", format!("1 to {LONGEST_REASON} bytes")).at(place)
                );
            }
            checked.push(Event {
                on: event.on.clone(),
                event_type: event.event_type,
                reason: event.reason.clone(),
                message: event.message.clone(),
            });
        }
        Ok(checked)
    }

    /// Whether a reference can be one of an object: its cluster, its names, and a namespace just where the kind has one.
    fn check_reference(&self, of: &ObjectRef, place: &str) -> Result<(), Invalid> {
        let refuse = |fault: Fault| fault.on(place, of);
        if !of.cluster.is_empty() {
            return Err(refuse(Fault::NotSupported("clusters other than the home cluster")));
        }
        for (field, text) in
            [("namespace", of.namespace.as_deref()), ("name", Some(of.name.as_str()))]
        {
            if text.is_some_and(|text| !is_name(text)) {
                return Err(refuse(Fault::malformed(field, NAME)));
            }
        }
        if !is_kind(&of.kind) {
            return Err(refuse(Fault::malformed("kind", KIND)));
        }
        match self.kinds.get(&of.kind) {
            Some(resource) if resource.namespaced && of.namespace.is_none() => Err(refuse(
                Fault::malformed("namespace", "objects of this kind live in namespaces"),
            )),
            Some(resource) if !resource.namespaced && of.namespace.is_some() => {
                Err(refuse(Fault::malformed("namespace", "objects of this kind have no namespace")))
            }
            _ => Ok(()),
        }
    }
}

/// What is accepted as a name, and as a kind.
const NAME: &str =
    "a name has 1 to 253 bytes, is neither `.` nor `..`, and holds no `/` and no `%`";
const KIND: &str = "a kind is named as Kubernetes names it: a group that is a DNS subdomain or \"\", a version and a kind of at most 63 \
                    letters, digits and `-`";
