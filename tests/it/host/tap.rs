//! A tap between host and API, which counts requests and cuts the host off.

use std::{
    collections::{BTreeMap, BTreeSet},
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

/// Forwards the requests of one host to the API. Clones share their state.
#[derive(Clone, Default)]
pub(super) struct Tap(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    killed: Notify,
}

#[derive(Default)]
struct State {
    /// The paths of requested watches.
    watches: Vec<String>,
    /// The paths of watches that began with a list of all objects (`sendInitialEvents`).
    lists: Vec<String>,
    /// The number of writes in progress, by path.
    on_their_way: BTreeMap<String, usize>,
    most_at_once: usize,
    /// Number of writes, without events.
    writes: usize,
    /// Requests of the host as itself, without impersonation: method and path.
    own: Vec<String>,
    /// Requests on behalf of an account: its name, method and path.
    acting: Vec<(String, String)>,
    /// The accounts that the host must not impersonate.
    not_granted: BTreeSet<String>,
    /// The resource whose requests are all refused.
    refused: Option<&'static str>,
    /// The number of the write after which the host is killed, before it gets the answer.
    last_write: Option<usize>,
}

// === impl Tap ===

impl Tap {
    /// Creates a tap that kills the host when this many of its writes have been carried out, before
    /// the last one is answered: no request gets through after that, and none is answered.
    pub(super) fn killing_after(writes: usize) -> Self {
        let tap = Self::default();
        tap.0.state.lock().unwrap().last_write = Some(writes);
        tap
    }

    /// Returns the API behind this tap as a cluster.
    pub(super) fn cluster(&self, api: &EmbeddedApi) -> Cluster {
        Cluster::new(self.client(api))
    }

    /// Returns a client of the API behind this tap.
    pub(super) fn client(&self, api: &EmbeddedApi) -> kube::Client {
        let (tap, router) = (self.clone(), api.router());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (tap, router) = (tap.clone(), router.clone());
            // Each run reports its events anew: a host killed by them would never make progress.
            // Reviews write nothing.
            let path = request.uri().path();
            let is_review = path.ends_with("reviews");
            let is_write =
                request.method() != Method::GET && !is_review && !path.contains("/events");
            let lives = tap.see(&request);
            async move {
                if !lives {
                    return pending().await;
                }
                let request = match tap.answer(request).await {
                    Ok(answer) => return Ok(answer),
                    Err(request) => request,
                };
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
        kube::Client::new(service, "default")
    }

    /// Counts a request; returns whether the host is still alive.
    fn see(&self, request: &Request<Body>) -> bool {
        let mut state = self.0.state.lock().unwrap();
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        let asked = format!("{} {path}", request.method());
        match request.headers().get("impersonate-user") {
            Some(user) => {
                let (_, name) = user.to_str().unwrap().rsplit_once(':').unwrap();
                state.acting.push((name.to_owned(), asked));
            }
            None => state.own.push(asked),
        }
        if query.contains("watch=") {
            state.watches.push(path.to_owned());
        }
        if query.contains("sendInitialEvents=true") {
            state.lists.push(path.to_owned());
        }
        state.last_write.is_none_or(|last| state.writes < last)
    }

    /// Answers requests that must not reach the API: whether the host may impersonate an account,
    /// if that is forbidden, and refused requests. Returns other requests.
    async fn answer(
        &self,
        request: Request<Body>,
    ) -> Result<http::Response<axum::body::Body>, Request<Body>> {
        let path = request.uri().path().to_owned();
        let refused = self.0.state.lock().unwrap().refused;
        if refused.is_some_and(|refused| path.ends_with(refused)) {
            return Ok(http::Response::builder().status(403).body("".into()).unwrap());
        }
        if !path.ends_with("/selfsubjectaccessreviews") {
            return Err(request);
        }
        let (head, body) = request.into_parts();
        let bytes = body.collect_bytes().await.unwrap();
        let mut review: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        let name = review["spec"]["resourceAttributes"]["name"].as_str().unwrap_or_default();
        if !self.0.state.lock().unwrap().not_granted.contains(name) {
            return Err(Request::from_parts(head, Body::from(bytes.to_vec())));
        }
        assert_eq!(review["spec"]["resourceAttributes"]["verb"], "impersonate");
        review["status"] = serde_json::json!({"allowed": false});
        Ok(http::Response::builder().status(201).body(review.to_string().into()).unwrap())
    }

    /// Allows or forbids that the host impersonates an account. The host is not notified.
    pub(super) fn lets_act_as(&self, account: &str, is_granted: bool) {
        let mut state = self.0.state.lock().unwrap();
        if is_granted {
            state.not_granted.remove(account);
        } else {
            state.not_granted.insert(account.to_owned());
        }
    }

    /// Starts or stops refusing every request for a resource.
    pub(super) fn answers_no_more_of(&self, resource: &'static str, is_refused: bool) {
        self.0.state.lock().unwrap().refused = is_refused.then_some(resource);
    }

    /// Returns the requests that the host has sent on behalf of the account of this name.
    pub(super) fn as_account(&self, name: &str) -> Vec<String> {
        let state = self.0.state.lock().unwrap();
        let of_it = state.acting.iter().filter(|(account, _)| account == name);
        of_it.map(|(_, asked)| asked.clone()).collect()
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

    /// Counts a write that was carried out; returns whether the host is killed by it.
    fn wrote(&self) -> bool {
        let mut state = self.0.state.lock().unwrap();
        state.writes += 1;
        state.last_write.is_some_and(|last| state.writes >= last)
    }

    /// Waits until the host is killed.
    pub(super) fn killed(&self) -> impl Future<Output = ()> {
        self.0.killed.notified()
    }

    /// Returns how often all objects of a resource, named by its plural, were listed.
    pub(super) fn lists(&self, plural: &str) -> usize {
        let state = self.0.state.lock().unwrap();
        state.lists.iter().filter(|path| path.ends_with(&format!("/{plural}"))).count()
    }

    /// Returns the maximum number of concurrent writes of one object.
    pub(super) fn most_at_once(&self) -> usize {
        self.0.state.lock().unwrap().most_at_once
    }

    /// Returns the requests that the host has sent as itself.
    pub(super) fn own(&self) -> Vec<String> {
        self.0.state.lock().unwrap().own.clone()
    }

    /// Returns the number of opened watches, of all resources.
    pub(super) fn watches(&self) -> usize {
        self.0.state.lock().unwrap().watches.len()
    }

    /// Returns the number of lists, of all resources.
    pub(super) fn all_lists(&self) -> usize {
        self.0.state.lock().unwrap().lists.len()
    }

    /// Returns the number of writes that were carried out, without events.
    pub(super) fn writes(&self) -> usize {
        self.0.state.lock().unwrap().writes
    }
}
