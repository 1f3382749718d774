//! `deploy/REFERENCE.md`: the options of `mortise run`, the metrics, and the reasons of conditions,
//! from the code.

use std::{fs, path::PathBuf};

use anyhow::Context as _;
use clap::{Arg, CommandFactory as _};
use mortise::args::Args;
use mortise_host::{metrics::Metrics, reason::Reason};

use crate::crds;

/// The first lines of the file.
const HEAD: &str = "\
# Reference

The options of `mortise run`, the metrics, and the reasons of conditions. Written by `cargo reference` from the code; a test fails if the
two differ.
";

const ABOUT_OPTIONS: &str = "\
Each option of `mortise run` can be given as an environment variable, too. `mortise run --help` prints the same texts.
";

const ABOUT_METRICS: &str = "\
At `/metrics` of `--listen`, in OpenMetrics. A metric whose name ends in `_total` is a counter, one whose name ends in `_seconds` a
histogram; the others are gauges. The labels of a metric follow the word \"by\", some with their values. `processor` is the Processor's
`namespace/name`; `kind` is `Kind.group`. A processor has at most a few hundred series of a metric: more kinds than that are counted as
`other`. The series of a Processor are removed with it.
";

const ABOUT_CONDITIONS: &str = "\
- `Loaded`: the version that the spec names runs.
- `Synced`: all objects are as the processor wants them.
- `Ready`: the processor runs, and has what it needs. If `Loaded` is false and no former version runs, `Ready` has the same reason.
- `Limited`: the processor reaches a limit of the host. There is no such condition before the first time.
- `Serving`: the conversions and admissions of the processor are answered. Only with `--webhooks`, and for a processor that has some. The
  host reads the CRDs of the kinds that are converted, and, if its account may `list` `mutatingwebhookconfigurations` and
  `validatingwebhookconfigurations` of `admissionregistration.k8s.io`, these.

The message of a condition names the object and what would be accepted.
[Decision 0043](../host/decisions/0043-dead-field-managers.md) says which objects count for `FieldConflict`.
";

/// Returns the path of the file.
pub fn path() -> PathBuf {
    crds::deploy().join("REFERENCE.md")
}

/// Returns the text of the file.
pub fn text() -> String {
    let sections = [
        ("Options", ABOUT_OPTIONS, options()),
        ("Metrics", ABOUT_METRICS, metrics()),
        ("Conditions", ABOUT_CONDITIONS, conditions()),
    ];
    let sections =
        sections.map(|(title, about, table)| format!("\n## {title}\n\n{about}\n{table}"));
    format!("{HEAD}{}", sections.concat())
}

/// Writes the file.
pub fn write() -> anyhow::Result<()> {
    let path = path();
    fs::write(&path, text()).with_context(|| format!("cannot write {}", path.display()))
}

/// Returns the table of the options of `mortise run`, with those of every command.
fn options() -> String {
    let command = Args::command();
    let run = command.find_subcommand("run").expect("`mortise` has the command `run`");
    let global = command.get_arguments().filter(|of| of.is_global_set());
    let shown = run.get_arguments().chain(global).filter(|of| !of.is_hide_set());
    table(["option", "variable", "default", "meaning"], shown.filter_map(option))
}

/// Returns the row of an option; `None` for an argument without a name.
fn option(of: &Arg) -> Option<[String; 4]> {
    let name = code(&format!("--{}", of.get_long()?));
    let variable = of.get_env().map(|name| code(&name.to_string_lossy())).unwrap_or_default();
    let defaults = of.get_default_values().iter().map(|value| code(&value.to_string_lossy()));
    let defaults = defaults.collect::<Vec<_>>().join(", ");
    let default = if of.is_required_set() { "required".to_owned() } else { defaults };
    let help = of.get_long_help().or(of.get_help()).map(ToString::to_string).unwrap_or_default();
    let takes_values = of.get_action().takes_values();
    let values = if takes_values { of.get_possible_values() } else { Vec::new() };
    let values: Vec<String> = values.iter().map(|value| code(value.get_name())).collect();
    let meaning = if values.is_empty() {
        sentence(&help)
    } else {
        format!("{} Values: {}.", sentence(&help), values.join(", "))
    };
    Some([name, variable, default, meaning])
}

/// Returns the table of the metrics, sorted by name.
fn metrics() -> String {
    let metrics = Metrics::new();
    let rows = metrics.described().iter().map(|(name, help)| [code(name), sentence(help)]);
    let mut rows: Vec<_> = rows.collect();
    rows.sort();
    table(["metric", "meaning"], rows)
}

/// Returns the table of the reasons that conditions show.
fn conditions() -> String {
    let shown = Reason::ALL.iter().filter(|reason| !reason.conditions().is_empty());
    let rows = shown.map(|reason| {
        let conditions = reason.conditions().iter();
        let conditions: Vec<String> =
            conditions.map(|(kind, status)| format!("{kind} {status}")).collect();
        [code(reason.as_str()), conditions.join(", "), reason.advice().to_owned()]
    });
    table(["reason", "condition", "meaning, and what to do"], rows)
}

/// Returns a table in Markdown.
fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let head = [head.map(str::to_owned), head.map(|_| "---".to_owned())];
    let lines: Vec<String> = head.into_iter().chain(rows).map(line).collect();
    lines.concat()
}

fn line<const N: usize>(cells: [String; N]) -> String {
    let cells = cells.map(|cell| cell.replace('|', "\\|").replace('\n', " "));
    let cells = cells.map(|cell| if cell.is_empty() { cell } else { format!(" {cell}") });
    format!("|{} |\n", cells.join(" |"))
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

/// Returns a text with a full stop at its end.
fn sentence(text: &str) -> String {
    if text.ends_with('.') { text.to_owned() } else { format!("{text}.") }
}
