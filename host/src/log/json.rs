//! Lines of the log as JSON objects.
//!
//! `timestamp`, `level`, `target` and `message`, the event's own fields beside them; `span` holds the fields of the innermost span and
//! `in` its name. A format of our own: that of `tracing-subscriber` writes a span's name as one more field `name`, and ours have one.

use std::{error::Error, fmt};

use serde_json::{Map, Value};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields, format::Writer},
    registry::LookupSpan,
};

/// One JSON object a line; the fields of spans are to be formatted as JSON, too.
pub(super) struct Json;

/// Takes the fields of an event.
struct Fields<'a>(&'a mut Map<String, Value>);

/// A line without an event.
pub(super) fn line(level: &str, target: &str, message: &str) -> Value {
    let mut line = head(level, target);
    line.insert("message".into(), message.into());
    Value::Object(line)
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
        event.record(&mut Fields(&mut line));
        if let Some(span) = context.lookup_current() {
            line.insert("in".into(), span.name().into());
            if let Some(fields) = span.extensions().get::<FormattedFields<N>>() {
                let fields: Value = serde_json::from_str(fields).map_err(|_| fmt::Error)?;
                line.insert("span".into(), fields);
            }
        }
        writeln!(to, "{}", Value::Object(line))
    }
}

// === impl Fields ===

impl Fields<'_> {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
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
        self.put(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.put(field, value.to_string());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }
}
