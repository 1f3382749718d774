//! Connections: DNS, address checks, TLS, a proxy; one connection per request.
//!
//! A connection per request costs a handshake, but no connection has to be kept open.

use std::{io, net::IpAddr, pin::Pin, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::{Bytes, BytesMut};
use http::{
    HeaderMap, HeaderValue, Method, Request, StatusCode,
    header::{HOST, PROXY_AUTHORIZATION, USER_AGENT},
};
use http_body_util::{BodyExt as _, Empty, combinators::BoxBody};
use hyper::{body::Frame, client::conn::http1};
use hyper_util::rt::TokioIo;
use mortise_core::error_chain;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::{
    Error, Stream,
    address::Address,
    network::{Network, System},
    resolve::{self, Policy},
    tls,
};

/// The bytes that a connection reads ahead.
const READ_AHEAD_BYTES: usize = 64 << 10;
/// The policy for the proxy, which the operator has chosen: it may be on this machine.
const PROXY: Policy = Policy { loopback: true, literal: false, public: false };
pub(crate) const AGENT: &str = concat!("mortise/", env!("CARGO_PKG_VERSION"));

/// The body of a request.
pub(crate) type Body = BoxBody<Bytes, io::Error>;

type Connection = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

/// The time limits of a request.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// For connecting, including the TLS handshake.
    pub connect: Duration,
    /// For the status and headers of an answer, after the request was sent.
    pub answer: Duration,
    /// Between two chunks of a body.
    pub idle: Duration,
    /// For a whole body.
    pub whole: Duration,
}

/// The settings of connections.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// CA certificates in PEM that are trusted besides the compiled-in ones.
    pub authorities: Option<Vec<u8>>,
    /// The proxy for requests with TLS: `http://proxy.example.com:3128`.
    pub proxy: Option<String>,
    /// The hosts that are asked without the proxy, as `NO_PROXY` names them; `*` for all.
    pub no_proxy: Vec<String>,
    /// The time limits of a request.
    pub times: Times,
}

/// The reason why the options are invalid.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidOptions(String);

/// Sends requests.
pub(crate) struct Connector {
    tls: TlsConnector,
    proxy: Option<Proxy>,
    no_proxy: Vec<String>,
    pub(crate) times: Times,
}

struct Proxy {
    address: Address,
    authorization: Option<HeaderValue>,
}

/// An answer whose body is still to be read. Dropping it closes the connection.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// The address that answered.
    pub(crate) from: Address,
    /// True if the server is on this machine.
    pub(crate) is_loopback: bool,
    body: hyper::body::Incoming,
    connection: Option<Connection>,
    times: Times,
}

// === impl Times ===

impl Default for Times {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            answer: Duration::from_secs(30),
            idle: Duration::from_secs(30),
            whole: Duration::from_mins(10),
        }
    }
}

// === impl Connector ===

impl Connector {
    pub(crate) fn build(options: Options) -> Result<Self, InvalidOptions> {
        Ok(Self {
            tls: tls::build(options.authorities.as_deref()).map_err(InvalidOptions)?,
            proxy: options.proxy.as_deref().map(Proxy::parse).transpose()?,
            no_proxy: options.no_proxy,
            times: options.times,
        })
    }

    /// Sends a request, and returns its answer with the body unread. `limit`: how long sending and
    /// waiting for the headers may take.
    pub(crate) async fn send(
        &self,
        to: &Address,
        policy: Policy,
        (method, headers, body): (Method, HeaderMap, Body),
        limit: Duration,
    ) -> Result<Answer, Error> {
        let host = to.host.as_str();
        let (stream, is_loopback) = self.connect(to, policy).await?;
        let shaken =
            http1::Builder::new().max_buf_size(READ_AHEAD_BYTES).handshake(TokioIo::new(stream));
        let (mut sender, connection) =
            shaken.await.map_err(|error| Error::unreachable(host, &error))?;
        let mut connection: Connection = Box::pin(connection);
        let request = request(to, method, headers, body);
        let request = request.map_err(|error| Error::unreachable(host, &error))?;
        let mut is_over = false;
        let mut answer = std::pin::pin!(sender.send_request(request));
        let answered = async {
            loop {
                tokio::select! {
                    biased;
                    answer = &mut answer => return answer,
                    ended = &mut connection, if !is_over => {
                        is_over = true;
                        ended?;
                    }
                }
            }
        };
        let answer = timeout(limit, answered).await;
        let answer = answer.map_err(|_| Error::late(host, "no answer", limit))?;
        let (head, body) = answer.map_err(|error| Error::unreachable(host, &error))?.into_parts();
        Ok(Answer {
            status: head.status,
            headers: head.headers,
            from: to.clone(),
            is_loopback,
            body,
            connection: (!is_over).then_some(connection),
            times: self.times,
        })
    }

    /// Connects to an address, through the proxy if one is configured for it. Returns also whether
    /// the server is on this machine.
    async fn connect(
        &self,
        to: &Address,
        policy: Policy,
    ) -> Result<(Box<dyn Stream>, bool), Error> {
        let connected = async {
            let proxy = self.proxy.as_ref().filter(|_| to.is_tls && !self.is_direct(to));
            let (stream, is_loopback) = if let Some(proxy) = proxy {
                // The proxy resolves names: only a literal IP address can be checked here.
                if let Ok(ip) = to.host.parse::<IpAddr>() {
                    policy.check(&to.host, ip)?;
                }
                (self.tunnel(proxy, to).await?, false)
            } else {
                open(&System, to, |ip| policy.check(&to.host, ip)).await?
            };
            Ok((tls::secure(&self.tls, to, stream).await?, is_loopback))
        };
        let limit = self.times.connect;
        let connected = timeout(limit, connected).await;
        connected.unwrap_or_else(|_| Err(Error::late(&to.host, "no connection", limit)))
    }

    /// Opens a tunnel to an address through the proxy (CONNECT).
    async fn tunnel(&self, proxy: &Proxy, to: &Address) -> Result<Box<dyn Stream>, Error> {
        let host = proxy.address.host.as_str();
        let (stream, _) =
            open(&System, &proxy.address, |ip| PROXY.check(&proxy.address.host, ip)).await?;
        let stream = tls::secure(&self.tls, &proxy.address, stream).await?;
        let unreachable = |error: hyper::Error| Error::unreachable(host, &error);
        let shaken = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = shaken.map_err(unreachable)?;
        let mut connect = Request::connect(to.authority());
        if let Some(authorization) = &proxy.authorization {
            connect = connect.header(PROXY_AUTHORIZATION, authorization);
        }
        let connect = connect.header(HOST, to.authority()).body(Empty::<Bytes>::new());
        let connect = connect.map_err(|error| Error::unreachable(host, &error))?;
        let asked = async {
            let answer = sender.send_request(connect).await.map_err(unreachable)?;
            let status = answer.status().as_u16();
            if answer.status().is_success() {
                return Ok(hyper::upgrade::on(answer));
            }
            let found = format!("the proxy answers {status} for `{}`", to.authority());
            Err(Error::Unreachable { host: host.to_owned(), found })
        };
        let connection = async { connection.with_upgrades().await.map_err(unreachable) };
        // The connection future ends once it is a tunnel, possibly before the answer is read.
        let (upgraded, ()) = tokio::try_join!(asked, connection)?;
        Ok(Box::new(TokioIo::new(upgraded.await.map_err(unreachable)?)))
    }

    /// Returns whether an address is asked without the proxy.
    fn is_direct(&self, to: &Address) -> bool {
        to.is_loopback() || self.no_proxy.iter().any(|entry| covers(entry, &to.host))
    }
}

/// Resolves the host of an address, checks each IP address, and connects. Returns also whether the
/// server is on this machine.
pub(super) async fn open(
    network: &dyn Network,
    to: &Address,
    check: impl Fn(IpAddr) -> Result<(), Error>,
) -> Result<(Box<dyn Stream>, bool), Error> {
    let host = to.host.as_str();
    let mut failed = None;
    let all = network.addresses(host).await?;
    // A single refused IP address refuses the name: the others may be decoys.
    all.iter().try_for_each(|ip| check(*ip))?;
    for ip in all {
        match network.open((ip, to.port).into()).await {
            Ok(stream) => return Ok((stream, resolve::is_this_machine(ip))),
            Err(error) => failed = Some(Error::unreachable(host, &error)),
        }
    }
    let found = "its name has no address".to_owned();
    Err(failed.unwrap_or_else(|| Error::Unreachable { host: host.to_owned(), found }))
}

/// Returns whether an entry of `NO_PROXY` matches a host: `*`, an address, or a domain.
fn covers(entry: &str, host: &str) -> bool {
    let entry = entry.trim().to_ascii_lowercase();
    let domain = entry.trim_start_matches("*.").trim_start_matches('.');
    let rest = host.strip_suffix(domain);
    entry == "*"
        || !domain.is_empty() && rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

fn request(
    to: &Address,
    method: Method,
    headers: HeaderMap,
    body: Body,
) -> http::Result<Request<Body>> {
    let default = if to.is_tls { 443 } else { 80 };
    let host = to.authority();
    let host = host.strip_suffix(&format!(":{default}")).unwrap_or(&host);
    let mut request = Request::builder()
        .method(method)
        .uri(&to.path_and_query)
        .header(HOST, host)
        .header(USER_AGENT, AGENT)
        .body(body)?;
    request.headers_mut().extend(headers);
    Ok(request)
}

// === impl Proxy ===

impl Proxy {
    fn parse(text: &str) -> Result<Self, InvalidOptions> {
        let invalid = || {
            InvalidOptions(
                "the proxy is no address: `http://HOST:PORT` or `https://HOST:PORT` is accepted, with USER:PASSWORD@ before the host if need be"
                    .to_owned(),
            )
        };
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        let (user, place) =
            rest.rsplit_once('@').map_or((None, rest), |(user, place)| (Some(user), place));
        let address = Address::parse(&format!("{scheme}://{place}")).ok_or_else(invalid)?;
        let authorization = user.map(|user| {
            let text = decoded(user).ok_or_else(invalid)?;
            let header = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(text)));
            let mut header = header.map_err(|_| invalid())?;
            header.set_sensitive(true);
            Ok(header)
        });
        Ok(Self { address, authorization: authorization.transpose()? })
    }
}

/// Decodes percent-encoding: `%41`.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (code, rest) = (part.get(..2)?, part.get(2..)?);
        bytes.push(u8::from_str_radix(code, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    Some(bytes)
}

// === impl Answer ===

impl Answer {
    /// Returns a header as text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Returns the next chunk of the body; `None` at its end.
    pub(crate) async fn next(&mut self) -> Option<Result<Bytes, String>> {
        loop {
            let Ok(frame) = timeout(self.times.idle, self.frame()).await else {
                return Some(Err(format!(
                    "the connection was silent for {} s",
                    self.times.idle.as_secs()
                )));
            };
            match frame? {
                // Trailers are ignored.
                Ok(frame) => {
                    if let Ok(data) = frame.into_data() {
                        return Some(Ok(data));
                    }
                }
                Err(error) => return Some(Err(error_chain::without_repeats(&error))),
            }
        }
    }

    async fn frame(&mut self) -> Option<hyper::Result<Frame<Bytes>>> {
        loop {
            let Some(connection) = &mut self.connection else { return self.body.frame().await };
            tokio::select! {
                biased;
                frame = self.body.frame() => return frame,
                // The body reports the error of a failed connection.
                _ = connection => self.connection = None,
            }
        }
    }

    /// Returns the whole body; only the part read so far if it has more bytes than `limit`. Fails
    /// if it does not end in time.
    pub(crate) async fn all(&mut self, limit: usize, time: Duration) -> Result<BytesMut, String> {
        let all = timeout(time, async {
            let mut all = BytesMut::new();
            while all.len() <= limit
                && let Some(part) = self.next().await
            {
                all.extend_from_slice(&part?);
            }
            Ok(all)
        });
        all.await
            .unwrap_or_else(|_| Err(format!("the answer did not end within {} s", time.as_secs())))
    }

    /// Returns the body of a small answer, as [`Answer::all`], in the time for an answer.
    pub(crate) async fn small(&mut self, limit: usize) -> Result<BytesMut, String> {
        self.all(limit, self.times.answer).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_of_a_proxy_is_in_no_debug_text() {
        let proxy = Proxy::parse("http://user:secret@proxy.example.com:3128").unwrap();
        let header = proxy.authorization.unwrap();
        assert_eq!(header, "Basic dXNlcjpzZWNyZXQ=");
        assert_eq!(format!("{header:?}"), "Sensitive");
    }

    #[test]
    fn no_proxy_entries_match_hosts_domains_and_addresses() {
        let cases = [
            ("example.com", "example.com", true),
            ("example.com", "a.example.com", true),
            (".Example.com", "a.example.com", true),
            ("*.example.com", "a.example.com", true),
            ("example.com", "anexample.com", false),
            ("*", "anything", true),
            ("10.0.0.1", "10.0.0.1", true),
            ("", "example.com", false),
            (".", "example.com", false),
        ];
        for (entry, host, expected) in cases {
            assert_eq!(covers(entry, host), expected, "{entry} {host}");
        }
    }
}
