//! What stands for a cluster.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use axum::{
    body::Body,
    extract::Request,
    response::{IntoResponse as _, Response},
};
use http::StatusCode;
use mortise::guest::Guest;
use mortise_embedded_api::{EmbeddedApi, Options};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::root;

/// What a method and path are answered, and the credentials that came with them; none: 401.
type Answer = dyn Fn(&str, &str) -> Option<(u16, Value)> + Send + Sync;

/// An API over HTTP, a kubeconfig for it, and a folder of modules.
pub(super) struct Api {
    pub(super) embedded: EmbeddedApi,
    pub(super) address: String,
    folder: TempDir,
    _stop: Option<DropGuard>,
}

impl Api {
    /// One that knows Processors.
    pub(super) async fn start() -> Self {
        let api = EmbeddedApi::new(Options::default());
        for definition in mortise::files::load_all(&[root().join("crds/mortise.dev")]).unwrap() {
            api.load(definition, true).unwrap();
        }
        let (listener, address) = listen().await;
        let stop = CancellationToken::new();
        tokio::spawn({
            let (api, stop) = (api.clone(), stop.clone());
            async move { api.serve(listener, stop).await.unwrap() }
        });
        Self::at(address, api, Some(stop.drop_guard()))
    }

    /// One with the kinds, objects and account of the guest `secret-copy`, a Processor for it, and
    /// its module.
    pub(super) async fn with_secret_copy() -> Self {
        let api = Self::start().await;
        let folders = ["crds/copy.mortise.dev", "guests/secret-copy/examples"];
        let folders = folders.map(|folder| root().join(folder));
        for object in mortise::files::load_all(&folders).unwrap().into_iter().chain(objects()) {
            api.embedded.load(object, true).unwrap();
        }
        std::fs::copy(secret_copy(), api.modules().join("secret-copy.wasm")).unwrap();
        api
    }

    /// As [`Api::with_secret_copy`], with a Processor whose call for one object never ends.
    pub(super) async fn with_hanging_call() -> Self {
        let api = Self::with_secret_copy().await;
        let guest = Guest::open(&root().join("tests/guests/misbehave")).unwrap();
        std::fs::copy(guest.build().unwrap(), api.modules().join("misbehave.wasm")).unwrap();
        let [_, mut processor, ..] = objects();
        processor["spec"]["module"]["path"] = "misbehave.wasm".into();
        processor["spec"]["limits"] = json!({"deadline": "1m"});
        api.embedded.load(processor, true).unwrap();
        let labels = json!({"test": "misbehave"});
        let metadata = json!({"name": "hangs", "namespace": "platform", "labels": labels});
        let hangs = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        api.embedded.load(hangs, true).unwrap();
        api
    }

    /// All objects of a kind.
    pub(super) fn of_kind(&self, kind: &str) -> Vec<Value> {
        let mut objects = self.embedded.objects();
        objects.retain(|object| object["kind"] == kind);
        objects
    }

    /// One that answers as a function says: the method and path, and who asks.
    pub(super) async fn fake(
        answer: impl Fn(&str, &str) -> Option<(u16, Value)> + Send + Sync + 'static,
    ) -> Self {
        let (listener, address) = listen().await;
        let answer: Arc<Answer> = Arc::new(answer);
        let respond = move |request: Request| {
            let answer = Arc::clone(&answer);
            async move { respond(&request, &*answer) }
        };
        let router = axum::Router::new().fallback(respond);
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self::at(address, EmbeddedApi::new(Options::default()), None)
    }

    fn at(address: String, embedded: EmbeddedApi, stop: Option<DropGuard>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("modules")).unwrap();
        let api = Self { embedded, address, folder, _stop: stop };
        api.write_kubeconfig(&json!({}));
        api
    }

    /// Says who the user of the kubeconfig is.
    pub(super) fn write_kubeconfig(&self, user: &Value) {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{}", self.address)}}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "ours"}}],
        });
        std::fs::write(self.kubeconfig(), config.to_string()).unwrap();
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    pub(super) fn modules(&self) -> PathBuf {
        self.folder.path().join("modules")
    }
}

/// The component of `secret-copy`, built once.
fn secret_copy() -> &'static Path {
    static MODULE: OnceLock<PathBuf> = OnceLock::new();
    MODULE.get_or_init(|| Guest::open(&root().join("guests/secret-copy")).unwrap().build().unwrap())
}

/// The Processor, and an account for it that may do everything.
fn objects() -> [Value; 4] {
    let namespaced = |kind: &str, version: &str, more: Value| {
        let mut object = json!({
            "apiVersion": version, "kind": kind, "metadata": {"name": "secret-copy", "namespace": "platform"},
        });
        let (of, more) = (object.as_object_mut().unwrap(), more.as_object().unwrap().clone());
        of.extend(more);
        object
    };
    let rbac = "rbac.authorization.k8s.io/v1";
    let mut account = namespaced("ServiceAccount", "v1", json!({}));
    account["metadata"]["labels"] = json!({"mortise.dev/processor": "secret-copy"});
    let spec = json!({"module": {"path": "secret-copy.wasm"}, "serviceAccountName": "secret-copy"});
    [
        account,
        namespaced("Processor", "mortise.dev/v1alpha1", json!({"spec": spec})),
        json!({
            "apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": "all"},
            "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
        }),
        json!({
            "apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": {"name": "all"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "all"},
            "subjects": [{"kind": "ServiceAccount", "namespace": "platform", "name": "secret-copy"}],
        }),
    ]
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

fn respond(request: &Request, answer: &Answer) -> Response {
    let asked = format!("{} {}", request.method(), request.uri().path());
    let who = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    let (code, body) = answer(&asked, who.unwrap_or_default()).unwrap_or_else(|| {
        let reason = if who.is_some() { "Unauthorized" } else { "Nobody" };
        (401, json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 401, "reason": reason, "message": "Unauthorized"}))
    });
    let status = StatusCode::from_u16(code).unwrap();
    let kind = [("content-type", "application/json")];
    (status, kind, Body::from(body.to_string())).into_response()
}
