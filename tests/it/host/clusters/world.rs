//! `kube-bind` between a home and a provider in memory, with a line to the provider that a test
//! can break.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::body::{Body as Answered, Bytes};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{Request, Response, StatusCode};
use kube::client::Body;
use mortise::local;
use mortise_core::write::Clock;
use mortise_embedded_api::EmbeddedApi;
use mortise_host::{
    cluster::{
        clusters,
        remote::{Connect, Connected, Refused},
    },
    host::{ClusterGrant, Drive, Host, Loaded, Options},
    operator::admin::Admin,
};
use mortise_tests::{definitions, loaded, objects_in};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tower::{BoxError, ServiceExt as _};

use super::lies::{Lie, Taken};
use crate::host::{cluster, merge, now, tap::Tap, text};

pub(super) const GUEST: &str = "guests/kube-bind";
pub(super) const CONFIG: &str = r#"{"groups":["example.com"]}"#;
/// The time between two looks at the objects, of a clock that is given.
const STEP: Duration = Duration::from_millis(200);
/// The place of the consumer at the provider, and its namespace for `team`.
pub(super) const PLACE: &str = "kube-bind-example";
pub(super) const TEAM: &str = "kube-bind-example-team";

/// The way in which the provider answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Mode {
    #[default]
    Well,
    /// No connection, with this error.
    Away(&'static str),
    /// No answer.
    Hangs,
    /// Each answer takes this long.
    Slow(Duration),
    /// Each request is refused.
    Refuses(u16),
    /// Lists and watches break off in the middle.
    Cut,
    /// Lists do, and the watches that begin with one.
    CutLists,
    /// Lists and watches of one kind are answered with a lie.
    Lies(Lie),
}

/// The line to the clusters that kubeconfigs name, by their server.
#[derive(Clone, Default)]
pub(super) struct Line(Arc<State>);

#[derive(Default)]
struct State {
    apis: Mutex<Vec<(String, EmbeddedApi)>>,
    mode: Mutex<Mode>,
    /// The token that the clusters accept.
    token: Mutex<String>,
    /// Held by each client.
    clients: Arc<()>,
    /// Counts and ends what is sent to either cluster, if a host is to be killed.
    tap: Mutex<Option<Tap>>,
    /// What was read of lies.
    taken: Taken,
}

/// Two clusters, and what a host between them loads.
pub(super) struct World {
    pub(super) home: EmbeddedApi,
    pub(super) provider: EmbeddedApi,
    pub(super) line: Line,
    pub(super) loaded: Vec<Loaded>,
    now: Clock,
}

// === impl Line ===

impl Line {
    pub(super) fn set(&self, mode: Mode) {
        *self.0.mode.lock().unwrap() = mode;
    }

    /// Accepts this token only.
    pub(super) fn accept(&self, token: &str) {
        token.clone_into(&mut self.0.token.lock().unwrap());
    }

    /// Adds a cluster, by the URL of its server.
    pub(super) fn add(&self, server: &str, api: &EmbeddedApi) {
        self.0.apis.lock().unwrap().push((server.to_owned(), api.clone()));
    }

    /// Returns what was read of lies.
    pub(super) fn taken(&self) -> &Taken {
        &self.0.taken
    }

    /// Returns the number of clients that were made and not dropped.
    pub(super) fn clients(&self) -> usize {
        Arc::strong_count(&self.0.clients) - 1
    }

    async fn answer(
        &self,
        client: kube::Client,
        token: &str,
        request: Request<Body>,
    ) -> Result<Response<Answered>, BoxError> {
        let mode = self.0.mode.lock().unwrap().clone();
        let is_valid = *self.0.token.lock().unwrap() == token;
        let refused = |code: u16| {
            let answer = Response::builder().status(code);
            Ok(answer.body(Answered::from("refused by the test"))?)
        };
        let is_list = request.uri().query().is_some_and(|query| query.contains("limit="));
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch="));
        let has_list = request.uri().query().is_some_and(|query| query.contains("sendInitial"));
        match mode {
            Mode::Away(why) => return Err(why.into()),
            Mode::Hangs => return std::future::pending().await,
            Mode::Refuses(code) => return refused(code),
            _ if !is_valid => return refused(StatusCode::UNAUTHORIZED.as_u16()),
            Mode::Slow(time) => sleep(time).await,
            mode if is_list && matches!(mode, Mode::Cut | Mode::CutLists)
                || is_watch && mode == Mode::Cut
                || has_list && mode == Mode::CutLists =>
            {
                let half = Bytes::from_static(br#"{"type":"ADDED","object":{"metada"#);
                return Ok(Response::new(Answered::from(half)));
            }
            Mode::Lies(lie) => {
                if let Some(answer) = lie.answer(request.uri(), &self.0.taken).await {
                    return Ok(answer);
                }
            }
            Mode::Well | Mode::Cut | Mode::CutLists => {}
        }
        Ok(client.send(request).await?.map(Answered::new))
    }
}

impl Connect for Line {
    fn connect(&self, _: &str, kubeconfig: &[u8]) -> Result<Connected, Refused> {
        let kubeconfig: Value =
            serde_json::from_slice(kubeconfig).map_err(|_| Refused::new("it is no kubeconfig"))?;
        let server = text(&kubeconfig, "/clusters/0/cluster/server").to_owned();
        let token = text(&kubeconfig, "/users/0/user/token").to_owned();
        let apis = self.0.apis.lock().unwrap();
        let api = apis.iter().find(|(of, _)| *of == server).map(|(_, api)| api.clone());
        let api = api.ok_or_else(|| Refused::new("no such server"))?;
        let tap = self.0.tap.lock().unwrap().clone().unwrap_or_default();
        let (line, client) = (self.clone(), tap.client(&api));
        let held = Arc::clone(&self.0.clients);
        let service = tower::service_fn(move |request: Request<Body>| {
            let (line, client, token) = (line.clone(), client.clone(), token.clone());
            let _ = &held;
            async move { line.answer(client, &token, request).await }
        });
        Ok(Connected { server, client: kube::Client::new(service, "default") })
    }
}

// === objects ===

/// The server of a cluster.
pub(super) fn server(name: &str) -> String {
    format!("https://{name}.provider.example:6443")
}

/// Returns the Secret with the kubeconfig of a server and a token.
pub(super) fn secret(server: &str, token: &str) -> Value {
    let kubeconfig = json!({
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "p", "user": "u", "namespace": PLACE}}],
        "clusters": [{"name": "p", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": token}}],
    });
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "provider", "namespace": "kube-bind"},
        "data": {"kubeconfig": STANDARD.encode(kubeconfig.to_string())},
    })
}

pub(super) fn rocket(namespace: &str, name: &str, stages: u64) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Rocket",
        "metadata": {"name": name, "namespace": namespace}, "spec": {"stages": stages},
    })
}

pub(super) fn config_map(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}})
}

/// Puts objects in, definitions first.
pub(super) async fn put(api: &EmbeddedApi, objects: Vec<Value>) {
    let is_definition = |object: &Value| object["kind"] == "CustomResourceDefinition";
    let (definitions, rest): (Vec<_>, Vec<_>) = objects.into_iter().partition(is_definition);
    local::apply(&cluster(api), definitions).await.unwrap();
    for object in rest {
        api.load(object, true).unwrap();
    }
}

/// Sends a request of somebody.
pub(super) async fn send(api: &EmbeddedApi, method: &str, path: &str, body: Option<&Value>) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(
            "content-type",
            if method == "PATCH" { "application/merge-patch+json" } else { "application/json" },
        )
        .body(Answered::from(body.map(Value::to_string).unwrap_or_default()))
        .unwrap();
    let status = api.router().oneshot(request).await.unwrap().status();
    assert!(status.is_success(), "{method} {path}: {status}");
}

pub(super) fn rockets(namespace: &str) -> String {
    format!("/apis/example.com/v1/namespaces/{namespace}/rockets")
}

pub(super) fn find(api: &EmbeddedApi, kind: &str, namespace: &str, name: &str) -> Option<Value> {
    let is_it = |of: &Value| {
        of["kind"] == kind
            && text(of, "/metadata/name") == name
            && text(of, "/metadata/namespace") == namespace
    };
    api.objects().into_iter().find(is_it)
}

// === impl World ===

impl World {
    /// Creates two clusters with the example of the guest, not yet bound.
    pub(super) async fn new() -> Self {
        let (begun, epoch) = (Instant::now(), now()());
        let now: Clock = Arc::new(move || epoch + begun.elapsed());
        let api = || {
            let options = mortise_embedded_api::Options {
                now: Arc::clone(&now),
                namespaces: vec!["default".into(), "kube-system".into()],
                // Memory is compared after many changes.
                history: 100,
                ..Default::default()
            };
            EmbeddedApi::new(options)
        };
        let (home, provider, line) = (api(), api(), Line::default());
        let kinds = definitions(GUEST).unwrap();
        let at_home = kinds.iter().filter(|of| text(of, "/spec/names/kind").contains("Binding"));
        let at_home = at_home.filter(|of| text(of, "/spec/names/kind") != "ClusterBinding");
        put(&home, at_home.cloned().collect()).await;
        put(&provider, kinds).await;
        put(&provider, objects_in("guests/kube-bind/provider").unwrap()).await;
        line.add(&server("a"), &provider);
        line.accept("t");
        let mut bind = loaded(GUEST, CONFIG).await.unwrap();
        let servers = vec![server("*")];
        bind.settings.clusters = [ClusterGrant { servers, namespace: None }].into();
        Self { home, provider, line, loaded: vec![bind], now }
    }

    /// Creates two clusters in which the export is to be bound.
    pub(super) async fn bound() -> Self {
        let world = Self::new().await;
        put(&world.home, objects_in("guests/kube-bind/examples").unwrap()).await;
        put(&world.home, vec![secret(&server("a"), "t")]).await;
        world
    }

    /// Puts in what the provider had at first.
    pub(super) async fn refill(&self) {
        put(&self.provider, objects_in("guests/kube-bind/provider").unwrap()).await;
    }

    pub(super) fn start(&self) -> Host {
        self.start_behind(&Tap::default())
    }

    /// Starts a host whose requests to both clusters go through a tap.
    pub(super) fn start_behind(&self, tap: &Tap) -> Host {
        *self.line.0.tap.lock().unwrap() = Some(tap.clone());
        let connect = Arc::new(self.line.clone());
        let clusters =
            clusters::Options { connect, servers: [server("*").parse().unwrap()].into() };
        let now = Arc::clone(&self.now);
        let options = Options { now, drive: Drive::Host, clusters, ..Options::default() };
        Host::start(&tap.cluster(&self.home), self.loaded.clone(), &options).unwrap()
    }

    /// Waits until `holds`, for at most this time of the given clock.
    pub(super) async fn within(&self, time: Duration, what: &str, holds: impl Fn(&Self) -> bool) {
        let end = Instant::now() + time;
        while !holds(self) {
            assert!(Instant::now() < end, "not within {time:?}: {what}\n{}", self.shown());
            sleep(STEP).await;
        }
    }

    pub(super) fn at_home(&self, name: &str) -> Option<Value> {
        find(&self.home, "Rocket", "team", name)
    }

    pub(super) fn at_provider(&self, name: &str) -> Option<Value> {
        find(&self.provider, "Rocket", TEAM, name)
    }

    /// Returns the conditions of the binding that do not hold, and the warnings at home.
    pub(super) fn told(&self) -> Vec<String> {
        let mut told = Vec::new();
        for object in self.home.objects() {
            let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
            let is_binding = object["kind"] == "APIServiceBinding";
            for of in conditions.into_iter().flatten().filter(|_| is_binding) {
                if of["status"] != "True" {
                    told.push(format!("{}: {}: {}", of["type"], of["reason"], of["message"]));
                }
            }
            if object["kind"] == "Event" && object["type"] == "Warning" {
                told.push(format!("{}: {}", object["reason"], object["message"]));
            }
        }
        told
    }

    /// Returns whether the binding is ready.
    pub(super) fn is_ready(&self, binding: &str) -> bool {
        let binding = find(&self.home, "APIServiceBinding", "", binding);
        let conditions =
            binding.as_ref().and_then(|of| of.pointer("/status/conditions")?.as_array());
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|of| of["type"] == "Ready" && of["status"] == "True")
    }

    fn shown(&self) -> String {
        let all = self.told().join("\n");
        let rockets = |api: &EmbeddedApi| {
            let all = api.objects().into_iter().filter(|of| of["kind"] == "Rocket");
            all.map(|of| of.to_string()).collect::<Vec<_>>().join("\n")
        };
        format!("{all}\nhome: {}\nprovider: {}", rockets(&self.home), rockets(&self.provider))
    }
}

/// Returns whether a host says that it is ready.
pub(super) async fn is_ready(host: &Host) -> bool {
    let request = Request::get("/readyz").body(Answered::empty()).unwrap();
    Admin::of(host).router().oneshot(request).await.unwrap().status().is_success()
}

/// Returns an object with other fields.
pub(super) fn with(mut object: Value, fields: &Value) -> Value {
    merge(&mut object, fields);
    object
}
