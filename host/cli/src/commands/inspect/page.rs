//! Prints an inspection for people: a heading, and a table for each list.

use std::{fmt::Write as _, time::Duration};

use mortise_core::contract::bounds::text::escaped;

use super::{
    ImageEntry, Inspection, LibraryEntry, OutboundEntry, ReconcilerEntry, Selected, WriteEntry,
    library::LibraryInspection, outbound,
};
use crate::print::{self, BOLD, DIM, YELLOW};

/// Rows of cells; each cell has lines.
type Table = Vec<Vec<Vec<String>>>;

// === impl Inspection ===

impl Inspection {
    /// Formats the whole inspection for a terminal.
    pub fn for_people(&self) -> String {
        let mut text = format!("{BOLD}{} {}{BOLD:#}\n", self.name, self.version);
        let file = self.file.iter().map(|file| ("file", vec![file.display().to_string()]));
        let image = self.image.iter().flat_map(ImageEntry::rows);
        let head = vec![
            ("digest", vec![self.digest.clone()]),
            ("size", vec![size(self.size)]),
            ("contract", vec![self.contract.clone()]),
            ("imports", interfaces(&self.imports)),
        ];
        let libraries = self.libraries.iter().map(LibraryEntry::lines);
        let libraries = libraries.map(|lines| ("library", lines));
        let head = file.chain(image).chain(head).chain(libraries);
        let head = head.map(|(name, lines)| vec![vec![name.to_owned()], lines]);
        text.push_str(&aligned(&head.collect::<Vec<_>>()));
        section(
            &mut text,
            "reconciles",
            &["name", "of", "where", "finalizers", "resync"],
            self.reconcilers.iter().map(ReconcilerEntry::row).collect(),
        );
        section(
            &mut text,
            "reads",
            &["kind", "where", "selected by", "fields"],
            self.reads.iter().map(Selected::row).collect(),
        );
        section(
            &mut text,
            "writes",
            &["kind", "where", "selected by", "verbs", "fields"],
            self.writes.iter().map(WriteEntry::row).collect(),
        );
        if !self.grants.is_empty() {
            let rows = self.grants.iter().map(|rule| vec![vec![rule.to_string()]]).collect();
            section(&mut text, "grants", &["rule"], rows);
        }
        if !self.outbound.is_empty() {
            let rows = self.outbound.iter().map(OutboundEntry::row).collect();
            section(&mut text, "calls", &["origin", "methods", "credentials", "pause"], rows);
            let _ = writeln!(text, "\n{BOLD}a Processor grants these calls by{BOLD:#}");
            text.push_str(&outbound::block(&self.egress));
        }
        if !self.warnings.is_empty() {
            let _ = writeln!(text, "\n{BOLD}warnings{BOLD:#}");
            for warning in &self.warnings {
                let _ = writeln!(text, "  {YELLOW}{}{YELLOW:#}", escaped(warning));
            }
        }
        let _ = writeln!(text, "\n{BOLD}configuration{BOLD:#}");
        match &self.config_schema {
            None => text.push_str("  no schema: it takes none, or checks it itself\n"),
            Some(schema) => {
                for line in print::yaml(schema).lines() {
                    let _ = writeln!(text, "  {line}");
                }
            }
        }
        text
    }
}

// === impl LibraryInspection ===

impl LibraryInspection {
    /// Formats the whole inspection for a terminal.
    pub(super) fn for_people(&self) -> String {
        let file = self.file.iter().map(|file| ("file", vec![file.display().to_string()]));
        let image = self.image.iter().flat_map(ImageEntry::rows);
        let rest = [
            ("digest", vec![self.digest.clone()]),
            ("size", vec![size(self.size)]),
            ("imports", interfaces(&self.imports)),
            ("exports", interfaces(&self.exports)),
        ];
        let rows = file.chain(image).chain(rest);
        let rows = rows.map(|(name, lines)| vec![vec![name.to_owned()], lines]);
        let table = aligned(&rows.collect::<Vec<_>>());
        format!("{BOLD}a library: it exports no `mortise:host/reconciliation`{BOLD:#}\n{table}")
    }
}

// === impl ImageEntry ===

impl ImageEntry {
    fn rows(&self) -> Vec<(&'static str, Vec<String>)> {
        let annotations = self.annotations.iter().map(|(key, value)| format!("{key}: {value}"));
        let annotations: Vec<String> = annotations.collect();
        let mut rows = vec![("image", vec![self.reference.clone()])];
        if !annotations.is_empty() {
            rows.push(("annotations", annotations));
        }
        rows
    }
}

// === impl LibraryEntry ===

impl LibraryEntry {
    fn lines(&self) -> Vec<String> {
        let head = [self.interface.clone(), self.digest.clone()];
        head.into_iter().chain(self.functions.iter().cloned()).collect()
    }
}

// === impl ReconcilerEntry ===

impl ReconcilerEntry {
    fn row(&self) -> Vec<Vec<String>> {
        let mut times = vec![match self.resync {
            Duration::ZERO => "never".to_owned(),
            resync => format!("after {}", time(resync)),
        }];
        if !self.min_interval.is_zero() {
            times.push(format!("at most every {}", time(self.min_interval)));
        }
        if self.whole_status {
            times.push("the whole status is written, and read".to_owned());
        } else if self.triggered_by_status {
            times.push("also on changes of the status".to_owned());
        }
        let finalizers = some_or(self.finalizers.clone(), "none");
        let mut place = self.of.place();
        if self.on_demand {
            place.insert(0, "on demand, within:".to_owned());
        }
        vec![vec![self.name.clone()], vec![self.of.title()], place, finalizers, times]
    }
}

// === impl Selected ===

impl Selected {
    fn row(&self) -> Vec<Vec<String>> {
        let fields = some_or(self.fields.clone(), "whole objects");
        vec![vec![self.title()], self.place(), self.selector(), fields]
    }

    /// Names the credential in one line: `data.token of Secret v1 (in shop, app=a)`.
    pub(super) fn as_credential(&self) -> String {
        let place = self.place().into_iter().chain(self.selector());
        let place: Vec<String> = place.filter(|part| !part.is_empty()).collect();
        format!("{} of {} ({})", self.fields.join(", "), self.title(), place.join(", "))
    }

    /// Returns kind and version: `ConfigMap v1`.
    fn title(&self) -> String {
        format!("{} {}", self.kind, self.api_version)
    }

    fn place(&self) -> Vec<String> {
        let place = match (&self.namespace, &self.name) {
            (Some(namespace), Some(name)) => format!("{namespace}/{name}"),
            (Some(namespace), None) => format!("in {namespace}"),
            (None, Some(name)) => format!("named {name}"),
            (None, None) => "everywhere".to_owned(),
        };
        let cluster = match &*self.cluster {
            "" => None,
            "*" => Some("of each cluster".to_owned()),
            cluster => Some(format!("of cluster {cluster}")),
        };
        std::iter::once(place).chain(cluster).collect()
    }

    fn selector(&self) -> Vec<String> {
        let labels = Some(self.labels.clone()).filter(|labels| !labels.is_empty());
        let matching = self.matching.iter().map(|held| match held.value.as_str() {
            "*" => held.path.clone(),
            value => format!("{}={value}", held.path),
        });
        some_or(labels.into_iter().chain(matching).collect(), "")
    }
}

// === impl WriteEntry ===

impl WriteEntry {
    fn row(&self) -> Vec<Vec<String>> {
        let fields = some_or(self.fields.clone(), "any");
        let of = &self.of;
        vec![vec![of.title()], of.place(), of.selector(), vec![self.verbs.join(", ")], fields]
    }
}

// === impl OutboundEntry ===

impl OutboundEntry {
    fn row(&self) -> Vec<Vec<String>> {
        let credentials = self.credentials.iter().map(Selected::as_credential).collect();
        let pause = if self.pause.is_zero() { "none".to_owned() } else { time(self.pause) };
        let methods = some_or(vec![self.methods.join(", ")], "none");
        vec![vec![self.origin.clone()], methods, some_or(credentials, "none"), vec![pause]]
    }
}

fn some_or(lines: Vec<String>, none: &str) -> Vec<String> {
    if lines.is_empty() { vec![none.to_owned()] } else { lines }
}

/// Formats a size: `848 KiB (868114 bytes)`.
pub(in crate::commands) fn size(bytes: u64) -> String {
    format!("{} KiB ({bytes} bytes)", bytes.div_ceil(1024))
}

/// Formats a time in its largest whole unit: `30m`, `1500ms`.
fn time(time: Duration) -> String {
    let milliseconds = time.as_millis();
    let units = [(3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    let whole = units.into_iter().find(|(unit, _)| milliseconds.is_multiple_of(*unit));
    let (unit, name) = whole.unwrap_or((1, "ms"));
    format!("{}{name}", milliseconds / unit)
}

/// Formats interfaces, with those of one package on one line: `mortise:host@0.1.0: clock, cluster`.
fn interfaces(names: &[String]) -> Vec<String> {
    let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
    for name in names {
        let (path, version) = name.split_once('@').unwrap_or((name, ""));
        let (package, interface) = path.split_once('/').unwrap_or((path, ""));
        let package =
            if version.is_empty() { package.to_owned() } else { format!("{package}@{version}") };
        match lines.last_mut().filter(|(last, _)| *last == package) {
            Some((_, interfaces)) => interfaces.push(interface),
            None => lines.push((package, vec![interface])),
        }
    }
    let line = |(package, interfaces): (String, Vec<&str>)| {
        format!("{package}: {}", interfaces.join(", "))
    };
    some_or(lines.into_iter().map(line).collect(), "nothing")
}

fn section(text: &mut String, title: &str, columns: &[&str], rows: Table) {
    let _ = writeln!(text, "\n{BOLD}{title}{BOLD:#}");
    if rows.is_empty() {
        text.push_str("  nothing\n");
        return;
    }
    let heads = columns.iter().map(|&head| vec![head.to_owned()]).collect();
    let table: Table = std::iter::once(heads).chain(rows).collect();
    let aligned = aligned(&table);
    let (head, rest) = aligned.split_once('\n').unwrap_or((&aligned, ""));
    let _ = writeln!(text, "{DIM}{head}{DIM:#}");
    text.push_str(rest);
}

/// Aligns the cells in columns, with two blanks before each column.
fn aligned(table: &Table) -> String {
    let count = table.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        let cells = table.iter().filter_map(|row| row.get(column)).flatten();
        cells.map(|line| escaped(line).chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut text = String::new();
    for row in table {
        for line in 0..row.iter().map(Vec::len).max().unwrap_or_default() {
            let mut written = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                let held = escaped(cell.get(line).map_or("", String::as_str));
                let _ = write!(written, "  {held:width$}");
            }
            text.push_str(written.trim_end());
            text.push('\n');
        }
    }
    text
}
