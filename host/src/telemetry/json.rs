//! Formats lines of the log as JSON objects.
//!
//! `timestamp`, `level`, `target` and `message`, with the event's own fields; `span` holds the
//! fields of the innermost span and `in` its name. The format is our own: `tracing-subscriber`
//! writes a span's name as a further field `name`, and our spans have a field of that name.

use std::{
    error::Error,
    fmt::{self, Write as _},
};

use mortise_core::contract::bounds::text::escaped_json;
use serde_json::{Map, Value};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields, format::Writer},
    registry::LookupSpan,
};

use super::escape::{Bounded, Form, Room};

/// Formats each event as one line with a JSON object; the fields of spans must be formatted as
/// JSON, too.
pub(super) struct Json;

/// Collects the fields of an event, each text truncated.
struct Fields<'a> {
    to: &'a mut Map<String, Value>,
    room: Room,
}

/// Returns a line without an event.
pub(super) fn line(level: &str, target: &str, message: &str) -> String {
    let mut line = head(level, target);
    line.insert("message".into(), message.into());
    written(line)
}

/// Formats an object as a line.
fn written(line: Map<String, Value>) -> String {
    escaped_json(Value::Object(line).to_string())
}

fn head(level: &str, target: &str) -> Map<String, Value> {
    let now = jiff::Timestamp::now().to_string();
    let head = [("timestamp", now.as_str()), ("level", level), ("target", target)];
    head.map(|(name, value)| (name.to_owned(), value.into())).into_iter().collect()
}

// === impl Json ===

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut to: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        let mut line = head(metadata.level().as_str(), metadata.target());
        event.record(&mut Fields { to: &mut line, room: Room::of_line() });
        if let Some(span) = context.lookup_current() {
            line.insert("in".into(), span.name().into());
            if let Some(fields) = span.extensions().get::<FormattedFields<N>>() {
                let fields: Value = serde_json::from_str(fields).map_err(|_| fmt::Error)?;
                line.insert("span".into(), fields);
            }
        }
        writeln!(to, "{}", written(line))
    }
}

// === impl Fields ===

impl Fields<'_> {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.to.insert(field.name().to_owned(), value.into());
    }

    fn put_text(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        let mut text = String::new();
        // A value that fails to format is logged as far as it was formatted.
        let _ = Bounded::new(&mut text, &mut self.room, Form::Json).write_fmt(value);
        self.put(field, text);
    }
}

impl Visit for Fields<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put_text(field, format_args!("{value}"));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.put_text(field, format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put_text(field, format_args!("{value:?}"));
    }
}
