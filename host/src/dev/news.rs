//! What the session tells to whoever shows it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use mortise_embedded_api::EmbeddedApi;
use serde_json::Value;

use super::build;
use crate::{
    print::{self, Secrets},
    processor::Digest,
    queue::Cause,
    reconciler::Report,
    run::ProcessorStatus,
    write::Action,
};

/// Something that people should see. Guests are meant by their place in the command line.
#[derive(Debug)]
pub(super) enum News {
    /// Something about the session.
    Note(String),
    /// A line of the program's own log.
    Log(String),
    /// Cargo was started.
    Building(usize),
    /// A line of Cargo or of the compiler.
    Line(usize, build::Line),
    /// A guest could not be built or taken up: the former version, if there is one, goes on.
    Failed(usize, String),
    /// What was built is what runs already.
    Unchanged(usize),
    /// It was built, and waits for the others' first builds.
    Waiting(usize),
    /// A version runs.
    Running(Running),
    /// A reconcile has ended.
    Ran(Box<Ran>),
    /// How the processors are.
    Status(Vec<ProcessorStatus>),
}

/// A version that runs from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Running {
    /// Which guest.
    pub(super) guest: usize,
    /// The processor's name.
    pub(super) name: String,
    /// Its version.
    pub(super) version: String,
    /// The digest of its module, shortened.
    pub(super) digest: String,
    /// What it took the place of.
    pub(super) former: Option<String>,
    /// How long Cargo took.
    pub(super) built: Duration,
    /// How long it took from the module to the exchange.
    pub(super) taken_up: Duration,
}

/// A reconcile, with what it changed.
#[derive(Debug, Clone)]
pub(super) struct Ran {
    /// When it ended.
    pub(super) at: Timestamp,
    /// What came of it.
    pub(super) report: Report,
    /// The objects that it wrote.
    pub(super) written: Written,
}

/// Objects before and after a reconcile, by their titles.
#[derive(Debug, Clone, Default)]
pub(super) struct Written {
    before: BTreeMap<String, Value>,
    after: BTreeMap<String, Value>,
}

// === impl Ran ===

impl Ran {
    /// A report, with the objects as they were before from the API's history.
    pub(super) fn new(report: Report, api: &EmbeddedApi) -> Self {
        let mut written = Written::default();
        for change in report.changes.iter().filter(|change| change.action != Action::Event) {
            let title = print::title(&change.object);
            let is_gone = matches!(change.action, Action::Delete | Action::Evict);
            let was_written = written.after.contains_key(&title);
            let before = if is_gone {
                Some(Value::clone(&change.object))
            } else {
                api.before(&change.object)
            };
            if let Some(before) = before.filter(|_| !was_written) {
                written.before.entry(title.clone()).or_insert(before);
            }
            if is_gone {
                written.after.remove(&title);
            } else {
                written.after.insert(title, Value::clone(&change.object));
            }
        }
        Self { at: Timestamp::now(), report, written }
    }

    /// Whether it ran because its processor's version is new.
    pub(super) fn is_of_new_version(&self) -> bool {
        self.report.causes.contains(&Cause::NewVersion)
    }
}

// === impl Written ===

impl Written {
    /// The difference, coloured. Empty where nothing was written.
    pub(super) fn difference(&self, secrets: Secrets) -> String {
        print::difference(&self.before, &self.after, secrets)
    }
}

/// The beginning of a digest, by which people tell versions apart.
pub(super) fn short(digest: Digest) -> String {
    let text = digest.to_string();
    let hex = text.rsplit(':').next().unwrap_or(&text);
    hex.chars().take(8).collect()
}

/// Where the news go.
pub(super) type Sender = tokio::sync::mpsc::UnboundedSender<News>;
/// Where they come from.
pub(super) type Receiver = tokio::sync::mpsc::UnboundedReceiver<News>;

/// What the screens need to know from the start.
#[derive(Debug, Clone)]
pub(super) struct Scene {
    /// The API's address.
    pub(super) address: String,
    /// Where the host tells its metrics, if it does.
    pub(super) metrics: Option<String>,
    /// Where the kubeconfig is.
    pub(super) kubeconfig: String,
    /// The guests' packages.
    pub(super) guests: Arc<[String]>,
    /// Whether the values of Secrets may be seen.
    pub(super) secrets: Secrets,
}
