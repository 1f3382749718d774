//! Webhooks of `api-rule` over TLS: admissions one after the other and from several clients, and
//! the conversion of a list of many objects in one review. Client and host are one process; the
//! client makes bodies and reads answers piece by piece, so that what the process grows by is the
//! host's.

use std::{
    fs,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, bail, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use certificate::{Server, issue::issue};
use mortise::local;
use mortise_core::key::NamespacedName;
use mortise_host::{
    host::{Drive, Host, Options as HostOptions, Settings},
    webhooks::{Certificate, Paths, Stop, Webhooks},
};
use mortise_tests::{rules::rule, tls};
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{
    calls::runtime,
    process::{API_THREAD, Memory},
    rules::{Setting, Written},
    swap::millis,
    table::{Table, Times, micros},
};

const HOST: &str = "webhooks.mortise.svc";
const CONVERT: &str = "/convert/default/api-rule";
const ADMIT: &str = "/admit/default/api-rule/original-version";
/// The version that all objects of the list are converted to.
const STORED: &str = "gateway.kyma-project.io/v2alpha1";
const ADMISSIONS: usize = 5_000;
const CLIENTS: usize = 4;
const OBJECTS: usize = 10_000;
const LISTS: usize = 5;
/// The number of the first object of the list: all have as many digits.
const NUMBER: usize = 10_000;
/// The bytes of a body that are written at once.
const CHUNK_BYTES: usize = 64 << 10;
/// Timeout that only a fault reaches.
const DEADLINE: Duration = Duration::from_mins(10);

/// The address of the port, and its certificate's authority.
#[derive(Clone)]
struct Port {
    address: SocketAddr,
    connector: TlsConnector,
}

/// A connection to the port.
struct Client(TlsStream<TcpStream>);

/// Adds the cost of admissions and of conversions.
///
/// # Errors
///
/// Fails if a host or a request fails.
pub(crate) fn run(table: &mut Table) -> anyhow::Result<()> {
    let (serving, hosting, asking) =
        (runtime(1, API_THREAD)?, runtime(2, "host")?, runtime(1, "client")?);
    let result = hosting.block_on(async {
        let stop = Stop::default();
        let setting = Setting::new(0, Written::Alike, serving.handle().clone()).await?;
        let (port, mut tasks, host) = open(&setting, &stop).await?;
        let measured = asking.spawn(measure(port));
        let (one, many, lists, grown) =
            timeout(DEADLINE, measured).await.context("the hooks gave no answer")???;
        let of_times = |times: &Times| {
            format!("{} at the median, {} at p99", micros(times.median()), micros(times.at(99)))
        };
        table.row("an admission of 2 KB", of_times(&one), "p99 < 5 ms");
        table.row(format!("  from {CLIENTS} clients at once"), of_times(&many), "p99 < 5 ms");
        let figure = format!("{}, at most {}", millis(lists.median()), millis(lists.at(100)));
        table.row(format!("{OBJECTS} APIRules in one review"), figure, "< 1500 ms");
        table.row("  the host's memory grows by", format!("{} MiB", grown >> 20), "< 200 MiB");
        stop.closed.cancel();
        tasks.abort_all();
        while tasks.join_next().await.is_some() {}
        host.stop().await?;
        setting.api.stop();
        anyhow::Ok(())
    });
    for threads in [serving, asking] {
        threads.shutdown_background();
    }
    result
}

/// Starts a host that serves the hooks of `api-rule` as the Processor `default/api-rule`.
async fn open(
    setting: &Setting,
    stop: &Stop,
) -> anyhow::Result<(Port, JoinSet<anyhow::Result<()>>, Arc<Host>)> {
    let hour = Duration::from_hours(1);
    #[expect(clippy::disallowed_methods, reason = "certificates are checked against the real time")]
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let hosts = [HOST.to_owned()];
    let issued =
        issue(&Server { hosts: &hosts, from: now.saturating_sub(hour), until: now + hour });
    let issued = issued.map_err(|error| anyhow::anyhow!("{error}"))?;
    let data =
        json!({"tls.crt": STANDARD.encode(&issued.chain), "tls.key": STANDARD.encode(&issued.key)});
    let metadata = json!({"name": "certificate", "namespace": "default"});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data});
    local::apply(&setting.cluster, vec![secret]).await?;
    let mut loaded = setting.loaded.clone();
    loaded.settings =
        Settings { name: Some("api-rule".into()), ..Settings::in_namespace("default") };
    let options = HostOptions { drive: Drive::Caller, ..HostOptions::default() };
    let host = Arc::new(Host::start(&setting.cluster, vec![loaded], &options)?);
    host.drive().settled().await;
    let place = NamespacedName::new("default", "certificate");
    let (mut certificate, kept) = Certificate::watch(setting.cluster.client().clone(), place);
    let mut tasks = JoinSet::new();
    tasks.spawn(kept);
    while certificate.problem().is_some() {
        certificate.changed().await;
    }
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = Port { address: listener.local_addr()?, connector: connector(&issued.authority)? };
    let webhooks = Webhooks::new(&host, Paths::default(), None);
    tasks.spawn(webhooks.serve(listener, certificate.source(), stop.clone()));
    Ok((port, tasks, host))
}

fn connector(authority: &str) -> anyhow::Result<TlsConnector> {
    let config = tls::trusting(authority)?.with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Returns the times of admissions one after the other and at once, those of conversions, and the
/// bytes by which the process grew at most meanwhile.
async fn measure(port: Port) -> anyhow::Result<(Times, Times, Times, usize)> {
    admissions(port.clone(), ADMISSIONS / 10).await?;
    let one = Times::new(admissions(port.clone(), ADMISSIONS).await?);
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(admissions(port.clone(), ADMISSIONS / CLIENTS));
    }
    let mut many = Vec::new();
    while let Some(times) = clients.join_next().await {
        many.extend(times??);
    }
    let process = std::process::id();
    // From now on, the peak is that of the conversions.
    fs::write("/proc/self/clear_refs", "5").context("cannot forget the peak of memory")?;
    let before = Memory::of(process)?.resident();
    let mut lists = Vec::new();
    for _ in 0..LISTS {
        lists.push(port.connect().await?.convert().await?);
    }
    let grown = Memory::of(process)?.peak().saturating_sub(before);
    Ok((one, Times::new(many), Times::new(lists), grown))
}

async fn admissions(port: Port, count: usize) -> anyhow::Result<Vec<Duration>> {
    let mut client = port.connect().await?;
    let mut times = Vec::with_capacity(count);
    for index in 0..count {
        let review = admission(index);
        let start = Instant::now();
        client.send_head(ADMIT, review.len()).await?;
        client.0.write_all(review.as_bytes()).await?;
        let answer = client.answer(r#""patch""#).await?;
        times.push(start.elapsed());
        ensure!(answer == 1, "an object is not marked");
    }
    Ok(times)
}

fn admission(index: usize) -> String {
    let mut object = rule(index);
    object["apiVersion"] = STORED.into();
    let kind =
        json!({"group": "gateway.kyma-project.io", "version": "v2alpha1", "kind": "APIRule"});
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "kind": kind, "name": format!("shop-{index}"), "namespace": "shop",
        "operation": "CREATE", "object": object, "oldObject": null,
        "userInfo": {"username": "jane", "groups": ["people"]},
    }})
    .to_string()
}

/// Returns an APIRule of the list, in v1beta1 or v2, as the API server has it. [`NUMBER`] in it is
/// to be replaced by another number of as many digits.
fn listed(is_old: bool) -> String {
    let mut object = rule(NUMBER);
    if is_old {
        object["apiVersion"] = "gateway.kyma-project.io/v1beta1".into();
        let no_auth = json!([{"handler": "no_auth"}]);
        let jwt = json!([{"handler": "jwt", "config": {"authentications": [
            {"issuer": "https://id.example.com", "jwksUri": "https://id.example.com/jwks.json"},
        ]}}]);
        object["spec"] = json!({
            "host": object["spec"]["hosts"][0],
            "gateway": "kyma-gateway.kyma-system.svc.cluster.local",
            "service": {"name": "orders", "port": 8000},
            "rules": [
                {"path": "/catalogue/.*", "methods": ["GET"], "accessStrategies": no_auth},
                {"path": "/orders/.*", "methods": ["POST", "PUT"], "accessStrategies": jwt},
            ],
        });
    }
    let fields = json!({"f:spec": {".": {}, "f:gateway": {}, "f:hosts": {}, "f:rules": {}}});
    object["metadata"]["uid"] = format!("00000000-0000-0000-0000-0000000{NUMBER}").into();
    object["metadata"]["managedFields"] = json!([{
        "manager": "kubectl", "operation": "Apply", "apiVersion": object["apiVersion"],
        "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields,
    }]);
    object["status"] = json!({"state": "Ready", "description": "Reconciled successfully"});
    object.to_string()
}

// === impl Port ===

impl Port {
    async fn connect(&self) -> anyhow::Result<Client> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let stream = self.connector.connect(ServerName::try_from(HOST)?, stream).await?;
        Ok(Client(stream))
    }
}

// === impl Client ===

impl Client {
    async fn send_head(&mut self, path: &str, length: usize) -> anyhow::Result<()> {
        let head = format!(
            "POST {path}?timeout=30s HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        );
        Ok(self.0.write_all(head.as_bytes()).await?)
    }

    /// Converts the list. Returns the time from the first byte of the question to the last one of
    /// the answer.
    async fn convert(&mut self) -> anyhow::Result<Duration> {
        let request = json!({"uid": "u", "desiredAPIVersion": STORED, "objects": Value::Null});
        let kind = "ConversionReview";
        let review =
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": kind, "request": request});
        let review = review.to_string();
        let (head, tail) = review.split_once("null").context("a review has objects")?;
        let templates = [listed(true), listed(false)];
        let both = templates.iter().map(|template| template.len() + 1).sum::<usize>();
        let objects = both * (OBJECTS / 2) - 1;
        let length = head.len() + 1 + objects + 1 + tail.len();
        let start = Instant::now();
        self.send_head(CONVERT, length).await?;
        let mut piece = format!("{head}[");
        for (index, template) in templates.iter().cycle().take(OBJECTS).enumerate() {
            if index > 0 {
                piece.push(',');
            }
            let number = (NUMBER + index).to_string();
            piece.push_str(&template.replace(&NUMBER.to_string(), &number));
            if piece.len() > CHUNK_BYTES {
                self.0.write_all(piece.as_bytes()).await?;
                piece.clear();
            }
        }
        piece.push(']');
        piece.push_str(tail);
        self.0.write_all(piece.as_bytes()).await?;
        let found = self.answer(&format!(r#"{{"apiVersion":"{STORED}","#)).await?;
        ensure!(found == OBJECTS, "{found} of {OBJECTS} objects are converted");
        Ok(start.elapsed())
    }

    /// Reads an answer. Returns how often a text is in its body.
    async fn answer(&mut self, wanted: &str) -> anyhow::Result<usize> {
        let mut bytes = Vec::new();
        let (end, length) = loop {
            ensure!(self.0.read_buf(&mut bytes).await? > 0, "the connection was closed");
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                let head =
                    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).to_lowercase();
                ensure!(head.starts_with("http/1.1 200"), "{head}");
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                break (end + 4, length.context("an answer has a length")?.parse::<usize>()?);
            }
        };
        bytes.drain(..end);
        let (mut read, mut found) = (bytes.len(), 0);
        loop {
            let text = wanted.as_bytes();
            let mut at = 0;
            while let Some(next) = position(bytes.get(at..).unwrap_or_default(), text) {
                found += 1;
                at += next + text.len();
            }
            if read >= length {
                return if read == length { Ok(found) } else { bail!("an answer is too long") };
            }
            // The text may be cut by the end of what was read.
            bytes.drain(..bytes.len().saturating_sub(text.len() - 1).max(at));
            bytes.reserve(CHUNK_BYTES);
            let more = self.0.read_buf(&mut bytes).await?;
            ensure!(more > 0, "the connection was closed");
            read += more;
        }
    }
}

fn position(within: &[u8], wanted: &[u8]) -> Option<usize> {
    within.windows(wanted.len()).position(|part| part == wanted)
}
