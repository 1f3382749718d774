//! What came of one reconcile, for people, and the words for it.

use std::{sync::Arc, time::Duration};

use tracing::{Span, info_span};

use crate::{
    access::Denial,
    contract::{Kind, ReadError, WriteFailure},
    mask::Mask,
    metrics,
    processor::{
        Digest, Line,
        bounds::{
            self,
            text::{cut, shortened_to_characters},
        },
    },
    queue::{Cause, Key, Run},
    record::Record,
    run::Version,
    view::Reads,
    write::{Change, Withheld},
};

/// How much of a message an event holds (Kubernetes' own limit is 1024 bytes).
const EVENT_MESSAGE: usize = 1000;

/// How long a text is that is told of a run: what is longer is read by nobody.
const LONGEST_TEXT: usize = 8 * 1024;
/// And how many notes.
const NOTES: usize = 50;

/// What came of one reconcile, for people.
#[derive(Debug, Clone)]
pub struct Report {
    /// Who was run.
    pub key: Key,
    /// On what; none where the processor was removed before the run could begin.
    pub version: Option<Arc<Version>>,
    /// The kind of the reconciled object.
    pub kind: Kind,
    /// Why.
    pub causes: Vec<Cause>,
    /// More causes than are kept.
    pub more_causes: usize,
    /// How many runs in a row had failed before.
    pub attempt: u32,
    /// How long it took, writes included.
    pub took: Duration,
    /// The writes, in their order.
    pub changes: Vec<Change>,
    /// The writes that were not made, of a processor that only observes, in their order.
    pub withheld: Vec<Withheld>,
    /// How many writes were left out since they would have changed nothing.
    pub unchanged: usize,
    /// What people should know: who takes whose fields, what is waited for, that the object is paused.
    pub notes: Vec<String>,
    /// What was refused for want of rights of the processor's account, and the reads that are not declared.
    pub denied: Vec<Denial>,
    /// What the guest said.
    pub log: Vec<Line>,
    /// Why it failed.
    pub failure: Option<String>,
    /// Whether the processor broke: it trapped, passed a limit, or returned an outcome that is not valid.
    pub broke: bool,
    /// When it runs again though nothing changes.
    pub again: Option<Duration>,
    /// Whether it was left out, since it is known what would have come of it: then the record is that of its last run.
    pub skipped: bool,
    /// Whether the host cancelled its call: it says nothing of the processor, and the key runs again.
    pub cancelled: bool,
    /// What it read, and what came of it, as plain data.
    pub record: Arc<Record>,
}

// === impl Report ===

impl Report {
    /// A report that says nothing but who was run and why.
    pub fn new(run: &Run) -> Self {
        Self {
            key: run.key.clone(),
            version: None,
            kind: Kind { group: String::new(), version: String::new(), kind: String::new() },
            causes: run.causes.clone(),
            more_causes: run.more_causes,
            attempt: run.attempt,
            took: Duration::ZERO,
            changes: Vec::new(),
            withheld: Vec::new(),
            unchanged: 0,
            notes: Vec::new(),
            denied: Vec::new(),
            log: Vec::new(),
            failure: None,
            broke: false,
            again: None,
            skipped: false,
            cancelled: false,
            record: Arc::new(Record::new(&run.key, run.attempt)),
        }
    }

    /// The span that the reconcile ran in, for what is said of it afterwards.
    pub fn span(&self) -> Span {
        span(&self.key, &self.kind, self.version.as_ref().map(|version| version.digest))
    }

    /// How many questions it asked.
    pub fn reads(&self) -> usize {
        self.record.reads.len()
    }

    /// How many bytes of objects it was given in answer.
    pub fn read_bytes(&self) -> usize {
        self.record.read_bytes()
    }

    /// Takes in what a run was refused: the first few, and how many more there were.
    pub(super) fn deny(&mut self, (denials, mut more): (Vec<Denial>, usize)) {
        for denial in denials {
            if self.denied.len() < bounds::DENIALS {
                self.denied.push(denial);
            } else {
                more += 1;
            }
        }
        if more > 0 {
            self.notes.push(format!("{more} more reads or writes were denied"));
        }
    }

    /// Masks in what is told of the run the values of the Secrets that it has read, and cuts it. What the run has written, events among
    /// it, is written as it was wanted.
    pub(super) fn mask(&mut self, reads: &Reads) {
        if self.notes.len() > NOTES {
            let more = self.notes.len() - NOTES;
            self.notes.truncate(NOTES);
            self.notes.push(format!("and {more} more"));
        }
        if reads.secrets().next().is_some() {
            let mask = Mask::new(reads.secrets(), self.texts());
            self.each_text(|text| {
                *text = mask.masked(text).unwrap_or_else(|| std::mem::take(text));
            });
        }
        // Lines of the guest's log are bounded as they come in.
        for text in self.failure.iter_mut().chain(&mut self.notes) {
            cut(text, LONGEST_TEXT);
        }
        self.denied.iter_mut().for_each(|denial| denial.each_text(|text| cut(text, LONGEST_TEXT)));
    }

    /// What is told of the run that the processor may have said.
    fn texts(&self) -> impl Iterator<Item = &str> {
        let log = self.log.iter().flat_map(|line| {
            let fields = line.fields.iter().flat_map(|(name, value)| [name, value]);
            std::iter::once(&line.message).chain(fields)
        });
        let told = self.failure.iter().chain(&self.notes).chain(log).map(String::as_str);
        told.chain(self.denied.iter().flat_map(Denial::texts))
    }

    /// Changes each of these.
    fn each_text(&mut self, mut change: impl FnMut(&mut String)) {
        self.failure.iter_mut().chain(&mut self.notes).for_each(&mut change);
        for line in &mut self.log {
            change(&mut line.message);
            for (name, value) in &mut line.fields {
                change(name);
                change(value);
            }
        }
        self.denied.iter_mut().for_each(|denial| denial.each_text(&mut change));
    }

    /// The record, which nobody else holds until the run ends.
    pub(super) fn record_mut(&mut self) -> &mut Record {
        Arc::make_mut(&mut self.record)
    }
}

/// What every line of the log says that is said of a reconcile.
pub(super) fn span(key: &Key, kind: &Kind, digest: Option<Digest>) -> Span {
    info_span!(
        "reconcile",
        processor = %key.processor(),
        digest = digest.map(tracing::field::display),
        kind = metrics::shown(kind),
        namespace = key.namespace(),
        name = key.name(),
    )
}

/// What was refused, on one line.
pub(super) fn describe(failures: &[WriteFailure]) -> String {
    let texts: Vec<String> = failures
        .iter()
        .map(|failed| {
            let namespace =
                failed.ref_.namespace.as_deref().map(|namespace| format!("{namespace}/"));
            let (kind, name) = (&failed.ref_.kind.kind, &failed.ref_.name);
            format!(
                "{} of {kind} {}{name} failed ({}): {}",
                failed.action,
                namespace.unwrap_or_default(),
                failed.code,
                failed.message
            )
        })
        .collect();
    texts.join("; ")
}

/// Why something cannot be read.
pub(super) fn why(error: &ReadError) -> &str {
    match error {
        ReadError::UnknownKind => "the cluster does not serve its kind",
        ReadError::Denied(why) | ReadError::Unavailable(why) | ReadError::Invalid(why) => why,
    }
}

/// A message as long as an event holds.
pub(super) fn shortened(message: &str) -> String {
    shortened_to_characters(message, EVENT_MESSAGE)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{contract::Level, fixture, processor::Source, store::Entry};

    /// What is told of a run that says this, and has read an object of this kind which holds a password.
    fn told(kind: &str, text: &str) -> Report {
        let metadata =
            json!({"name": "s", "namespace": "shop", "uid": "u", "resourceVersion": "1"});
        // `correct-horse`
        let data = json!({"password": "Y29ycmVjdC1ob3JzZQ=="});
        let object = json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "data": data});
        let key = fixture::key("a");
        let run = Run { key, causes: Vec::new(), more_causes: 0, attempt: 0 };
        let mut report = Report::new(&run);
        report.failure = Some(text.to_owned());
        report.notes.push(text.to_owned());
        report.denied.push(Denial::of_declaration("get", &fixture::v1(text, text), text));
        let fields = vec![(text.to_owned(), text.to_owned())];
        let message = text.to_owned();
        report.log.push(Line { level: Level::Info, message, fields, source: Source::Log });
        let entry = Entry::alone(&object).unwrap();
        report.mask(&Reads::having_read(fixture::v1("", kind), entry));
        report
    }

    #[test]
    fn nothing_that_is_told_of_a_run_holds_what_a_secret_holds() {
        for text in ["is correct-horse", "is Y29ycmVjdC1ob3JzZQ=="] {
            let report = told("Secret", text);
            let texts: Vec<&str> = report.texts().collect();
            assert_eq!(texts, ["is ***"; 8]);
            assert_eq!(report.denied[0].in_words(), "is ***");
            assert_eq!(told("ConfigMap", text).failure.as_deref(), Some(text));
        }
    }

    #[test]
    fn what_is_told_of_a_run_is_bounded() {
        let report = told("ConfigMap", &"é".repeat(8 << 20));
        assert_eq!(report.failure.map(|text| text.len()), Some(LONGEST_TEXT + '…'.len_utf8()));
    }
}
