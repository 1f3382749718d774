//! The printed table, and the format of times.

use std::{fmt, time::Duration};

/// Rows with the measured quantity, its figures and its budget.
pub(crate) struct Table {
    columns: Vec<&'static str>,
    rows: Vec<Row>,
}

struct Row {
    what: String,
    figures: Vec<String>,
    budget: String,
}

/// Times of the same operation, in ascending order.
pub(crate) struct Times(Vec<Duration>);

// === impl Table ===

impl Default for Table {
    fn default() -> Self {
        Self { columns: vec!["figure"], rows: Vec::new() }
    }
}

impl Table {
    /// Names the columns, where a row has several figures.
    pub(crate) fn columns(&mut self, names: impl IntoIterator<Item = &'static str>) {
        self.columns = names.into_iter().collect();
    }

    /// Adds a row; an empty `budget` means that there is none.
    pub(crate) fn row(&mut self, what: impl Into<String>, figure: impl Into<String>, budget: &str) {
        self.figures(what, [figure.into()], budget);
    }

    /// Adds a row of several figures, in the order of the columns.
    pub(crate) fn figures(
        &mut self,
        what: impl Into<String>,
        figures: impl IntoIterator<Item = String>,
        budget: &str,
    ) {
        let (what, figures) = (what.into(), figures.into_iter().collect());
        self.rows.push(Row { what, figures, budget: budget.to_owned() });
    }

    fn width_of_figures(&self, column: usize) -> usize {
        let figures = self.rows.iter().filter_map(|row| row.figures.get(column));
        figures.map(|figure| figure.chars().count()).max().unwrap_or(0)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = self.rows.iter().map(|row| row.what.chars().count()).max().unwrap_or(0).max(4);
        let widths: Vec<usize> = (self.columns.iter().enumerate())
            .map(|(column, name)| self.width_of_figures(column).max(name.chars().count()))
            .collect();
        let cells = |figures: &mut dyn Iterator<Item = &str>| {
            widths.iter().fold(String::new(), |cells, width| {
                format!("{cells} | {:width$}", figures.next().unwrap_or_default())
            })
        };
        writeln!(f, "| {:what$}{} | budget", "what", cells(&mut self.columns.iter().copied()))?;
        let rules: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        let rules = cells(&mut rules.iter().map(String::as_str));
        writeln!(f, "| {:-<what$}{rules} | ------", "")?;
        for Row { what: name, figures, budget } in &self.rows {
            let figures = cells(&mut figures.iter().map(String::as_str));
            writeln!(f, "| {name:what$}{figures} | {budget}")?;
        }
        Ok(())
    }
}

// === impl Times ===

impl Times {
    /// Sorts the times.
    pub(crate) fn new(mut times: Vec<Duration>) -> Self {
        times.sort();
        Self(times)
    }

    /// Returns a percentile of the times.
    pub(crate) fn at(&self, percent: usize) -> Duration {
        let last = self.0.len().saturating_sub(1);
        self.0.get(last * percent / 100).copied().unwrap_or_default()
    }

    pub(crate) fn median(&self) -> Duration {
        self.at(50)
    }
}

/// Formats a short time in microseconds.
pub(crate) fn micros(time: Duration) -> String {
    format!("{:.1} µs", time.as_secs_f64() * 1e6)
}
