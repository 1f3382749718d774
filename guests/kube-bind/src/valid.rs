//! The forms of names and labels that Kubernetes accepts. The provider may write anything else: it
//! is checked before it gets into a reference or a selection, where it would void a whole outcome.

/// The longest DNS label, the longest name of a label's key and the longest value, in bytes.
const MAX_LABEL_BYTES: usize = 63;
/// The longest name, in bytes.
const MAX_NAME_BYTES: usize = 253;

/// Returns whether a text is a DNS label, as the name of a namespace is.
pub(crate) fn is_dns_label(text: &str) -> bool {
    text.len() <= MAX_LABEL_BYTES && is_dns_part(text)
}

/// Returns whether a text is a DNS subdomain, as the names of most objects are. As with
/// Kubernetes, only the whole is limited.
pub(crate) fn is_dns_name(text: &str) -> bool {
    text.len() <= MAX_NAME_BYTES && text.split('.').all(is_dns_part)
}

fn is_dns_part(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    is_word(text, is_inner)
}

/// Returns whether a text is the key of a label.
pub(crate) fn is_label_key(text: &str) -> bool {
    let (domain, name) = text.split_once('/').unwrap_or(("domain", text));
    is_dns_name(domain) && is_label_word(name)
}

/// Returns whether a text is the value of a label.
pub(crate) fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_label_word(text)
}

fn is_label_word(text: &str) -> bool {
    text.len() <= MAX_LABEL_BYTES
        && is_word(text, |byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// Returns whether a text consists of such bytes, and begins and ends with a letter or a digit.
fn is_word(text: &str, is_inner: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    is_end(bytes.first()) && is_end(bytes.last()) && bytes.iter().all(|byte| is_inner(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_labels_have_the_forms_of_kubernetes() {
        let long = "x".repeat(64);
        let (domain, too_long) = (format!("{long}/a"), "x".repeat(254));
        let cases = [
            // A label, a name, the key of a label, its value.
            ("a", [true, true, true, true]),
            ("a-1", [true, true, true, true]),
            ("a.b", [false, true, true, true]),
            ("A_b", [false, false, true, true]),
            ("a.b/c", [false, false, true, false]),
            ("", [false, false, false, true]),
            ("..", [false, false, false, false]),
            ("a/../b", [false, false, false, false]),
            ("-a", [false, false, false, false]),
            ("a b", [false, false, false, false]),
            ("a\n", [false, false, false, false]),
            (&long, [false, true, false, false]),
            (&domain, [false, false, true, false]),
            (&too_long, [false, false, false, false]),
        ];
        for (text, expected) in cases {
            let found =
                [is_dns_label(text), is_dns_name(text), is_label_key(text), is_label_value(text)];
            assert_eq!(found, expected, "{text:?}");
        }
    }
}
