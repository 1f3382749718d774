//! One connection: a request and its answer, bounded while it is read.
//!
//! The connection has no task of its own. It is driven by the call that uses it, and closed with it:
//! an answer that nobody waits for is not read.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{FutureExt as _, future};
use http::{
    HeaderMap, Request, StatusCode,
    header::{CONTENT_LENGTH, TRANSFER_ENCODING},
    response::Parts,
};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::{Body as _, Frame, Incoming},
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use mortise_core::outbound::Answer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsConnector;

use super::whole;
use crate::http::{Address, Stream, secure};

/// The most headers of an answer, and the largest head in bytes.
pub(crate) const MAX_HEADERS: usize = 100;
pub(crate) const MAX_HEAD_BYTES: usize = 64 << 10;
/// The largest body of an answer, in bytes.
pub(crate) const MAX_BODY_BYTES: usize = 4 << 20;
/// The bytes that may come before the head of an answer has ended: the head and one read beyond it,
/// in records of TLS, and interim answers, of which nothing is kept.
const MAX_BYTES_BEFORE_HEAD: usize = 4 * MAX_HEAD_BYTES;
/// The bytes that may come after it: the body, and how it is cut into chunks and records.
const MAX_BYTES_AFTER_HEAD: usize = 4 * MAX_BODY_BYTES;

type Connection = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

/// A connection on which no request is under way.
pub(super) struct Link {
    sender: SendRequest<Full<Bytes>>,
    /// `None` once it has ended.
    connection: Option<Connection>,
    wire: Arc<Wire>,
}

/// The reason why a request has no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// No byte of the request was sent.
    NotSent(String),
    NoAnswer(String),
    TooLarge,
}

/// The bytes of a connection, below TLS.
#[derive(Debug, Default)]
pub(super) struct Wire {
    /// True if a byte was written since the last request began.
    is_written: AtomicBool,
    /// The bytes that may still be read.
    allowed: AtomicUsize,
    /// True if the other side has sent more.
    is_exceeded: AtomicBool,
}

/// A stream whose bytes are counted.
struct Metered {
    stream: Box<dyn Stream>,
    wire: Arc<Wire>,
}

// === impl Link ===

impl Link {
    /// Performs the handshakes of TLS, if the URL asks for it, and of HTTP. `host` is the URL's.
    pub(super) async fn open(
        stream: Box<dyn Stream>,
        host: Address,
        tls: &TlsConnector,
    ) -> Result<Self, String> {
        let wire = Arc::new(Wire::default());
        wire.begin();
        let metered = Box::new(Metered { stream, wire: Arc::clone(&wire) });
        let secured = secure(tls, &host, metered).await.map_err(|error| whole(&error))?;
        let mut of = http1::Builder::new();
        of.max_buf_size(MAX_HEAD_BYTES).max_header_size(MAX_HEAD_BYTES).max_headers(MAX_HEADERS);
        let shaken = of.handshake(TokioIo::new(secured)).await;
        let (sender, connection) = shaken.map_err(|error| whole(&error))?;
        Ok(Self { sender, connection: Some(Box::pin(connection)), wire })
    }

    pub(super) fn wire(&self) -> &Arc<Wire> {
        &self.wire
    }

    /// Returns whether a request can be sent, as far as is known: the other side has neither closed
    /// the connection nor sent anything that was not asked for.
    pub(super) fn is_ready(&mut self) -> bool {
        let Self { sender, connection: Some(connection), .. } = self else { return false };
        let mut context = Context::from_waker(futures::task::noop_waker_ref());
        let is_over = connection.poll_unpin(&mut context).is_ready();
        !is_over && matches!(sender.poll_ready(&mut context), Poll::Ready(Ok(())))
    }

    /// Sends a request, and reads its answer to the end. Returns also the connection, if it can be
    /// used again.
    pub(super) async fn exchange(
        mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<(Answer, Option<Self>), Failure> {
        self.wire.begin();
        let (head, body) = self.head(request).await?.into_parts();
        check(&head).map_err(Failure::NoAnswer)?;
        self.wire.allow(MAX_BYTES_AFTER_HEAD);
        let headers = headers(&head.headers).ok_or(Failure::TooLarge)?;
        let body = self.body(body).await?;
        let answer = Answer { status: head.status.as_u16(), headers, body };
        let is_ready = self.is_ready();
        Ok((answer, is_ready.then_some(self)))
    }

    /// Sends a request, and waits for the head of its answer.
    async fn head(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<http::Response<Incoming>, Failure> {
        let mut answer = std::pin::pin!(self.sender.try_send_request(request));
        let answer = drive(&mut self.connection, &mut answer).await;
        answer.map_err(|error| self.wire.failed(error.error()))
    }

    async fn body(&mut self, mut body: Incoming) -> Result<Vec<u8>, Failure> {
        if body.size_hint().lower() > MAX_BODY_BYTES as u64 {
            return Err(Failure::TooLarge);
        }
        let mut all = Vec::new();
        while let Some(frame) = drive(&mut self.connection, body.frame()).await {
            let frame: Frame<Bytes> = frame.map_err(|error| self.wire.failed(&error))?;
            // Trailers are ignored.
            let Ok(data) = frame.into_data() else { continue };
            if all.len() + data.len() > MAX_BODY_BYTES {
                return Err(Failure::TooLarge);
            }
            all.extend_from_slice(&data);
        }
        Ok(all)
    }
}

/// Waits for a part of an answer, and drives the connection meanwhile.
async fn drive<T>(connection: &mut Option<Connection>, part: impl Future<Output = T> + Unpin) -> T {
    let Some(driven) = connection else { return part.await };
    match future::select(part, driven).await {
        future::Either::Left((part, _)) => part,
        // The part comes with the error of a connection that has failed.
        future::Either::Right((_, part)) => {
            *connection = None;
            part.await
        }
    }
}

/// Fails for an answer whose end is ambiguous, or that changes the protocol.
fn check(head: &Parts) -> Result<(), String> {
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        return Err("the answer changes the protocol, which was not asked for".to_owned());
    }
    let mut encodings = head.headers.get_all(TRANSFER_ENCODING).iter();
    let Some(encoding) = encodings.next() else { return Ok(()) };
    if head.headers.contains_key(CONTENT_LENGTH) {
        return Err("the answer has both a length and a transfer encoding".to_owned());
    }
    if encodings.next().is_some() || !encoding.as_bytes().eq_ignore_ascii_case(b"chunked") {
        return Err("the answer has a transfer encoding other than chunked".to_owned());
    }
    Ok(())
}

/// Returns the headers as texts; `None` if they are too large then. Bytes that are no text are
/// replaced.
fn headers(of: &HeaderMap) -> Option<Vec<(String, String)>> {
    let mut left = MAX_HEAD_BYTES;
    let text = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        left = left.checked_sub(name.as_str().len() + value.len())?;
        Some((name.as_str().to_owned(), value))
    };
    of.iter().map(text).collect()
}

// === impl Wire ===

impl Wire {
    /// Begins to count for a request.
    fn begin(&self) {
        self.is_written.store(false, Ordering::Relaxed);
        self.allow(MAX_BYTES_BEFORE_HEAD);
    }

    fn allow(&self, bytes: usize) {
        self.allowed.store(bytes, Ordering::Relaxed);
    }

    /// Returns the failure of a request for a reason.
    pub(super) fn failure(&self, why: String) -> Failure {
        if !self.is_written.load(Ordering::Relaxed) {
            Failure::NotSent(why)
        } else if self.is_exceeded.load(Ordering::Relaxed) {
            Failure::TooLarge
        } else {
            Failure::NoAnswer(why)
        }
    }

    fn failed(&self, error: &hyper::Error) -> Failure {
        match self.failure(whole(error)) {
            Failure::NoAnswer(_) if error.is_parse_too_large() => Failure::TooLarge,
            failure => failure,
        }
    }
}

// === impl Metered ===

impl Metered {
    fn written(&self, of: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if matches!(of, Poll::Ready(Ok(1..))) {
            self.wire.is_written.store(true, Ordering::Relaxed);
        }
        of
    }
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let allowed = self.wire.allowed.load(Ordering::Relaxed);
        if allowed == 0 {
            self.wire.is_exceeded.store(true, Ordering::Relaxed);
            return Poll::Ready(Err(io::Error::other("the answer is too large")));
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let count = buffer.filled().len().saturating_sub(before);
        self.wire.allow(allowed.saturating_sub(count));
        read
    }
}

impl AsyncWrite for Metered {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
