//! Forms of names, by Kubernetes' own rules, and texts of guests for messages, logs, terminals and
//! files: shortened, and escaped.

use std::{borrow::Cow, fmt::Write as _};

use crate::contract::Kind;

/// Accepted forms, as error messages show them.
pub const CLUSTER_FORM: &str = "a cluster is \"\", the one that the host runs in, or `namespace/name/key` of a Secret with a kubeconfig";
pub const KIND_FORM: &str = "a kind is named as Kubernetes names it: a group that is a DNS subdomain or \"\", a version and a kind of at most 63 \
                        letters, digits and `-`";
pub const NAME_FORM: &str =
    "a name has 1 to 253 bytes, is neither `.` nor `..`, and holds no `/` and no `%`";

/// Kubernetes' bound on the names of objects and on DNS subdomains.
const MAX_SUBDOMAIN_BYTES: usize = 253;
/// Kubernetes' bound on a DNS label.
const MAX_LABEL_BYTES: usize = 63;
/// Characters of a guest's text that a message quotes.
const MAX_QUOTED_CHARACTERS: usize = 40;

/// Cuts a text at a character boundary to at most `longest` bytes and an ellipsis, and frees the
/// memory of the rest.
pub fn cut(text: &mut String, longest: usize) {
    if text.len() > longest {
        text.truncate(text.floor_char_boundary(longest));
        text.push('…');
        text.shrink_to_fit();
    }
}

/// Returns at most `longest` bytes of a text, and an ellipsis if it was cut.
pub fn shortened(text: &str, longest: usize) -> String {
    match text.get(..text.floor_char_boundary(longest)) {
        Some(start) if start.len() < text.len() => format!("{start}…"),
        _ => text.to_owned(),
    }
}

/// Returns at most `longest` characters of a text, and an ellipsis if it was cut.
pub fn shortened_to_characters(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or(text)),
        None => text.to_owned(),
    }
}

/// Returns the start of a text, escaped and in backticks, for a message.
pub fn quoted(text: &str) -> String {
    let start: String =
        text.chars().take(MAX_QUOTED_CHARACTERS).flat_map(char::escape_debug).collect();
    if text.chars().nth(MAX_QUOTED_CHARACTERS).is_some() {
        format!("`{start}…` ({} bytes)", text.len())
    } else {
        format!("`{start}`")
    }
}

/// Returns whether a character, written as it is, could end a line, command a terminal, or hide or
/// reorder other text: C0, C1, Unicode's separators, marks of direction, and invisible characters.
pub fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        )
}

/// Escapes a character: `\n`, `\r`, `\t`, else `\u{1b}`.
pub fn escape(character: char) -> impl Iterator<Item = char> {
    let short = matches!(character, '\n' | '\r' | '\t').then(|| character.escape_default());
    let long = short.is_none().then(|| character.escape_unicode());
    short.into_iter().flatten().chain(long.into_iter().flatten())
}

/// Escapes the [unsafe](is_unsafe) characters of a text for a line of a log, of a terminal, of a
/// comment, or for a label: written, it stays on its line and affects no other part of it.
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut to = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_unsafe(character) {
            to.extend(escape(character));
        } else {
            to.push(character);
        }
    }
    Cow::Owned(to)
}

/// Escapes each line of a text.
pub fn escaped_lines(text: &str) -> String {
    text.split('\n').map(escaped).collect::<Vec<_>>().join("\n")
}

/// Escapes the unsafe characters of a document in JSON, whose own lines may end: JSON itself
/// escapes no more than C0 in texts.
pub fn escaped_json(json: String) -> String {
    let is_unsafe = |character: char| character != '\n' && is_unsafe(character);
    if !json.contains(is_unsafe) {
        return json;
    }
    let mut to = String::with_capacity(json.len() + 16);
    for character in json.chars() {
        if is_unsafe(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to a string does not fail.
                let _ = write!(to, "\\u{unit:04x}");
            }
        } else {
            to.push(character);
        }
    }
    to
}

/// Returns whether a text is a DNS label (RFC 1123): lower-case letters, digits and `-`.
pub fn is_label(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    text.len() <= MAX_LABEL_BYTES && is_word(text, is_inner)
}

/// Returns whether a text is a DNS subdomain (RFC 1123): labels separated by dots.
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= MAX_SUBDOMAIN_BYTES && text.split('.').all(is_label)
}

/// Returns whether a text can be an object's name: the API server's rule for names of every kind,
/// without any kind's additional rules.
pub fn is_name(text: &str) -> bool {
    is_segment(text) && text.len() <= MAX_SUBDOMAIN_BYTES
}

/// Returns whether a text can be a segment of a URL's path.
fn is_segment(text: &str) -> bool {
    !text.is_empty() && text != "." && text != ".." && !text.contains(['/', '%'])
}

/// Returns whether a text has the form `<domain>/<name>`, which the API server requires of
/// finalizers on new objects.
pub fn is_finalizer(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    text.split_once('/').is_some_and(|(domain, name)| {
        is_subdomain(domain) && name.len() <= MAX_LABEL_BYTES && is_word(name, is_inner)
    })
}

/// Returns the namespace, the name and the key of the Secret that another cluster is named by; `None`
/// for a text that names no other cluster.
pub fn cluster_secret(text: &str) -> Option<(&str, &str, &str)> {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let (namespace, rest) = text.split_once('/')?;
    let (name, key) = rest.split_once('/')?;
    let is_key = is_name(key) && key.len() <= MAX_SUBDOMAIN_BYTES && key.bytes().all(is_inner);
    (is_label(namespace) && is_subdomain(name) && is_key).then_some((namespace, name, key))
}

/// Returns whether a text names a cluster: "" for the home cluster, `namespace/name/key` for others.
pub fn is_cluster(text: &str) -> bool {
    text.is_empty() || cluster_secret(text).is_some()
}

/// Returns whether group, version and kind have the forms that a `CustomResourceDefinition` may
/// have.
pub fn is_kind(of: &Kind) -> bool {
    is_group(&of.group) && is_version(&of.version) && is_kind_name(&of.kind)
}

pub fn is_group(text: &str) -> bool {
    text.is_empty() || is_subdomain(text)
}

/// Returns whether a text is a DNS label that begins with a letter (RFC 1035).
pub fn is_version(text: &str) -> bool {
    is_label(text) && text.starts_with(|first: char| first.is_ascii_lowercase())
}

/// Returns whether a text is a kind's name: as [`is_version`], with letters of either case.
pub fn is_kind_name(text: &str) -> bool {
    text.len() <= MAX_LABEL_BYTES && is_version(&text.to_ascii_lowercase())
}

/// Returns whether a text begins and ends with a letter or digit, and `is_inner` accepts all of its
/// bytes.
fn is_word(text: &str, is_inner: impl Fn(u8) -> bool) -> bool {
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    is_end(bytes.first()) && is_end(bytes.last()) && bytes.iter().all(|byte| is_inner(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::HOSTILE_TEXTS;

    #[test]
    fn another_cluster_is_named_by_a_key_of_a_secret() {
        let long = format!("shop/{}/kubeconfig", "n".repeat(254));
        let cases = [
            ("shop/provider/kubeconfig", Some(("shop", "provider", "kubeconfig"))),
            ("shop/a.b/.kube_Config-1", Some(("shop", "a.b", ".kube_Config-1"))),
            ("", None),
            ("*", None),
            ("provider", None),
            ("shop/provider", None),
            ("shop/provider/kubeconfig/more", None),
            ("shop//kubeconfig", None),
            ("/provider/kubeconfig", None),
            ("shop/provider/", None),
            ("shop/provider/..", None),
            ("../provider/kubeconfig", None),
            ("shop/../kubeconfig", None),
            ("Shop/provider/kubeconfig", None),
            ("shop/provider/a b", None),
            ("shop/provider/a%2fb", None),
            ("shop/provider/a\u{1b}[2J", None),
            (long.as_str(), None),
        ];
        for (text, expected) in cases {
            assert_eq!(cluster_secret(text), expected, "{text:?}");
            assert_eq!(is_cluster(text), expected.is_some() || text.is_empty(), "{text:?}");
        }
    }

    #[test]
    fn characters_that_are_no_text_are_escaped_and_no_others() {
        let cases = [
            ("plain, größer, 日本, \"a\" \\ #", "plain, größer, 日本, \"a\" \\ #"),
            ("one\r\ntwo\tthree", r"one\r\ntwo\tthree"),
            ("\u{1b}[2Jgone", r"\u{1b}[2Jgone"),
            ("c1 \u{9b}1m \u{85}", r"c1 \u{9b}1m \u{85}"),
            ("\u{202e}txt\u{2069}\u{200f}", r"\u{202e}txt\u{2069}\u{200f}"),
            ("a\u{2028}b\u{2029}", r"a\u{2028}b\u{2029}"),
            ("\u{feff}\u{200b}\u{ad}", r"\u{feff}\u{200b}\u{ad}"),
            ("\0\u{7f}\u{e0041}", r"\u{0}\u{7f}\u{e0041}"),
        ];
        for (text, expected) in cases {
            assert_eq!(escaped(text), expected);
        }
        assert_eq!(escaped_lines("a\r\nb\u{1b}"), "a\\r\nb\\u{1b}");
    }

    #[test]
    fn escaped_json_means_the_same() {
        for hostile in HOSTILE_TEXTS {
            let json = escaped_json(serde_json::json!([hostile]).to_string());
            assert!(!json.contains(is_unsafe), "{json}");
            assert_eq!(serde_json::from_str::<[String; 1]>(&json).unwrap(), [hostile]);
        }
    }
}
