//! Webhooks of a processor that a real API server calls: a host lists what only it can convert, and
//! with all hosts away everything can still be deleted through the stored version.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    discovery::ApiResource,
};
use mortise_core::key::NamespacedName;
use mortise_host::{
    cluster::Cluster,
    host::{Host, Options},
    operator::admin::Admin,
    webhooks::{Certificate, Paths, Stop, Webhooks},
};
use mortise_tests::cluster;
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::ground::TIMEOUT;
use crate::host::webhooks::{Issued, hooks_with, issued_for, secret};

/// A name of this machine that a certificate can have.
const NAME: &str = "localhost";
const COUNT: usize = 130;

/// A control plane with Rules, and the port that their definition names.
struct Place {
    plane: cluster::Cluster,
    cluster: Cluster,
    issued: Issued,
    /// Nobody listens there before a host is started: a question is refused at once.
    port: u16,
}

/// A host at work.
struct Running {
    host: Arc<Host>,
    stop: Stop,
    tasks: JoinSet<anyhow::Result<()>>,
}

fn definition(stored: &str, conversion: &Value) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = |name: &str| {
        json!({
            "name": name, "served": true, "storage": name == stored, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": schema},
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "rules.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "rules", "singular": "rule", "kind": "Rule", "listKind": "RuleList"},
            "versions": [version("v1"), version("v2")], "conversion": conversion,
        },
    })
}

fn rule(at: usize, version: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": format!("example.com/{version}"), "kind": "Rule",
        "metadata": {"name": format!("r{at}"), "namespace": "default"}, "spec": spec,
    })
}

impl Place {
    /// Returns a place where all Rules are stored in v2, while the processor lists v1.
    async fn new() -> Option<Self> {
        let plane = cluster::own_bare().await.unwrap()?;
        let cluster = Cluster::new(plane.client().await.unwrap());
        plane.install(&[definition("v2", &json!({"strategy": "None"}))]).await.unwrap();
        let issued = issued_for(NAME, -1, 1);
        let rules = (0..COUNT).map(|at| rule(at, "v2", &json!({"length": at})));
        let objects = rules.chain([secret(&issued)]).collect();
        mortise::local::apply(&cluster, objects).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let this = Self { plane, cluster, issued, port };
        this.convert().await;
        Some(this)
    }

    /// Has the API server ask the port for conversions, and store v2 from now on.
    async fn convert(&self) {
        let port = self.port;
        let client = json!({
            "url": format!("https://{NAME}:{port}/convert/default/hooks"),
            "caBundle": STANDARD.encode(&self.issued.authority),
        });
        let webhook = json!({"clientConfig": client, "conversionReviewVersions": ["v1"]});
        let conversion = json!({"strategy": "Webhook", "webhook": webhook});
        self.plane.install(&[definition("v2", &conversion)]).await.unwrap();
        // The API server takes the definition over a moment later.
        timeout(TIMEOUT, async {
            while self.rules("v1").get("r0").await.is_ok() {
                sleep(Duration::from_millis(50)).await;
            }
        })
        .await
        .expect("nobody converts");
    }

    fn rules(&self, version: &str) -> Api<DynamicObject> {
        let (group, kind) = ("example.com".to_owned(), "Rule".to_owned());
        let resource = ApiResource {
            api_version: format!("{group}/{version}"),
            version: version.to_owned(),
            plural: "rules".to_owned(),
            group,
            kind,
        };
        Api::namespaced_with(self.cluster.client().clone(), "default", &resource)
    }

    /// Starts a host with the processor, and serves its port.
    async fn start(&self) -> Running {
        let host = Host::start(&self.cluster, Vec::new(), &Options::default()).unwrap();
        let (host, stop, mut tasks) = (Arc::new(host), Stop::default(), JoinSet::new());
        let place = NamespacedName::new("default", "certificate");
        let (certificate, kept) = Certificate::watch(self.cluster.client().clone(), place);
        tasks.spawn(kept);
        let webhooks = Webhooks::new(&host, Paths::default(), None);
        let listener = TcpListener::bind(("127.0.0.1", self.port)).await.unwrap();
        tasks.spawn(webhooks.serve(listener, certificate.source(), stop.clone()));
        Running { host, stop, tasks }
    }
}

impl Running {
    /// Returns the status of `/readyz`.
    async fn ready(&self) -> bool {
        let client = Client::new(Admin::of(&self.host).router(), "default");
        let request = http::Request::get("/readyz").body(Vec::new()).unwrap();
        client.request_text(request).await.is_ok()
    }

    async fn end(mut self) {
        self.host.stop().await.unwrap();
        self.stop.closed.cancel();
        self.tasks.shutdown().await;
    }
}

fn spec(object: &DynamicObject) -> Value {
    object.data["spec"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_lists_objects_that_it_converts_and_deletion_needs_no_host() {
    let Some(place) = Place::new().await else { return };
    let running = place.start().await;
    // With one slot for reconciles, each holds all of them while the host itself converts what it
    // writes.
    let mut loaded = hooks_with(r#"{"reports": true}"#).await;
    loaded.settings.concurrency = Some(1);
    running.host.swap(loaded).await.unwrap();
    assert!(running.ready().await, "it does not wait for what it converts itself");
    let mut reconciled = std::collections::BTreeSet::new();
    while reconciled.len() < COUNT {
        let report = timeout(TIMEOUT, running.host.next_report()).await.expect("a report").unwrap();
        assert_eq!(report.failure, None);
        reconciled.insert(report.key.name().to_owned());
    }
    let (older, newer) = (place.rules("v1"), place.rules("v2"));
    let list = older.list(&ListParams::default()).await.unwrap();
    assert_eq!(list.items.len(), COUNT);
    assert!(list.items.iter().all(|rule| rule.data["status"] == json!({"done": true})));
    assert_eq!(spec(&older.get("r7").await.unwrap()), json!({"size": 7}));
    assert_eq!(spec(&newer.get("r7").await.unwrap()), json!({"length": 7}));
    // Server-side apply converts what was applied and what others own, several times.
    let applied = Patch::Apply(rule(7, "v1", &json!({"size": 8})));
    let params = PatchParams::apply("other").force();
    #[expect(clippy::disallowed_methods, reason = "what a test writes is no processor's")]
    let answer = older.patch("r7", &params, &applied).await.unwrap();
    assert_eq!(spec(&answer), json!({"size": 8}));
    assert_eq!(spec(&newer.get("r7").await.unwrap()), json!({"length": 8}));
    // A refusal of the processor is told to whoever asks.
    let bad = rule(999, "v1", &json!({"do": "refuse"}));
    let bad = serde_json::from_value(bad).unwrap();
    let error = older.create(&PostParams::default(), &bad).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("told to refuse"), "{error}");
    running.end().await;

    let error = older.get("r7").await.unwrap_err().to_string();
    assert!(error.contains("conversion webhook for example.com/v2, Kind=Rule failed"), "{error}");
    let finalizer = Patch::Merge(json!({"metadata": {"finalizers": ["example.com/held"]}}));
    #[expect(clippy::disallowed_methods, reason = "what a test writes is no processor's")]
    newer.patch("r1", &PatchParams::default(), &finalizer).await.unwrap();
    for at in 0..COUNT {
        // r7 has fields that a manager owns in v1: they need no conversion in a deletion.
        newer.delete(&format!("r{at}"), &DeleteParams::default()).await.unwrap();
    }
    let released = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    #[expect(clippy::disallowed_methods, reason = "what a test writes is no processor's")]
    newer.patch("r1", &PatchParams::default(), &released).await.unwrap();
    timeout(TIMEOUT, async {
        // An API server that is still busy with what it could not convert may ask to be asked again.
        loop {
            match newer.list(&ListParams::default()).await {
                Ok(left) => return assert_eq!(left.items.len(), 0),
                Err(error) => println!("{error:?}"),
            }
            sleep(Duration::from_millis(50)).await;
        }
    })
    .await
    .expect("the rules are listed");
}
