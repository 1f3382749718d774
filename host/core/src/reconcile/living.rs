//! Checks with the API server whether the key of a field manager may still exist.
//!
//! A store may lag behind that of a former leader, so it cannot prove that an object is gone. The
//! objects are listed once: from then on only this host runs keys, and knows them. The list is
//! repeated only for identities that it contained.

use std::{collections::HashSet, sync::Arc, time::Duration};

use serde_json::Value;
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

use super::Reconciler;
use crate::{
    api::Outgoing,
    applied_fields::manager::{self, Owner, Parts},
    contract::{ObjectRef, Selection},
    grant::DeclaredReconciler,
    labels::LabelSelector,
    resource::Pages,
    store::hashed,
};

/// The shortest time between two lists from the API server.
const MIN_LIST_INTERVAL: Duration = Duration::from_secs(10);
/// The time after which lists are given up. The run of another processor waits for them, and
/// another cluster may send pages without an end.
const MAX_LIST_TIME: Duration = Duration::from_secs(30);
/// The pause after a list that failed, as a multiple of the time that it took.
const PAUSE_FACTOR: u32 = 10;
/// The most objects of these lists.
const MAX_OBJECTS: usize = 1 << 18;

/// The identities of the field managers of all reconciled objects, in the last list from the API
/// server.
#[derive(Default)]
pub(super) struct Living(Mutex<Lists>);

#[derive(Default)]
struct Lists {
    last: Option<List>,
    /// The end of the pause after the last list, if that failed.
    paused_until: Option<Instant>,
}

/// The last list from the API server.
struct List {
    asked: Instant,
    /// The reconcilers whose objects were listed: on-demand ones come and go.
    of: Vec<Arc<DeclaredReconciler>>,
    /// The hashes of the identities.
    found: HashSet<u64>,
}

impl Reconciler {
    /// Returns whether the API server lists a reconciled object whose key has this field manager.
    /// True also if the list fails or takes too long.
    ///
    /// *Assumptions*: this host leads, and the caller knows all keys that have run on it.
    pub async fn may_own(&self, of: &Parts<'_>) -> bool {
        let Ok(mut lists) = timeout(MAX_LIST_TIME, self.living.0.lock()).await else { return true };
        if !self.have_all_asked() {
            return true;
        }
        let identity = hashed(of.identity());
        let of: Vec<_> = self.reconcilers.all().collect();
        if let Some(last) = &lists.last {
            let is_same = last.of.iter().map(Arc::as_ptr).eq(of.iter().map(Arc::as_ptr));
            if is_same && !last.found.contains(&identity) {
                return false;
            }
            if last.asked.elapsed() < MIN_LIST_INTERVAL {
                return true;
            }
        }
        let asked = Instant::now();
        if lists.paused_until.is_some_and(|until| asked < until) {
            return true;
        }
        let Ok(Some(found)) = timeout(MAX_LIST_TIME, self.identities_now(&of)).await else {
            lists.paused_until = Some(Instant::now() + asked.elapsed() * PAUSE_FACTOR);
            return true;
        };
        let is_among = found.contains(&identity);
        *lists = Lists { last: Some(List { asked, of, found }), paused_until: None };
        is_among
    }

    /// Lists the hashes of the identities of all reconciled objects. `None` if a list fails, or if
    /// they are too many.
    async fn identities_now(&self, of: &[Arc<DeclaredReconciler>]) -> Option<HashSet<u64>> {
        let mut found = HashSet::new();
        for reconciler in of {
            for selected in reconciler.watched() {
                self.list_now(reconciler, &selected.of, &mut found).await?;
            }
        }
        Some(found)
    }

    fn owner<'a>(&'a self, reconciler: &'a str, object: &'a ObjectRef) -> Owner<'a> {
        let namespace = &self.version.settings.namespace;
        // Managers of objects in other clusters never count as gone.
        Owner { namespace, processor: self.processor(), reconciler, object, home: "" }
    }

    /// Lists, as the processor's account, the objects that a reconciler may have keys for: those
    /// that match the labels of a selection, and those that hold one of its finalizers. Conditions
    /// on fields are ignored. `None` if the API server does not answer, or the account may not list
    /// them, or they are too many.
    async fn list_now(
        &self,
        reconciler: &DeclaredReconciler,
        of: &Selection,
        found: &mut HashSet<u64>,
    ) -> Option<()> {
        let labels = LabelSelector::parse(&of.labels).ok()?;
        let Some(resource) = self.version.api.resolve(&of.kind).await.ok()? else {
            return Some(());
        };
        let holds = |object: &Value| {
            let held = object.pointer("/metadata/finalizers").and_then(Value::as_array);
            let mut held = held.into_iter().flatten().filter_map(Value::as_str);
            held.any(|held| reconciler.spec.finalizers.iter().any(|own| own == held))
        };
        let mut pages = Pages::of(&resource.path(of.namespace.as_deref()), of.name.as_deref());
        loop {
            let list = Outgoing { metadata_only: true, ..Outgoing::get(pages.path()) };
            let list = list.to(&resource.kind.cluster);
            let list = self.version.api.send(&list).await.ok()?.body;
            for object in list.get("items")?.as_array()? {
                if labels.matches_object(object) || holds(object) {
                    let object = reference(of, object)?;
                    found.insert(hashed(manager::identity(
                        &self.owner(reconciler.id.name(), &object),
                    )));
                }
            }
            if found.len() > MAX_OBJECTS {
                return None;
            }
            if !pages.turn(&list) {
                return Some(());
            }
        }
    }
}

fn reference(of: &Selection, object: &Value) -> Option<ObjectRef> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    Some(ObjectRef {
        kind: of.kind.clone(),
        namespace: text("/metadata/namespace"),
        name: text("/metadata/name")?,
    })
}
