//! Formats the fields of events and spans for people: `message name=value …`, escaped and cut.

use std::{
    error::Error,
    fmt::{self, Write as _},
};

use anstyle::Style;
use tracing::field::{Field, Visit};
use tracing_subscriber::{
    field::RecordFields,
    fmt::{FormatFields, format::Writer},
};

use super::escape::{Bounded, Form, Room};

/// The style of a field's name in a terminal.
const NAME: Style = Style::new().italic();
const EQUALS: Style = Style::new().dimmed();

/// Formats fields for people; no value of a field can end its line.
pub(super) struct Text;

struct Fields<'a> {
    to: Writer<'a>,
    room: Room,
    is_first: bool,
    result: fmt::Result,
}

// === impl Text ===

impl<'writer> FormatFields<'writer> for Text {
    fn format_fields<R: RecordFields>(&self, to: Writer<'writer>, fields: R) -> fmt::Result {
        let mut all = Fields { to, room: Room::of_line(), is_first: true, result: Ok(()) };
        fields.record(&mut all);
        all.result
    }
}

// === impl Fields ===

impl Fields<'_> {
    fn put(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        if self.result.is_ok() {
            self.result = self.try_put(field.name(), value);
        }
    }

    fn try_put(&mut self, name: &str, value: fmt::Arguments<'_>) -> fmt::Result {
        if !std::mem::take(&mut self.is_first) {
            self.to.write_char(' ')?;
        }
        match name {
            "message" => {}
            name if self.to.has_ansi_escapes() => {
                write!(self.to, "{NAME}{name}{NAME:#}{EQUALS}={EQUALS:#}")?;
            }
            name => write!(self.to, "{name}=")?,
        }
        Bounded::new(&mut self.to, &mut self.room, Form::Text).write_fmt(value)
    }
}

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.put(field, format_args!("{value}"));
        } else {
            self.put(field, format_args!("{value:?}"));
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.put(field, format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format_args!("{value:?}"));
    }
}
