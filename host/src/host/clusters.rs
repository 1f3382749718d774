//! Changes of other clusters: watches are closed or planned anew, and keys are queued.

use std::sync::Arc;

use super::HostState;
use crate::cluster::clusters::Change;

impl HostState {
    /// Follows the changes of other clusters from now on.
    pub(super) fn follow_clusters(self: &Arc<Self>) {
        // The clusters are a part of this state.
        let shared = Arc::downgrade(self);
        self.clusters.on_change(move |cluster, change| {
            if let Some(shared) = shared.upgrade() {
                shared.cluster_changed(cluster, change);
            }
        });
    }

    fn cluster_changed(&self, cluster: &Arc<str>, change: Change) {
        {
            // Locked until the steps are carried out: no watch is opened or closed in between.
            let mut watches = self.watches.lock();
            let steps = match change {
                // The closed stores queue their readers.
                Change::Moved => watches.moved(cluster),
                Change::Circumstances => watches.plan(),
            };
            self.carry_out(steps);
        }
        if let Change::Circumstances = change {
            for processor in self.clusters.users_of(cluster) {
                self.parts.dispatch.rights_changed(&processor);
            }
        }
        self.notify_activity();
    }
}
