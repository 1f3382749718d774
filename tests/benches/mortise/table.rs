//! The table that is printed, and times as people read them.

use std::{fmt, time::Duration};

/// Rows of what was measured, the figure, and what it should be.
#[derive(Default)]
pub(crate) struct Table(Vec<[String; 3]>);

/// Times of the same thing, in ascending order.
pub(crate) struct Times(Vec<Duration>);

// === impl Table ===

impl Table {
    /// Adds a row; an empty budget where there is none.
    pub(crate) fn row(&mut self, what: impl Into<String>, figure: impl Into<String>, budget: &str) {
        self.0.push([what.into(), figure.into(), budget.to_owned()]);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |text: &String| text.chars().count();
        let widest = |column: fn(&[String; 3]) -> &String, least| {
            self.0.iter().map(|row| width(column(row))).max().unwrap_or(0).max(least)
        };
        let (what, figure) = (widest(|[what, ..]| what, 4), widest(|[_, figure, _]| figure, 6));
        writeln!(f, "| {:what$} | {:figure$} | budget", "what", "figure")?;
        writeln!(f, "| {:-<what$} | {:-<figure$} | ------", "", "")?;
        for [name, value, budget] in &self.0 {
            writeln!(f, "| {name:what$} | {value:figure$} | {budget}")?;
        }
        Ok(())
    }
}

// === impl Times ===

impl Times {
    /// Times in any order.
    pub(crate) fn new(mut times: Vec<Duration>) -> Self {
        times.sort();
        Self(times)
    }

    /// The time that this share of all stays below.
    pub(crate) fn at(&self, percent: usize) -> Duration {
        let last = self.0.len().saturating_sub(1);
        self.0.get(last * percent / 100).copied().unwrap_or_default()
    }

    /// The time in the middle.
    pub(crate) fn median(&self) -> Duration {
        self.at(50)
    }
}

/// A short time, in microseconds.
pub(crate) fn micros(time: Duration) -> String {
    format!("{:.1} µs", time.as_secs_f64() * 1e6)
}
