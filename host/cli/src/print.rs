//! Output for people on a terminal: a line for each reconcile, and the difference between two
//! states. Values of Secrets and of declared credentials are masked here unless they are asked for.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::Arc,
};

use anstyle::{AnsiColor, Style};
use mortise_core::{
    contract::{
        Kind, Selection,
        bounds::text::{escaped, escaped_json, escaped_lines, is_unsafe},
        display_kind,
    },
    outbound::Made,
    path::Path,
    reads::record::Digest,
    reconcile::Report,
    write::{Action, Change},
};
use serde::Serialize;
use serde_json::Value;
use similar::{ChangeTag, TextDiff};

/// Text about an object that exists now.
pub const GREEN: Style = AnsiColor::Green.on_default();
/// Text about a failure or a deleted object.
pub const RED: Style = AnsiColor::Red.on_default();
/// Text that needs attention.
pub const YELLOW: Style = AnsiColor::Yellow.on_default();
/// Less important text.
pub const DIM: Style = Style::new().dimmed();
/// A heading.
pub const BOLD: Style = Style::new().bold();

/// The number of unchanged lines shown around a changed one.
const CONTEXT_LINES: usize = 3;
/// The text shown in place of a masked value.
const MASK: &str = "(masked)";
/// The annotation in which `kubectl apply` keeps a copy of the object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Tells which values of objects are masked where they are printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Secrets {
    /// The values of Secrets, and of the credentials that descriptions declare.
    Masked(Arc<[Selection]>),
    Shown,
}

// === impl Secrets ===

impl Secrets {
    /// Masks the values of Secrets and of declared credentials, unless they are shown.
    pub fn new(show: bool, declared: impl IntoIterator<Item = Selection>) -> Self {
        if show { Self::Shown } else { Self::Masked(declared.into_iter().collect()) }
    }
}

/// Returns the object in the form in which it may be printed.
pub fn printable(object: &Value, secrets: &Secrets) -> Value {
    printable_beside(object, None, secrets)
}

/// Returns the object in the form in which it may be printed beside its other version. A masked
/// value that differs in the other version is shown as its digest, keyed with a random key of this
/// process: readers see that the value differs, but cannot find the value by trying candidates.
fn printable_beside(object: &Value, other: Option<&Value>, secrets: &Secrets) -> Value {
    let mut object = object.clone();
    if let Secrets::Masked(declared) = secrets {
        for place in places(&object, declared) {
            if let Some(value) = object.pointer_mut(&place) {
                hide(value, other.and_then(|other| other.pointer(&place)));
            }
        }
    }
    object
}

/// Returns a JSON pointer for each value to be masked: those of a Secret, of the fields of declared
/// credentials, and the copy of such an object in an annotation. One that is within another comes
/// after it.
fn places(object: &Value, declared: &[Selection]) -> BTreeSet<String> {
    let Kind { group, kind, .. } = kind_of(object);
    let mut paths: Vec<Path> = Vec::new();
    let is_meant = |of: &&Selection| of.kind.group == group && of.kind.kind == kind;
    for of in declared.iter().filter(is_meant) {
        paths.extend(of.fields.iter().filter_map(|at| at.parse::<Path>().ok()));
    }
    if kind == "Secret" {
        for field in ["data", "stringData"] {
            let values = object.get(field).and_then(Value::as_object);
            let names = values.into_iter().flat_map(|values| values.keys());
            paths.extend(names.filter_map(|name| Path::from_keys([field, name])));
            // Values that were not validated may have any form.
            paths.extend(Path::from_keys([field]).filter(|_| values.is_none()));
        }
    } else if paths.is_empty() {
        return BTreeSet::new();
    }
    let annotations = ["metadata", "annotations"];
    let is_map = object.pointer("/metadata/annotations").is_some_and(Value::is_object);
    let copy = annotations.into_iter().chain(is_map.then_some(LAST_APPLIED));
    paths.extend(Path::from_keys(copy));
    paths.iter().flat_map(|path| path.pointers(object)).collect()
}

fn hide(value: &mut Value, other: Option<&Value>) {
    let masked = match other {
        Some(other) if *other != *value => {
            format!("(masked {})", Digest::keyed([value.to_string().as_bytes()]).short())
        }
        _ => MASK.to_owned(),
    };
    *value = Value::from(masked);
}

/// Returns the title that identifies an object in the output: `Service v1 namespace/name`.
pub fn title(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let name = text("/metadata/name").or_else(|| text("/metadata/generateName")).unwrap_or("?");
    named(&kind_of(object), text("/metadata/namespace"), name)
}

/// Returns the title of an object of a cluster, whose name is empty for the home cluster.
pub fn in_cluster(title: String, cluster: &str) -> String {
    if cluster.is_empty() { title } else { format!("{title} in {}", escaped(cluster)) }
}

/// Returns the kind of an object or of a reference to one; `?` stands for what is missing.
pub fn kind_of(object: &Value) -> Kind {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or("?");
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    Kind::home(group, version, text("kind"))
}

/// Names an object in the output: `Service v1 namespace/name`.
pub fn named(kind: &Kind, namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => format!("{} {namespace}/{name}", display_kind(kind)),
        None => format!("{} {name}", display_kind(kind)),
    }
}

/// Returns the difference between two states, object by object, as coloured YAML. Both states are
/// keyed by [`title`].
pub fn difference(
    before: &BTreeMap<String, Value>,
    after: &BTreeMap<String, Value>,
    secrets: &Secrets,
) -> String {
    let mut text = String::new();
    let mut titles: Vec<&String> = before.keys().chain(after.keys()).collect();
    titles.sort();
    titles.dedup();
    for title in titles {
        let (old, new) = (before.get(title), after.get(title));
        if let (Some(old), Some(new)) = (old, new)
            && readable(old) == readable(new)
        {
            continue;
        }
        let (sign, style) = match (old, new) {
            (None, _) => ('+', GREEN),
            (_, None) => ('-', RED),
            _ => ('~', BOLD),
        };
        let _ = writeln!(text, "{style}{sign} {title}{style:#}");
        let masked = |object: Option<&Value>, other: Option<&Value>| {
            object.map(|object| yaml(&readable(&printable_beside(object, other, secrets))))
        };
        let (old, new) = (masked(old, new), masked(new, old));
        lines(&mut text, &old.unwrap_or_default(), &new.unwrap_or_default());
    }
    text
}

/// Appends the lines in which two texts differ, with some lines around them.
pub fn lines(text: &mut String, old: &str, new: &str) {
    let difference = TextDiff::from_lines(old, new);
    for (index, group) in difference.grouped_ops(CONTEXT_LINES).iter().enumerate() {
        if index > 0 {
            let _ = writeln!(text, "{DIM}    ⋮{DIM:#}");
        }
        for change in group.iter().flat_map(|op| difference.iter_changes(op)) {
            let (sign, style) = match change.tag() {
                ChangeTag::Insert => ('+', GREEN),
                ChangeTag::Delete => ('-', RED),
                ChangeTag::Equal => (' ', DIM),
            };
            let _ = writeln!(
                text,
                "{style}  {sign} {}{style:#}",
                change.value().trim_end_matches('\n')
            );
        }
    }
}

/// Returns the object without server-managed metadata, which no reader needs in a difference.
fn readable(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["managedFields", "resourceVersion", "uid", "creationTimestamp", "generation"]
        {
            metadata.remove(field);
        }
    }
    object
}

/// Formats an object as YAML. If a text has characters that a terminal or another reader of YAML
/// may not take as text, the object is written as JSON, where they are escaped.
pub fn yaml(object: &impl Serialize) -> String {
    let text = serde_saphyr::to_string(object);
    let text = text.unwrap_or_else(|error| format!("(no YAML: {error})\n"));
    if text.contains(|character| character != '\n' && is_unsafe(character)) {
        return json(object).unwrap_or_else(|error| format!("(no JSON: {error})\n"));
    }
    text
}

/// Formats a value as JSON.
///
/// # Errors
///
/// Fails for a value that JSON cannot hold.
pub fn json(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(escaped_json(serde_json::to_string_pretty(value)? + "\n"))
}

/// Formats an event in a few words.
pub fn event(event: &Value) -> String {
    let text = |name: &str| event.get(name).and_then(Value::as_str);
    let on = event.get("regarding").or_else(|| event.get("involvedObject")).unwrap_or(&Value::Null);
    let of = |name: &str| on.get(name).and_then(Value::as_str);
    format!(
        "{} {} on {}: {}",
        text("type").unwrap_or_default(),
        escaped(text("reason").unwrap_or_default()),
        named(&kind_of(on), of("namespace"), of("name").unwrap_or_default()),
        guest_text(text("note").or_else(|| text("message")).unwrap_or_default())
    )
}

/// Formats a reconcile: the causes, the duration, the writes, the calls to systems outside of the
/// cluster, the failure, notes and log lines.
pub fn report(report: &Report) -> String {
    let object = named(&report.kind, report.key.namespace(), report.key.name());
    let mut text = format!("{BOLD}{object}{BOLD:#}  {:.1?}", report.took);
    let mut causes: Vec<String> = report.causes.iter().map(ToString::to_string).collect();
    if report.more_causes > 0 {
        causes.push(format!("{} more", report.more_causes));
    }
    let _ = write!(text, "  {DIM}because:{DIM:#} {}", causes.join(", "));
    let written: Vec<String> = report.changes.iter().map(change).collect();
    match written.as_slice() {
        [] => _ = write!(text, "  {DIM}nothing to write{DIM:#}"),
        written => _ = write!(text, "  {GREEN}wrote:{GREEN:#} {}", written.join(", ")),
    }
    if report.attempt > 0 {
        let _ = write!(text, "  {DIM}attempt {}{DIM:#}", report.attempt + 1);
    }
    for made in &report.record.calls {
        let _ = write!(text, "\n  {DIM}called:{DIM:#} {}, {:.1?}", call(made), made.took);
    }
    if let Some(failure) = &report.failure {
        let _ = write!(text, "\n  {RED}failed:{RED:#} {}", guest_text(failure));
    }
    for note in &report.notes {
        let _ = write!(text, "\n  {DIM}note:{DIM:#} {}", guest_text(note));
    }
    for line in &report.log {
        let _ = write!(text, "\n  {DIM}{:?}:{DIM:#} {}", line.level, guest_text(&line.message));
        for (name, value) in &line.fields {
            let _ = write!(text, " {DIM}{}={DIM:#}{}", escaped(name), guest_text(value));
        }
    }
    text
}

/// Formats a guest's text below its first line. No line of the result can look like ours.
pub(crate) fn guest_text(text: &str) -> String {
    escaped_lines(text.trim_end()).replace('\n', "\n    ")
}

/// Formats a call to a system outside of the cluster: `GET https://api.example.com/items 200`, or
/// with an error in one word.
pub fn call(made: &Made) -> String {
    let ended = made.status.map(|status| status.to_string());
    let ended = ended.or_else(|| made.error.map(str::to_owned)).unwrap_or_default();
    format!("{} {} {ended}", made.method.name(), escaped(&made.url))
}

/// Formats a write in a few words; an event by its reason.
fn change(change: &Change) -> String {
    if change.action == Action::Event {
        let text = |name: &str| change.object.get(name).and_then(Value::as_str);
        return format!("event {}", escaped(text("reason").unwrap_or_default()));
    }
    let of = &change.of;
    format!("{} {}", change.action, named(&of.kind, of.namespace.as_deref(), &of.name))
}
