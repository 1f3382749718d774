//! A fake registry for tests, which can be made to misbehave. Also a module of the
//! tests' library.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use mortise_core::digest::ModuleDigest as Digest;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpListener,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

/// The CA certificate that has signed the registry's own.
pub const AUTHORITY: &[u8] = include_bytes!("tls/ca.pem");
/// A name of this machine that does not look like one, for what differs between a registry here and
/// one elsewhere. The C library reads it as 127.0.0.1, without a name server; the certificate holds
/// it too.
pub const ALIAS: &str = "0x7f000001";
const CERTIFICATE: &[u8] = include_bytes!("tls/server.pem");
const KEY: &[u8] = include_bytes!("tls/server.key");

/// A request that the registry received.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    /// The path with the query.
    pub target: String,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

/// An answer.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The `Content-Length`, if it differs from the body's.
    pub length: Option<u64>,
    /// The number of bytes sent before the connection is closed; all if absent.
    pub cut: Option<usize>,
    /// The size of a chunk, and the delay after it.
    pub pace: Option<(usize, Duration)>,
}

/// Overrides the answer to a request; `None`: the registry's usual answer.
pub type Mood = Box<dyn Fn(&Request) -> Option<Answer> + Send>;

#[derive(Default)]
struct State {
    blobs: BTreeMap<Digest, Vec<u8>>,
    /// Type and bytes by repository and digest.
    manifests: BTreeMap<(String, Digest), (String, Vec<u8>)>,
    tags: BTreeMap<(String, String), Digest>,
    mood: Option<Mood>,
    seen: Vec<Request>,
}

/// A registry on this machine. Dropping it stops it.
pub struct Fake {
    state: Arc<Mutex<State>>,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    tasks: JoinSet<()>,
}

// === impl Fake ===

impl Fake {
    /// Starts a registry without TLS.
    pub async fn plain() -> Self {
        Self::start(None).await
    }

    /// Starts a registry with TLS.
    pub async fn tls() -> Self {
        Self::start(Some(acceptor())).await
    }

    async fn start(tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::<Mutex<State>>::default();
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, tls.clone(), Arc::clone(&state)));
        Self { state, address, tls, tasks }
    }

    /// Closes the port, and all connections.
    pub async fn stop(&mut self) {
        self.tasks.shutdown().await;
    }

    /// Opens the port again, with the same content.
    pub async fn resume(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.tasks.spawn(accept(listener, self.tls.clone(), Arc::clone(&self.state)));
    }

    /// Opens the port again, with the same content and without TLS.
    pub async fn resume_plain(&mut self) {
        self.tls = None;
        self.resume().await;
    }

    /// Returns host and port.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// Returns another name of the host, and the port.
    pub fn alias(&self) -> String {
        format!("{ALIAS}:{}", self.address.port())
    }

    /// Answers with this override from now on.
    pub fn set_mood(&self, mood: impl Fn(&Request) -> Option<Answer> + Send + 'static) {
        self.state().mood = Some(Box::new(mood));
    }

    /// Removes the override.
    pub fn behave(&self) {
        self.state().mood = None;
    }

    /// Returns the requests received so far.
    pub fn seen(&self) -> Vec<Request> {
        self.state().seen.clone()
    }

    /// Forgets the requests received so far.
    pub fn forget(&self) {
        self.state().seen.clear();
    }

    /// Stores a blob, and returns its digest.
    pub fn put_blob(&self, bytes: &[u8]) -> Digest {
        let digest = Digest::of(bytes);
        self.state().blobs.insert(digest, bytes.to_vec());
        digest
    }

    /// Changes the bytes of a blob, but not its digest.
    pub fn tamper(&self, digest: Digest, change: impl Fn(&mut Vec<u8>)) {
        change(self.state().blobs.get_mut(&digest).unwrap());
    }

    /// Stores a manifest under a tag, and returns its digest.
    pub fn put_manifest(&self, repository: &str, tag: &str, bytes: &[u8]) -> Digest {
        self.state().put(repository, tag, "application/vnd.oci.image.manifest.v1+json", bytes)
    }

    /// Copies the manifest of one tag to another tag, in each repository.
    pub fn copy(&self, from: &str, to: &str) {
        let mut state = self.state();
        let copies = state.tags.iter().filter(|((_, tag), _)| tag == from);
        let copies: Vec<_> = copies
            .map(|((repository, _), digest)| ((repository.clone(), to.to_owned()), *digest))
            .collect();
        state.tags.extend(copies);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl State ===

impl State {
    fn put(&mut self, repository: &str, name: &str, media_type: &str, bytes: &[u8]) -> Digest {
        let digest = Digest::of(bytes);
        let manifest = (media_type.to_owned(), bytes.to_vec());
        self.manifests.insert((repository.to_owned(), digest), manifest);
        if name.parse::<Digest>().is_err() {
            self.tags.insert((repository.to_owned(), name.to_owned()), digest);
        }
        digest
    }

    fn answer(&mut self, request: &Request) -> Answer {
        self.seen.push(request.clone());
        if let Some(answer) = self.mood.as_ref().and_then(|mood| mood(request)) {
            return answer;
        }
        let path = request.target.split('?').next().unwrap_or_default();
        let path = path.strip_prefix("/v2/").unwrap_or_default().to_owned();
        let is_read = matches!(request.method.as_str(), "GET" | "HEAD");
        if let Some((repository, name)) = path.split_once("/manifests/") {
            if is_read {
                return self.manifest(repository, name);
            }
            let media_type = request.headers.get("content-type").cloned().unwrap_or_default();
            self.put(repository, name, &media_type, &request.body);
            return Answer::of(201);
        }
        if request.method == "POST" {
            let location = format!("/v2/{path}upload?state=x");
            return Answer::of(202).header("location", &location);
        }
        if request.method == "PUT" {
            let digest = request.target.split("digest=").nth(1).unwrap_or_default();
            let digest = digest.replace("%3A", ":");
            let found = Digest::of(&request.body);
            if digest.parse() != Ok(found) {
                return Answer::error(400, "DIGEST_INVALID", "another digest");
            }
            self.blobs.insert(found, request.body.clone());
            return Answer::of(201);
        }
        let blob = path.split_once("/blobs/").and_then(|(_, digest)| digest.parse().ok());
        match blob.and_then(|digest| self.blobs.get(&digest)) {
            Some(bytes) => Answer::of(200).body(bytes),
            None => Answer::error(404, "BLOB_UNKNOWN", "no such blob"),
        }
    }

    fn manifest(&self, repository: &str, name: &str) -> Answer {
        let tag = (repository.to_owned(), name.to_owned());
        let digest = name.parse().ok().or_else(|| self.tags.get(&tag).copied());
        let key = digest.map(|digest| (repository.to_owned(), digest));
        match key.as_ref().and_then(|key| self.manifests.get(key)) {
            Some((media_type, bytes)) => Answer::of(200)
                .header("content-type", media_type)
                .header("docker-content-digest", &Digest::of(bytes).to_string())
                .body(bytes),
            None => Answer::error(404, "MANIFEST_UNKNOWN", "manifest unknown"),
        }
    }
}

// === impl Answer ===

impl Answer {
    pub fn of(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    /// Returns an error in the format of the OCI registry API.
    pub fn error(status: u16, code: &str, message: &str) -> Self {
        let body = format!(r#"{{"errors":[{{"code":"{code}","message":"{message}"}}]}}"#);
        Self::of(status).body(body.as_bytes())
    }

    pub fn redirect(to: &str) -> Self {
        Self::of(307).header("location", to)
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn body(self, body: &[u8]) -> Self {
        Self { body: body.to_vec(), ..self }
    }

    async fn send(self, to: &mut (impl AsyncWrite + Unpin), is_head: bool) -> io::Result<()> {
        let length = self.length.unwrap_or(self.body.len() as u64);
        let mut head = format!("HTTP/1.1 {} x\r\ncontent-length: {length}\r\n", self.status);
        for (name, value) in &self.headers {
            head.extend([name, ": ", value, "\r\n"]);
        }
        head.push_str("connection: close\r\n\r\n");
        to.write_all(head.as_bytes()).await?;
        let body = if is_head { &[][..] } else { &self.body };
        let body = &body[..self.cut.unwrap_or(body.len()).min(body.len())];
        let (part, wait) = self.pace.unwrap_or((usize::MAX, Duration::ZERO));
        for part in body.chunks(part.min(body.len()).max(1)) {
            to.write_all(part).await?;
            to.flush().await?;
            tokio::time::sleep(wait).await;
        }
        to.shutdown().await
    }
}

fn acceptor() -> TlsAcceptor {
    let certificate = CertificateDer::from_pem_slice(CERTIFICATE).unwrap();
    let key = PrivateKeyDer::from_pem_slice(KEY).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, state: Arc<Mutex<State>>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        let (tls, state) = (tls.clone(), Arc::clone(&state));
        connections.spawn(async move {
            // A client that disconnects is no failure of the registry.
            let _ = match tls {
                None => serve(stream, &state).await,
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => serve(stream, &state).await,
                    Err(error) => Err(error),
                },
            };
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    state: &Mutex<State>,
) -> io::Result<()> {
    let mut read = Vec::new();
    let end = loop {
        if let Some(end) = read.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break end;
        }
        // The first byte of a TLS handshake: no HTTP request starts with it.
        if stream.read_buf(&mut read).await? == 0 || read.first() == Some(&0x16) {
            return Ok(());
        }
    };
    let mut body = read.split_off(end + 4);
    let head = String::from_utf8_lossy(&read).into_owned();
    let mut lines = head.lines();
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (method, target) = (first.next().unwrap_or_default(), first.next().unwrap_or_default());
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers: BTreeMap<String, String> =
        headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    let length = headers.get("content-length").and_then(|length| length.parse().ok());
    while body.len() < length.unwrap_or(0) {
        if stream.read_buf(&mut body).await? == 0 {
            return Ok(());
        }
    }
    let (method, target) = (method.to_owned(), target.to_owned());
    let request = Request { method, target, headers, body };
    let answer = state.lock().unwrap_or_else(PoisonError::into_inner).answer(&request);
    answer.send(&mut stream, request.method == "HEAD").await
}

/// A proxy that forwards every connection to one address.
pub struct Proxy {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    _tasks: JoinSet<()>,
}

// === impl Proxy ===

impl Proxy {
    pub async fn start(to: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let mut tasks = JoinSet::new();
        let seen = Arc::clone(&asked);
        tasks.spawn(async move {
            loop {
                let Ok((mut stream, _)) = listener.accept().await else { return };
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") && stream.read_buf(&mut head).await.unwrap() > 0
                {
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let first = head.lines().next().unwrap_or_default().replace(" HTTP/1.1", "");
                let key = "proxy-authorization: ";
                let authorization = head.lines().find_map(|line| line.strip_prefix(key));
                seen.lock().unwrap().push(format!("{first} {}", authorization.unwrap_or_default()));
                stream.write_all(b"HTTP/1.1 200 well\r\n\r\n").await.unwrap();
                let mut there = tokio::net::TcpStream::connect(&to).await.unwrap();
                // Either side may close first.
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut there).await;
            }
        });
        Self { address, asked, _tasks: tasks }
    }

    pub fn host(&self) -> String {
        self.address.to_string()
    }

    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}
