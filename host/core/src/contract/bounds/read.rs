//! Bounds on the arguments of reads.

use super::{ENTRY, FIELDS, PAGE_TOKEN, PATH, READ_ARGUMENTS, text};
use crate::contract::{Kind, ObjectRef, Selection};

/// The accepted form of a namespace, as error messages show it.
const NAMESPACE: &str = "a namespace is a DNS label of at most 63 lower-case letters, digits and `-`; for objects without namespace, and \
                         for all namespaces, it is none";

/// Returns the bytes of the arguments of a `get`.
pub fn get_size(of: &ObjectRef, fields: &[String]) -> usize {
    let named = named(&of.kind, of.namespace.as_deref());
    named + of.name.len() + entries(fields)
}

/// Returns the bytes of the arguments of a `list`.
pub fn list_size(of: &Selection, from: Option<&str>) -> usize {
    selection_size(of) + from.map_or(0, str::len)
}

/// Returns the bytes of a selection.
pub(super) fn selection_size(of: &Selection) -> usize {
    let named = named(&of.kind, of.namespace.as_deref());
    let requirements = of.labels.bytes().filter(|byte| *byte == b',').count();
    let labels = of.labels.len() + ENTRY * requirements;
    let matching = of.matching.iter().map(|(path, value)| ENTRY + path.len() + value.len());
    let name = of.name.as_ref().map_or(0, String::len);
    named + name + labels + matching.sum::<usize>() + entries(&of.fields)
}

fn named(kind: &Kind, namespace: Option<&str>) -> usize {
    let Kind { cluster, group, version, kind } = kind;
    cluster.len() + group.len() + version.len() + kind.len() + namespace.map_or(0, str::len)
}

fn entries(texts: &[String]) -> usize {
    texts.iter().map(|text| ENTRY + text.len()).sum()
}

/// Refuses a `get` that would be invalid under any declaration.
pub fn check_get(of: &ObjectRef, fields: &[String]) -> Result<(), String> {
    check_size(get_size(of, fields))?;
    check_kind(&of.kind)?;
    check_place(of.namespace.as_deref(), Some(&of.name))?;
    check_paths("fields", fields.iter())
}

/// Refuses a `list` that would be invalid under any declaration.
pub fn check_list(of: &Selection, from: Option<&str>) -> Result<(), String> {
    check_size(list_size(of, from))?;
    check_kind(&of.kind)?;
    check_place(of.namespace.as_deref(), of.name.as_deref())?;
    check_paths("fields", of.fields.iter())?;
    check_paths("matching", of.matching.iter().map(|(path, _)| path))?;
    match from.filter(|token| token.len() > PAGE_TOKEN) {
        Some(token) => Err(format!(
            "page token {}: it was not given by this host: those have at most {PAGE_TOKEN} bytes",
            text::quoted(token)
        )),
        None => Ok(()),
    }
}

fn check_size(size: usize) -> Result<(), String> {
    if size <= READ_ARGUMENTS {
        return Ok(());
    }
    Err(format!(
        "the arguments of a read have at most {READ_ARGUMENTS} bytes, {ENTRY} more for each field and each condition: these have {size}"
    ))
}

fn check_kind(kind: &Kind) -> Result<(), String> {
    if !text::is_cluster(&kind.cluster) {
        return Err(format!("cluster {}: {}", text::quoted(&kind.cluster), text::CLUSTER_FORM));
    }
    let shown = || {
        let [group, version, kind] =
            [&kind.group, &kind.version, &kind.kind].map(|text| text::quoted(text));
        format!("got group {group}, version {version}, kind {kind}")
    };
    if kind.kind.is_empty() || kind.version.is_empty() || kind.kind == "*" || kind.group == "*" {
        return Err(format!(
            "a read names one kind, by version and kind, and `*` only stands in a declaration: {}",
            shown()
        ));
    }
    if text::is_kind(kind) { Ok(()) } else { Err(format!("{}: {}", text::KIND_FORM, shown())) }
}

fn check_place(namespace: Option<&str>, name: Option<&str>) -> Result<(), String> {
    if let Some(namespace) = namespace.filter(|namespace| !text::is_label(namespace)) {
        return Err(format!("namespace {}: {NAMESPACE}", text::quoted(namespace)));
    }
    match name.filter(|name| !text::is_name(name)) {
        Some(name) => Err(format!("name {}: {}", text::quoted(name), text::NAME_FORM)),
        None => Ok(()),
    }
}

fn check_paths<'a>(
    list: &str,
    paths: impl ExactSizeIterator<Item = &'a String>,
) -> Result<(), String> {
    let count = paths.len();
    if count > FIELDS {
        return Err(format!("`{list}` of a read has at most {FIELDS} entries: this has {count}"));
    }
    for path in paths {
        if path.len() > PATH {
            return Err(format!("path {}: a path has at most {PATH} bytes", text::quoted(path)));
        }
    }
    Ok(())
}
