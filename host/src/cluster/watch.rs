//! The watches: one for each kind and scope that a processor needs. They only feed the store.
//!
//! kube's watcher does the hard part (resuming, bookmarks, 410 Gone, back-off). This module adds
//! two cases that kube's watcher does not handle: kinds that the cluster does not serve yet, and
//! servers without streaming lists.

mod elsewhere;
mod raw;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use futures::{StreamExt as _, stream::BoxStream};
use kube::{
    Api, Client, Resource,
    api::ApiResource,
    core::{DynamicResourceScope, GroupVersionKind},
    runtime::watcher::{self, Event},
};
use mortise_core::{
    contract::{Kind, display_kind},
    error_chain,
    store::{Feed, Scope, Stores},
};
use serde_json::Value;
use tokio::{sync::watch as latest, time::sleep};
use tracing::{Instrument as _, debug, info, info_span, warn};

use self::raw::Raw;
use crate::{
    cluster::{
        Cluster, Guarded, MAX_UNKNOWN_KIND_TTL, UNKNOWN_KIND_TTL, access::Access,
        bounded::count_as_absent, clusters::Clusters, guarded::refusal, health::Health, lean,
    },
    metrics::Metrics,
};

/// The delay after a failed attempt until an unserved kind is looked up again although no CRD has
/// changed. Aggregated APIs and late answers come without a CRD change.
const LOOKUP_RETRY_DELAY: Duration = Duration::from_secs(10);

/// The way in which objects are listed.
#[derive(Debug, Clone, Copy)]
enum Lists {
    /// Objects come as events of the watch.
    Streaming,
    /// Objects come page by page.
    Pages,
}

/// A watch of the objects of one kind within a scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watch {
    pub kind: Kind,
    /// The objects of the kind that are watched.
    pub scope: Scope,
}

/// The parts of the host that a watch needs.
#[derive(Clone)]
pub struct Context {
    /// The cluster that the objects come from.
    pub cluster: Cluster,
    /// The other clusters.
    pub clusters: Clusters,
    /// The stores that the objects go to.
    pub stores: Stores,
    /// A counter that increases with each change of a CRD.
    pub crds: latest::Receiver<u64>,
    /// The metrics in which failures are counted.
    pub metrics: Metrics,
    /// The rights, which are renewed when an account is denied a watch.
    pub access: Access,
    /// Told how the watch goes on, if it is in another cluster.
    pub(crate) health: Option<Arc<Health>>,
    /// Called when a store has grown: see [`Feed::has_grown`].
    pub grown: Arc<dyn Fn(&Watch) + Send + Sync>,
}

/// The reason why a stream of events ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The cluster does not serve the kind.
    NotServed,
    /// The cluster has no streaming lists.
    NoStreamingLists,
    /// The watch delivered an object of another kind.
    Foreign,
}

// === impl Context ===

impl Context {
    fn tell(&self, tell: impl FnOnce(&Health)) {
        if let Some(health) = &self.health {
            tell(health);
        }
    }
}

// === impl Watch ===

impl Watch {
    /// Watches until the feed is closed. Every failure is retried.
    pub async fn run(self, feed: Feed, context: Context) {
        tokio::select! {
            () = feed.over() => {}
            () = self.keep_filling(&feed, context) => {}
        }
    }

    async fn keep_filling(&self, feed: &Feed, mut context: Context) {
        // The store keeps what it needs of all fields.
        let health = context.health.clone();
        let client = Guarded::telling(context.cluster.client(), usize::MAX, health);
        let (mut lists, mut unknown) = (Lists::Streaming, UNKNOWN_KIND_TTL);
        loop {
            match context.cluster.resolve(&self.kind).await {
                Ok(Some(resource)) if !resource.namespaced && self.scope.namespace.is_some() => {
                    // No object is in the scope. The API server knows no such path: readiness would
                    // wait for this list for ever.
                    context.stores.set_known(&self.kind);
                    feed.begin_list();
                    feed.end_list();
                    wait(&mut context.crds).await;
                }
                Ok(Some(resource)) => {
                    let resource = crate::cluster::api_resource(&resource);
                    let span = info_span!("watch", resource = name(&resource));
                    let followed = self.follow(feed, &context, (&client, &resource), lists);
                    match followed.instrument(span).await {
                        End::NoStreamingLists => lists = Lists::Pages,
                        // The watch is restarted, with a back-off if this goes on.
                        End::Foreign => {}
                        End::NotServed => context.cluster.forget(&self.kind.group),
                    }
                }
                Ok(None) => {
                    // Logged once, and not at each new lookup.
                    if !context.stores.is_unknown(&self.kind) {
                        info!(kind = display_kind(&self.kind), "not served, waiting for its CRD");
                    }
                    context.stores.set_unknown(&self.kind, &self.scope);
                    context.tell(Health::works);
                    if self.kind.cluster.is_empty() {
                        wait(&mut context.crds).await;
                    } else {
                        // The definitions of other clusters are not watched.
                        sleep(unknown).await;
                        unknown = unknown.saturating_mul(2).min(MAX_UNKNOWN_KIND_TTL);
                    }
                }
                Err(error) => {
                    warn!(kind = display_kind(&self.kind), error = %format!("{error:#}"), "not resolved");
                    context.stores.set_unavailable(&self.kind, &format!("{error:#}"));
                    context.tell(|health| health.failed(&error));
                    wait(&mut context.crds).await;
                }
            }
        }
    }

    /// Returns whether the watch covers all objects of a kind within a scope.
    pub(crate) fn covers(&self, kind: &Kind, scope: &Scope) -> bool {
        self.kind == *kind && self.scope.covers_scope(scope)
    }

    /// Returns the namespace, name and `resourceVersion` of an object that this watch covers;
    /// `None` if it does not cover the object.
    pub fn version_of(&self, object: &Value) -> Option<(Option<String>, String, String)> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let group = text("/apiVersion")?.rsplit_once('/').map_or("", |(group, _)| group);
        let sees = group == self.kind.group
            && text("/kind") == Some(&self.kind.kind)
            && self.scope.holds(object);
        let version = (
            text("/metadata/namespace"),
            text("/metadata/name")?,
            text("/metadata/resourceVersion")?,
        );
        sees.then(|| (version.0.map(str::to_owned), version.1.to_owned(), version.2.to_owned()))
    }

    async fn follow(
        &self,
        feed: &Feed,
        context: &Context,
        (client, resource): (&Guarded, &ApiResource),
        lists: Lists,
    ) -> End {
        context.stores.set_known(&self.kind);
        let config = self.config(lists);
        if feed.is_metadata_only() {
            let events = client.watch(|client| self.api::<Raw<false>>(client, resource), config);
            self.fill(feed, context, events).await
        } else {
            let events = client.watch(|client| self.api::<Raw<true>>(client, resource), config);
            self.fill(feed, context, events).await
        }
    }

    fn api<K>(&self, client: Client, resource: &ApiResource) -> Api<K>
    where
        K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
    {
        match &self.scope.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, resource),
            None => Api::all_with(client, resource),
        }
    }

    fn config(&self, lists: Lists) -> watcher::Config {
        let mut config = watcher::Config::default();
        match lists {
            Lists::Streaming => config = config.streaming_lists(),
            Lists::Pages => {}
        }
        if !self.scope.labels.is_empty() {
            config = config.labels(&self.scope.labels);
        }
        if let Some(name) = &self.scope.name {
            config = config.fields(&format!("metadata.name={name}"));
        }
        config
    }

    async fn fill<const WHOLE: bool>(
        &self,
        feed: &Feed,
        context: &Context,
        mut events: BoxStream<'_, watcher::Result<Event<Raw<WHOLE>>>>,
    ) -> End {
        while let Some(event) = events.next().await {
            if let Some(end) = self.take(feed, context, event) {
                return end;
            }
            if feed.has_grown() {
                (context.grown)(self);
            }
            // A page brings many objects at once, and each is parsed and indexed.
            tokio::task::yield_now().await;
        }
        End::NotServed
    }

    /// Takes an event. Returns the end of the watch, if it has to end.
    fn take<const WHOLE: bool>(
        &self,
        feed: &Feed,
        context: &Context,
        event: watcher::Result<Event<Raw<WHOLE>>>,
    ) -> Option<End> {
        let (kind, stores) = (&self.kind, &context.stores);
        let object = event.as_ref().ok().and_then(object_of);
        if let Some(foreign) = object.and_then(|object| object.foreign(kind)) {
            // The list that held the object is incomplete: objects that it lacks do not count as
            // deleted.
            context.metrics.watch_restarted(kind);
            warn!(kind = display_kind(kind), error = foreign, "watch failed, trying again");
            stores.set_unavailable(kind, &foreign);
            context.tell(|health| health.failed(&foreign));
            return Some(End::Foreign);
        }
        if let Some(name) = object.and_then(|object| object.misnamed(kind)) {
            // It was not there before either.
            count_as_absent(&display_kind(kind), None, &name, &"its name is invalid");
            return None;
        }
        match &event {
            Ok(Event::Init) => context.tell(Health::lists),
            Ok(Event::InitDone | Event::Apply(_) | Event::Delete(_)) => context.tell(Health::works),
            // The first objects of a list may be all that come.
            Ok(Event::InitApply(_)) | Err(_) => {}
        }
        match event {
            Ok(Event::Init) => feed.begin_list(),
            Ok(Event::InitApply(object)) => feed.list_item(object.object()),
            Ok(Event::InitDone) => feed.end_list(),
            Ok(Event::Apply(object)) => feed.upsert(object.object()),
            Ok(Event::Delete(object)) => feed.delete(object.object()),
            Err(error) => {
                let end = end(&error);
                if end.is_some() {
                    return end;
                }
                if is_forbidden(&error) {
                    // The watch of another account takes over if this account lost the right.
                    context.access.renew_soon();
                } else {
                    // A missing right is told by itself.
                    context.tell(|health| health.failed(&error_chain::without_repeats(&error)));
                }
                context.metrics.watch_restarted(kind);
                debug!(kind = display_kind(kind), %error, "watch failed, trying again");
                stores.set_unavailable(kind, &error.to_string());
            }
        }
        None
    }
}

fn is_forbidden(error: &watcher::Error) -> bool {
    refusal(error).is_some_and(|status| status.code == 403)
}

/// Returns the object of an event, if it has one.
fn object_of<K>(event: &Event<K>) -> Option<&K> {
    match event {
        Event::Apply(object) | Event::Delete(object) | Event::InitApply(object) => Some(object),
        Event::Init | Event::InitDone => None,
    }
}

/// Returns the end of the stream if the error concerns the kind or the server; `None` if the error
/// is transient.
fn end(error: &watcher::Error) -> Option<End> {
    let status = refusal(error)?;
    match status.code {
        404 => Some(End::NotServed),
        400 | 403 | 422 if status.message.contains("sendInitialEvents") => {
            Some(End::NoStreamingLists)
        }
        _ => None,
    }
}

/// Returns the name of a resource for kubectl: `virtualservices.networking.istio.io`.
fn name(resource: &ApiResource) -> String {
    let dot = if resource.group.is_empty() { "" } else { "." };
    format!("{}{dot}{}", resource.plural, resource.group)
}

/// Waits for a change of a CRD, at most [`LOOKUP_RETRY_DELAY`].
async fn wait(crds: &mut latest::Receiver<u64>) {
    // The sender ends only with the host, which ends this task as well.
    let _ = tokio::time::timeout(LOOKUP_RETRY_DELAY, crds.changed()).await;
}

/// Counts `changes` up with each change of a CRD, until the task is ended.
pub async fn run_crds(cluster: Cluster, changes: latest::Sender<u64>) {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let resource = ApiResource::from_gvk(&kind);
    let mut events = lean::all::<false>(&cluster, &resource, None);
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(definition) | Event::Delete(definition)) => {
                // A CRD is named `plural.group`.
                if let Some((_, group)) =
                    definition.metadata.name.as_deref().and_then(|name| name.split_once('.'))
                {
                    cluster.forget(group);
                }
                changes.send_modify(|count| *count += 1);
            }
            Ok(Event::InitDone) => changes.send_modify(|count| *count += 1),
            Ok(Event::Init | Event::InitApply(_)) => {}
            Err(error) => debug!(%error, "watch of CRDs failed, trying again"),
        }
    }
}
