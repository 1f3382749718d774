//! A host with two clusters: objects of one are read, written and watched for objects of the other.

mod exports;
mod faults;
mod killed;
mod lies;
mod swap;
mod world;

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{Request, Response};
use mortise_embedded_api::EmbeddedApi;
use mortise_host::{
    cluster::{
        clusters,
        remote::{Connect, Connected, Refused},
    },
    host::{ClusterGrant, Drive, Host, Options},
};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::{
    CONFIG_MAP, NAMESPACE, Scene, manifest, now, object, outcome, play::Play, scripted, selection,
    text,
};

const SERVER: &str = "https://api.provider.example:6443";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
/// The kubeconfig of a user whose rights are denied when it asks for them.
const DENIED: &str = "denied";

/// Connects every name of a cluster to one API, unless the kubeconfig says something else.
struct To(EmbeddedApi);

impl Connect for To {
    fn connect(&self, _: &str, kubeconfig: &[u8]) -> Result<Connected, Refused> {
        if kubeconfig.starts_with(b"refused") {
            return Err(Refused::new("as the test wants it"));
        }
        let (router, is_denied) = (self.0.router(), kubeconfig == DENIED.as_bytes());
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (router, is_review) = (router.clone(), request.uri().path() == REVIEWS);
            async move {
                if is_denied && is_review {
                    return Ok(Response::new(r#"{"status": {"allowed": false}}"#.into()));
                }
                router.oneshot(request).await
            }
        });
        Ok(Connected { server: SERVER.to_owned(), client: kube::Client::new(service, "default") })
    }
}

fn name() -> String {
    format!("{NAMESPACE}/provider/kubeconfig")
}

fn in_cluster(mut of: Value) -> Value {
    of["cluster"] = json!(name());
    of
}

fn secret(kubeconfig: &str) -> Value {
    let rest = json!({"data": {"kubeconfig": STANDARD.encode(kubeconfig)}});
    object("v1/Secret", "provider", &rest)
}

/// Returns a host whose puppet reads `source` in the other cluster, and applies `copy` there.
async fn started(provider: &EmbeddedApi, kubeconfig: &str) -> (Scene, Host) {
    let any = |mut of: Value| {
        of["cluster"] = json!("*");
        of
    };
    let play = Play::new("puppet")
        .reconciles("objects", &selection(CONFIG_MAP, "play=yes"))
        .reads(&selection("v1/Secret", ""))
        .reads(&any(selection(CONFIG_MAP, "")))
        .writes(&any(selection(CONFIG_MAP, "")), &["create", "update"]);
    let mut scene = Scene::of_play(&play).await;
    let there = |name: &str| {
        let kind = selection(CONFIG_MAP, "")["kind"].clone();
        in_cluster(json!({"kind": kind, "namespace": NAMESPACE, "name": name}))
    };
    let copy = object(CONFIG_MAP, "copy", &json!({"data": {"from": "home"}}));
    let event = json!({"on": there("copy"), "event_type": "Normal", "reason": "Copied", "message": "it is copied"});
    let returns = outcome(&json!({"apply": [in_cluster(manifest(&copy))], "events": [event]}));
    let script = json!({"reads": [{"get": {"ref": there("source")}}], "returns": returns});
    scene.load(&scripted("play", &script.to_string()));
    scene.load(&secret(kubeconfig));
    // The host knows its fields in the other cluster by the uid of this one.
    let system =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}});
    scene.load(&system);
    provider.load(object(CONFIG_MAP, "source", &json!({"data": {"a": "1"}})), true).unwrap();
    let servers = vec![SERVER.to_owned()];
    let granted = [ClusterGrant { servers, namespace: Some(NAMESPACE.to_owned()) }];
    scene.loaded[0].settings.clusters = granted.into();
    let connect = Arc::new(To(provider.clone()));
    let clusters = clusters::Options { connect, servers: [SERVER.parse().unwrap()].into() };
    let options = Options { now: now(), drive: Drive::Host, clusters, ..Options::default() };
    let host = Host::start(&scene.cluster, scene.loaded.clone(), &options).unwrap();
    (scene, host)
}

fn provider() -> EmbeddedApi {
    EmbeddedApi::new(mortise_embedded_api::Options {
        now: now(),
        namespaces: vec![NAMESPACE.into()],
        ..Default::default()
    })
}

fn get(api: &EmbeddedApi, name: &str) -> Option<Value> {
    let mut objects = api.objects().into_iter();
    objects.find(|of| of["kind"] == "ConfigMap" && text(of, "/metadata/name") == name)
}

/// Waits for the next reports until `holds`.
async fn until(host: &Host, what: &str, holds: impl Fn() -> bool) {
    let wait = async {
        while !holds() {
            host.next_report().await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_mins(10), wait).await.expect(what);
}

async fn patch(api: &EmbeddedApi, plural: &str, name: &str, change: &Value) {
    let uri = format!("/api/v1/namespaces/{NAMESPACE}/{plural}/{name}");
    let request = http::Request::patch(uri)
        .header("content-type", "application/merge-patch+json")
        .body(change.to_string().into_bytes().into())
        .unwrap();
    let client = kube::Client::new(api.router(), "default");
    assert!(client.send(request).await.unwrap().status().is_success());
}

#[tokio::test(start_paused = true)]
async fn objects_of_another_cluster_are_read_written_and_watched() {
    let provider = provider();
    let (scene, host) = started(&provider, "right").await;
    until(&host, "the copy is made", || get(&provider, "copy").is_some()).await;
    let copy = get(&provider, "copy").unwrap();
    let manager = text(&copy, "/metadata/managedFields/0/manager").to_owned();
    assert!(manager.starts_with("mortise/"), "{manager}");
    assert_eq!(get(&scene.api, "copy"), None, "nothing is written at home");
    // A change of what was read, and of what was written, triggers a run.
    let runs = host.status()[0].runs;
    patch(&provider, "configmaps", "source", &json!({"data": {"a": "2"}})).await;
    until(&host, "the change is noticed", || host.status()[0].runs > runs).await;
    patch(&provider, "configmaps", "copy", &json!({"data": {"from": "somebody"}})).await;
    until(&host, "the copy is mended", || {
        text(&get(&provider, "copy").unwrap(), "/data/from") == "home"
    })
    .await;
    let status = host.status().remove(0);
    assert_eq!((status.clusters.used, status.clusters.problems), (1, Vec::new()));
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_kubeconfig_that_is_mended_later_is_used_then() {
    let provider = provider();
    let (scene, host) = started(&provider, "refused").await;
    let problems = || host.status()[0].clusters.problems.len();
    until(&host, "the reason is told", || problems() > 0).await;
    assert_eq!(get(&provider, "copy"), None);
    patch(&scene.api, "secrets", "provider", &secret("right")).await;
    until(&host, "the copy is made", || get(&provider, "copy").is_some()).await;
    let watched = || {
        let watches = host.watches().into_iter().filter(|of| !of.kind.cluster.is_empty());
        watches.count()
    };
    assert_eq!(watched(), 1);
    patch(&scene.api, "secrets", "provider", &secret("refused again")).await;
    let runs = host.status()[0].runs;
    until(&host, "the stores are closed", || host.status()[0].runs > runs).await;
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn events_are_sent_to_a_cluster_only_where_its_account_may_write_them() {
    for (kubeconfig, refused, sent) in [(DENIED, vec![name().into()], 0), ("right", vec![], 1)] {
        let provider = provider();
        let (_scene, host) = started(&provider, kubeconfig).await;
        let report = loop {
            let report = host.next_report().await.unwrap();
            if report.changes.iter().any(|of| of.of.name == "copy") {
                break report;
            }
        };
        assert_eq!((report.failure, report.refused_events), (None, refused), "{kubeconfig}");
        let told = provider.objects().iter().filter(|of| of["kind"] == "Event").count();
        assert_eq!(told, sent, "{kubeconfig}");
        host.stop().await.unwrap();
    }
}
