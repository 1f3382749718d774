//! Bounds on what the API server sends: pages of lists, events of watches, and objects.
//!
//! All of them are charged to one account before they are parsed: their bytes, and [`ENTRY`] more
//! for each entry of what will be parsed. Tenants decide how large and how many their objects are.
//! So a page that is too large is requested in smaller ones, down to one object; an object that is
//! too large by itself counts as absent, which is logged and counted, and the rest is read on. So
//! does one that the parser refuses although it is JSON, with the whole page or watch: one that is
//! nested too deep, is no Unicode, or has a number out of range.

use std::{
    borrow::Cow,
    fmt,
    sync::atomic::{AtomicU32, Ordering},
};

use axum::body::Body as Answered;
use bytes::Bytes;
use futures::StreamExt as _;
use http::{Request, Response, Uri, response::Parts as Head};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use kube::{Client, api::ListMeta, client::Body};
use mortise_core::contract::bounds::{ENTRY, Entries, MAX_LEVELS, is_deeper_than};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tower::BoxError;

use crate::{
    metrics::OBJECTS_TOO_LARGE,
    share::{Held, Part, Sum},
};

/// The bound on the account of a page, and on that of an object. etcd accepts objects of 1.5 MiB,
/// which take at most six times as much as JSON.
const MAX_ACCOUNT_BYTES: usize = 16 << 20;
/// The bound on the account of a list that its server does not send in pages.
const MAX_UNPAGED_ACCOUNT_BYTES: usize = 64 << 20;
/// The largest answer or event that is read at all, to learn the name of its object, in bytes.
const MAX_READ_BYTES: usize = 32 << 20;
/// The maximum of what other clusters have sent of answers that are not complete yet, in bytes.
const MAX_HELD: u64 = 64 << 20;
/// The largest answer that is a refusal, in bytes.
const MAX_REFUSAL_BYTES: usize = 1 << 20;
/// A text of so few bytes is within its account, whatever its entries are.
const UNCOUNTED_BYTES: usize = MAX_ACCOUNT_BYTES / (1 + ENTRY);
/// A number of so many digits without an exponent is in the range of the parser.
const MAX_DIGITS: usize = 300;
/// The factor by which pages get smaller, and the one by which they grow again.
const SMALLER: u32 = 8;
const LARGER: u32 = 2;

/// The error of an answer or event that is beyond its bound.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(crate) enum TooMuch {
    /// It is larger than this.
    #[error(
        "the API server sends more than {0} MiB at once, where each entry counts {ENTRY} bytes more"
    )]
    Mebibytes(usize),

    /// It is nested too deep.
    #[error("the API server sends JSON of more than {MAX_LEVELS} levels")]
    Levels,

    /// The parser refuses it.
    #[error("the API server sends JSON that is no Unicode, or has a number out of range")]
    Unreadable,

    /// Answers of other clusters that come in take too much.
    #[error("other clusters send more than {} MiB at once, of which one namespace leaves some to others", MAX_HELD >> 20)]
    Together,
}

/// What a text takes when it is parsed.
#[derive(Clone, Copy, Debug)]
struct Account {
    bytes: usize,
    /// Why it is not parsed at all, whatever it takes.
    refused: Option<TooMuch>,
}

/// A list of which only the names of the objects are read.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Names<I> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    metadata: ListMeta,
    items: I,
}

/// An event of a watch, of whose object only the name is read.
#[derive(Debug, Deserialize, Serialize)]
struct Event {
    r#type: Cow<'static, str>,
    object: Name,
}

/// An object of which only the name is read.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Name {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    api_version: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    kind: String,
    metadata: NameMeta,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct NameMeta {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    #[serde(default)]
    resource_version: String,
}

/// The bytes of a watch that are not passed on yet: the begin of a line.
#[derive(Debug)]
pub(super) struct Lines {
    /// The kind that is watched, for the log.
    resource: String,
    parsed_depth: usize,
    begun: Vec<u8>,
    held: Held,
}

/// Returns the number of objects that a request asks for, if it asks for a page.
pub(super) fn page_size(uri: &Uri) -> Option<u32> {
    let mut pairs = uri.query()?.split('&');
    pairs.find_map(|pair| pair.strip_prefix("limit="))?.parse().ok()
}

/// Requests a page of a list, in the largest size of at most `most` objects that is within the
/// bound. `size` is the last size, and becomes the next one. Objects are parsed to this depth; the
/// fields of an object have depth 1.
pub(super) async fn page(
    client: &Client,
    request: Request<Body>,
    (most, size): (u32, &AtomicU32),
    parsed_depth: usize,
) -> Result<Response<Bytes>, BoxError> {
    // A request for a list has no body.
    let (head, _) = request.into_parts();
    loop {
        let asked = size.load(Ordering::Relaxed).clamp(1, most.max(1));
        let mut sized = head.clone();
        sized.uri = with_size(&head.uri, asked)?;
        let (answer, body) =
            client.send(Request::from_parts(sized, Body::empty())).await?.into_parts();
        if !answer.status.is_success() {
            let refusal = read(&answer, body, MAX_REFUSAL_BYTES).await?;
            return Ok(Response::from_parts(answer, refusal));
        }
        let is_last = asked == 1;
        let most = if is_last { MAX_READ_BYTES } else { MAX_ACCOUNT_BYTES };
        match read(&answer, body, most).await {
            Ok(text) => {
                // An object is an item of a member of the list.
                let account = Account::of(&text, parsed_depth.saturating_add(2));
                if account.is_within(MAX_ACCOUNT_BYTES / (2 * LARGER as usize)) {
                    size.store(asked.saturating_mul(LARGER), Ordering::Relaxed);
                }
                if account.is_within(MAX_ACCOUNT_BYTES) {
                    return Ok(Response::from_parts(answer, text));
                }
                if is_last {
                    let text = without_object(text, account, &resource_of(&head.uri))?;
                    return Ok(Response::from_parts(answer, text));
                }
            }
            Err(error) if is_last || !error.is::<TooMuch>() => return Err(error),
            Err(_) => {}
        }
        size.store((asked / SMALLER).max(1), Ordering::Relaxed);
    }
}

/// Reads the answer to a request other than a list or watch.
pub(super) async fn answer(head: &Head, body: Body) -> Result<Bytes, BoxError> {
    if !head.status.is_success() {
        return read(head, body, MAX_REFUSAL_BYTES).await;
    }
    let text = read(head, body, MAX_ACCOUNT_BYTES).await?;
    match Account::of(&text, usize::MAX) {
        account if account.is_within(MAX_ACCOUNT_BYTES) => Ok(text),
        account => Err(account.too_much(MAX_ACCOUNT_BYTES).into()),
    }
}

async fn read(of: &Head, body: Body, most: usize) -> Result<Bytes, BoxError> {
    let mut held = Held::of(of.extensions.get::<Part>().cloned());
    let mut chunks = Limited::new(body, most).into_data_stream();
    let mut text = Vec::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = match chunk {
            Err(error) if error.is::<LengthLimitError>() => return Err(TooMuch::of(most).into()),
            chunk => chunk?,
        };
        if !held.set(text.len() + chunk.len()) {
            return Err(TooMuch::Together.into());
        }
        text.extend_from_slice(&chunk);
    }
    Ok(text.into())
}

fn with_size(uri: &Uri, size: u32) -> Result<Uri, BoxError> {
    let query = uri.query().unwrap_or_default();
    let pairs = query.split('&').filter(|pair| !pair.starts_with("limit="));
    let pairs: Vec<&str> = pairs.filter(|pair| !pair.is_empty()).collect();
    let mut parts = uri.clone().into_parts();
    let query = format!("{}?limit={size}&{}", uri.path(), pairs.join("&"));
    parts.path_and_query = Some(query.trim_end_matches('&').parse()?);
    Ok(Uri::from_parts(parts)?)
}

/// Returns the page of one object without that object.
fn without_object(text: Bytes, account: Account, resource: &str) -> Result<Bytes, BoxError> {
    let Ok(list) = serde_json::from_slice::<Names<(Name,)>>(&text) else {
        // The server sends no pages.
        return match account {
            of if of.is_within(MAX_UNPAGED_ACCOUNT_BYTES) => Ok(text),
            of => Err(of.too_much(MAX_UNPAGED_ACCOUNT_BYTES).into()),
        };
    };
    let Names { api_version, kind, metadata, items: (object,) } = list;
    object.count_as_absent(account.too_much(MAX_ACCOUNT_BYTES), resource);
    let items: [Name; 0] = [];
    Ok(serde_json::to_vec(&Names { api_version, kind, metadata, items })?.into())
}

/// Returns the resource that a path is of, as `kubectl` names it: `roles.rbac.authorization.k8s.io`.
fn resource_of(uri: &Uri) -> String {
    let (_, plural) = uri.path().rsplit_once('/').unwrap_or_default();
    let group = uri.path().strip_prefix("/apis/").and_then(|path| path.split('/').next());
    group.map_or_else(|| plural.to_owned(), |group| format!("{plural}.{group}"))
}

// === impl Account ===

impl Account {
    /// Counts a text that will be parsed to a depth.
    fn of(text: &[u8], parsed_depth: usize) -> Self {
        let is_parsed_deep = parsed_depth > MAX_LEVELS;
        let (bytes, is_too_deep) = if text.len() <= UNCOUNTED_BYTES {
            // Its entries do not matter.
            (text.len(), is_parsed_deep && is_deeper_than(text, MAX_LEVELS))
        } else {
            let mut entries = Entries::to_depth(parsed_depth);
            let bytes = text.len() + ENTRY * entries.count(text);
            (bytes, is_parsed_deep && entries.reached() > MAX_LEVELS)
        };
        let refused = if is_too_deep {
            Some(TooMuch::Levels)
        } else {
            let is_small = bytes <= MAX_ACCOUNT_BYTES;
            (is_small && !is_readable(text, is_parsed_deep)).then_some(TooMuch::Unreadable)
        };
        Self { bytes, refused }
    }

    fn is_within(self, bytes: usize) -> bool {
        self.bytes <= bytes && self.refused.is_none()
    }

    /// Returns the error of an answer that is not within a bound.
    fn too_much(self, bytes: usize) -> TooMuch {
        self.refused.unwrap_or_else(|| TooMuch::of(bytes))
    }
}

/// Returns whether the parser accepts a text, if it is JSON. What is not parsed deep holds only
/// texts of the API server's own fields, and is skipped otherwise.
fn is_readable(text: &[u8], is_parsed_deep: bool) -> bool {
    let Ok(text) = str::from_utf8(text) else { return false };
    !is_parsed_deep || !is_doubtful(text) || serde_json::from_str::<Value>(text).is_ok()
}

/// Returns whether a text may hold half of a surrogate pair, or a number out of range. Few texts
/// do, and this takes a twentieth of the time of a parser.
fn is_doubtful(text: &str) -> bool {
    let is_out_of_range = |word: &[u8]| {
        let is_number = matches!(word, [b'0'..=b'9' | b'-', .., b'0'..=b'9']);
        is_number
            && (word.len() > MAX_DIGITS || word.iter().any(|byte| matches!(byte, b'e' | b'E')))
    };
    let is_between = |byte: &u8| {
        matches!(byte, b':' | b',' | b'[' | b']' | b'{' | b'}' | b' ' | b'\t' | b'\r' | b'\n')
    };
    text.contains("\\ud")
        || text.contains("\\uD")
        || text.as_bytes().split(is_between).any(is_out_of_range)
}

/// Creates the sum of what other clusters have sent, by namespaces of the Secrets that name them: who
/// writes such a Secret decides which server answers. Answers of a cluster have its part among their
/// extensions.
pub(super) fn incoming() -> Sum {
    Sum::new(MAX_HELD)
}

// === impl Lines ===

impl Lines {
    /// Returns the body of a watch, in which events of objects that are not read are replaced.
    pub(super) fn bounded(uri: &Uri, parsed_depth: usize, (of, body): (&Head, Body)) -> Answered {
        let held = Held::of(of.extensions.get::<Part>().cloned());
        let mut lines = Self { resource: resource_of(uri), parsed_depth, begun: Vec::new(), held };
        let chunks = Answered::new(body).into_data_stream();
        Answered::from_stream(chunks.map(move |chunk| lines.take(chunk?)))
    }

    /// Takes the next bytes. Returns the lines that they end.
    fn take(&mut self, mut chunk: Bytes) -> Result<Bytes, BoxError> {
        let end = chunk.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let rest = chunk.split_off(end);
        let whole = if chunk.is_empty() || self.begun.is_empty() {
            chunk
        } else {
            self.begun.extend_from_slice(&chunk);
            std::mem::take(&mut self.begun).into()
        };
        self.begun.extend_from_slice(&rest);
        if self.begun.len() > MAX_READ_BYTES {
            return Err(TooMuch::of(MAX_READ_BYTES).into());
        }
        if !self.held.set(self.begun.len()) {
            return Err(TooMuch::Together.into());
        }
        let parsed_depth = self.parsed_depth.saturating_add(1);
        if whole.len() <= UNCOUNTED_BYTES
            && Account::of(&whole, parsed_depth).is_within(MAX_ACCOUNT_BYTES)
        {
            return Ok(whole);
        }
        let mut bounded = Vec::with_capacity(whole.len());
        for line in whole.split_inclusive(|byte| *byte == b'\n') {
            // An object is a member of the event.
            let account = Account::of(line, parsed_depth);
            if account.is_within(MAX_ACCOUNT_BYTES) {
                bounded.extend_from_slice(line);
            } else {
                self.replace(line, account, &mut bounded)?;
            }
        }
        Ok(bounded.into())
    }

    /// Writes the event that replaces one of an object that is not read: its deletion, unless it
    /// was not there before.
    fn replace(&self, line: &[u8], account: Account, to: &mut Vec<u8>) -> Result<(), BoxError> {
        let mut event: Event = serde_json::from_slice(line)?;
        event.object.count_as_absent(account.too_much(MAX_ACCOUNT_BYTES), &self.resource);
        if event.r#type != "ADDED" {
            event.r#type = "DELETED".into();
            serde_json::to_writer(&mut *to, &event)?;
            to.push(b'\n');
        }
        Ok(())
    }
}

// === impl Name ===

impl Name {
    fn count_as_absent(&self, why: TooMuch, resource: &str) {
        let NameMeta { name, namespace, .. } = &self.metadata;
        count_as_absent(resource, namespace.as_deref(), name, &why);
    }
}

/// Logs and counts an object that counts as absent.
pub(super) fn count_as_absent(
    resource: &str,
    namespace: Option<&str>,
    name: &str,
    why: &dyn fmt::Display,
) {
    OBJECTS_TOO_LARGE.inc();
    tracing::warn!(resource, namespace, name, %why, "an object counts as absent: change it, or delete it");
}

// === impl TooMuch ===

impl TooMuch {
    fn of(bytes: usize) -> Self {
        Self::Mebibytes(bytes >> 20)
    }
}

#[cfg(test)]
mod tests;
