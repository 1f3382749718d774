//! The port of `--webhooks`: what it answers to reviews, to those that are none, and to those that
//! want to harm it.

mod outside;

pub(crate) use certificate::Issued;

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use certificate::{Server, issue::issue};
use mortise_core::key::NamespacedName;
use mortise_embedded_api::{Fault, Filter};
use mortise_host::{
    host::{Host, Loaded, Options, Settings},
    metrics::Sample,
    reason::Reason,
    webhooks::{Alias, Certificate, Clients, Paths, Stop, Webhooks},
};
use mortise_tests::{guest, tls};
use rustls::{
    ClientConfig,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

const NAME: &str = "webhooks.mortise.svc";
const CONVERT: &str = "/convert/default/hooks";

/// A host that serves the webhooks of the guest `hooks`.
struct Port {
    address: std::net::SocketAddr,
    authority: String,
    stop: Stop,
    tasks: JoinSet<anyhow::Result<()>>,
    host: Arc<Host>,
}

/// An answer: the status and the body.
type Answer = (u16, String);

/// Returns a certificate for a host, valid between these times, in hours from now.
pub(crate) fn issued_for(host: &str, from: i64, until: i64) -> Issued {
    let (hosts, now) = ([host.to_owned()], unix_time().as_secs());
    let at = |hours: i64| Duration::from_secs(now.checked_add_signed(hours * 3600).unwrap());
    issue(&Server { hosts: &hosts, from: at(from), until: at(until) }).unwrap()
}

#[expect(clippy::disallowed_methods, reason = "certificates are checked against the real time")]
fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

/// Returns the Secret `default/certificate` that holds a certificate.
pub(crate) fn secret(of: &Issued) -> Value {
    let data = json!({"tls.crt": STANDARD.encode(&of.chain), "tls.key": STANDARD.encode(&of.key)});
    let metadata = json!({"name": "certificate", "namespace": "default"});
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
}

impl Port {
    async fn open() -> Self {
        Self::open_for(hooks().await).await
    }

    async fn open_for(loaded: Loaded) -> Self {
        Self::open_to(loaded, None).await
    }

    /// Opens a port that answers admissions to these clients only.
    async fn open_to(loaded: Loaded, clients: Option<Clients>) -> Self {
        let issued = issued_for(NAME, -1, 1);
        let api = mortise_embedded_api::EmbeddedApi::new(mortise_embedded_api::Options::default());
        let cluster = super::cluster(&api);
        mortise::local::apply(&cluster, vec![secret(&issued)]).await.unwrap();
        let host = Host::start(&cluster, vec![loaded], &Options::default()).unwrap();
        host.drive().settled().await;
        let (host, stop) = (Arc::new(host), Stop::default());
        let place = NamespacedName::new("default", "certificate");
        let (mut certificate, kept) = Certificate::watch(cluster.client().clone(), place);
        let mut tasks = JoinSet::new();
        tasks.spawn(kept);
        while certificate.problem().is_some() {
            certificate.changed().await;
        }
        let alias: Alias = format!("/old={CONVERT}").parse().unwrap();
        let webhooks = Webhooks::new(&host, Paths::new(vec![alias]).unwrap(), clients);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tasks.spawn(webhooks.serve(listener, certificate.source(), stop.clone()));
        Self { address, authority: issued.authority, stop, tasks, host }
    }

    async fn connect(&self) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from(NAME).unwrap();
        TlsConnector::from(self.client(None)).connect(name, stream).await.unwrap()
    }

    /// Returns the settings of a client, with a certificate and its key in PEM.
    fn client(&self, certificate: Option<&str>) -> Arc<ClientConfig> {
        let config = tls::trusting(&self.authority).unwrap();
        Arc::new(match certificate {
            None => config.with_no_client_auth(),
            Some(pem) => {
                let of = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap();
                config.with_client_auth_cert(vec![of], key).unwrap()
            }
        })
    }

    /// Sends a review with a certificate of the client. Returns `None` if it is refused.
    async fn post_as(&self, certificate: &str, path: &str, body: &str) -> Option<Answer> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (config, name) = (self.client(Some(certificate)), ServerName::try_from(NAME).unwrap());
        let mut stream = TlsConnector::from(config).connect(name, stream).await.ok()?;
        // A client learns that its certificate is refused when it reads.
        let _ = stream.write_all(request(path, body).as_bytes()).await;
        Some(answer(stream).await).filter(|answer| answer.0 != 0)
    }

    /// Sends a request and returns its answer.
    async fn send(&self, head: &str, body: &[u8]) -> Answer {
        let mut stream = self.connect().await;
        let head = format!("{head} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n");
        let length = format!("Content-Length: {}\r\n\r\n", body.len());
        stream.write_all((head + &length).as_bytes()).await.unwrap();
        // An answer may come before all of the body was taken.
        let _ = stream.write_all(body).await;
        answer(stream).await
    }

    async fn post(&self, path: &str, body: &str) -> Answer {
        let mut stream = self.connect().await;
        // An answer may come before all of the body was taken.
        let _ = stream.write_all(request(path, body).as_bytes()).await;
        answer(stream).await
    }
}

fn request(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

async fn answer(mut stream: TlsStream<TcpStream>) -> Answer {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_default(), body.to_owned())
}

/// Loads the guest `hooks` as the Processor `default/hooks`.
pub(crate) async fn hooks() -> Loaded {
    hooks_with("").await
}

/// Loads the guest `hooks` with a configuration.
pub(crate) async fn hooks_with(config: &str) -> Loaded {
    hooks_within(Duration::from_millis(500), config).await
}

/// Loads the guest `hooks` with a deadline of its calls.
async fn hooks_within(deadline: Duration, config: &str) -> Loaded {
    let path = tokio::task::spawn_blocking(|| guest("tests/guests/hooks")).await.unwrap();
    let cache = mortise_tests::code_cache();
    let engine = mortise::local::engine(Some(&cache), false).unwrap();
    let module = std::fs::read(path.unwrap()).unwrap();
    let limits = mortise_host::wasm::Limits { deadline, ..mortise_host::wasm::Limits::default() };
    let processor =
        mortise_host::wasm::Processor::load(&engine, "hooks", module.into(), limits).await.unwrap();
    let settings = Settings { name: Some("hooks".into()), ..Settings::in_namespace("default") };
    Loaded::describe(processor, config, settings).await.unwrap()
}

fn rule(name: &str, version: &str, spec: &Value) -> Value {
    let metadata = json!({
        "name": name, "namespace": "shop", "uid": "1", "managedFields": [{"manager": "kubectl"}],
    });
    json!({
        "apiVersion": format!("example.com/{version}"), "kind": "Rule", "metadata": metadata,
        "spec": spec,
    })
}

fn conversion(to: &str, objects: &[Value]) -> String {
    let request = json!({"uid": "u", "desiredAPIVersion": to, "objects": objects});
    let kind = "ConversionReview";
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": kind, "request": request}).to_string()
}

fn admission(operation: &str, object: &Value, old: &Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "kind": {"group": "example.com", "version": "v1", "kind": "Rule"},
        "name": "a", "namespace": "shop", "operation": operation, "object": object,
        "oldObject": old, "userInfo": {"username": "jane", "groups": ["people"]},
    }})
}

fn response(answer: &Answer) -> Value {
    assert_eq!(answer.0, 200, "{}", answer.1);
    serde_json::from_str::<Value>(&answer.1).unwrap()["response"].clone()
}

/// Returns the definition of Rules, whose conversions a Service of this name is asked for.
fn definition(service: &str, bundle: &str) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = |name: &str| {
        json!({
            "name": name, "served": true, "storage": name == "v1",
            "schema": {"openAPIV3Schema": schema},
        })
    };
    let service = json!({"namespace": "mortise", "name": service, "path": CONVERT, "port": 443});
    let client = json!({"service": service, "caBundle": STANDARD.encode(bundle)});
    let webhook = json!({"clientConfig": client, "conversionReviewVersions": ["v1"]});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "rules.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "rules", "singular": "rule", "kind": "Rule", "listKind": "RuleList"},
            "versions": [version("v1"), version("v2")],
            "conversion": {"strategy": "Webhook", "webhook": webhook},
        },
    })
}

#[tokio::test(start_paused = true)]
async fn a_version_that_waits_for_its_own_conversions_is_counted() {
    let api = mortise_embedded_api::EmbeddedApi::new(mortise_embedded_api::Options::default());
    let cluster = super::cluster(&api);
    mortise::local::apply(&cluster, vec![definition("hooks", "")]).await.unwrap();
    let host = Host::start(&cluster, Vec::new(), &Options::default()).unwrap();
    let loaded = hooks_with(r#"{"reports": true}"#).await;
    let requests = Filter::resource("rules");
    api.faults().inject(Fault::Latency(Duration::from_hours(1)), requests, usize::MAX);
    let mut swap = std::pin::pin!(host.swap(loaded));
    assert_eq!(host.waiting_for_own_conversions(), 0);
    timeout(Duration::from_secs(5), &mut swap).await.unwrap_err();
    assert_eq!(host.waiting_for_own_conversions(), 1, "readiness does not wait for it");
    swap.await.unwrap();
    assert_eq!(host.waiting_for_own_conversions(), 0);
}

/// A certificate may be good, and yet not the one that the API server expects.
#[tokio::test]
async fn callers_that_do_not_accept_the_certificate_are_told() {
    let (issued, other) = (issued_for(NAME, -1, 1), issued_for(NAME, -1, 1));
    let early = issued_for(NAME, 1, 2);
    let api = mortise_embedded_api::EmbeddedApi::new(mortise_embedded_api::Options::default());
    let cluster = super::cluster(&api);
    let apply = async |of: Value| mortise::local::apply(&cluster, vec![of]).await.unwrap();
    apply(secret(&issued)).await;
    apply(definition("webhooks", &issued.authority)).await;
    let host = Arc::new(Host::start(&cluster, vec![hooks().await], &Options::default()).unwrap());
    let place = NamespacedName::new("default", "certificate");
    let (certificate, kept) = Certificate::watch(cluster.client().clone(), place);
    let webhooks = Webhooks::new(&host, Paths::default(), None);
    let mut tasks = JoinSet::new();
    tasks.spawn(kept);
    tasks.spawn(async move {
        webhooks.report_state(certificate).await;
        Ok(())
    });
    let until = async |expected: Option<(&str, &str)>| {
        let mut activity = host.activity();
        let told = async {
            loop {
                let hooks = host.status_of("default/hooks").and_then(|status| status.hooks);
                let is_told = match (&hooks, expected) {
                    (Some(Ok(())), None) => true,
                    (Some(Err(not)), Some((reason, part))) => {
                        not.reason.as_str() == reason && not.message.contains(part)
                    }
                    _ => false,
                };
                if is_told {
                    return;
                }
                activity.changed().await.unwrap();
            }
        };
        let is_told = timeout(Duration::from_secs(30), told).await.is_ok();
        assert!(is_told, "{expected:?}: {:?}", host.status_of("default/hooks").unwrap().hooks);
    };
    until(None).await;
    apply(definition("hooks", &issued.authority)).await;
    let expected =
        "not for `hooks.mortise.svc`, which CustomResourceDefinition `rules.example.com`";
    until(Some(("CertificateOfOtherName", expected))).await;
    apply(definition("webhooks", &other.authority)).await;
    until(Some(("CaBundleInvalid", "does not verify the certificate"))).await;
    apply(definition("webhooks", &(other.authority.clone() + &issued.authority))).await;
    until(None).await;
    apply(secret(&early)).await;
    until(Some(("CertificateInvalid", "not valid yet"))).await;
    apply(secret(&other)).await;
    until(None).await;
}

#[tokio::test]
async fn a_review_is_answered_with_as_many_objects_in_the_version_that_was_asked() {
    let port = Port::open().await;
    let objects: Vec<Value> =
        (0..250).map(|size| rule(&format!("r{size}"), "v1", &json!({"size": size}))).collect();
    let response =
        response(&port.post("/old?timeout=30s", &conversion("example.com/v2", &objects)).await);
    assert_eq!((&response["uid"], &response["result"]["status"]), (&json!("u"), &json!("Success")));
    let expected: Vec<Value> =
        (0..250).map(|size| rule(&format!("r{size}"), "v2", &json!({"length": size}))).collect();
    assert_eq!(response["convertedObjects"], json!(expected));
    let older = conversion("example.com/v2", &objects[..1]).replace(".io/v1\"", ".io/v1beta1\"");
    let answer = port.post(CONVERT, &older).await;
    let answer: Value = serde_json::from_str(&answer.1).unwrap();
    assert_eq!(answer["apiVersion"], "apiextensions.k8s.io/v1beta1");
}

#[tokio::test]
async fn an_admission_allows_changes_or_refuses() {
    let port = Port::open().await;
    let small = rule("a", "v1", &json!({"size": 1}));
    let ask = async |hook: &str, review: &Value| {
        response(&port.post(&format!("/admit/default/hooks/{hook}"), &review.to_string()).await)
    };
    let marked = ask("mark", &admission("CREATE", &small, &Value::Null)).await;
    let patch = STANDARD.decode(marked["patch"].as_str().unwrap()).unwrap();
    let patch: Value = serde_json::from_slice(&patch).unwrap();
    let value = json!({"example.com/marked-by": "jane"});
    assert_eq!(patch, json!([{"op": "add", "path": "/metadata/annotations", "value": value}]));
    assert_eq!((&marked["allowed"], &marked["warnings"]), (&json!(true), &json!(["it is marked"])));
    let deleted = ask("check", &admission("DELETE", &Value::Null, &small)).await;
    assert_eq!(deleted, json!({"uid": "u", "allowed": true}));
    let large = rule("a", "v1", &json!({"size": 11}));
    let refused = ask("check", &admission("UPDATE", &large, &small)).await;
    let status = json!({"code": 422, "message": "spec.size is at most 10"});
    assert_eq!(refused, json!({"uid": "u", "allowed": false, "status": status}));
}

/// The certificate is taken anew when the Secret changes, and one that is of no use changes
/// nothing.
#[tokio::test]
async fn the_certificate_is_that_of_the_secret_and_its_faults_are_told() {
    let api = mortise_embedded_api::EmbeddedApi::new(mortise_embedded_api::Options::default());
    let cluster = super::cluster(&api);
    let now = unix_time();
    let place = NamespacedName::new("default", "certificate");
    let (mut certificate, kept) = Certificate::watch(cluster.client().clone(), place);
    let mut tasks = JoinSet::new();
    tasks.spawn(kept);
    certificate.changed().await;
    let not = certificate.not_served(now).unwrap();
    let expected = "there is no Secret default/certificate";
    assert_eq!((not.reason.as_str(), not.message.as_str()), ("CertificateMissing", expected));
    let apply = async |of: &Value| mortise::local::apply(&cluster, vec![of.clone()]).await.unwrap();
    let old = issued_for(NAME, -2, -1);
    apply(&secret(&old)).await;
    certificate.changed().await;
    let not = certificate.not_served(now).unwrap();
    assert_eq!(not.reason, Reason::CertificateInvalid);
    assert!(not.message.contains("expired"), "{}", not.message);
    let new = issued_for(NAME, -1, 1);
    apply(&secret(&new)).await;
    certificate.changed().await;
    assert_eq!(certificate.not_served(now), None);
    apply(&secret(&Issued { key: old.key, ..new })).await;
    certificate.changed().await;
    let not = certificate.not_served(now).unwrap();
    assert!(not.message.contains("is not that of the certificate"), "{}", not.message);
    assert!((certificate.source())().is_some(), "the former one is served on");
}

#[tokio::test]
async fn requests_without_a_valid_review_are_refused_with_a_reason() {
    let port = Port::open().await;
    let good = conversion("example.com/v2", &[rule("a", "v1", &json!({}))]);
    let deletion = admission("DELETE", &Value::Null, &rule("a", "v1", &json!({})));
    let mut pod = deletion.clone();
    pod["request"]["kind"]["kind"] = json!("Pod");
    let mut connect = deletion.clone();
    connect["request"]["operation"] = json!("CONNECT");
    let mut status = deletion.clone();
    status["request"]["subResource"] = json!("status");
    let check = "/admit/default/hooks/check";
    let cases = [
        (CONVERT, "", 400, "this is no ConversionReview"),
        (CONVERT, "[1", 400, "this is no ConversionReview"),
        (CONVERT, "{}", 400, "a review of kind ConversionReview apiextensions.k8s.io/v1 or"),
        (
            CONVERT,
            &deletion.to_string(),
            400,
            "`AdmissionReview admission.k8s.io/v1`: a review of kind",
        ),
        (
            CONVERT,
            &good.replace("k8s.io/v1", "k8s.io/v2"),
            400,
            "`ConversionReview apiextensions.k8s.io/v2`: a",
        ),
        (check, &good, 400, "a review of kind AdmissionReview admission.k8s.io/v1"),
        (check, &pod.to_string(), 400, "not Pod example.com/v1"),
        (check, &connect.to_string(), 400, "CREATE, UPDATE and DELETE are reviewed"),
        (check, &status.to_string(), 400, "hooks review no subresource"),
        ("/admit/default/hooks/other", &deletion.to_string(), 400, "there are: mark, check"),
        ("/convert/default/other", &good, 503, "no version of processor `default/other`"),
        ("/convert/default", &good, 404, "paths are /convert/NAMESPACE/PROCESSOR"),
        ("/convert/default/hooks?timeout=x", &good, 400, "a duration such as `10s`"),
    ];
    for (path, body, status, expected) in cases {
        let answer = port.post(path, body).await;
        assert!(answer.0 == status && answer.1.contains(expected), "{path} {expected}: {answer:?}");
    }
    let answer = port.send(&format!("GET {CONVERT}"), b"").await;
    assert_eq!(answer.0, 405);
    assert_eq!(port.send(&format!("POST {CONVERT}"), b"{}").await.0, 415, "no content type");
}

/// Each of them takes more memory than its text.
#[tokio::test]
async fn a_review_with_too_many_entries_is_refused_while_it_is_read() {
    let port = Port::open().await;
    let review = conversion("example.com/v2", &[rule("a", "v1", &json!({}))]);
    let objects = format!("\"objects\":[{}", "0,".repeat(900_000));
    let groups = json!(vec![""; 130_000]).to_string();
    let deletion = admission("DELETE", &Value::Null, &rule("a", "v1", &json!({}))).to_string();
    let cases = [
        (CONVERT, review.replace("\"objects\":[", &objects)),
        ("/admit/default/hooks/check", deletion.replace(r#"["people"]"#, &groups)),
    ];
    for (path, body) in cases {
        let (status, message) = port.post(path, &body).await;
        assert_eq!(status, 413, "{path}: {message}");
        assert!(message.contains("where each entry counts 64 more"), "{path}: {message}");
    }
    // A field of the spec is not parsed and counts as text only.
    let zeros = json!({"zeros": vec![0; 130_000]});
    let large = admission("DELETE", &Value::Null, &rule("a", "v1", &zeros)).to_string();
    let (status, message) = port.post("/admit/default/hooks/check", &large).await;
    assert_eq!(status, 200, "{message}");
}

#[tokio::test]
async fn converted_objects_are_bounded_together() {
    let port = Port::open_for(hooks_within(Duration::from_secs(9), "").await).await;
    let of = |at: usize| {
        let spec = if at % 100 < 3 { json!({"do": "swell", "length": 1}) } else { json!({}) };
        rule(&format!("r{at}"), "v2", &spec)
    };
    let ask = async |count: usize| {
        let objects: Vec<Value> = (0..count).map(of).collect();
        port.post(CONVERT, &conversion("example.com/v1", &objects)).await
    };
    let (status, message) = ask(100).await;
    assert_eq!(status, 200, "{message}");
    let (status, message) = ask(300).await;
    let expected = "processor `hooks` returned more than 8";
    assert!(status == 503 && message.contains(expected), "{status} {message}");
}

#[tokio::test]
async fn objects_that_cannot_be_converted_are_told_in_the_review() {
    let port = Port::open().await;
    let convert = async |to: &str, object: Value| {
        let objects = [rule("a", "v1", &json!({})), object];
        response(&port.post(CONVERT, &conversion(to, &objects)).await)
    };
    let good = || rule("b", "v1", &json!({}));
    let cases = [
        (
            "example.com/v3",
            good(),
            "version `v3` of Rule example.com/* is unknown: there are v1, v2",
        ),
        ("example.org/v2", good(), "`Rule example.org/*` is not converted here"),
        (
            "example.com/v2",
            rule("b", "v9", &json!({})),
            "version `v9` of Rule example.com/* is unknown",
        ),
        ("example.com/v2", json!({"kind": "Pod"}), "only Rule example.com/* is accepted here"),
        ("example.com/v2", rule("b", "v1", &json!({"do": "refuse"})), "told to refuse"),
    ];
    for (to, object, expected) in cases {
        let response = convert(to, object).await;
        assert_eq!(response["result"]["status"], "Failure");
        assert_eq!(response["convertedObjects"], json!([]));
        let message = response["result"]["message"].as_str().unwrap();
        assert!(message.contains(expected), "{expected}: {message}");
    }
}

#[tokio::test]
async fn a_bad_component_is_a_503_and_never_a_wrong_object() {
    let port = Port::open().await;
    for (deed, expected) in [
        ("panic", "panicked: told to panic"),
        ("hang", "ran past its limit"),
        ("grow", "the answer of a hook has"),
        ("rename", "metadata.name is another one"),
        ("stay", "wanted are `example.com/v2`"),
    ] {
        let objects = [rule("a", "v1", &json!({"do": deed}))];
        let answer = port.post(CONVERT, &conversion("example.com/v2", &objects)).await;
        assert!(answer.0 == 503 && answer.1.contains(expected), "{deed}: {answer:?}");
    }
    for (deed, expected) in [
        ("refuse", "told to refuse"),
        ("panic", "told to panic"),
        ("rename", "changes metadata.name"),
    ] {
        let review = admission("CREATE", &rule("a", "v1", &json!({"do": deed})), &Value::Null);
        let answer = port.post("/admit/default/hooks/mark", &review.to_string()).await;
        assert!(answer.0 == 503 && answer.1.contains(expected), "{deed}: {answer:?}");
    }
}

#[tokio::test]
async fn the_values_of_a_secret_that_a_hook_has_read_are_masked() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let lines = tracing_subscriber::fmt().with_writer(Arc::new(log.reopen().unwrap())).finish();
    let listening = mortise_core::fixture::listen(lines);
    let port = Port::open_for(hooks_with(r#"{"do": "quote"}"#).await).await;
    let review = admission("CREATE", &rule("a", "v1", &json!({"do": "quote"})), &Value::Null);
    let answer = port.post("/admit/default/hooks/check", &review.to_string()).await;
    drop(listening);
    let logged = std::fs::read_to_string(log.path()).unwrap();
    for said in [answer.1, logged] {
        let is_masked = said.matches("***").count() >= 2 && !said.contains("LS0tLS1CRUdJTi");
        assert!(said.contains("read: ") && is_masked, "{said}");
    }
}

#[tokio::test]
async fn requests_are_counted_by_hook_and_result_and_no_caller_makes_up_labels() {
    let port = Port::open().await;
    let good = |deed: &str| conversion("example.com/v2", &[rule("a", "v1", &json!({"do": deed}))]);
    for body in [good(""), good("refuse"), good("panic"), "{}".to_owned()] {
        port.post(CONVERT, &body).await;
    }
    let large = rule("a", "v1", &json!({"size": 11}));
    let review = admission("CREATE", &large, &Value::Null).to_string();
    for hook in ["mark", "check", "made-up-1", "made-up-2"] {
        port.post(&format!("/admit/default/hooks/{hook}"), &review).await;
    }
    port.post("/convert/default/made-up", &good("")).await;
    let text = port.host.options().metrics.text(&Sample::default()).unwrap();
    let mut found: Vec<&str> =
        text.lines().filter(|line| line.starts_with("mortise_hook_requests_total")).collect();
    found.sort_unstable();
    let line = |hook: &str, result: &str, count: u32| {
        format!(
            r#"mortise_hook_requests_total{{processor="default/hooks",hook="{hook}",result="{result}"}} {count}"#
        )
    };
    let expected = [
        line("admit/check", "refused", 1),
        line("admit/mark", "success", 1),
        line("convert", "failed", 1),
        line("convert", "invalid", 1),
        line("convert", "refused", 1),
        line("convert", "success", 1),
        line("other", "invalid", 2),
    ];
    assert_eq!(found, expected);
}

#[tokio::test]
async fn bodies_are_bounded_whether_they_say_their_size_or_not() {
    let port = Port::open().await;
    let too_large = "Content-Type: application/json\r\nContent-Length: 134217729\r\n\r\n";
    let mut stream = port.connect().await;
    let head = format!("POST {CONVERT} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n");
    stream.write_all((head.clone() + too_large).as_bytes()).await.unwrap();
    let refused = answer(stream).await;
    assert_eq!((refused.0, refused.1.contains("at most 58720256 bytes")), (413, true));
    let mut stream = port.connect().await;
    let chunked = "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all((head + chunked).as_bytes()).await.unwrap();
    let chunk = [b"100000\r\n".to_vec(), vec![b' '; 1 << 20], b"\r\n".to_vec()].concat();
    for _ in 0..58 {
        if stream.write_all(&chunk).await.is_err() {
            break;
        }
    }
    let refused = answer(stream).await;
    assert!(refused.0 == 413 || refused.0 == 0, "closed, or told so: {}", refused.0);
    let good = conversion("example.com/v2", &[rule("a", "v1", &json!({}))]);
    assert_eq!(port.post(CONVERT, &good).await.0, 200, "others are served");
}

#[tokio::test]
async fn without_tls_nothing_is_answered() {
    let port = Port::open().await;
    let mut stream = TcpStream::connect(port.address).await.unwrap();
    stream.write_all(b"POST /convert/default/hooks HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    assert!(!String::from_utf8_lossy(&bytes).contains("HTTP"), "{bytes:?}");
}

/// Clients that connect and say nothing do not keep the API server out.
#[tokio::test]
async fn held_connections_keep_nobody_out() {
    let port = Port::open().await;
    let mut held = Vec::new();
    for _ in 0..600 {
        held.push(TcpStream::connect(port.address).await.unwrap());
    }
    let good = conversion("example.com/v2", &[rule("a", "v1", &json!({}))]);
    let answer = timeout(Duration::from_secs(10), port.post(CONVERT, &good)).await.unwrap();
    assert_eq!(answer.0, 200);
}

/// Clients whose handshakes the server has computed, and that never end them.
#[tokio::test]
async fn handshakes_that_do_not_end_keep_nobody_out() {
    let port = Port::open().await;
    let mut hello = Vec::new();
    let name = ServerName::try_from(NAME).unwrap();
    let mut client = rustls::ClientConnection::new(port.client(None), name).unwrap();
    client.write_tls(&mut hello).unwrap();
    let mut held = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(port.address).await.unwrap();
        stream.write_all(&hello).await.unwrap();
        held.push(stream);
    }
    let good = conversion("example.com/v2", &[rule("a", "v1", &json!({}))]);
    let answer = timeout(Duration::from_secs(4), port.post(CONVERT, &good)).await.unwrap();
    assert_eq!(answer.0, 200);
}

#[tokio::test]
async fn admissions_are_answered_to_clients_with_a_certificate_and_conversions_to_all() {
    const KNOWN: &str = include_str!("webhooks/known-client.pem");
    const OTHER: &str = include_str!("webhooks/other-client.pem");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("authorities.pem");
    std::fs::write(&file, include_str!("webhooks/known-authority.pem")).unwrap();
    let (clients, watch) = Clients::open(file.clone()).unwrap();
    let mut port = Port::open_to(hooks().await, Some(clients)).await;
    port.tasks.spawn(async move {
        watch.await;
        Ok(())
    });
    let good = conversion("example.com/v2", &[rule("a", "v1", &json!({}))]);
    let path = "/admit/default/hooks/check";
    let deletion = admission("DELETE", &Value::Null, &rule("a", "v1", &json!({}))).to_string();
    assert_eq!(port.post(CONVERT, &good).await.0, 200, "kube-apiserver sends none");
    for path in [path, "/admit/default/none/check"] {
        let refused = port.post(path, &deletion).await;
        assert!(refused.0 == 401 && refused.1.contains("--webhook-client-ca"), "{refused:?}");
    }
    assert_eq!(port.post_as(KNOWN, path, &deletion).await.unwrap().0, 200);
    assert_eq!(port.post_as(KNOWN, CONVERT, &good).await.unwrap().0, 200);
    assert_eq!(port.post_as(OTHER, path, &deletion).await, None);

    // Until the file is read again, the former authority counts.
    std::fs::write(&file, include_str!("webhooks/other-authority.pem")).unwrap();
    let changed = async { while port.post_as(OTHER, path, &deletion).await.is_none() {} };
    timeout(Duration::from_mins(1), changed).await.unwrap();
    assert_eq!(port.post_as(KNOWN, path, &deletion).await, None);
}

#[tokio::test]
async fn a_closed_port_still_answers_requests_in_progress() {
    let mut port = Port::open().await;
    let slow = conversion("example.com/v2", &[rule("a", "v1", &json!({"do": "hang"}))]);
    let idle = port.connect().await;
    let mut stream = port.connect().await;
    let head = format!(
        "POST {CONVERT} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
        slow.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // The answer is being made as soon as the server asks for the body.
    let mut asked = [0; 25];
    stream.read_exact(&mut asked).await.unwrap();
    assert_eq!(&asked, b"HTTP/1.1 100 Continue\r\n\r\n");
    port.stop.closed.cancel();
    stream.write_all(slow.as_bytes()).await.unwrap();
    assert_eq!(answer(stream).await.0, 503);
    drop(idle);
    while let Some(ended) = port.tasks.join_next().await {
        if ended.unwrap().is_ok() {
            return;
        }
    }
}
