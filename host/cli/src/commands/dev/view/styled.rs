//! Coloured lines for the view, in the colours of the rest of the program.

use anstream::adapter::strip_str;
use ratatui::{
    style::{Color, Modifier, Style},
    text::Line,
};

/// Less important text.
pub(super) const DIM: Style = Style::new().add_modifier(Modifier::DIM);
/// A heading.
pub(super) const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
/// Text about a healthy or new object.
pub(super) const GREEN: Style = Style::new().fg(Color::Green);
/// Text about a failure or a deleted object.
pub(super) const RED: Style = Style::new().fg(Color::Red);
/// Text that needs attention.
pub(super) const YELLOW: Style = Style::new().fg(Color::Yellow);

/// Returns the lines of a difference as `print::difference` writes it.
pub(super) fn difference(text: &str) -> Vec<Line<'static>> {
    let line = |line: &str| {
        let style = match line.trim_start().chars().next() {
            Some('+') => GREEN,
            Some('-') => RED,
            Some('~') => BOLD,
            _ => DIM,
        };
        Line::styled(line.to_owned(), style)
    };
    strip_str(text).to_string().lines().map(line).collect()
}

/// Returns a line from the compiler, coloured.
pub(super) fn compiler(text: &str) -> Line<'static> {
    let text = strip_str(text).to_string();
    let style = if text.starts_with("error") {
        RED.patch(BOLD)
    } else if text.starts_with("warning") {
        YELLOW
    } else if text.trim_start().starts_with("-->") {
        BOLD
    } else {
        Style::new()
    };
    Line::styled(text, style)
}
