//! Checks with the API server whether the key of a field manager may still exist.
//!
//! A store may lag behind that of a former leader, so it cannot prove that an object is gone. The
//! objects are listed once: from then on only this host runs keys, and knows them. The list is
//! repeated only for identities that it contained.

use std::{collections::HashSet, sync::Arc, time::Duration};

use serde_json::Value;
use tokio::{sync::Mutex, time::Instant};

use super::Reconciler;
use crate::{
    api::Outgoing,
    applied_fields::manager::{self, Owner, Parts},
    contract::{ObjectRef, Selection},
    grant::DeclaredReconciler,
    labels::LabelSelector,
    resource::encoded,
};

/// The shortest time between two lists from the API server.
const MIN_LIST_INTERVAL: Duration = Duration::from_secs(10);
/// The page size of client-go's pager.
const PAGE_SIZE: usize = 500;

/// The identities of the field managers of all reconciled objects, in the last list from the API
/// server.
#[derive(Default)]
pub(super) struct Living(Mutex<Option<List>>);

/// The last list from the API server.
struct List {
    asked: Instant,
    /// The reconcilers whose objects were listed: on-demand ones come and go.
    of: Vec<Arc<DeclaredReconciler>>,
    found: HashSet<String>,
}

impl Reconciler {
    /// Returns whether the API server lists a reconciled object whose key has this field manager.
    /// True also if the list fails.
    ///
    /// *Assumptions*: this host leads, and the caller knows all keys that have run on it.
    pub async fn may_own(&self, of: &Parts<'_>) -> bool {
        let identity = of.identity();
        let mut living = self.living.0.lock().await;
        if !self.have_all_asked() {
            return true;
        }
        let of: Vec<_> = self.reconcilers.all().collect();
        if let Some(last) = &*living {
            let is_same = last.of.iter().map(Arc::as_ptr).eq(of.iter().map(Arc::as_ptr));
            if is_same && !last.found.contains(&identity) {
                return false;
            }
            if last.asked.elapsed() < MIN_LIST_INTERVAL {
                return true;
            }
        }
        let asked = Instant::now();
        let mut found = HashSet::new();
        for reconciler in &of {
            let finalizers = &reconciler.spec.finalizers;
            for selected in reconciler.watched() {
                let objects = self.objects_now(&selected.of, finalizers).await;
                let Some(objects) = objects else { return true };
                let owner = |object| self.owner(reconciler.id.name(), object);
                found.extend(objects.iter().map(|object| manager::identity(&owner(object))));
            }
        }
        let is_among = found.contains(&identity);
        *living = Some(List { asked, of, found });
        is_among
    }

    fn owner<'a>(&'a self, reconciler: &'a str, object: &'a ObjectRef) -> Owner<'a> {
        let namespace = &self.version.settings.namespace;
        // Managers of objects in other clusters never count as gone.
        Owner { namespace, processor: self.processor(), reconciler, object, home: "" }
    }

    /// Lists, as the processor's account, the objects that a reconciler may have keys for: those
    /// that match the labels of its selection, and those that hold one of its finalizers. Conditions
    /// on fields are ignored. `None` if the API server does not answer, or the account may not list
    /// them.
    async fn objects_now(&self, of: &Selection, finalizers: &[String]) -> Option<Vec<ObjectRef>> {
        let labels = LabelSelector::parse(&of.labels).ok()?;
        let Some(resource) = self.version.api.resolve(&of.kind).await.ok()? else {
            return Some(Vec::new());
        };
        let holds = |object: &Value| {
            let held = object.pointer("/metadata/finalizers").and_then(Value::as_array);
            let mut held = held.into_iter().flatten().filter_map(Value::as_str);
            held.any(|held| finalizers.iter().any(|own| own == held))
        };
        let (mut found, mut token) = (Vec::new(), String::new());
        loop {
            let mut path = format!("{}?limit={PAGE_SIZE}", resource.path(of.namespace.as_deref()));
            if let Some(name) = &of.name {
                path.push_str("&fieldSelector=");
                path.push_str(&encoded(&format!("metadata.name={name}")));
            }
            if !token.is_empty() {
                path.push_str("&continue=");
                path.push_str(&encoded(&token));
            }
            let list = Outgoing { metadata_only: true, ..Outgoing::get(path) };
            let list = list.to(&resource.kind.cluster);
            let list = self.version.api.send(&list).await.ok()?.body;
            for object in list.get("items")?.as_array()? {
                if labels.matches_object(object) || holds(object) {
                    found.push(reference(of, object)?);
                }
            }
            let next = list.pointer("/metadata/continue").and_then(Value::as_str);
            next.unwrap_or_default().clone_into(&mut token);
            if token.is_empty() {
                return Some(found);
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
