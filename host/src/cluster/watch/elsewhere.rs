//! Watches in other clusters, which run while the cluster is connected.

use std::sync::Arc;

use mortise_core::store::Feed;
use tokio::time::sleep;

use super::{Context, LOOKUP_RETRY_DELAY, Watch};
use crate::cluster::{access::Rights, clusters::unusable};

impl Watch {
    /// Watches until the feed is closed, whenever the cluster is connected.
    pub(crate) async fn run_elsewhere(
        self,
        feed: Feed,
        context: Context,
        rights: Option<Arc<Rights>>,
    ) {
        tokio::select! {
            () = feed.over() => {}
            () = self.follow_cluster(&feed, &context, rights.as_ref()) => {}
        }
    }

    async fn follow_cluster(&self, feed: &Feed, context: &Context, rights: Option<&Arc<Rights>>) {
        let cluster = &self.kind.cluster;
        let unavailable = |why: &str| context.stores.set_unavailable(&self.kind, why);
        let mut changes = loop {
            let changes = match rights {
                Some(rights) => rights.changes(cluster).await,
                None => context.clusters.changes(cluster),
            };
            match changes {
                Ok(changes) => break changes,
                Err(why) => unavailable(&why),
            }
            sleep(LOOKUP_RETRY_DELAY).await;
        };
        loop {
            let state = changes.borrow_and_update().clone();
            let link = match state {
                Ok(link) => link,
                Err(problem) => {
                    unavailable(&unusable(cluster, &problem));
                    if changes.changed().await.is_err() {
                        return;
                    }
                    continue;
                }
            };
            let health = link.watches.begin(&self.kind);
            let context = Context {
                cluster: link.cluster.clone(),
                health: Some(Arc::clone(&health)),
                ..context.clone()
            };
            tokio::select! {
                () = self.clone().run(feed.clone(), context) => return,
                next = changes.changed() => if next.is_err() { return },
                // The watch would wait for longer: its requests have failed many times.
                () = link.returned() => {}
                () = link.watches.mended(&health) => {}
            }
        }
    }
}
