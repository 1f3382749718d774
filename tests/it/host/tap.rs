//! What passes between host and API: counted, and cut off.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    future::{Future, pending},
    sync::{Arc, Mutex},
};

use http::{Method, Request};
use kube::client::Body;
use mortise_embedded_api::EmbeddedApi;
use mortise_host::cluster::Cluster;
use tokio::sync::Notify;
use tower::ServiceExt as _;

/// Sits between one host and the API. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct Tap(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    killed: Notify,
}

#[derive(Default)]
struct State {
    /// The paths that were asked to be watched.
    watches: Vec<String>,
    /// Those of them that were listed for it.
    lists: Vec<String>,
    /// The writes that are on their way, by path.
    on_their_way: BTreeMap<String, usize>,
    most_at_once: usize,
    /// Events do not count.
    writes: usize,
    /// What was asked for without the name of an account, as the host itself: method and path.
    own: Vec<String>,
    /// The host does not live to hear the answer to this write.
    last_write: Option<usize>,
}

// === impl Tap ===

impl Tap {
    /// One that kills the host when this many of its writes have been carried out, before the last one is answered: no request
    /// gets through after that, and none is answered.
    pub(super) fn killing_after(writes: usize) -> Self {
        let tap = Self::default();
        tap.0.state.lock().unwrap().last_write = Some(writes);
        tap
    }

    /// The API, behind this tap.
    pub(super) fn cluster(&self, api: &EmbeddedApi) -> Cluster {
        let (tap, router) = (self.clone(), api.router());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (tap, router) = (tap.clone(), router.clone());
            // Each run tells its events anew: a host that died of them would never come any further.
            let is_write =
                request.method() != Method::GET && !request.uri().path().contains("/events");
            let lives = tap.see(&request);
            async move {
                if !lives {
                    return pending().await;
                }
                let path = request.uri().path().to_owned();
                if is_write {
                    tap.begins(&path);
                }
                let answer = router.oneshot(request).await?;
                if is_write {
                    tap.ends(&path);
                }
                if is_write && answer.status().is_success() && tap.wrote() {
                    tap.0.killed.notify_one();
                    return pending().await;
                }
                Ok::<_, Infallible>(answer)
            }
        });
        Cluster::new(kube::Client::new(service, "default"))
    }

    /// Counts a request; says whether the host is still alive.
    fn see(&self, request: &Request<Body>) -> bool {
        let mut state = self.0.state.lock().unwrap();
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        if !request.headers().contains_key("impersonate-user") {
            state.own.push(format!("{} {path}", request.method()));
        }
        if query.contains("watch=") {
            state.watches.push(path.to_owned());
        }
        if query.contains("sendInitialEvents=true") {
            state.lists.push(path.to_owned());
        }
        state.last_write.is_none_or(|last| state.writes < last)
    }

    fn begins(&self, path: &str) {
        let mut state = self.0.state.lock().unwrap();
        let count = state.on_their_way.entry(path.to_owned()).or_default();
        *count += 1;
        let count = *count;
        state.most_at_once = state.most_at_once.max(count);
    }

    fn ends(&self, path: &str) {
        *self.0.state.lock().unwrap().on_their_way.get_mut(path).unwrap() -= 1;
    }

    /// Counts a write that was carried out; says whether the host dies of it.
    fn wrote(&self) -> bool {
        let mut state = self.0.state.lock().unwrap();
        state.writes += 1;
        state.last_write.is_some_and(|last| state.writes >= last)
    }

    /// Waits until the host is dead.
    pub(super) fn killed(&self) -> impl Future<Output = ()> {
        self.0.killed.notified()
    }

    /// How often all objects of a resource, by its plural, were listed.
    pub(super) fn lists(&self, plural: &str) -> usize {
        let state = self.0.state.lock().unwrap();
        state.lists.iter().filter(|path| path.ends_with(&format!("/{plural}"))).count()
    }

    /// How many writes of one object were on their way at once, at most.
    pub(super) fn most_at_once(&self) -> usize {
        self.0.state.lock().unwrap().most_at_once
    }

    /// What the host has asked for with its own rights.
    pub(super) fn own(&self) -> Vec<String> {
        self.0.state.lock().unwrap().own.clone()
    }

    /// How many watches were opened, of all resources.
    pub(super) fn watches(&self) -> usize {
        self.0.state.lock().unwrap().watches.len()
    }

    /// How many lists there were, of all resources.
    pub(super) fn all_lists(&self) -> usize {
        self.0.state.lock().unwrap().lists.len()
    }

    /// How many writes were carried out; events do not count.
    pub(super) fn writes(&self) -> usize {
        self.0.state.lock().unwrap().writes
    }
}
