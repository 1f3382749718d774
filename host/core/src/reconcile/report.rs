//! The report of one reconcile, for people, and its texts.

use std::{sync::Arc, time::Duration};

use tracing::{Span, info_span};

use super::{
    Line,
    carry_out::Refused,
    course::{Carried, Course, Round},
    done::delay,
};
use crate::{
    contract::{
        Kind, ReadError, WriteFailure,
        bounds::{
            self,
            text::{cut, shortened_to_characters},
        },
        display_kind, display_ref,
    },
    digest::ModuleDigest,
    grant::rights::Denial,
    queue::{Cause, Key, Run},
    reads::{
        Reads,
        record::{MustRun, Record},
    },
    reconcile::mask::Mask,
    write::{Change, Withheld},
};

/// The most characters of an event's message (Kubernetes' own limit is 1024 bytes).
const MAX_EVENT_MESSAGE_CHARACTERS: usize = 1000;

/// The most bytes of a failure, a note or a denial in a report: longer texts are read by nobody.
const MAX_TEXT_BYTES: usize = 8 * 1024;
/// The most notes in a report.
const MAX_NOTES: usize = 50;

/// The identity of a version of a processor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The name of the processor.
    pub processor: Arc<str>,
    /// The version that the description states.
    pub version: String,
    pub digest: ModuleDigest,
    /// The interfaces that libraries answer, and the digests of the libraries.
    pub libraries: Arc<[(String, ModuleDigest)]>,
}

/// The report of one reconcile, for people and for metrics.
#[derive(Debug, Clone)]
pub struct Report {
    pub key: Key,
    /// The version of the processor that ran; `None` if the processor was removed before the run
    /// could begin.
    pub version: Option<Arc<Version>>,
    /// The kind of the reconciled object.
    pub kind: Arc<Kind>,
    /// The first few causes of the run.
    pub causes: Vec<Cause>,
    /// The number of further causes, which are not kept.
    pub more_causes: usize,
    /// The number of runs in a row that had failed before.
    pub attempt: u32,
    /// The duration of the run, writes included.
    pub took: Duration,
    /// The writes, in their order.
    pub changes: Vec<Change>,
    /// The writes that were not made, in their order, because the processor only observes.
    pub withheld: Vec<Withheld>,
    /// The number of writes that were not sent because they would have changed nothing.
    pub unchanged: usize,
    /// Notes for people: fields taken from other managers, terminating namespaces, a pause.
    pub notes: Vec<String>,
    /// The reads and writes that were refused, because the processor's account lacks a right or
    /// because the processor does not declare them.
    pub denied: Vec<Denial>,
    /// The log lines of the guest.
    pub log: Vec<Line>,
    /// The reason of the failure, if the run failed.
    pub failure: Option<String>,
    /// True if the processor broke: it trapped, passed a limit, or returned an outcome that is not
    /// valid.
    pub broke: bool,
    /// The requeue delay of the key, if any.
    pub again: Option<Duration>,
    /// True if the key was skipped, because nothing that it read has changed: then the record is
    /// that of its last run.
    pub skipped: bool,
    /// True if the host cancelled the call: the report is no evidence about the processor, and the
    /// key runs again.
    pub cancelled: bool,
    /// The time that each call waited for a slot.
    pub waited: Vec<Duration>,
    /// The reasons of the calls that returned neither an outcome nor a failure, each in one word.
    pub trapped: Vec<&'static str>,
    /// The number of log lines that were dropped.
    pub log_dropped: u32,
    /// The kind of the object of each forced apply, which took fields from other managers.
    pub forced: Vec<Arc<Kind>>,
    /// The cluster of each event that was refused.
    pub refused_events: Vec<Arc<str>>,
    /// The reason why a due key was not skipped; `None` if it was not due.
    pub not_skipped: Option<MustRun>,
    /// The run record: the run's reads and results, as plain data.
    pub record: Arc<Record>,
}

// === impl Report ===

impl Report {
    /// Creates a report with nothing but the key, the causes and the attempt of a run.
    pub fn new(run: &Run) -> Self {
        Self {
            key: run.key.clone(),
            version: None,
            kind: Arc::new(Kind::home("", "", "")),
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
            waited: Vec::new(),
            trapped: Vec::new(),
            log_dropped: 0,
            forced: Vec::new(),
            refused_events: Vec::new(),
            not_skipped: None,
            record: Arc::new(Record::new(&run.key, run.attempt)),
        }
    }

    /// Returns the span of the reconcile, for log lines about it that are written later.
    pub fn span(&self) -> Span {
        span(&self.key, &self.kind, self.version.as_ref().map(|version| version.digest))
    }

    /// Returns the number of reads of the run.
    pub fn reads(&self) -> usize {
        self.record.reads.len()
    }

    /// Returns the bytes of the objects that the run read.
    pub fn read_bytes(&self) -> usize {
        self.record.read_bytes()
    }

    /// Returns the report with the results of the run's steps, and with the denied reads.
    pub(super) fn with_course(self, course: Course, denials: (Vec<Denial>, usize)) -> Self {
        let mut report = Self {
            notes: course.notes(),
            failure: course.failure(),
            broke: course.refused().is_some_and(Refused::is_processors),
            again: delay(&course.done),
            cancelled: course.is_cancelled(),
            trapped: course.rounds().filter_map(Round::trapped).collect(),
            ..self
        };
        for Round { call, carried, .. } in course.first.into_iter().chain(course.second) {
            let Carried { written, withheld, denied } = carried;
            report.changes.extend(written.changes);
            report.withheld.extend(withheld);
            report.unchanged += written.skipped;
            report.forced.extend(written.forced);
            report.refused_events.extend(written.refused_events);
            report.denied.extend(denied);
            if let Some((_, usage)) = call {
                report.log.extend(usage.log);
                report.log_dropped += usage.log_dropped;
                report.waited.push(usage.waited);
            }
        }
        let (denied, note) = few(report.denied, denials);
        report.notes.extend(note);
        Self { denied, ..report }
    }

    /// Returns the report with the values of the Secrets that the run has read masked in its texts,
    /// and with these texts cut.
    ///
    /// Objects and events that the run has written are not masked.
    pub(super) fn masked(mut self, reads: &Reads) -> Self {
        if self.notes.len() > MAX_NOTES {
            let more = self.notes.len() - MAX_NOTES;
            self.notes.truncate(MAX_NOTES);
            self.notes.push(format!("and {more} more"));
        }
        if reads.secrets().next().is_some() || reads.credentials().next().is_some() {
            let mask = Mask::new(reads.secrets(), reads.credentials(), self.texts());
            self.each_text(|text| {
                *text = mask.masked(text).unwrap_or_else(|| std::mem::take(text));
            });
        }
        // Lines of the guest's log are bounded as they come in.
        for text in self.failure.iter_mut().chain(&mut self.notes) {
            cut(text, MAX_TEXT_BYTES);
        }
        self.denied
            .iter_mut()
            .for_each(|denial| denial.each_text(|text| cut(text, MAX_TEXT_BYTES)));
        self
    }

    /// Returns the texts of the report that may come from the processor.
    fn texts(&self) -> impl Iterator<Item = &str> {
        let log = self.log.iter().flat_map(|line| {
            let fields = line.fields.iter().flat_map(|(name, value)| [name, value]);
            std::iter::once(&line.message).chain(fields)
        });
        let texts = self.failure.iter().chain(&self.notes).chain(log).map(String::as_str);
        texts.chain(self.denied.iter().flat_map(Denial::texts))
    }

    /// Calls `change` with each text that `texts` returns.
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
}

/// Creates the span of a reconcile, whose fields are on each of its log lines.
pub(super) fn span(key: &Key, kind: &Kind, digest: Option<ModuleDigest>) -> Span {
    info_span!(
        "reconcile",
        processor = %key.processor(),
        digest = digest.map(tracing::field::display),
        kind = display_kind(kind),
        namespace = key.namespace(),
        name = key.name(),
    )
}

/// Masks the values of the Secrets that were read in texts of the processor.
pub fn mask_texts(reads: &Reads, mut texts: Vec<&mut String>) {
    let held = texts.iter().map(|text| text.as_str());
    let mask = Mask::new(reads.secrets(), reads.credentials(), held);
    for text in &mut texts {
        if let Some(masked) = mask.masked(text) {
            **text = masked;
        }
    }
}

/// Masks the values of the Secrets that were read in a text, and cuts it.
pub(super) fn masked(mut text: String, reads: &Reads) -> String {
    mask_texts(reads, vec![&mut text]);
    cut(&mut text, MAX_TEXT_BYTES);
    text
}

/// Returns the denied writes with the first few denied reads, and a note with the number of the
/// others.
fn few(
    mut denied: Vec<Denial>,
    (reads, mut more): (Vec<Denial>, usize),
) -> (Vec<Denial>, Vec<String>) {
    for denial in reads {
        if denied.len() < bounds::DENIALS {
            denied.push(denial);
        } else {
            more += 1;
        }
    }
    let note = (more > 0).then(|| format!("{more} more reads or writes were denied"));
    (denied, note.into_iter().collect())
}

/// Describes the refused writes on one line.
pub(super) fn describe(failures: &[WriteFailure]) -> String {
    let texts: Vec<String> = failures
        .iter()
        .map(|failed| {
            format!(
                "{} of {} failed ({}): {}",
                failed.action,
                display_ref(&failed.ref_),
                failed.code,
                failed.message
            )
        })
        .collect();
    texts.join("; ")
}

/// Returns the reason of a read error, in words.
pub(super) fn why(error: &ReadError) -> &str {
    match error {
        ReadError::UnknownKind => "the cluster does not serve its kind",
        ReadError::Denied(why) | ReadError::Unavailable(why) | ReadError::Invalid(why) => why,
    }
}

/// Cuts a message to the length that an event holds.
pub(super) fn shortened(message: &str) -> String {
    shortened_to_characters(message, MAX_EVENT_MESSAGE_CHARACTERS)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{contract::Level, fixture, reconcile::Source, store::Entry};

    #[test]
    fn the_values_of_a_secret_that_a_call_is_given_are_masked() {
        let object = json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"k": "hidden"}});
        for (kind, expected) in [("Secret", "is ***"), ("Rule", "is hidden")] {
            let mut view = crate::reads::View::default();
            view.given(&fixture::v1("", kind).into(), &object);
            let mut text = "is hidden".to_owned();
            mask_texts(&view.finish(), vec![&mut text]);
            assert_eq!(text, expected);
        }
    }

    /// Builds the report of a run with this text in it, which has read an object of this kind that
    /// holds a password.
    fn report_with(kind: &str, text: &str) -> Report {
        let metadata =
            json!({"name": "s", "namespace": "shop", "uid": "u", "resourceVersion": "1"});
        // `correct-horse`
        let data = json!({"password": "Y29ycmVjdC1ob3JzZQ=="});
        let object = json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "data": data});
        let key = fixture::key("a");
        let run = Run { key, causes: Vec::new(), more_causes: 0, attempt: 0 };
        let fields = vec![(text.to_owned(), text.to_owned())];
        let message = text.to_owned();
        let report = Report {
            failure: Some(text.to_owned()),
            notes: vec![text.to_owned()],
            denied: vec![Denial::of_declaration("get", &fixture::v1(text, text), text)],
            log: vec![Line { level: Level::Info, message, fields, source: Source::Log }],
            ..Report::new(&run)
        };
        report.masked(&Reads::having_read(fixture::v1("", kind), Entry::alone(&object)))
    }

    #[test]
    fn a_report_masks_values_of_secrets_that_the_run_read() {
        for text in ["is correct-horse", "is Y29ycmVjdC1ob3JzZQ=="] {
            let report = report_with("Secret", text);
            let texts: Vec<&str> = report.texts().collect();
            assert_eq!(texts, ["is ***"; 8]);
            assert_eq!(report.denied[0].in_words(), "is ***");
            assert_eq!(report_with("ConfigMap", text).failure.as_deref(), Some(text));
        }
    }

    #[test]
    fn the_failure_text_of_a_report_is_bounded() {
        let report = report_with("ConfigMap", &"é".repeat(8 << 20));
        assert_eq!(report.failure.map(|text| text.len()), Some(MAX_TEXT_BYTES + '…'.len_utf8()));
    }
}
