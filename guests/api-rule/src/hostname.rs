//! Checks of host names.

/// Returns whether a host is short, a name within a Gateway's domain: one DNS label.
pub(crate) fn is_short(host: &str) -> bool {
    is_label(host)
}

/// Returns whether a host is a fully qualified domain name, where the first label may be `*`.
pub(crate) fn is_qualified(host: &str) -> bool {
    let Some((name, top)) = host.strip_prefix("*.").unwrap_or(host).rsplit_once('.') else {
        return false;
    };
    host.len() <= 255
        && (2..=63).contains(&top.len())
        && top.bytes().all(is_alphanumeric)
        && name.split('.').all(is_label)
}

fn is_label(text: &str) -> bool {
    let ends = |byte: Option<&u8>| byte.is_some_and(|byte| is_alphanumeric(*byte));
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && ends(bytes.first())
        && ends(bytes.last())
        && bytes.iter().all(|byte| *byte == b'-' || is_alphanumeric(*byte))
}

fn is_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_told_apart() {
        let long = |length: usize| "x".repeat(length);
        let (short, qualified, neither) = ((true, false), (false, true), (false, false));
        let cases = [
            ("httpbin".to_owned(), short),
            ("a".to_owned(), short),
            ("9-a".to_owned(), short),
            (long(63), short),
            (long(64), neither),
            (String::new(), neither),
            ("-a".to_owned(), neither),
            ("a-".to_owned(), neither),
            ("Upper".to_owned(), neither),
            ("under_score".to_owned(), neither),
            ("httpbin.example.com".to_owned(), qualified),
            ("*.example.com".to_owned(), qualified),
            ("a.io".to_owned(), qualified),
            ("a.b".to_owned(), neither),
            ("a.c-m".to_owned(), neither),
            ("*".to_owned(), neither),
            ("*.com".to_owned(), neither),
            ("a.*.com".to_owned(), neither),
            ("a..com".to_owned(), neither),
            ("a.com.".to_owned(), neither),
            (format!("a.{}", long(63)), qualified),
            (format!("a.{}", long(64)), neither),
            (format!("{}.com", long(64)), neither),
            (format!("{0}.{0}.{0}.{1}.com", long(63), long(59)), qualified),
            (format!("{0}.{0}.{0}.{1}.com", long(63), long(60)), neither),
        ];
        for (host, expected) in cases {
            assert_eq!((is_short(&host), is_qualified(&host)), expected, "{host} ({})", host.len());
        }
    }
}
