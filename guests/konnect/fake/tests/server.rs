//! The server over TLS, and the program.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::{
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use konnect_fake::{Config, Konnect, Server, server::Options};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use serde_json::{Value, json};
use tokio::{net::TcpStream, task::JoinSet};
use tokio_rustls::TlsConnector;

const HOST: &str = "eu.api.konghq.com";
const TOKEN: &str = "kpat_marker";

/// A connection to a server.
struct Client {
    sender: SendRequest<Full<Bytes>>,
    connection: JoinSet<hyper::Result<()>>,
}

async fn server() -> Server {
    Server::start(Konnect::new(Config::default()), Options::default()).await.unwrap()
}

fn tls(authority: &str) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

// === impl Client ===

impl Client {
    async fn connect(address: SocketAddr, authority: &str) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from(HOST).unwrap();
        let stream = tls(authority).connect(name, stream).await.unwrap();
        let (sender, served) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        let mut connection = JoinSet::new();
        connection.spawn(served);
        Self { sender, connection }
    }

    async fn of(server: &Server) -> Self {
        Self::connect(server.address(), server.authority()).await
    }

    async fn try_send(
        &mut self,
        method: &str,
        target: &str,
        body: Vec<u8>,
    ) -> hyper::Result<(u16, Value)> {
        let request = http::Request::builder()
            .method(method)
            .uri(target)
            .header("host", HOST)
            .header("authorization", format!("Bearer {TOKEN}"))
            .body(Full::new(Bytes::from(body)))
            .unwrap();
        let answer = self.sender.send_request(request).await?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await?.to_bytes();
        Ok((status, serde_json::from_slice(&body).unwrap_or_default()))
    }

    async fn send(&mut self, method: &str, target: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        self.try_send(method, target, body).await.unwrap()
    }
}

#[tokio::test]
async fn requests_are_answered_on_a_kept_connection() {
    let server = server().await;
    let mut client = Client::of(&server).await;
    let (status, plane) = client.send("POST", "/v2/control-planes", &json!({"name": "cp"})).await;
    assert_eq!(status, 201);
    let target = "/v2/control-planes?filter%5Bname%5D%5Beq%5D=cp";
    let (_, list) = client.send("GET", target, &Value::Null).await;
    assert_eq!(list["data"], json!([plane]));
    let konnect = server.konnect().lock();
    let entry = konnect.log(1).next().unwrap();
    assert_eq!((entry.host.as_str(), entry.token.as_deref()), (HOST, Some(TOKEN)));
    assert_eq!(entry.query, [("filter[name][eq]".to_owned(), "cp".to_owned())]);
}

#[tokio::test]
async fn the_certificate_is_of_its_own_authority_and_for_its_names() {
    let (server, other) = (server().await, server().await);
    for (authority, name, trusted) in [
        (server.authority(), "us.api.konghq.com", true),
        (server.authority(), "global.api.konghq.tech", true),
        (server.authority(), "api.example", false),
        (other.authority(), HOST, false),
    ] {
        let stream = TcpStream::connect(server.address()).await.unwrap();
        let name = ServerName::try_from(name).unwrap();
        let connected = tls(authority).connect(name.clone(), stream).await;
        assert_eq!(connected.is_ok(), trusted, "{name:?}");
    }
}

#[tokio::test]
async fn connections_are_closed_and_reset_by_faults() {
    let server = server().await;
    let faults = json!([
        {"path": "/control-planes$", "drop": true, "act": true},
        {"path": "/control-planes$", "reset": true},
    ]);
    let mut client = Client::of(&server).await;
    assert_eq!(client.send("POST", "/_faults", &faults).await.0, 204);
    for (is_reset, made) in [(false, 1), (true, 1)] {
        let mut client = Client::of(&server).await;
        let body = br#"{"name": "cp"}"#.to_vec();
        let error = client.try_send("POST", "/v2/control-planes", body).await.unwrap_err();
        let first: &dyn std::error::Error = &error;
        let mut causes = std::iter::successors(Some(first), |error| error.source());
        let reset = causes.any(|cause| {
            let error = cause.downcast_ref::<std::io::Error>();
            error.is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
        });
        assert_eq!(reset, is_reset, "{error:?}");
        assert_eq!(server.konnect().lock().entities("control-planes").len(), made);
    }
}

#[tokio::test]
async fn control_paths_set_faults_change_data_and_list_requests() {
    let server = server().await;
    let mut client = Client::of(&server).await;
    client.send("POST", "/v2/control-planes", &json!({"name": "cp"})).await;
    let changes = json!([
        {"put": "services", "entity": {"name": "s"}},
        {"edit": "services", "name": "s", "set": {"host": "h"}},
    ]);
    assert_eq!(client.send("POST", "/_data", &changes).await, (204, Value::Null));
    assert_eq!(server.konnect().lock().entities("services")[0]["host"], "h");
    let change = json!({"removeControlPlane": "cp"});
    assert_eq!(client.send("POST", "/_data", &change).await.0, 204);
    let faults = json!([{"path": "me$", "status": 500, "body": {"x": 1}}]);
    client.send("POST", "/_faults", &faults).await;
    let (status, body) = client.send("GET", "/v3/organizations/me", &Value::Null).await;
    assert_eq!((status, &body), (500, &json!({"x": 1})));
    let (_, log) = client.send("GET", "/_log?since=1", &Value::Null).await;
    assert_eq!(log.as_array().unwrap().len(), 1, "control paths are not in the log");
    assert_eq!(
        (&log[0]["path"], &log[0]["answer"]["body"], &log[0]["fault"]),
        (&json!("/v3/organizations/me"), &body, &json!(true))
    );
    for (method, path, body) in [
        ("POST", "/_faults", json!([{"path": "("}])),
        ("POST", "/_data", json!({"put": "services"})),
        ("GET", "/_log?since=x", Value::Null),
        ("GET", "/_nothing", Value::Null),
    ] {
        let (status, body) = client.send(method, path, &body).await;
        assert_eq!(status, 400, "{path}: {body}");
        assert!(body["message"].is_string(), "{path}: {body}");
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let server = server().await;
    let mut client = Client::of(&server).await;
    let body = vec![b' '; (1 << 20) + 1];
    // The server may close before the body is sent whole.
    let sent = client.try_send("POST", "/v2/control-planes", body).await;
    assert!(sent.is_err() || sent.is_ok_and(|(status, _)| status == 413));
    assert_eq!(server.konnect().lock().requests(), 0);
}

#[tokio::test]
async fn a_dropped_server_listens_no_more() {
    let server = server().await;
    let mut client = Client::of(&server).await;
    client.send("GET", "/v2/control-planes", &Value::Null).await;
    let address = server.address();
    drop(server);
    assert!(client.connection.join_next().await.is_some(), "the connection ends");
    assert!(TcpStream::connect(address).await.is_err());
}

/// A program that ends with the test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[tokio::test]
async fn the_program_prints_its_grant_and_then_requests() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_konnect-fake"));
    let mut program = Program(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(program.0.stdout.take().unwrap()).lines();
    let first: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    let egress = &first["egress"][0];
    assert_eq!(egress["origin"], "https://*.api.konghq.com");
    let address = egress["connect"].as_str().unwrap().parse().unwrap();
    let mut client = Client::connect(address, egress["caBundle"].as_str().unwrap()).await;
    client.send("POST", "/v2/control-planes?x=secret", &json!({"name": "secret"})).await;
    assert_eq!(lines.next().unwrap().unwrap(), "POST /v2/control-planes 201");
}
