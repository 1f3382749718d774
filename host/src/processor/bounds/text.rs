//! Forms of names, by Kubernetes' own rules, and texts of guests cut for messages.

use crate::contract::Kind;

/// Kubernetes' bound on names of objects, groups and namespaces' parents.
const SUBDOMAIN: usize = 253;
/// Kubernetes' bound on a DNS label.
const LABEL: usize = 63;
/// How much of a guest's text a message quotes.
const QUOTED: usize = 40;

/// Cuts a text to so many bytes and a mark, at the end of a character, and gives back the memory of the rest.
pub(crate) fn cut(text: &mut String, longest: usize) {
    if text.len() > longest {
        text.truncate(text.floor_char_boundary(longest));
        text.push('…');
        text.shrink_to_fit();
    }
}

/// A text of at most so many bytes and a mark.
pub(crate) fn shortened(text: &str, longest: usize) -> String {
    match text.get(..text.floor_char_boundary(longest)) {
        Some(start) if start.len() < text.len() => format!("{start}…"),
        _ => text.to_owned(),
    }
}

/// A text of at most so many characters and a mark.
pub(crate) fn shortened_to_characters(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or(text)),
        None => text.to_owned(),
    }
}

/// The start of a text, escaped, for a message.
pub(crate) fn quoted(text: &str) -> String {
    let start: String = text.chars().take(QUOTED).flat_map(char::escape_debug).collect();
    if text.chars().nth(QUOTED).is_some() {
        format!("`{start}…` ({} bytes)", text.len())
    } else {
        format!("`{start}`")
    }
}

/// RFC 1123: lower-case letters, digits and `-`.
pub(crate) fn is_label(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    text.len() <= LABEL && is_word(text, is_inner)
}

/// RFC 1123: labels with dots in between.
pub(crate) fn is_subdomain(text: &str) -> bool {
    text.len() <= SUBDOMAIN && text.split('.').all(is_label)
}

/// A segment of a path: what the API server asks of every name, whatever its kind asks beyond that.
pub(crate) fn is_name(text: &str) -> bool {
    is_segment(text) && text.len() <= SUBDOMAIN
}

/// A text that can be a segment of a URL's path.
fn is_segment(text: &str) -> bool {
    !text.is_empty() && text != "." && text != ".." && !text.contains(['/', '%'])
}

/// `<domain>/<name>`, as the API server asks of finalizers on new objects.
pub(crate) fn is_finalizer(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    text.split_once('/').is_some_and(|(domain, name)| {
        is_subdomain(domain) && name.len() <= LABEL && is_word(name, is_inner)
    })
}

/// A group, a version and a kind as a `CustomResourceDefinition` may have them.
pub(crate) fn is_kind(of: &Kind) -> bool {
    is_group(&of.group) && is_version(&of.version) && is_kind_name(&of.kind)
}

pub(crate) fn is_group(text: &str) -> bool {
    text.is_empty() || is_subdomain(text)
}

/// RFC 1035: a DNS label that begins with a letter.
pub(crate) fn is_version(text: &str) -> bool {
    is_label(text) && text.starts_with(|first: char| first.is_ascii_lowercase())
}

/// A version's rule for letters of either case.
pub(crate) fn is_kind_name(text: &str) -> bool {
    text.len() <= LABEL && is_version(&text.to_ascii_lowercase())
}

/// Bytes within, letters and digits at both ends.
fn is_word(text: &str, is_inner: impl Fn(u8) -> bool) -> bool {
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    is_end(bytes.first()) && is_end(bytes.last()) && bytes.iter().all(|byte| is_inner(*byte))
}
