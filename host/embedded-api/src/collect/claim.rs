//! Deleted claims and persistent volumes: a claim is removed when no pod uses it any more, and a
//! volume when no claim is bound to it, as by the controllers of Kubernetes.

use jiff::Timestamp;
use serde_json::Value;

use super::drop_finalizer;
use crate::{
    builtin::edit::{at, items, text},
    state::State,
    storage::{Image, Place, TableId},
    verbs::internal_update,
};

/// The finalizer that admission adds to every claim.
const PROTECTION: &str = "kubernetes.io/pvc-protection";
/// The finalizer that admission adds to every persistent volume.
const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";

// === impl State ===

impl State {
    /// Returns the claims of a namespace that are being deleted: they may wait for a pod that
    /// changes.
    pub(crate) fn ending_claims(&self, namespace: &str) -> Vec<Place> {
        let id = TableId::new("", "persistentvolumeclaims");
        let claims =
            self.storage.table(&id).into_iter().flat_map(|table| table.list(namespace, None));
        let ending = claims.filter(|(_, claim)| claim.head.is_deleting());
        ending.map(|(key, _)| Place { table: id.clone(), key: key.clone() }).collect()
    }

    /// Removes the protection finalizer of a claim that no pod uses.
    pub(super) fn release_claim(&mut self, place: &Place, claim: &Image, now: Timestamp) {
        if claim.head.has_finalizer(PROTECTION) && !self.is_in_use(claim) {
            internal_update(self, place, "", now, |claim| drop_finalizer(claim, PROTECTION));
        }
    }

    /// Removes the protection finalizer of a persistent volume that is bound to no claim.
    pub(super) fn release_volume(&mut self, place: &Place, volume: &Image, now: Timestamp) {
        let is_bound = *at(&volume.bare(), &["status", "phase"]) == "Bound";
        if volume.head.has_finalizer(VOLUME_PROTECTION) && !is_bound {
            let change = |volume: &mut Value| drop_finalizer(volume, VOLUME_PROTECTION);
            internal_update(self, place, "", now, change);
        }
    }

    fn is_in_use(&self, claim: &Image) -> bool {
        let namespace = claim.head.namespace();
        let pods = self.storage.table(&TableId::new("", "pods"));
        let mut pods = pods.into_iter().flat_map(|table| table.list(namespace, None));
        pods.any(|(_, pod)| uses(&pod.bare(), &claim.head.name))
    }
}

/// Returns whether a pod uses a claim: a pod uses none before it is on a node, and none after it
/// has ended.
fn uses(pod: &Value, claim: &str) -> bool {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let is_there = !text(spec, "nodeName").is_empty()
        && !matches!(text(status, "phase"), "Failed" | "Succeeded");
    let names_it = |volume: &Value| {
        at(volume, &["persistentVolumeClaim", "claimName"]).as_str() == Some(claim)
    };
    is_there && items(&spec["volumes"]).iter().any(names_it)
}
