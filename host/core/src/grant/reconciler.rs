//! The reconcilers that a description declares.

use std::sync::Arc;

use super::{Grant, Invalid, Readable, declared::ANY, malformed, reads::watched};
use crate::{
    contract::{self, ObjectRef, bounds::text::is_finalizer, display_kind},
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

/// A declared reconciler, parsed.
#[derive(Debug)]
pub struct DeclaredReconciler {
    pub id: ReconcilerId,
    pub spec: contract::Reconciler,
    /// The selection of its objects.
    pub(crate) readable: Arc<Readable>,
    /// The query without labels and fields: an object that no longer matches these is still
    /// reconciled while it holds a finalizer.
    pub(crate) anywhere: Query,
}

// === impl DeclaredReconciler ===

impl DeclaredReconciler {
    pub(super) fn parse(place: &str, spec: &contract::Reconciler) -> Result<Self, Invalid> {
        let kind = &spec.of.kind;
        if kind.kind == ANY || kind.group == ANY || &*kind.cluster == ANY {
            return Err(malformed(
                format!("{place}.of.kind"),
                &display_kind(kind),
                "objects of one kind are reconciled, not of any",
            ));
        }
        if spec.on_demand {
            let reason = "is not supported by this version of the host";
            return Err(malformed(format!("{place}.on-demand"), "true", reason));
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
        let anywhere = readable.of.query.anywhere();
        Ok(Self { id: spec.name.as_str().into(), spec, readable: Arc::new(readable), anywhere })
    }

    /// Returns the changes of its objects that trigger a run.
    pub(crate) fn extent(&self) -> Extent {
        let is_counted = self.spec.triggered_by_status || self.spec.whole_status;
        if is_counted { Extent::Counted } else { Extent::WithoutStatus }
    }

    /// Returns whether an object is in the selection.
    pub(crate) fn selects(&self, entry: &Entry) -> bool {
        self.readable.of.query.matches(entry)
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
        stores.selected(kind, &self.anywhere)
    }

    /// Returns the watch that the reconciler needs.
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

    /// Returns the objects that hold a declared finalizer, each with the reconciler
    /// that may have added it; `None` if no complete store covers them.
    pub fn holding(&self, stores: &Stores) -> Option<Vec<(&ReconcilerId, Arc<Entry>)>> {
        let mut holding = Vec::new();
        for of in self.reconcilers.iter().filter(|of| !of.spec.finalizers.is_empty()) {
            let held = of.known_in(stores)?.into_iter().filter(|entry| of.holds_finalizer(entry));
            holding.extend(held.map(|entry| (&of.id, entry)));
        }
        Some(holding)
    }

    /// Returns the objects that a swap from `former` to this version would leave with a finalizer
    /// that no version removes: only `former` declares it for their kind. The finalizer's name
    /// comes first.
    pub fn abandoned(&self, former: &Self, stores: &Stores) -> Vec<(String, ObjectRef)> {
        let mut abandoned = Vec::new();
        for of in &former.reconcilers {
            let kind = &of.spec.of.kind;
            // The two versions may read the kind in different API versions.
            let still = self.reconcilers.iter().filter(|still| still.spec.of.kind.is_same(kind));
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
