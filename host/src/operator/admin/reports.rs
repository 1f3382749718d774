//! The last reports of a host, without the contents of objects.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use jiff::Timestamp;
use mortise_core::{
    contract::{display_kind, display_ref},
    queue::Key,
    reconcile::Report,
};
use parking_lot::Mutex;
use serde::{Serialize, Serializer};

use crate::wasm::Line;

/// The number of reports that are kept, whatever their result.
const MAX_REPORTS: usize = 256;
/// The number of keys whose last report is kept because it failed.
const MAX_FAILING: usize = 1000;
/// The maximum number of lines that a report keeps of a guest's log, and of characters in each.
const MAX_LINES: usize = 20;
const MAX_LINE_CHARACTERS: usize = 500;
/// The maximum number of writes that a report keeps.
const MAX_CHANGES: usize = 100;
/// The maximum number of characters that a report keeps of a failure and of a note.
const MAX_TEXT_CHARACTERS: usize = 1024;

/// The last reports. Clones share one state.
#[derive(Debug, Clone, Default)]
pub struct Reports(Arc<Mutex<Held>>);

#[derive(Debug, Default)]
struct Held {
    last: VecDeque<Arc<Reported>>,
    failing: HashMap<Key, Arc<Reported>>,
}

/// The part of a report that is shown.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reported {
    /// The time of the report.
    at: Timestamp,
    #[serde(serialize_with = "as_text")]
    pub(super) key: Key,
    #[serde(flatten)]
    names: Key,
    kind: String,
    version: Option<String>,
    digest: Option<String>,
    causes: Vec<String>,
    more_causes: usize,
    attempt: u32,
    took_seconds: f64,
    reads: usize,
    /// The first writes.
    changes: Vec<String>,
    unchanged: usize,
    refused: usize,
    pub(super) failure: Option<String>,
    notes: Vec<String>,
    log: Vec<String>,
    again_seconds: Option<f64>,
}

/// Serializes a key as text, in the form that requests use.
pub(super) fn as_text<S: Serializer>(key: &Key, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(key)
}

// === impl Reports ===

impl Reports {
    /// Keeps the part of a report that is shown.
    pub fn keep(&self, report: &Report, at: Timestamp) {
        let reported = Arc::new(Reported::of(report, at));
        let mut held = self.0.lock();
        if reported.failure.is_none() {
            held.failing.remove(&report.key);
        } else if held.failing.len() < MAX_FAILING || held.failing.contains_key(&report.key) {
            held.failing.insert(report.key.clone(), Arc::clone(&reported));
        }
        if held.last.len() == MAX_REPORTS {
            held.last.pop_front();
        }
        held.last.push_back(reported);
    }

    /// Returns the last reports, the newest first.
    pub(super) fn last(&self) -> Vec<Arc<Reported>> {
        self.0.lock().last.iter().rev().cloned().collect()
    }

    /// Returns the last reports of keys whose last run failed, the newest first.
    pub(super) fn failing(&self) -> Vec<Arc<Reported>> {
        let mut failing: Vec<Arc<Reported>> = self.0.lock().failing.values().cloned().collect();
        failing.sort_by_key(|reported| std::cmp::Reverse(reported.at));
        failing
    }

    /// Forgets the failures of keys that are not failing any more: their processor or object is
    /// gone.
    pub(super) fn forget_failing(&self, is_failing: impl Fn(&Key) -> bool) {
        self.0.lock().failing.retain(|key, _| is_failing(key));
    }
}

// === impl Reported ===

impl Reported {
    fn of(report: &Report, at: Timestamp) -> Self {
        let changes = report.changes.iter().take(MAX_CHANGES);
        let line = |line: &Line| line.message.chars().take(MAX_LINE_CHARACTERS).collect();
        Self {
            at,
            key: report.key.clone(),
            names: report.key.clone(),
            kind: display_kind(&report.kind),
            version: report.version.as_ref().map(|of| of.version.clone()),
            digest: report.version.as_ref().map(|of| of.digest.to_string()),
            causes: report.causes.iter().map(ToString::to_string).collect(),
            more_causes: report.more_causes,
            attempt: report.attempt,
            took_seconds: report.took.as_secs_f64(),
            reads: report.reads(),
            changes: changes.map(|of| format!("{} {}", of.action, display_ref(&of.of))).collect(),
            unchanged: report.unchanged,
            refused: report.record.refused,
            failure: report.failure.as_deref().map(cut),
            notes: report.notes.iter().take(MAX_LINES).map(|note| cut(note)).collect(),
            log: report.log.iter().take(MAX_LINES).map(line).collect(),
            again_seconds: report.again.map(|again| again.as_secs_f64()),
        }
    }
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_TEXT_CHARACTERS).collect()
}
