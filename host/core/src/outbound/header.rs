//! The headers of calls: what a processor may set, and what may stand in a value.

use crate::contract::bounds::{self, text::quoted};

/// Headers that frame the message, name its target or belong to one connection; the client sets
/// them. Some servers obey the last three in place of the method.
const REFUSED: [&str; 13] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
];

/// Checks headers and returns them with their names in lower case. `authenticating` is the header
/// of the call's credential, which the processor must not set.
pub(super) fn checked(
    headers: Vec<(String, String)>,
    authenticating: Option<&str>,
) -> Result<Vec<(String, String)>, String> {
    if headers.len() > bounds::CALL_HEADERS {
        let most = bounds::CALL_HEADERS;
        return Err(format!("the call has {} headers, at most {most} are accepted", headers.len()));
    }
    let bytes = headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
    if bytes > bounds::CALL_HEADER_BYTES {
        let most = bounds::CALL_HEADER_BYTES;
        return Err(format!("the headers have {bytes} bytes, at most {most} are accepted"));
    }
    let mut checked: Vec<(String, String)> = Vec::with_capacity(headers.len());
    for (name, value) in headers {
        let name = self::name(&name)?;
        if checked.iter().any(|(held, _)| *held == name) {
            return Err(format!("the header `{name}` is there twice"));
        }
        if authenticating == Some(&name) || (authenticating.is_some() && name == "authorization") {
            return Err(format!("the header `{name}` stands beside the call's credential"));
        }
        if !is_value(&value) {
            let accepted = "printable ASCII, blanks and tabs are accepted";
            return Err(format!("the value of the header `{name}` is malformed: {accepted}"));
        }
        checked.push((name, value));
    }
    Ok(checked)
}

/// Checks the name of a header that a processor may set, and returns it in lower case.
pub(super) fn name(name: &str) -> Result<String, String> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_name) {
        return Err(format!("{} is no name of a header", quoted(name)));
    }
    let name = name.to_ascii_lowercase();
    if name.starts_with("proxy-") || REFUSED.contains(&name.as_str()) {
        return Err(format!("the header {} is the client's to set", quoted(&name)));
    }
    Ok(name)
}

/// Returns whether a text can be the value of a header.
pub(super) fn is_value(text: &str) -> bool {
    text.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        headers: &[(&str, &str)],
        beside: Option<&str>,
    ) -> Result<Vec<(String, String)>, String> {
        let owned = headers.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        checked(owned.collect(), beside)
    }

    #[test]
    fn names_are_in_lower_case() {
        let checked = check(&[("Content-Type", "a; b=\"c\"\t"), ("X-A", "")], None).unwrap();
        let expected = [("content-type", "a; b=\"c\"\t"), ("x-a", "")];
        assert_eq!(checked, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert!(check(&[("Authorization", "Basic x")], None).is_ok(), "without a credential");
    }

    #[test]
    fn headers_that_frame_the_message_are_refused() {
        let framing = [
            "Host",
            "Connection",
            "Transfer-Encoding",
            "Content-Length",
            "Expect",
            "Upgrade",
            "Proxy-Authorization",
            "proxy-connection",
            "Keep-Alive",
            "TE",
            "Trailer",
            "X-HTTP-Method-Override",
        ];
        for name in framing {
            let error = check(&[(name, "x")], None).expect_err(name);
            assert!(error.contains("is the client's to set"), "{name}: {error}");
        }
        for name in ["", "a b", "a:b", "a\r\nb", "ä", "a\0"] {
            let error = check(&[(name, "x")], None).expect_err(name);
            assert!(error.contains("is no name of a header"), "{name:?}: {error}");
        }
    }

    #[test]
    fn values_have_no_control_characters() {
        for value in ["a\rb", "a\nb", "a\r\nHost: evil.example", "a\0", "\u{7f}", "ä", "\u{85}"] {
            let error = check(&[("x-a", value)], None).unwrap_err();
            assert!(error.contains("`x-a` is malformed"), "{error}");
            assert!(!error.contains("evil"), "{error}");
        }
    }

    #[test]
    fn a_header_is_there_once() {
        assert!(check(&[("x-a", "1"), ("X-A", "2")], None).is_err());
        assert!(check(&[("Authorization", "x")], Some("authorization")).is_err());
        assert!(check(&[("Authorization", "x")], Some("x-api-key")).is_err());
        assert!(check(&[("X-Api-Key", "x")], Some("x-api-key")).is_err());
    }

    #[test]
    fn headers_are_bounded() {
        let many: Vec<(String, String)> =
            (0..=bounds::CALL_HEADERS).map(|at| (format!("x-{at}"), String::new())).collect();
        assert!(checked(many.clone(), None).is_err());
        assert!(checked(many[1..].to_vec(), None).is_ok());
        let long = "x".repeat(bounds::CALL_HEADER_BYTES - "x-a".len());
        assert!(check(&[("x-a", &long)], None).is_ok());
        assert!(check(&[("x-ab", &long)], None).is_err());
    }
}
