//! The messages from the session to the view.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use mortise_core::{queue::Cause, reconcile::Report, write::Action};
use mortise_embedded_api::EmbeddedApi;
use mortise_host::{host::ProcessorStatus, wasm::Digest};
use serde_json::Value;

use super::{build, companion::Said};
use crate::print::{self, Secrets};

/// A message for the user. Guests are identified by their place in the command line.
#[derive(Debug)]
pub(super) enum Message {
    /// A note about the session.
    Note(String),
    /// A line of the program's own log.
    Log(String),
    /// Cargo was started for a guest.
    Building(usize),
    /// A line of Cargo or of the compiler.
    Line(usize, build::Line),
    /// A line of the companion of a guest.
    Said(usize, Said),
    /// A guest could not be built or loaded; the former version, if any, keeps running.
    Failed(usize, String),
    /// The build has the same digest as the running version.
    Unchanged(usize),
    /// The guest was built, and waits for the other guests' first builds.
    Waiting(usize),
    /// A version has been loaded or swapped in.
    Running(Running),
    /// A reconcile has ended.
    Ran(Box<Ran>),
    /// The state of the processors.
    Status(Vec<ProcessorStatus>),
}

/// A version that has just been loaded or swapped in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Running {
    /// The guest's place in the command line.
    pub(super) guest: usize,
    /// The processor's name.
    pub(super) name: String,
    /// The processor's version.
    pub(super) version: String,
    /// The shortened digest of the processor's module.
    pub(super) digest: String,
    /// The shortened digest of the version that was replaced, if any.
    pub(super) former: Option<String>,
    /// The time that Cargo took.
    pub(super) built: Duration,
    /// The time from the built module to the end of the swap.
    pub(super) taken_up: Duration,
}

/// A reconcile, with the objects that it changed.
#[derive(Debug, Clone)]
pub struct Ran {
    /// The time at which the reconcile ended.
    pub(super) at: Timestamp,
    pub(super) report: Report,
    /// The objects that the reconcile wrote, as they were before, by their titles.
    pub(super) before: BTreeMap<String, Value>,
    pub(super) after: BTreeMap<String, Value>,
    /// Tells which of their values are masked.
    pub(super) secrets: Secrets,
}

// === impl Ran ===

impl Ran {
    /// Creates the entry of a report. The objects as they were before are taken from the history of
    /// the APIs, which `api` returns by the names of their clusters.
    pub fn new<'a>(
        report: Report,
        api: impl Fn(&str) -> Option<&'a EmbeddedApi>,
        secrets: Secrets,
    ) -> Self {
        let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
        for change in report.changes.iter().filter(|change| change.action != Action::Event) {
            let cluster = &change.of.kind.cluster;
            let title = print::in_cluster(print::title(&change.object), cluster);
            let is_gone = change.action.is_removal();
            let was_written = after.contains_key(&title);
            let former = if is_gone {
                Some(Value::clone(&change.object))
            } else {
                api(cluster).and_then(|api| api.before(&change.object))
            };
            if let Some(former) = former.filter(|_| !was_written) {
                before.entry(title.clone()).or_insert(former);
            }
            if is_gone {
                after.remove(&title);
            } else {
                after.insert(title, Value::clone(&change.object));
            }
        }
        Self { at: Timestamp::now(), report, before, after, secrets }
    }

    /// Returns the difference that the reconcile made, coloured; empty if no object was written.
    #[must_use]
    pub fn difference(&self) -> String {
        print::difference(&self.before, &self.after, &self.secrets)
    }

    /// Returns whether the key ran because of a new version of the processor.
    pub(super) fn is_of_new_version(&self) -> bool {
        self.report.causes.contains(&Cause::NewVersion)
    }
}

/// Returns the first characters of a digest, enough for people to tell versions apart.
pub(super) fn short(digest: Digest) -> String {
    let text = digest.to_string();
    let hex = text.rsplit(':').next().unwrap_or(&text);
    hex.chars().take(8).collect()
}

/// Sends messages.
pub(super) type Sender = tokio::sync::mpsc::UnboundedSender<Message>;
/// Receives messages.
pub(super) type Receiver = tokio::sync::mpsc::UnboundedReceiver<Message>;

/// The facts about a session that do not change.
#[derive(Debug, Clone)]
pub(super) struct Scene {
    /// The API's address.
    pub(super) address: String,
    /// The address of the host's metrics, if they are served.
    pub(super) metrics: Option<String>,
    /// The path of the kubeconfig.
    pub(super) kubeconfig: String,
    /// The package names of the guests.
    pub(super) guests: Arc<[String]>,
}
