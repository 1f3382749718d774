//! Requests renewals when rights may have changed: watches the metadata of the objects that grant
//! rights, with the host's own account.

use std::collections::HashSet;

use futures::{StreamExt as _, stream};
use kube::{
    api::ApiResource,
    core::GroupVersionKind,
    runtime::watcher::{self, Event},
};
use mortise_core::grant::rights::Rights as _;
use tracing::{debug, warn};

use super::Access;
use crate::cluster::{
    Cluster,
    lean::{self, LeanMetadata},
};

/// The kinds of objects that grant rights: group, kind, plural, and whether they are in a namespace.
const SOURCES: [(&str, &str, &str, bool); 5] = [
    ("rbac.authorization.k8s.io", "Role", "roles", true),
    ("rbac.authorization.k8s.io", "ClusterRole", "clusterroles", false),
    ("rbac.authorization.k8s.io", "RoleBinding", "rolebindings", true),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding", "clusterrolebindings", false),
    ("", "ServiceAccount", "serviceaccounts", true),
];

impl Access {
    /// Requests a renewal at each change of an object that grants rights, until the future is
    /// dropped.
    pub async fn watch_sources(&self) {
        let sources = SOURCES.map(|(group, kind, plural, is_namespaced)| {
            let of = GroupVersionKind::gvk(group, "v1", kind);
            let namespace = self.0.namespace.as_deref().filter(|_| is_namespaced);
            events(self.own(), namespace, &ApiResource::from_gvk_with_plural(&of, plural))
        });
        let mut all = stream::select_all(sources);
        let mut listed = HashSet::new();
        while let Some((kind, event)) = all.next().await {
            match event {
                Ok(Event::Apply(of) | Event::Delete(of)) => {
                    if kind != "ServiceAccount" || self.affects(&of) {
                        self.renew_soon();
                    }
                }
                Ok(Event::InitDone) if listed.insert(kind.clone()) => self.watched_from_now(),
                // After an interruption: the changes during it are not reported one by one.
                Ok(Event::InitDone) => self.renew_soon(),
                Ok(Event::Init | Event::InitApply(_)) => {}
                Err(watcher::Error::InitialListFailed(error)) => late(&kind, &error),
                Err(watcher::Error::WatchStartFailed(error)) if is_refused(&error) => {
                    late(&kind, &error);
                }
                Err(error) => debug!(kind, %error, "a watch of rights failed, trying again"),
            }
        }
    }

    /// Returns whether a `ServiceAccount` is one of a processor.
    fn affects(&self, of: &LeanMetadata) -> bool {
        let (namespace, name) = (of.metadata.namespace.as_deref(), of.metadata.name.as_deref());
        let is_it = |rights: &std::sync::Arc<super::Rights>| {
            let account = rights.account();
            Some(&*account.namespace) == namespace && Some(&*account.name) == name
        };
        self.all().iter().any(is_it)
    }
}

fn late(kind: &str, error: &kube::Error) {
    warn!(kind, %error, "changes of rights are noticed late, after a minute");
}

/// Returns whether the host lacks the right to watch.
fn is_refused(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

fn events(
    own: &Cluster,
    namespace: Option<&str>,
    resource: &ApiResource,
) -> stream::BoxStream<'static, (String, watcher::Result<Event<LeanMetadata>>)> {
    let kind = resource.kind.clone();
    let events = lean::all::<false>(own, resource, namespace);
    events.map(move |event| (kind.clone(), event)).boxed()
}
