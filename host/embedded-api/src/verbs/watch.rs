//! Watch: the objects at the beginning, and the changes since a version or from now on, as lines of
//! JSON.

mod line;
#[cfg(test)]
mod tests;

pub(crate) use line::Lines;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use parking_lot::{RwLockReadGuard, RwLockWriteGuard};
use serde_json::{Value, json};
use tokio::{
    sync::watch::Receiver,
    time::{Instant, Interval, MissedTickBehavior, interval_at, sleep_until},
};
use tokio_util::sync::CancellationToken;

use self::line::line;
use super::{
    Call,
    read::{check_not_newer, parse_version},
    select::Selection,
};
use crate::{
    Failure, Shared,
    answer::{Form, Shown, Style, respond},
    kind::Resource,
    request::ListOptions,
    state::State,
    storage::{Event, Image, TableId, json_text},
};

/// The interval of bookmarks, for clients that allow them.
const BOOKMARK_INTERVAL: Duration = Duration::from_mins(1);
/// The duration of a watch without a timeout: clients begin again, as they do with Kubernetes.
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(45);
/// The size, in bytes, up to which waiting events are sent together.
const CHUNK_BYTES: usize = 64 * 1024;

/// An open watch.
struct Watch {
    shared: Arc<Shared>,
    resource: Arc<Resource>,
    table: TableId,
    selection: Selection,
    style: Style,
    /// The revision up to which changes were collected.
    cursor: u64,
    /// The events to send. Their lines are made when the client takes them: a slow watch holds no
    /// texts.
    waiting: VecDeque<Waiting>,
    is_ended: bool,
    /// True if a table was sent already: later ones have no columns.
    has_columns: bool,
    changes: Receiver<u64>,
    bookmarks: Option<Interval>,
    deadline: Instant,
    id: u64,
    breaks: CancellationToken,
}

/// An entry to send.
enum Waiting {
    /// An object that existed when the watch began.
    Initial(Arc<Image>),
    Change(Event),
    Line(Bytes),
}

/// Opens a watch.
pub(crate) fn open(call: &Call<'_>, style: Style) -> Result<Response, Failure> {
    super::check_route(call, crate::request::Verb::Watch)?;
    let options = ListOptions::of(&call.request.query, true)?;
    let selection = Selection::of(call.path, &options, call.resource)?;
    let version = parse_version(&options.resource_version).map_err(Failure::unclassified)?;
    let table = State::table_of(call.resource);
    let state = state_with(call.shared, &table);
    let sends_initial = options.send_initial_events;
    if let Some(version) = version.filter(|_| sends_initial == Some(true)) {
        check_not_newer(version, &state)?;
    }
    let begins_now = sends_initial == Some(true) || version.unwrap_or_default() == 0;
    let kept = state.storage.table(&table).ok_or_else(Failure::no_such_page)?;
    let changes = kept.subscribe();
    let mut waiting = VecDeque::new();
    if begins_now && sends_initial != Some(false) {
        let images = kept.list(&selection.namespace, None).map(|(_, image)| image.clone());
        waiting.extend(images.map(Waiting::Initial));
    }
    let revision = state.storage.revision();
    drop(state);
    let timeout = options.timeout_seconds.map_or(DEFAULT_TIMEOUT, Duration::from_secs);
    let (id, breaks) = call.shared.faults.open_watch(&call.resource.group, &call.resource.plural);
    let mut watch = Watch {
        shared: call.shared.clone(),
        resource: call.resource.clone(),
        table,
        selection,
        style,
        cursor: if begins_now { revision } else { version.unwrap_or_default() },
        waiting,
        is_ended: false,
        has_columns: false,
        changes,
        bookmarks: options.bookmarks.then(bookmark_interval),
        deadline: Instant::now() + timeout,
        id,
        breaks,
    };
    if sends_initial == Some(true) && options.bookmarks {
        watch.add_bookmark(revision, true);
    }
    let stream = futures::stream::unfold(watch, |mut watch| async move {
        watch.next().await.map(|chunk| (chunk, watch))
    });
    Ok(respond(200, "application/json", Body::from_stream(stream)))
}

/// Returns the response of a watch that is refused with one event.
pub(crate) fn refused(failure: &Failure) -> Response {
    respond(200, "application/json", Body::from(value_line("ERROR", &failure.to_status())))
}

/// Locks the state. Adds the table of a resource of which nothing was stored yet, so that its
/// changes can be followed.
fn state_with<'a>(shared: &'a Shared, table: &TableId) -> RwLockReadGuard<'a, State> {
    let state = shared.state.read();
    if state.storage.table(table).is_some() {
        return state;
    }
    drop(state);
    let mut state = shared.state.write();
    state.storage.table_mut(table);
    RwLockWriteGuard::downgrade(state)
}

fn bookmark_interval() -> Interval {
    let mut interval = interval_at(Instant::now() + BOOKMARK_INTERVAL, BOOKMARK_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

// === impl Watch ===

impl Watch {
    /// Returns the next chunk of lines; `None` at the end.
    async fn next(&mut self) -> Option<Result<Bytes, std::io::Error>> {
        loop {
            if let Some(chunk) = self.chunk() {
                return Some(Ok(chunk));
            }
            if self.is_ended {
                return None;
            }
            self.changes.borrow_and_update();
            self.collect();
            if !self.waiting.is_empty() || self.is_ended {
                continue;
            }
            let shared = self.shared.clone();
            tokio::select! {
                changed = self.changes.changed() => self.is_ended = changed.is_err(),
                () = self.breaks.cancelled() => return Some(Err(self.broken())),
                () = shared.stop.cancelled() => self.is_ended = true,
                () = sleep_until(self.deadline) => self.is_ended = true,
                () = tick(&mut self.bookmarks) => self.add_current_bookmark(),
            }
        }
    }

    /// Ends the watch, and returns the error of a connection that breaks.
    fn broken(&mut self) -> std::io::Error {
        self.is_ended = true;
        std::io::Error::new(std::io::ErrorKind::ConnectionReset, "the watch was dropped")
    }

    /// Returns the lines of waiting entries, several small ones together.
    fn chunk(&mut self) -> Option<Bytes> {
        let first = self.line()?;
        if self.waiting.is_empty() || first.len() >= CHUNK_BYTES {
            return Some(first);
        }
        let mut chunk = Vec::from(first);
        while chunk.len() < CHUNK_BYTES
            && let Some(line) = self.line()
        {
            chunk.extend_from_slice(&line);
        }
        Some(Bytes::from(chunk))
    }

    /// Returns the next line of the waiting entries; entries outside of the selection have none.
    fn line(&mut self) -> Option<Bytes> {
        while let Some(next) = self.waiting.pop_front() {
            let line = match next {
                Waiting::Line(line) => Some(line),
                Waiting::Change(event) => self.of_event(&event),
                Waiting::Initial(image) => self
                    .selection
                    .matches(&self.resource, &image)
                    .then(|| self.of_stored("ADDED", &image)),
            };
            if line.is_some() {
                return line;
            }
        }
        None
    }

    /// Collects the changes since the cursor.
    fn collect(&mut self) {
        // Ages in tables are relative to the present time, not to the beginning of the watch.
        self.style.now = self.shared.now();
        let shared = self.shared.clone();
        let state = shared.state.read();
        let Some(table) = state.storage.table(&self.table) else {
            self.is_ended = true;
            return;
        };
        match table.events_after(self.cursor) {
            Ok(events) => self.waiting.extend(events.cloned().map(Waiting::Change)),
            Err(compacted) => {
                let text =
                    format!("too old resource version: {} ({})", self.cursor, compacted.oldest);
                let line = value_line("ERROR", &Failure::expired(text).to_status());
                self.waiting.push_back(Waiting::Line(line));
                self.is_ended = true;
            }
        }
        self.cursor = self.cursor.max(table.last());
    }

    /// Returns the line of an event as this watch sees it: an object that leaves the selection is
    /// deleted, one that enters it is added.
    fn of_event(&mut self, event: &Event) -> Option<Bytes> {
        let namespace = &self.selection.namespace;
        if !namespace.is_empty() && event.key.split('/').next() != Some(namespace.as_str()) {
            return None;
        }
        let matches = |image: &Option<Arc<Image>>| {
            image.clone().filter(|image| self.selection.matches(&self.resource, image))
        };
        let (kind, image) = match (matches(&event.previous), matches(&event.object)) {
            (None, Some(image)) => ("ADDED", image),
            (Some(_), Some(image)) => ("MODIFIED", image),
            (Some(previous), None) => ("DELETED", previous),
            (None, None) => return None,
        };
        Some(self.of_image(kind, event.revision, &image))
    }

    /// Returns the line of an object. Watches that show the whole object in the same version send
    /// the same bytes.
    fn of_image(&mut self, kind: &'static str, revision: u64, image: &Arc<Image>) -> Bytes {
        let shows_as_stored = self.resource.shows_as_stored(image.stamp);
        let at_revision = || {
            let is_gone = kind == "DELETED";
            if is_gone { Arc::new(image.at_revision(revision)) } else { image.clone() }
        };
        if self.style.accept.form != Form::Whole || !shows_as_stored {
            return self.of_stored(kind, &at_revision());
        }
        let api_version = self.resource.api_version();
        self.shared.lines.of((revision, kind, api_version.clone()), |line| {
            at_revision().write(&api_version, &self.resource.kind, line);
        })
    }

    fn of_stored(&mut self, kind: &str, image: &Arc<Image>) -> Bytes {
        match State::show(&self.resource, image) {
            Ok(shown) => self.of_shown(kind, shown),
            Err(failure) => self.failed(&failure),
        }
    }

    fn of_shown(&mut self, kind: &str, shown: Shown) -> Bytes {
        if self.style.accept.form == Form::Whole {
            return line(kind, |line| shown.write(line));
        }
        match self.style.object(shown, &self.resource, !self.has_columns) {
            Ok(object) => {
                self.has_columns = true;
                value_line(kind, &object)
            }
            Err(failure) => self.failed(&failure),
        }
    }

    /// Ends the watch with an error.
    fn failed(&mut self, failure: &Failure) -> Bytes {
        self.waiting.clear();
        self.is_ended = true;
        value_line("ERROR", &failure.to_status())
    }

    fn add_current_bookmark(&mut self) {
        let revision = {
            let shared = self.shared.clone();
            let state = shared.state.read();
            let is_behind =
                state.storage.table(&self.table).is_none_or(|table| table.last() > self.cursor);
            if is_behind { self.cursor } else { state.storage.revision() }
        };
        self.add_bookmark(revision, false);
    }

    /// Adds a bookmark, an event with nothing but a resource version.
    fn add_bookmark(&mut self, revision: u64, ends_initial: bool) {
        let version = revision.to_string();
        let metadata = if ends_initial {
            json!({"resourceVersion": version, "annotations": {"k8s.io/initial-events-end": "true"}})
        } else {
            json!({"resourceVersion": version})
        };
        let (api_version, kind) = match self.style.accept.form {
            Form::Metadata | Form::MetadataList => {
                ("meta.k8s.io/v1".to_owned(), "PartialObjectMetadata")
            }
            Form::Whole | Form::Table => (self.resource.api_version(), self.resource.kind.as_str()),
        };
        let object: Value = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
        self.waiting.push_back(Waiting::Line(value_line("BOOKMARK", &object)));
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.faults.close_watch(self.id);
    }
}

async fn tick(interval: &mut Option<Interval>) {
    match interval {
        Some(interval) => {
            interval.tick().await;
        }
        None => std::future::pending().await,
    }
}

fn value_line(kind: &str, object: &Value) -> Bytes {
    line(kind, |line| line.extend_from_slice(&json_text(object)))
}
