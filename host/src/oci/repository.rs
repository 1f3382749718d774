//! The client of one repository in a registry: requests, authentication, validation of answers.

mod challenge;
mod push;
mod referrer;

pub use push::Blob;

use std::{num::IntErrorKind, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, StatusCode,
    header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, RETRY_AFTER},
};
use http_body_util::{BodyExt as _, Empty};
use parking_lot::Mutex;
use ring::digest::{Context, SHA256};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    Credentials, Digest, Error, Reference, Registries,
    artifact::{self, Descriptor, shown},
};
use crate::http::{Address, Answer, Body, Policy};

/// The largest manifest, index or bundle that is read. Registries accept 4 MiB at most.
const MAX_DOCUMENT_BYTES: u64 = 4 << 20;
/// The maximum number of bytes read of an error answer.
const MAX_REFUSAL_BYTES: usize = 16 << 10;
/// The maximum number of redirects.
const MAX_REDIRECTS: usize = 5;
/// The longest `Retry-After` that is respected.
const MAX_RETRY_AFTER: Duration = Duration::from_hours(1);
const DIGEST_HEADER: &str = "docker-content-digest";

/// A repository in a registry. Cheap to create; sends no request until a method is called.
pub struct Repository {
    registries: Registries,
    registry: String,
    name: String,
    credentials: Option<Credentials>,
    /// True if tokens must allow pushing.
    pushes: bool,
    state: Mutex<State>,
}

/// The authentication and the scheme that the registry uses.
#[derive(Debug, Default, Clone)]
struct State {
    /// The header that the registry accepts, and the origin that requested it. It is sent to no
    /// other origin, not even to the same host without TLS.
    authorization: Option<(String, HeaderValue)>,
    /// True if the registry is asked without TLS.
    is_plain: bool,
}

/// The part of a request that is the same in each attempt.
struct Asked<'a> {
    method: Method,
    headers: HeaderMap,
    body: &'a (dyn Fn() -> Body + Send + Sync),
    /// The name of the request in messages.
    what: String,
}

/// The content of a manifest, and its digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    pub digest: Digest,
    pub bytes: Vec<u8>,
}

/// Receives the chunks of a blob in order.
pub trait Sink: Send {
    /// Takes the next chunk.
    fn take(&mut self, part: Bytes) -> impl Future<Output = Result<(), Error>> + Send;
}

// === impl Repository ===

impl Repository {
    pub(super) fn new(
        registries: Registries,
        of: &Reference,
        credentials: Option<Credentials>,
        pushes: bool,
    ) -> Self {
        let state = State { is_plain: registries.is_plain(of.registry()), authorization: None };
        Self {
            registries,
            registry: of.registry().to_owned(),
            name: of.repository().to_owned(),
            credentials,
            pushes,
            state: Mutex::new(state),
        }
    }

    /// Returns the digest of the manifest that a tag, or a digest, names.
    ///
    /// # Errors
    ///
    /// Fails if the registry does not answer, refuses, or has no such manifest.
    pub async fn resolve(&self, name: &str) -> Result<Digest, Error> {
        let asked = Asked::manifest(Method::HEAD, name);
        let answer = self.ask(&self.at(&format!("manifests/{name}"))?, &asked).await?;
        // A registry may omit the header: then the digest of the manifest is computed.
        match answer.header(DIGEST_HEADER).map(str::parse) {
            Some(Ok(digest)) => Ok(digest),
            _ => Ok(self.manifest(name).await?.digest),
        }
    }

    /// Returns the manifest with this tag or digest. The content is checked against the digest.
    ///
    /// # Errors
    ///
    /// Fails as [`Repository::resolve`] does, and for a manifest too large or of another digest.
    pub async fn manifest(&self, name: &str) -> Result<Document, Error> {
        let asked = Asked::manifest(Method::GET, name);
        let mut answer = self.ask(&self.at(&format!("manifests/{name}"))?, &asked).await?;
        let bytes = self.document(&mut answer, &asked.what).await?;
        let digest = Digest::of(&bytes);
        let expected = name.parse().ok().or_else(|| answer.header(DIGEST_HEADER)?.parse().ok());
        if let Some(expected) = expected.filter(|expected| *expected != digest) {
            let (host, asked) = (self.registry.clone(), asked.what);
            return Err(Error::OtherDigest { host, asked, found: digest, expected });
        }
        Ok(Document { digest, bytes })
    }

    /// Returns a small blob.
    ///
    /// # Errors
    ///
    /// Fails as [`Repository::blob`] does.
    pub async fn small_blob(&self, of: &Descriptor) -> Result<Vec<u8>, Error> {
        struct Memory(Vec<u8>);
        impl Sink for Memory {
            async fn take(&mut self, part: Bytes) -> Result<(), Error> {
                self.0.extend_from_slice(&part);
                Ok(())
            }
        }
        let mut memory = Memory(Vec::new());
        self.blob(of, MAX_DOCUMENT_BYTES, &mut memory).await?;
        Ok(memory.0)
    }

    /// Streams the bytes of a blob to a sink. If this succeeds, they match the descriptor; if it
    /// fails, the sink may have received other bytes, or not all.
    ///
    /// # Errors
    ///
    /// Fails for a blob of more than `limit` bytes before any request; if the registry does not
    /// answer, refuses, closes the connection or is too slow; and if length or digest differ.
    pub async fn blob(&self, of: &Descriptor, limit: u64, to: &mut impl Sink) -> Result<(), Error> {
        let what = format!("the blob {}", of.digest);
        if of.size > limit {
            return Err(Error::TooLarge { what, found: of.size, limit });
        }
        let asked = Asked { method: Method::GET, headers: HeaderMap::new(), body: &nothing, what };
        let mut answer = self.ask(&self.at(&format!("blobs/{}", of.digest))?, &asked).await?;
        let (host, asked, expected) = (answer.from.host.clone(), asked.what, of.size);
        let length = answer.header(CONTENT_LENGTH.as_str()).and_then(|length| length.parse().ok());
        if let Some(found) = length.filter(|found| *found != expected) {
            return Err(Error::OtherLength { host, asked, found, expected });
        }
        let (start, whole) = (Instant::now(), self.registries.connector.times.whole);
        let (mut digest, mut came) = (Context::new(&SHA256), 0_u64);
        while let Some(part) = answer.next().await {
            let part = match part {
                Ok(part) => part,
                Err(found) => return Err(Error::Truncated { host, asked, came, expected, found }),
            };
            came += part.len() as u64;
            if came > expected {
                return Err(Error::OtherLength { host, asked, found: came, expected });
            }
            digest.update(&part);
            to.take(part).await?;
            let took = start.elapsed();
            if took > whole {
                return Err(Error::TooSlow { host, asked, came, expected, took });
            }
        }
        if came != expected {
            let found = "the answer ended".to_owned();
            return Err(Error::Truncated { host, asked, came, expected, found });
        }
        let found = Digest::finish(digest);
        if found != of.digest {
            return Err(Error::OtherDigest { host, asked, found, expected: of.digest });
        }
        Ok(())
    }

    /// Returns the URL of a path in the repository.
    fn at(&self, path: &str) -> Result<Address, Error> {
        let path = format!("/v2/{}/{path}", self.name);
        let is_tls = !self.state.lock().is_plain;
        let refused = || Error::AddressRefused {
            host: self.registry.clone(),
            found: "it is no host".to_owned(),
        };
        Address::at(is_tls, &self.registry, &path).ok_or_else(refused)
    }

    /// Returns scheme, host and port of the registry.
    #[cfg(test)]
    pub(super) fn origin(&self) -> Option<String> {
        Some(self.at("").ok()?.origin())
    }

    /// Sends a request to the registry itself.
    async fn ask(&self, to: &Address, asked: &Asked<'_>) -> Result<Answer, Error> {
        let policy = Policy { loopback: true, ..Policy::default() };
        match self.ask_from(to, policy, to, asked).await {
            Err(Error::NoTls { .. }) if to.is_tls && to.is_loopback() => {
                // Registries on this machine seldom use TLS.
                let port = Address::at(false, &self.registry, "/").map_or(0, |plain| plain.port);
                let plain = Address { is_tls: false, port, ..to.clone() };
                let answer = self.ask_from(&plain, policy, &plain, asked).await?;
                self.state.lock().is_plain = true;
                Ok(answer)
            }
            answered => answered,
        }
    }

    /// Sends a request to a URL named by `from`, and follows redirects. Credentials are sent only
    /// to the origin of `from`.
    async fn ask_from(
        &self,
        from: &Address,
        mut policy: Policy,
        to: &Address,
        asked: &Asked<'_>,
    ) -> Result<Answer, Error> {
        let (mut to, mut asked_for_token) = (to.clone(), false);
        let mut redirects = 0;
        loop {
            let is_own = to.origin() == from.origin();
            self.check_scheme(&to)?;
            let mut headers = asked.headers.clone();
            let known = self.state.lock().authorization.clone();
            let known = known.filter(|(origin, _)| is_own && *origin == to.origin());
            if let Some((_, authorization)) = known {
                headers.insert(AUTHORIZATION, authorization);
            }
            let has_body = headers.get(CONTENT_LENGTH).is_some_and(|length| length != "0");
            let times = self.registries.connector.times;
            let limit = if has_body { times.whole } else { times.answer };
            let request = (asked.method.clone(), headers, (asked.body)());
            let mut answer = self.registries.connector.send(&to, policy, request, limit).await?;
            policy.loopback &= answer.is_loopback;
            let status = answer.status;
            if status.is_success() {
                return Ok(answer);
            }
            let is_read = matches!(asked.method, Method::GET | Method::HEAD);
            if status == StatusCode::UNAUTHORIZED && is_own && !asked_for_token {
                asked_for_token = true;
                let (is_loopback, headers) = (answer.is_loopback, answer.headers);
                let authorization = self.authorization((&to, is_loopback), &headers).await?;
                self.state.lock().authorization = Some((to.origin(), authorization));
                continue;
            }
            if is_read && status.is_redirection() {
                redirects += 1;
                to = Self::redirected(&answer, redirects, &asked.what)?;
                continue;
            }
            return Err(refused(&mut answer, &asked.what).await);
        }
    }

    /// Returns the target URL of a redirect.
    fn redirected(answer: &Answer, count: usize, what: &str) -> Result<Address, Error> {
        let found = |found: &str| {
            let (host, asked) = (answer.from.host.clone(), what.to_owned());
            Error::Invalid { host, asked, found: found.to_owned() }
        };
        if count > MAX_REDIRECTS {
            return Err(found("it redirects again and again"));
        }
        let location = answer.header("location").and_then(|location| answer.from.join(location));
        let to = location.ok_or_else(|| found("it redirects to no address"))?;
        if answer.from.is_tls && !to.is_tls {
            let found = "a redirect leads to it without TLS".to_owned();
            return Err(Error::AddressRefused { host: to.host, found });
        }
        Ok(to)
    }

    /// Fails for a URL without TLS that is neither loopback nor allowed by an option.
    fn check_scheme(&self, to: &Address) -> Result<(), Error> {
        let is_named =
            self.registries.is_plain(&to.authority()) || self.registries.is_plain(&to.host);
        if to.is_tls || to.is_loopback() || is_named {
            return Ok(());
        }
        let found = "it would be asked without TLS, which --plain-http allows".to_owned();
        Err(Error::AddressRefused { host: to.host.clone(), found })
    }

    /// Reads the body of an answer within the size limit.
    async fn document(&self, answer: &mut Answer, what: &str) -> Result<Vec<u8>, Error> {
        let host = answer.from.host.clone();
        let limit = usize::try_from(MAX_DOCUMENT_BYTES).unwrap_or(usize::MAX);
        let whole = self.registries.connector.times.whole;
        let bytes = answer.all(limit, whole).await;
        let bytes = bytes.map_err(|found| Error::Unreachable { host, found })?;
        let found = bytes.len() as u64;
        if found > MAX_DOCUMENT_BYTES {
            let what = format!("the answer to {what}");
            return Err(Error::TooLarge { what, found, limit: MAX_DOCUMENT_BYTES });
        }
        Ok(bytes.into())
    }

    fn invalid(&self, asked: String, found: String) -> Error {
        Error::Invalid { host: self.registry.clone(), asked, found }
    }
}

// === impl Asked ===

impl Asked<'_> {
    fn manifest(method: Method, name: &str) -> Self {
        let what = format!("{method} manifests/{name}");
        Self { method, headers: accept(artifact::ACCEPTED), body: &nothing, what }
    }
}

fn accept(media_types: &'static str) -> HeaderMap {
    [(ACCEPT, HeaderValue::from_static(media_types))].into_iter().collect()
}

/// Parses a text as a challenge, and as links.
#[cfg(any(test, fuzzing))]
pub(super) fn check_headers(text: &str) {
    challenge::check(text);
    referrer::check(text);
}

pub(super) fn nothing() -> Body {
    Empty::new().map_err(|never| match never {}).boxed()
}

/// Returns the error of an unsuccessful answer, with the registry's own message.
async fn refused(answer: &mut Answer, what: &str) -> Error {
    // Without a body, the error has only the status.
    let body = answer.small(MAX_REFUSAL_BYTES).await.unwrap_or_default();
    let retry_after = answer.header(RETRY_AFTER.as_str()).and_then(retry_after);
    Error::Refused {
        host: answer.from.host.clone(),
        status: answer.status.as_u16(),
        asked: what.to_owned(),
        found: words(&body).map(|words| format!(" ({words})")).unwrap_or_default(),
        retry_after,
    }
}

/// Parses `Retry-After` in seconds. A date counts as no header: the clock of the registry may be
/// wrong.
fn retry_after(header: &str) -> Option<Duration> {
    match header.trim().parse::<u64>() {
        Ok(seconds) => Some(Duration::from_secs(seconds).min(MAX_RETRY_AFTER)),
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => Some(MAX_RETRY_AFTER),
        Err(_) => None,
    }
}

/// Returns code and message of the first error in an answer.
fn words(body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let first = body.get("errors")?.get(0)?;
    let text = |key: &str| first.get(key).and_then(Value::as_str).map(shown);
    let words: Vec<String> = [text("code"), text("message")].into_iter().flatten().collect();
    (!words.is_empty()).then(|| words.join(": "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_puts_a_retry_off_by_an_hour_at_most() {
        let cases = [
            ("7", Some(7)),
            (" 7 ", Some(7)),
            ("0", Some(0)),
            ("3600", Some(3600)),
            ("3601", Some(3600)),
            ("18446744073709551615", Some(3600)),
            ("99999999999999999999999", Some(3600)),
            ("-7", None),
            ("7.5", None),
            ("7 s", None),
            ("Wed, 21 Oct 2026 07:28:00 GMT", None),
            ("", None),
        ];
        for (header, seconds) in cases {
            assert_eq!(retry_after(header), seconds.map(Duration::from_secs), "{header}");
        }
    }
}
