//! A check of request URIs: absolute URIs and absolute paths. The texts of errors are those of Go's
//! `net/url`, which users of the original know.

/// Fails if a text is no request URI, with the error text of Go.
pub(crate) fn check_request_uri(uri: &str) -> Result<(), String> {
    check(uri).map_err(|why| format!("parse {uri:?}: {why}"))
}

fn check(uri: &str) -> Result<(), String> {
    if uri.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    if uri.is_empty() {
        return Err("empty url".to_owned());
    }
    if uri == "*" {
        return Ok(());
    }
    let (scheme, rest) = split_scheme(uri)?;
    let rest = rest.split_once('?').map_or(rest, |(path, _)| path);
    if !rest.starts_with('/') {
        return if scheme.is_empty() { Err("invalid URI for request".to_owned()) } else { Ok(()) };
    }
    let path = match rest.strip_prefix("//") {
        Some(after) if !scheme.is_empty() => {
            let (authority, path) = after.split_at(after.find('/').unwrap_or(after.len()));
            check_authority(authority)?;
            path
        }
        _ => rest,
    };
    check_escapes(path, false)
}

/// Splits a URI into its scheme, which may be empty, and the rest.
fn split_scheme(uri: &str) -> Result<(&str, &str), String> {
    for (index, character) in uri.char_indices() {
        match character {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if index > 0 => {}
            ':' if index == 0 => return Err("missing protocol scheme".to_owned()),
            ':' => {
                let (scheme, rest) = uri.split_at(index);
                return Ok((scheme, rest.get(1..).unwrap_or_default()));
            }
            _ => break,
        }
    }
    Ok(("", uri))
}

fn check_authority(authority: &str) -> Result<(), String> {
    let Some((user, host)) = authority.rsplit_once('@') else { return check_host(authority) };
    check_host(host)?;
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
    if !user.bytes().all(allowed) {
        return Err("net/url: invalid userinfo".to_owned());
    }
    check_escapes(user, false)
}

fn check_host(host: &str) -> Result<(), String> {
    let port = if host.starts_with('[') {
        let end = host.rfind(']').ok_or("missing ']' in host")?;
        host.get(end + 1..).unwrap_or_default()
    } else {
        host.rfind(':').and_then(|index| host.get(index..)).unwrap_or_default()
    };
    let digits = port.strip_prefix(':').unwrap_or(port);
    if !digits.bytes().all(|byte| byte.is_ascii_digit())
        || (!port.is_empty() && !port.starts_with(':'))
    {
        return Err(format!("invalid port {port:?} after host"));
    }
    check_escapes(host, true)
}

/// Fails if a text has an incomplete escape. A host may escape only bytes beyond ASCII and `%`, and
/// may hold only some of the ASCII characters.
fn check_escapes(text: &str, host: bool) -> Result<(), String> {
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let length = if character == '%' { 3 } else { character.len_utf8() };
        if character == '%' {
            let hex = rest.get(1..3).filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
            let ascii = hex.is_some_and(|hex| {
                hex.as_bytes().first().is_some_and(|byte| (b'0'..b'8').contains(byte))
            });
            if hex.is_none() || (host && ascii && hex != Some("25")) {
                let escape: String = rest.chars().take(3).collect();
                return Err(format!("invalid URL escape {escape:?}"));
            }
        } else if host && character.is_ascii() && !is_host_character(character) {
            return Err(format!("invalid character {:?} in host name", character.to_string()));
        }
        rest = rest.get(length..).unwrap_or_default();
    }
    Ok(())
}

fn is_host_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || "!$&'()*+,;=:[]<>\"-_.~".contains(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_those_of_go() {
        let cases = [
            ("https://example.com/.well-known/jwks.json", Ok(())),
            ("http://example.com:8080", Ok(())),
            ("http://user:pw@example.com:/a?b c", Ok(())),
            ("http://[::1]:80/", Ok(())),
            ("file:///a", Ok(())),
            ("mailto:somebody", Ok(())),
            ("/only/a/path", Ok(())),
            ("//example.com/a", Ok(())),
            ("http://ex%C3%A4mple.com", Ok(())),
            ("", Err(r#"parse "": empty url"#)),
            (":bad", Err(r#"parse ":bad": missing protocol scheme"#)),
            ("no uri", Err(r#"parse "no uri": invalid URI for request"#)),
            ("1a:b", Err(r#"parse "1a:b": invalid URI for request"#)),
            ("a b:c", Err(r#"parse "a b:c": invalid URI for request"#)),
            ("http://a b", Err(r#"parse "http://a b": invalid character " " in host name"#)),
            ("http://a:b", Err(r#"parse "http://a:b": invalid port ":b" after host"#)),
            ("http://[::1", Err(r#"parse "http://[::1": missing ']' in host"#)),
            ("http://[::1]x", Err(r#"parse "http://[::1]x": invalid port "x" after host"#)),
            ("http://a%41b", Err(r#"parse "http://a%41b": invalid URL escape "%41""#)),
            ("http://a/%zz", Err(r#"parse "http://a/%zz": invalid URL escape "%zz""#)),
            ("http://a/%1", Err(r#"parse "http://a/%1": invalid URL escape "%1""#)),
            ("http://a b@c", Err(r#"parse "http://a b@c": net/url: invalid userinfo"#)),
            ("http://a\n", Err(r#"parse "http://a\n": net/url: invalid control character in URL"#)),
        ];
        for (uri, expected) in cases {
            assert_eq!(check_request_uri(uri), expected.map_err(ToOwned::to_owned), "{uri:?}");
        }
    }
}
