//! The check of an outcome against its processor's grant: outcome → [`Plan`].
//!
//! An outcome is refused whole or becomes a plan that `write` carries out. The message of a refusal
//! names the object and the field.
//!
//! *Guarantees*: every object in a plan has a name and a declared kind; its fields lie within the
//! declared fields; no list holds an object twice, and no object of `apply` is also patched,
//! evicted or deleted; its owners are known to exist or stand in the plan. *Assumptions*:
//! conditions on the live object (labels of patched or deleted objects, uids of owners that this
//! very plan creates) are checked by the writer.
//!
//! Pure: no I/O, no clock.

mod class;
mod deletion;
mod invalid;
mod manifest;
mod owner;
pub mod place;
mod start;
#[cfg(test)]
mod tests;

pub use class::Class;
pub use invalid::{Fault, Invalid};
pub use manifest::reference;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use serde_json::Value;

use crate::{
    contract::{
        self, EventType, Kind, ObjectRef, Outcome, Propagation, Requeue, SameObject,
        bounds::{
            MAX_LEVELS, OUTCOME_ACCOUNT, account,
            text::{CLUSTER_FORM, KIND_FORM, NAME_FORM, is_cluster, is_kind, is_name},
        },
        display_ref,
    },
    grant::{Grant, Selected, Writable},
    path::Path,
    resource::{Kinds, Resource},
};

/// The checked list of writes made from an outcome.
#[derive(Debug, Default)]
pub struct Plan {
    /// The finalizers wanted now; `None`: they stay as they are.
    pub finalizers: Option<Finalizers>,
    /// The objects to apply, in the order of writing: by class, within a class as given.
    pub apply: Vec<Manifest>,
    /// The patches: parts of objects of others.
    pub patch: Vec<Manifest>,
    /// The pods to be evicted.
    pub evict: Vec<Deletion>,
    /// The objects to be deleted.
    pub delete: Vec<Deletion>,
    /// The selections to prune: matching objects that were applied before and are not in `apply`
    /// any more are deleted.
    pub prune: Vec<Prune>,
    /// The value of the field `status`, if it is written.
    pub status: Option<Value>,
    pub events: Vec<Event>,
    /// The requeue: when the key runs again.
    pub requeue: PlannedRequeue,
    /// The selections that on-demand reconcilers run for.
    pub start: Vec<Arc<Selected>>,
    /// True if the plan only reports the result of a run: objects missing from it are not given up.
    pub is_report: bool,
}

/// A [`contract::Requeue`] whose default is [`Requeue::ByDefault`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedRequeue(pub Requeue);

/// The finalizers of the reconciled object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finalizers {
    /// The finalizers that the object should have.
    pub wanted: Vec<String>,
    /// The finalizers that the reconciler declares and that the object should not have.
    pub released: Vec<String>,
}

/// An object to be applied, created or patched.
#[derive(Debug)]
pub struct Manifest {
    pub to: ObjectRef,
    /// The class, which determines the order of writing.
    pub class: Class,
    /// The JSON to send, with `apiVersion`, kind and name, and a namespace if the kind has one.
    pub object: Value,
    /// True if an object that exists is left alone.
    pub create_only: bool,
    /// True if `object` holds the uid that the run has read, so that an object deleted since is not
    /// recreated.
    pub pinned: bool,
    /// The fields that are sent when the object is created and left alone afterwards.
    pub leave: Vec<Path>,
    /// The fields that are removed, regardless of their owner.
    pub absent: Vec<Path>,
    /// The owners without uid that this plan creates: index in `metadata.ownerReferences` and the
    /// object.
    pub made_owners: Vec<(usize, ObjectRef)>,
    /// The rules that the live object must match, if the declaration has conditions on labels or
    /// fields.
    pub within: Option<Writable>,
}

/// An object to be deleted or evicted.
#[derive(Debug)]
pub struct Deletion {
    pub of: ObjectRef,
    /// The uid of the only object that may be deleted; `None`: any.
    pub uid: Option<String>,
    /// The policy for its dependents.
    pub propagation: Propagation,
    /// The grace period in seconds; `None`: the kind's default.
    pub grace_period: Option<u32>,
    /// The rules that the live object must match, if the declaration has conditions on labels or
    /// fields.
    pub within: Option<Writable>,
}

/// A selection of objects to prune.
#[derive(Debug)]
pub struct Prune {
    /// The selection as the processor gave it.
    pub of: contract::Selection,
    /// The parsed `labels` of the selection.
    pub labels: crate::labels::LabelSelector,
    /// The parsed `matching` of the selection.
    pub matching: Vec<(Path, String)>,
}

/// An event to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The object that the event is about; `None`: the reconciled object.
    pub on: Option<ObjectRef>,
    /// The type: normal or a warning.
    pub event_type: EventType,
    /// The reason, one word.
    pub reason: String,
    /// The message, a sentence.
    pub message: String,
}

/// The object that was reconciled.
#[derive(Clone, Debug)]
pub struct Reconciled {
    pub reference: ObjectRef,
    /// The whole object as it was given to the processor; `None` if it is gone or has left the
    /// selection.
    pub object: Option<Value>,
}

/// The context that an outcome is checked against.
pub struct Against<'a> {
    /// The processor's grant: the declarations of its description.
    pub grant: &'a Grant,
    /// The declaration of the reconciler.
    pub reconciler: &'a contract::Reconciler,
    pub reconciled: &'a Reconciled,
    /// The kinds of [`kinds`] that the cluster serves.
    pub kinds: &'a Kinds,
    /// Returns the uid of an object that was read in this run.
    pub read: &'a dyn Fn(&ObjectRef) -> Option<String>,
    /// The maximum size of an outcome.
    pub limits: Limits,
}

/// The maximum size of an outcome.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of one object. Somewhat more than etcd takes (1.5 MiB), so that the API server's own
    /// message is seen near the limit.
    pub object: usize,
    /// Bytes of the whole outcome.
    pub outcome: usize,
    /// Bytes that the objects and the status take when they are parsed: their texts, and more for each
    /// entry.
    pub account: usize,
    /// The number of writes and events.
    pub entries: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { object: 3 << 20, outcome: 32 << 20, account: OUTCOME_ACCOUNT, entries: 10_000 }
    }
}

impl Default for PlannedRequeue {
    fn default() -> Self {
        Self(Requeue::ByDefault)
    }
}

// === impl Reconciled ===

impl Reconciled {
    /// Returns the object's uid, if the object exists.
    pub fn uid(&self) -> Option<&str> {
        self.object.as_ref()?.pointer("/metadata/uid")?.as_str()
    }

    /// Returns whether the object is being deleted.
    pub fn is_deleting(&self) -> bool {
        self.object.as_ref().is_some_and(|object| {
            object.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null())
        })
    }
}

// === impl Plan ===

impl Plan {
    /// Checks an outcome and makes the plan of its writes.
    pub fn build(outcome: &Outcome, against: &Against<'_>) -> Result<Self, Invalid> {
        against.limits.check(outcome)?;
        // Fields by name, so that a new field does not compile until it is handled here.
        let Outcome {
            apply,
            patch,
            evict,
            delete,
            prune,
            status,
            events,
            requeue,
            finalizers,
            start,
            // Kept by the queue, not written.
            note: _,
        } = outcome;
        let mut kinds = against.kinds.clone();
        let heads = manifest::heads(outcome, &against.limits)?;
        for head in heads.apply.iter().filter(|head| Class::of(&head.to.kind) == Class::Definition)
        {
            for defined in Resource::of_definition(&head.to.kind.cluster, &head.object) {
                kinds.insert(defined.into());
            }
        }
        let applied: Vec<ObjectRef> = heads.apply.iter().map(|head| head.to.clone()).collect();
        let check = Check { against, kinds: &kinds, applied: Applied::of(&applied) };
        let finalizers = check.finalizers(finalizers.as_deref())?;
        let mut plan = Self {
            start: check.starts(start, finalizers.as_ref())?,
            apply: check.manifests(heads.apply, apply, manifest::Part::Apply)?,
            patch: check.manifests(heads.patch, patch, manifest::Part::Patch)?,
            evict: check.evictions(evict)?,
            delete: check.deletions(delete)?,
            prune: check.prunes(prune)?,
            finalizers,
            status: check.status(status.as_deref())?,
            events: check.events(events)?,
            requeue: PlannedRequeue(*requeue),
            is_report: false,
        };
        plan.refuse_duplicates(outcome)?;
        plan.apply.sort_by_key(|manifest| manifest.class);
        Ok(plan)
    }

    /// Checks the status and the events that come with a failure.
    pub fn build_of_failure(
        failure: &contract::Failure,
        against: &Against<'_>,
    ) -> Result<Self, Invalid> {
        against.limits.check_count(failure.events.len())?;
        check_note(failure.note.as_ref(), "failure")?;
        against.limits.check_account(failure.status.iter().map(|text| (None, text)))?;
        let check = Check { against, kinds: against.kinds, applied: Applied::default() };
        Ok(Self {
            status: check.status(failure.status.as_deref())?,
            events: check.events(&failure.events)?,
            is_report: true,
            ..Self::default()
        })
    }

    /// Returns only status, events and requeue of the plan: the rest of an answer to failed writes
    /// is ignored.
    #[must_use]
    pub fn only_report(self) -> Self {
        let Self { status, events, requeue, .. } = self;
        Self { status, events, requeue, is_report: true, ..Self::default() }
    }

    /// Returns only the selections that the plan starts.
    #[must_use]
    pub fn only_start(self) -> Self {
        Self { start: self.start, is_report: true, ..Self::default() }
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
        let Self {
            apply,
            patch,
            evict,
            delete,
            // Selections, which may hold what others name.
            prune: _,
            finalizers: _,
            status: _,
            events: _,
            requeue: _,
            start: _,
            is_report: _,
        } = self;
        debug_assert_eq!(outcome.apply.len(), apply.len(), "nothing is dropped on the way");
        let apply = manifests("apply", apply);
        unique(&[&apply[..], &manifests("patch", patch)].concat())?;
        unique(&[&apply[..], &deletions("delete", delete)].concat())?;
        unique(&[apply, deletions("evict", evict)].concat())
    }
}

/// Refuses a note that is too long.
fn check_note(note: Option<&contract::Note>, of: &str) -> Result<(), Invalid> {
    let bytes = note.map_or(0, contract::Note::bytes);
    if bytes > contract::bounds::NOTE {
        return Err(
            Fault::TooLarge { bytes, limit: contract::bounds::NOTE }.at(format!("{of}.note"))
        );
    }
    Ok(())
}

fn unique(all: &[(String, ObjectRef)]) -> Result<(), Invalid> {
    let mut seen = HashMap::new();
    for (place, object) in all {
        if let Some(other) = seen.insert(SameObject(object), place) {
            return Err(Fault::Duplicate { other: other.clone() }.on(place.clone(), object));
        }
    }
    Ok(())
}

/// Returns the bytes of the objects and the status of an outcome, as JSON.
pub(crate) fn object_bytes(outcome: &Outcome) -> usize {
    let manifests = outcome.apply.iter().chain(&outcome.patch);
    let objects = manifests.map(|manifest| manifest.object.len()).sum::<usize>();
    objects + outcome.status.as_ref().map_or(0, String::len)
}

/// Returns the kinds that an outcome names, to be looked up before [`Plan::build`]. Objects that
/// cannot be parsed are ignored: [`Plan::build`] refuses them.
pub fn kinds(outcome: &Outcome, reconciled: &ObjectRef) -> HashSet<Kind> {
    // Fields by name, here and in the other checks: see `Plan::build`.
    let Outcome {
        apply,
        patch,
        evict,
        delete,
        prune,
        status: _,
        events,
        requeue: _,
        finalizers: _,
        start: _,
        note: _,
    } = outcome;
    let manifests = apply.iter().chain(patch);
    let manifests = manifests.filter_map(|manifest| {
        let kind = manifest::kind_of(&manifest.object)?;
        Some(Kind { cluster: Arc::clone(&manifest.cluster), ..kind })
    });
    let deletions = evict.iter().chain(delete).map(|deletion| &deletion.ref_.kind);
    let prunes = prune.iter().map(|selection| &selection.kind);
    let events = events.iter().filter_map(|event| Some(&event.on.as_ref()?.kind));
    let others = deletions.chain(prunes).chain(events).chain([&reconciled.kind]);
    manifests.chain(others.map(|kind| Kind::clone(kind))).collect()
}

// === impl Limits ===

impl Limits {
    fn check_count(&self, count: usize) -> Result<(), Invalid> {
        if count > self.entries {
            return Err(Fault::TooMany { count, limit: self.entries }.at("outcome"));
        }
        Ok(())
    }

    fn check<'a>(&self, outcome: &'a Outcome) -> Result<(), Invalid> {
        let Outcome {
            apply,
            patch,
            evict,
            delete,
            prune,
            status,
            events,
            requeue: _,
            // Few and short: the reconciler declares them.
            finalizers: _,
            // Bounded in number and in texts where they are checked.
            start: _,
            note,
        } = outcome;
        check_note(note.as_ref(), "outcome")?;
        let lists = [apply.len(), patch.len(), evict.len(), delete.len(), prune.len()];
        self.check_count(lists.iter().sum::<usize>() + events.len())?;
        let manifests = apply.iter().chain(patch).map(|manifest| manifest.object.len());
        let events = events.iter().map(|event| event.reason.len() + event.message.len());
        let status_bytes = status.as_ref().map_or(0, String::len);
        // An object that is too large is refused later, with its name.
        let bytes = manifests.map(|bytes| bytes.min(self.object)).chain(events).sum::<usize>()
            + status_bytes.min(self.object);
        if bytes > self.outcome {
            return Err(Fault::TooLarge { bytes, limit: self.outcome }.at("outcome"));
        }
        let texts = |list, of: &'a [contract::Manifest]| {
            let objects = of.iter().enumerate();
            objects.map(move |(at, manifest)| (Some((list, at)), &manifest.object))
        };
        let status = status.iter().map(|text| (None, text));
        self.check_account(texts("apply", apply).chain(texts("patch", patch)).chain(status))
    }

    /// Refuses objects that take too much together when they are parsed, with the name of the one that
    /// takes most. Those of a list have its name and their positions; a status has none.
    fn check_account<'a>(
        &self,
        texts: impl Iterator<Item = (Option<(&'static str, usize)>, &'a String)> + Clone,
    ) -> Result<(), Invalid> {
        // An object that is too large is refused before it is parsed.
        let accounts = texts
            .filter(|(_, text)| text.len() <= self.object)
            .map(|(at, text)| (account(text.as_bytes(), MAX_LEVELS), at, text));
        if accounts.clone().map(|(account, ..)| account).sum::<usize>() <= self.account {
            return Ok(());
        }
        let most = accounts.reduce(|most, next| if next.0 > most.0 { next } else { most });
        let Some((account, at, text)) = most else { return Ok(()) };
        let place =
            at.map_or_else(|| "status".to_owned(), |(list, at)| format!("{list}[{at}].object"));
        let fault = Fault::TooMuch { account, limit: self.account };
        Err(Invalid { object: manifest::name_of(text), ..fault.at(place) })
    }
}

/// The checks of one outcome.
struct Check<'a> {
    against: &'a Against<'a>,
    /// The kinds that the cluster serves, and those that this outcome defines.
    kinds: &'a Kinds,
    /// The objects that this outcome applies.
    applied: Applied<'a>,
}

/// The objects that an outcome applies, by identity, with their index in the list: the first index
/// of duplicates.
#[derive(Default)]
struct Applied<'a>(HashMap<SameObject<&'a ObjectRef>, (usize, &'a ObjectRef)>);

// === impl Applied ===

impl<'a> Applied<'a> {
    fn of(applied: &'a [ObjectRef]) -> Self {
        let mut all = HashMap::with_capacity(applied.len());
        for (index, of) in applied.iter().enumerate() {
            all.entry(SameObject(of)).or_insert((index, of));
        }
        Self(all)
    }

    /// Returns the one of these objects that the outcome applies first.
    fn first(&self, of: &[ObjectRef]) -> Option<&'a ObjectRef> {
        let found = of.iter().filter_map(|of| self.0.get(&SameObject(of)));
        found.min_by_key(|(index, _)| *index).map(|(_, of)| *of)
    }
}

// === impl Check ===

impl Check<'_> {
    /// Fails for a path whose steps `[key=value]` compare a credential.
    fn compares_no_credential(&self, kind: &Kind, path: &Path) -> Result<(), Fault> {
        match self.against.grant.compared_credential(kind, path) {
            None => Ok(()),
            Some(hidden) => Err(Fault::compares(path, hidden)),
        }
    }

    fn finalizers(&self, wanted: Option<&[String]>) -> Result<Option<Finalizers>, Invalid> {
        let Some(wanted) = wanted else { return Ok(None) };
        let refuse = |fault: Fault| Err(fault.on("finalizers", &self.against.reconciled.reference));
        let declared = &self.against.reconciler.finalizers;
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

    /// Checks a status that comes alone, or in an object that names the reconciled object.
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
            let mut named = manifest::reference(&status).map_err(&refuse)?;
            // The JSON of an object does not name its cluster.
            Arc::make_mut(&mut named.kind).cluster = Arc::clone(&reconciled.reference.kind.cluster);
            let same = reconciled.reference.is_same(&ObjectRef {
                namespace: named
                    .namespace
                    .clone()
                    .or_else(|| reconciled.reference.namespace.clone()),
                ..named.clone()
            });
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
        /// The API server's own limit, in bytes.
        const MAX_REASON_BYTES: usize = 128;
        let mut checked = Vec::with_capacity(events.len());
        for (index, event) in events.iter().enumerate() {
            let place = format!("events[{index}]");
            if let Some(on) = &event.on {
                self.check_reference(on, &format!("{place}.on"))?;
                let mentioned = on.is_same(&self.against.reconciled.reference);
                if !mentioned {
                    self.against
                        .grant
                        .may_mention(on)
                        .map_err(|denied| Fault::from(denied).on(format!("{place}.on"), on))?;
                }
            }
            if event.reason.is_empty() || event.reason.len() > MAX_REASON_BYTES {
                return Err(
                    Fault::malformed("reason", format!("1 to {MAX_REASON_BYTES} bytes")).at(place)
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

    /// Checks that a cluster is named as it must be, and may be used.
    fn check_cluster(&self, cluster: &str) -> Result<(), Fault> {
        if !is_cluster(cluster) {
            return Err(Fault::malformed("cluster", CLUSTER_FORM));
        }
        Ok(self.against.grant.may_connect(cluster)?)
    }

    /// Checks that a reference can name an object: its cluster, its names, and a namespace if and
    /// only if the kind has one.
    fn check_reference(&self, of: &ObjectRef, place: &str) -> Result<(), Invalid> {
        let refuse = |fault: Fault| fault.on(place, of);
        self.check_cluster(&of.kind.cluster).map_err(refuse)?;
        for (field, text) in
            [("namespace", of.namespace.as_deref()), ("name", Some(of.name.as_str()))]
        {
            if text.is_some_and(|text| !is_name(text)) {
                return Err(refuse(Fault::malformed(field, NAME_FORM)));
            }
        }
        if !is_kind(&of.kind) {
            return Err(refuse(Fault::malformed("kind", KIND_FORM)));
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
