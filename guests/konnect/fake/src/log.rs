//! The requests received.

use std::collections::VecDeque;

use serde::Serialize;
use serde_json::Value;

use crate::message::{Reply, Request};

/// A request with what happened to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The number of the request, counted from 1.
    pub number: u64,
    /// The time at which it came, in milliseconds since 1970.
    pub at: u64,
    pub method: String,
    pub host: String,
    pub path: String,
    /// The parameters of the query, decoded.
    pub query: Vec<(String, String)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The body as JSON, or as text if it is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
    /// The answer; absent: the connection was closed without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answered>,
    /// The milliseconds by which the answer was delayed.
    pub delay: u64,
    /// A fault applied.
    pub fault: bool,
}

/// An answer in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Answered {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
}

/// The log, of bounded length.
#[derive(Debug)]
pub(crate) struct Log {
    /// Entries, each with its bytes.
    entries: VecDeque<(Entry, usize)>,
    bytes: usize,
    most: usize,
    most_bytes: usize,
    /// The number of requests so far.
    pub(crate) count: u64,
}

// === impl Log ===

impl Log {
    pub(crate) fn new(most: usize, most_bytes: usize) -> Self {
        Self { entries: VecDeque::new(), bytes: 0, most, most_bytes, count: 0 }
    }

    pub(crate) fn since(&self, number: u64) -> impl Iterator<Item = &Entry> {
        self.entries.iter().map(|(entry, _)| entry).filter(move |entry| entry.number > number)
    }

    pub(crate) fn add(&mut self, now: u64, request: &Request, reply: &Reply, fault: bool) {
        self.count += 1;
        let answered = reply.answer().map_or(0, |answer| answer.body.len());
        let sent = request.path.len() + request.query.len() + request.body.len();
        let bytes = sent + answered;
        let entry = Entry {
            number: self.count,
            at: now,
            method: request.method.clone(),
            host: request.host.clone(),
            path: request.path.clone(),
            query: request.query_pairs(),
            token: request.token.clone(),
            body: request.body_value(),
            answer: reply.answer().map(|answer| Answered {
                status: answer.status,
                headers: answer.headers.clone(),
                body: answer.body_value(),
            }),
            delay: reply.delay,
            fault,
        };
        self.entries.push_back((entry, bytes));
        self.bytes += bytes;
        while self.entries.len() > self.most || self.bytes > self.most_bytes {
            let Some((_, bytes)) = self.entries.pop_front() else { return };
            self.bytes -= bytes;
        }
    }
}
