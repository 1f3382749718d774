//! Request targets with characters that a URI may not have, such as `?labelSelector=size>3`.
//!
//! Go's HTTP server accepts them, and so does Kubernetes; hyper refuses them before any of our code
//! runs. A connection therefore percent-encodes them in the first line of each request.

use std::{
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The beginnings of the lines that are changed.
const METHODS: [&[u8]; 6] = [b"GET /", b"POST /", b"PUT /", b"PATCH /", b"DELETE /", b"HEAD /"];
/// The number of bytes that are read at once.
const CHUNK_BYTES: usize = 8 * 1024;

/// A listener whose connections accept such targets.
pub(super) struct Tolerant<L>(pub(super) L);

/// A connection that encodes the characters.
pub(super) struct Encoded<S> {
    inner: S,
    place: Place,
    /// Bytes that were read, with encoded characters, and not yet taken.
    waiting: Vec<u8>,
}

/// The part of a request that is read next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The beginning, after an answer: a client sends a request after the answer to the one before.
    Begin,
    /// The first line.
    Line,
    /// Headers and body.
    Rest,
}

// === impl Tolerant ===

impl<L: Listener<Addr = SocketAddr>> Listener for Tolerant<L> {
    type Io = Encoded<L::Io>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let (inner, address) = self.0.accept().await;
        (Encoded { inner, place: Place::Begin, waiting: Vec::new() }, address)
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.0.local_addr()
    }
}

// === impl Encoded ===

impl<S> Encoded<S> {
    fn encode(&mut self, read: &[u8]) {
        if self.place == Place::Begin {
            let is_request = METHODS.iter().any(|method| read.starts_with(method));
            self.place = if is_request { Place::Line } else { Place::Rest };
        }
        for &byte in read {
            match (self.place, byte) {
                (Place::Line, b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}') => {
                    self.waiting.extend(format!("%{byte:02X}").bytes());
                }
                (Place::Line, b'\n') => {
                    self.place = Place::Rest;
                    self.waiting.push(byte);
                }
                _ => self.waiting.push(byte),
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Encoded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if self.waiting.is_empty() {
            if self.place == Place::Rest {
                return Pin::new(&mut self.inner).poll_read(context, into);
            }
            let mut chunk = [0; CHUNK_BYTES];
            let mut read = ReadBuf::new(&mut chunk);
            ready!(Pin::new(&mut self.inner).poll_read(context, &mut read))?;
            self.encode(read.filled());
        }
        let count = self.waiting.len().min(into.remaining());
        let taken: Vec<u8> = self.waiting.drain(..count).collect();
        into.put_slice(&taken);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Encoded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.place = Place::Begin;
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        self.place = Place::Begin;
        Pin::new(&mut self.inner).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
