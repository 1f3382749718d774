//! The reconcilers that a description declares.

use std::sync::Arc;

use super::{
    Grant, Invalid, Readable,
    declared::matches_kind,
    malformed,
    reads::watched,
    selected::{Selected, Selections, merged},
};
use crate::{
    contract::{self, Kind, ObjectRef, bounds::text::is_finalizer, display_kind},
    key::ReconcilerId,
    path::Extent,
    store::{Entry, Query, Scope, Stores, Wanted},
};

/// The fields of a reconciled object that the host itself reads.
const HOST_FIELDS: [&str; 3] = [
    "metadata.finalizers",
    "metadata.annotations[\"mortise.dev/paused\"]",
    "metadata.annotations[\"mortise.dev/reconcile\"]",
];

/// The path of the status, which a reconciler of whole statuses reads.
const STATUS: &str = "status";

/// A declared reconciler, parsed. An on-demand one selects nothing until it is [started].
///
/// [started]: Grant::started
#[derive(Debug)]
pub struct DeclaredReconciler {
    pub id: ReconcilerId,
    /// The declaration; of a started reconciler, with the kind that it was started for.
    pub spec: contract::Reconciler,
    /// The declared selection, and the fields of its objects.
    pub(crate) readable: Arc<Readable>,
    /// The selections of its objects.
    selections: Selections,
    /// The stopped selections that had objects which are still reconciled.
    ending: Selections,
}

// === impl DeclaredReconciler ===

impl DeclaredReconciler {
    pub(super) fn parse(place: &str, spec: &contract::Reconciler) -> Result<Self, Invalid> {
        let kind = &spec.of.kind;
        if kind.has_wildcard() && !spec.on_demand {
            return Err(malformed(
                format!("{place}.of.kind"),
                &display_kind(kind),
                "objects of one kind are reconciled, not of any",
            ));
        }
        if let Some(bad) = spec.finalizers.iter().find(|name| !is_finalizer(name)) {
            return Err(malformed(
                format!("{place}.finalizers"),
                bad,
                "a finalizer is named `<domain>/<name>`",
            ));
        }
        let mut spec = spec.clone();
        if spec.whole_status && !spec.of.fields.is_empty() {
            // A change of any part of the status triggers a run, which compares the whole.
            spec.of.fields = spec.of.fields.iter().cloned().chain([STATUS.to_owned()]).collect();
        }
        let readable = Readable::parse(&format!("{place}.of"), &spec.of)?.keeping(&HOST_FIELDS);
        let id = ReconcilerId::from(spec.name.as_str());
        let selected =
            || Selected::new(id.clone(), spec.of.clone(), readable.of.query.clone()).into();
        let selections = if spec.on_demand { Box::default() } else { Box::new([selected()]) as _ };
        let (readable, ending) = (Arc::new(readable), Box::default());
        Ok(Self { id, spec, readable, selections, ending })
    }

    /// Returns the selections of its objects.
    pub fn selections(&self) -> &[Arc<Selected>] {
        &self.selections
    }

    /// Returns the selections that it watches: also the stopped ones whose objects are still
    /// reconciled.
    pub fn watched(&self) -> impl Iterator<Item = &Arc<Selected>> {
        self.selections.iter().chain(&self.ending)
    }

    /// Returns whether objects of a kind, in any version, may be its own.
    fn may_have(&self, kind: &Kind) -> bool {
        let own = &self.spec.of.kind;
        let version = kind.version.clone();
        own.is_same(kind)
            || (self.spec.on_demand && matches_kind(&Kind { version, ..Kind::clone(own) }, kind))
    }

    /// Returns whether an on-demand reconciler is stopped for an object, and nothing is left to be
    /// done for the object, whatever a store holds.
    pub(crate) fn is_done_with(&self, of: &ObjectRef, stores: &Stores) -> bool {
        let is_at = |one: &Arc<Selected>| one.is_at(of.namespace.as_deref(), &of.name);
        self.spec.on_demand
            && !self.selections.iter().any(is_at)
            && (!self.ending.iter().any(is_at) || stores.is_unknown(&of.kind))
    }

    /// Returns the changes of its objects that trigger a run.
    pub(crate) fn extent(&self) -> Extent {
        let is_counted = self.spec.triggered_by_status || self.spec.whole_status;
        if is_counted { Extent::Counted } else { Extent::WithoutStatus }
    }

    /// Returns whether an object is in the selection.
    pub(crate) fn selects(&self, entry: &Entry) -> bool {
        let mut parsed = None;
        self.selections.iter().any(|of| of.query.matches_parsed(entry, &mut parsed))
    }

    /// Returns whether an object is or was in a selection, judged by its namespace and name.
    pub(crate) fn is_anywhere(&self, entry: &Entry) -> bool {
        self.watched().any(|of| of.anywhere.matches(entry))
    }

    /// Returns whether an object holds one of the reconciler's finalizers.
    pub(crate) fn holds_finalizer(&self, entry: &Entry) -> bool {
        self.spec.finalizers.iter().any(|name| entry.holds_finalizer(name))
    }

    /// Returns the objects that are or were in the selection; `None` if no complete store covers
    /// them. A kind that is not served has no objects.
    fn known_in(&self, stores: &Stores) -> Option<Vec<Arc<Entry>>> {
        let kind = &self.spec.of.kind;
        if stores.is_unknown(kind) {
            return Some(Vec::new());
        }
        let found = self.watched().map(|of| stores.selected(kind, &of.anywhere));
        found.collect::<Option<Vec<_>>>().map(merged)
    }

    /// Returns the objects in the stores that a query of the selections finds, each once. Further
    /// ones of a list that is not complete come as changes.
    pub(crate) fn found_in<'a>(
        &'a self,
        stores: &Stores,
        queries: impl Iterator<Item = &'a Query>,
    ) -> Vec<Arc<Entry>> {
        let found = queries.map(|query| stores.selected_so_far(&self.spec.of.kind, query));
        merged(found.collect())
    }

    /// Returns the objects that hold one of its finalizers; `None` if no complete store covers
    /// all of its objects.
    pub fn holding(&self, stores: &Stores) -> Option<Vec<Arc<Entry>>> {
        if self.spec.finalizers.is_empty() {
            return Some(Vec::new());
        }
        let mut held = self.known_in(stores)?;
        held.retain(|entry| self.holds_finalizer(entry));
        Some(held)
    }

    /// Returns the watch that the declaration needs.
    pub(super) fn watch(&self) -> (Scope, Wanted) {
        (watched(&self.spec.of), Wanted { written: true, ..self.readable.wanted() })
    }
}

// === impl Grant ===

impl Grant {
    /// Returns the declared reconcilers, in their order.
    pub fn reconcilers(&self) -> &[Arc<DeclaredReconciler>] {
        &self.reconcilers
    }

    /// Returns the reconciler of this name, if there is one.
    pub fn reconciler(&self, name: &str) -> Option<&Arc<DeclaredReconciler>> {
        self.reconcilers.iter().find(|reconciler| reconciler.spec.name == name)
    }

    /// Returns whether a reconciler is on-demand.
    pub fn has_on_demand(&self) -> bool {
        self.reconcilers.iter().any(|of| of.spec.on_demand)
    }

    /// Returns the declaration of an on-demand reconciler that was started for a kind, maybe by a
    /// former version; `None` if it must not run for that kind.
    pub fn on_demand(&self, id: &ReconcilerId) -> Option<&Arc<DeclaredReconciler>> {
        let declared = self.reconciler(id.name()).filter(|declared| declared.spec.on_demand)?;
        id.kind().filter(|kind| declared.readable.of.is_of(kind)).map(|_| declared)
    }

    /// Returns whether the declaration covers a selection that was started, maybe by a former
    /// version.
    pub fn may_start(&self, of: &Selected) -> bool {
        let declared = self.on_demand(&of.by);
        declared.is_some_and(|declared| declared.readable.covers(&of.of, &of.query).is_ok())
    }

    /// Returns an on-demand reconciler for selections of one kind; `None` if it is not declared.
    pub fn started(
        &self,
        id: &ReconcilerId,
        selections: Selections,
        ending: Selections,
    ) -> Option<DeclaredReconciler> {
        let declared = self.on_demand(id)?;
        let kind = Arc::clone(&selections.iter().chain(&ending).next()?.of.kind);
        let mut spec = declared.spec.clone();
        spec.of.kind = kind;
        let readable = Arc::clone(&declared.readable);
        Some(DeclaredReconciler { id: id.clone(), spec, readable, selections, ending })
    }

    /// Returns the watches that a started reconciler needs.
    pub fn watches(&self, of: &DeclaredReconciler) -> Vec<(Kind, Scope, Wanted)> {
        let kind = &of.spec.of.kind;
        let Some(wanted) = self.wanted_of(kind) else { return Vec::new() };
        let wanted = Wanted { written: true, ..wanted };
        let mut scopes: Vec<Scope> = of.watched().map(|one| watched(&one.of)).collect();
        scopes.sort();
        scopes.dedup();
        scopes.into_iter().map(|scope| (Kind::clone(kind), scope, wanted.clone())).collect()
    }

    /// Returns the objects that a swap from a version with these reconcilers to this version would
    /// leave with a finalizer that no version removes: only `former` declares it for their kind.
    /// The finalizer's name comes first.
    pub fn abandoned<'a>(
        &self,
        former: impl IntoIterator<Item = &'a DeclaredReconciler>,
        stores: &Stores,
    ) -> Vec<(String, ObjectRef)> {
        let mut abandoned = Vec::new();
        for of in former {
            let kind = &of.spec.of.kind;
            // The two versions may read the kind in different API versions.
            let still = self.reconcilers.iter().filter(|still| still.may_have(kind));
            let still: Vec<&String> = still.flat_map(|still| &still.spec.finalizers).collect();
            let dropped: Vec<&String> =
                of.spec.finalizers.iter().filter(|name| !still.contains(name)).collect();
            if dropped.is_empty() {
                continue;
            }
            for entry in of.known_in(stores).iter().flatten() {
                if let Some(name) = dropped.iter().find(|name| entry.holds_finalizer(name)) {
                    abandoned.push(((*name).clone(), entry.reference(kind)));
                }
            }
        }
        abandoned
    }
}
