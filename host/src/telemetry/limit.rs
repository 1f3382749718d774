//! The limit on the lines that are logged about one processor.
//!
//! A line that names a processor, itself or by its span, uses the allowance of that processor; any
//! other line uses the allowance of its place in the code. Lines over the limit are counted, and
//! reported in one line. Regardless of the limit, each place may log one line in
//! [`REPORT_INTERVAL`] about each processor: a chatty guest cannot hide a failure.

use std::{
    collections::HashMap,
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tracing::{
    Event, Subscriber,
    callsite::Identifier,
    field::{Field, Visit},
    span::{Attributes, Id},
};
use tracing_subscriber::{
    Layer,
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    layer::Context,
    registry::LookupSpan,
};

use crate::metrics::dropped_lines;

/// The lines per second: more than a person reads, and too few to burden a log collector.
pub(crate) const LINES_A_SECOND: f64 = 50.0;
/// The bytes per second.
pub(crate) const BYTES_A_SECOND: f64 = 64.0 * 1024.0;
/// The length of a burst, in seconds of allowance: a quiet processor may log 500 lines and 640 KiB
/// at once.
const BURST_SECONDS: f64 = 10.0;
/// The interval between reports of dropped lines, and between the lines of one place past the
/// limit.
pub(super) const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Formats events within the limits.
pub(super) struct Limited<F> {
    pub(super) inner: F,
    pub(super) limits: Arc<Limits>,
}

/// Records the processor that a span is about.
pub(super) struct Spans;

/// The allowances of processors and places that have logged recently.
#[derive(Debug, Default)]
pub(super) struct Limits(Mutex<HashMap<About, Allowance>>);

/// The subject of a line: a processor, or, for a line about no processor, its place in the code.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum About {
    Processor(Arc<str>),
    Place(Identifier),
}

/// Dropped lines of one subject.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Dropped {
    /// The processor; `None` for lines of the host itself.
    pub(super) processor: Option<Arc<str>>,
    pub(super) lines: u64,
}

#[derive(Debug)]
struct Allowance {
    lines: f64,
    /// The bytes left; negative after a line that took more.
    bytes: f64,
    at: Instant,
    dropped: u64,
    /// The places that have logged a line past the limit, and when.
    past: Vec<(Identifier, Instant)>,
}

/// Finds the value of the field `processor`.
#[derive(Default)]
struct Find(Option<Arc<str>>);

// === impl Limits ===

impl Limits {
    /// Takes a line from the allowance of its subject; returns false if the line must be dropped.
    pub(super) fn admit(&self, about: &About, place: &Identifier, now: Instant) -> bool {
        let mut all = self.0.lock();
        if !all.contains_key(about) {
            all.insert(about.clone(), Allowance::full(now));
        }
        all.get_mut(about).is_some_and(|allowance| allowance.admit(place, now))
    }

    /// Takes the length of a line from the allowance of its subject.
    pub(super) fn charge(&self, about: &About, bytes: usize) {
        if let Some(allowance) = self.0.lock().get_mut(about) {
            allowance.bytes -= f64::from(u32::try_from(bytes).unwrap_or(u32::MAX));
        }
    }

    /// Returns the lines dropped since the last call, and removes subjects whose allowance is full
    /// again.
    pub(super) fn take_dropped(&self, now: Instant) -> Vec<Dropped> {
        let mut dropped = Vec::new();
        self.0.lock().retain(|about, allowance| {
            let lines = std::mem::take(&mut allowance.dropped);
            if lines > 0 {
                let processor = match about {
                    About::Processor(name) => Some(Arc::clone(name)),
                    About::Place(_) => None,
                };
                dropped.push(Dropped { processor, lines });
            }
            allowance.refill(now);
            lines > 0 || !allowance.is_full()
        });
        dropped
    }
}

// === impl Allowance ===

impl Allowance {
    fn full(now: Instant) -> Self {
        let (lines, bytes) = (LINES_A_SECOND * BURST_SECONDS, BYTES_A_SECOND * BURST_SECONDS);
        Self { lines, bytes, at: now, dropped: 0, past: Vec::new() }
    }

    fn refill(&mut self, now: Instant) {
        let seconds = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = self.at.max(now);
        let more = |had: f64, rate: f64| (had + seconds * rate).min(rate * BURST_SECONDS);
        self.lines = more(self.lines, LINES_A_SECOND);
        self.bytes = more(self.bytes, BYTES_A_SECOND);
    }

    fn is_full(&self) -> bool {
        self.lines >= LINES_A_SECOND * BURST_SECONDS && self.bytes >= BYTES_A_SECOND * BURST_SECONDS
    }

    fn admit(&mut self, place: &Identifier, now: Instant) -> bool {
        self.refill(now);
        if self.lines >= 1.0 && self.bytes > 0.0 {
            self.lines -= 1.0;
            return true;
        }
        self.past.retain(|(_, at)| now.saturating_duration_since(*at) < REPORT_INTERVAL);
        if self.past.iter().any(|(said, _)| said == place) {
            self.dropped += 1;
            return false;
        }
        self.past.push((place.clone(), now));
        true
    }
}

// === impl Limited ===

impl<S, N, F> FormatEvent<S, N> for Limited<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut to: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let place = event.metadata().callsite();
        let processor = about(context, event);
        let about = processor.clone().map_or_else(|| About::Place(place.clone()), About::Processor);
        if !self.limits.admit(&about, &place, Instant::now()) {
            dropped_lines::count(processor.as_ref());
            return Ok(());
        }
        let mut line = String::new();
        self.inner.format_event(context, Writer::new(&mut line), event)?;
        self.limits.charge(&about, line.len());
        to.write_str(&line)
    }
}

/// Returns the processor of an event, from its own field or from a span around it.
fn about<S, N>(context: &FmtContext<'_, S, N>, event: &Event<'_>) -> Option<Arc<str>>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    let mut own = Find::default();
    event.record(&mut own);
    let of_span = || {
        let mut spans = context.event_scope()?;
        spans.find_map(|span| span.extensions().get::<Arc<str>>().cloned())
    };
    own.0.or_else(of_span)
}

// === impl Spans ===

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut found = Find::default();
        attributes.record(&mut found);
        if let (Some(processor), Some(span)) = (found.0, context.span(id)) {
            span.extensions_mut().insert(processor);
        }
    }
}

// === impl Find ===

impl Visit for Find {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "processor" {
            self.0 = Some(value.into());
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "processor" {
            self.0 = Some(format!("{value:?}").into());
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing::Callsite as _;

    use super::*;

    fn place() -> Identifier {
        tracing::callsite!(name: "here", kind: tracing::metadata::Kind::EVENT, fields: a)
            .metadata()
            .callsite()
    }

    fn of(name: &str) -> About {
        About::Processor(name.into())
    }

    #[test]
    fn a_processor_has_its_lines_a_second() {
        let (limits, start, place) = (Limits::default(), Instant::now(), place());
        let (mut admitted, seconds) = (0, 60);
        for millisecond in 0..seconds * 1000 {
            let now = start + Duration::from_millis(millisecond);
            for _ in 0..10 {
                admitted += u64::from(limits.admit(&of("a"), &place, now));
            }
        }
        // The burst, the allowance of a minute, and one line past the limit every ten seconds.
        assert!((3490..3510).contains(&admitted), "{admitted}");
        let now = start + Duration::from_secs(seconds);
        let dropped = limits.take_dropped(now);
        let expected = Dropped { processor: Some("a".into()), lines: 600_000 - admitted };
        assert_eq!(dropped, [expected]);
        assert_eq!(limits.take_dropped(now), []);
    }

    #[test]
    fn a_processor_has_its_bytes_a_second() {
        let (limits, start, place) = (Limits::default(), Instant::now(), place());
        let mut bytes = 0;
        for second in 0..60 {
            for _ in 0..1000 {
                if limits.admit(&of("a"), &place, start + Duration::from_secs(second)) {
                    limits.charge(&of("a"), 16 << 10);
                    bytes += 16 << 10;
                }
            }
        }
        assert!(bytes < 80 * (64 << 10), "{bytes}");
    }

    #[test]
    fn a_subject_is_removed_once_its_allowance_is_full_again() {
        let (limits, start, place) = (Limits::default(), Instant::now(), place());
        assert!(limits.admit(&of("a"), &place, start));
        limits.take_dropped(start);
        assert_eq!(limits.0.lock().len(), 1);
        limits.take_dropped(start + Duration::from_mins(1));
        assert_eq!(limits.0.lock().len(), 0);
    }
}
