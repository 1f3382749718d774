//! The URLs of calls, parsed strictly: a URL that two programs could understand in two ways is
//! refused.

use std::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr},
};

use super::Target;
use crate::contract::bounds::{
    self,
    text::{is_subdomain, quoted},
};

/// The accepted form of a URL, as error messages show it.
const FORM: &str = "a URL is `https://api.example.com/v1/items?size=10`: a scheme, a host in lower case, maybe a port, a path and a query";

/// The scheme, the host and the port of a URL or an origin.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place<'a> {
    pub(super) tls: bool,
    /// Without brackets.
    pub(super) host: &'a str,
    pub(super) port: u16,
}

// === impl Target ===

impl Target {
    /// Parses a URL. The error says which part is refused and what would be accepted.
    pub fn parse(url: &str) -> Result<Self, String> {
        if url.len() > bounds::URL {
            return Err(format!("the URL has {} bytes, at most {} are", url.len(), bounds::URL));
        }
        let refused = |problem: &str| {
            // A query may hold what a message must not repeat.
            let shown = url.split('?').next().unwrap_or_default();
            format!("the URL {} {problem}; {FORM}", quoted(shown))
        };
        let (place, rest) = place(url, check_host).map_err(refused)?;
        if !is_path_and_query(rest) {
            return Err(refused("holds a character that must be percent-encoded, or a bad `%`"));
        }
        let slash = if rest.starts_with('/') { "" } else { "/" };
        let (tls, host, port) = (place.tls, place.host.to_owned(), place.port);
        Ok(Self { tls, host, port, path_and_query: format!("{slash}{rest}") })
    }

    /// Returns the origin that holds this target and no other host.
    #[must_use]
    pub fn origin(&self) -> super::Origin {
        let Self { tls, host, port, path_and_query: _ } = self;
        super::Origin { tls: *tls, any_label: false, host: host.clone(), port: *port }
    }

    /// Returns the host, and the port if it is not the scheme's, as in the header `Host`.
    pub fn authority(&self) -> String {
        authority(self.tls, &self.host, self.port)
    }

    /// Returns the whole URL, with the query, which may hold what nothing must show.
    pub fn url(&self) -> String {
        format!("{}{}", self.origin(), self.path_and_query)
    }

    /// Returns the path, without the query.
    pub fn path(&self) -> &str {
        self.path_and_query.split('?').next().unwrap_or_default()
    }
}

impl fmt::Display for Target {
    /// Writes the URL without the query.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_place(to, self.tls, &self.host, self.port)?;
        to.write_str(self.path())
    }
}

/// Writes scheme and host, and the port if it is not the scheme's.
pub(super) fn write_place(
    to: &mut fmt::Formatter<'_>,
    tls: bool,
    host: &str,
    port: u16,
) -> fmt::Result {
    let scheme = if tls { "https" } else { "http" };
    write!(to, "{scheme}://{}", authority(tls, host, port))
}

fn authority(tls: bool, host: &str, port: u16) -> String {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    if port == usual_port(tls) { host } else { format!("{host}:{port}") }
}

fn usual_port(tls: bool) -> u16 {
    if tls { 443 } else { 80 }
}

/// Splits a URL into its place, whose name `check` accepts, and the text that follows.
pub(super) fn place(
    url: &str,
    check: fn(&str) -> Result<(), &'static str>,
) -> Result<(Place<'_>, &str), &'static str> {
    if !url.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("holds a blank, a control character or a character that is not ASCII");
    }
    if url.contains('\\') {
        return Err("holds a backslash");
    }
    if url.contains('#') {
        return Err("has a fragment");
    }
    let (tls, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
        (Some(rest), _) => (true, rest),
        (_, Some(rest)) => (false, rest),
        _ => return Err("begins with neither `https://` nor `http://`"),
    };
    let (authority, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if authority.contains('@') {
        return Err("names a user");
    }
    let (host, port) = if let Some(literal) = authority.strip_prefix('[') {
        let (host, port) = literal.split_once(']').ok_or("has a `[` without `]`")?;
        check_ipv6(host)?;
        (host, port)
    } else {
        let (host, port) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
        check(host)?;
        (host, port)
    };
    let port = if port.is_empty() { usual_port(tls) } else { self::port(port)? };
    Ok((Place { tls, host, port }, rest))
}

/// Parses `:` and a port.
fn port(text: &str) -> Result<u16, &'static str> {
    let digits = text.strip_prefix(':').unwrap_or_default();
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
    let port = is_number.then(|| digits.parse().ok()).flatten();
    port.ok_or("has a port that is not a number from 1 to 65535")
}

/// Fails unless a text is a DNS name in lower case, or an IPv4 address as it is usually written.
pub(super) fn check_host(host: &str) -> Result<(), &'static str> {
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err("has capital letters in its host");
    }
    if host.ends_with('.') {
        return Err("has a dot at the end of its host");
    }
    if looks_like_ipv4(host) {
        // The standard library reads no leading zeros, octal or hexadecimal numbers.
        let is_usual = host.parse::<Ipv4Addr>().is_ok_and(|address| address.to_string() == host);
        return if is_usual { Ok(()) } else { Err("has a number in place of a host's last label") };
    }
    if is_subdomain(host) { Ok(()) } else { Err("has a host that is not a DNS name") }
}

/// Returns whether programs may read a host as an IPv4 address: its last label is a number.
fn looks_like_ipv4(host: &str) -> bool {
    let last = host.rsplit('.').next().unwrap_or_default();
    let hexadecimal = last.strip_prefix("0x");
    let is_hexadecimal =
        hexadecimal.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    is_hexadecimal || (!last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit()))
}

fn check_ipv6(host: &str) -> Result<(), &'static str> {
    let address = host.parse::<Ipv6Addr>();
    let is_usual = address.is_ok_and(|address| address.to_string() == host);
    if is_usual { Ok(()) } else { Err("has an IPv6 address that is not in its shortest form") }
}

/// Returns whether a text is a path and a query by RFC 3986.
fn is_path_and_query(text: &str) -> bool {
    let is_hex = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
    let bytes = text.as_bytes();
    bytes.iter().enumerate().all(|(at, byte)| match byte {
        b'%' => is_hex(bytes.get(at + 1)) && is_hex(bytes.get(at + 2)),
        byte => byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?".contains(byte),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(tls: bool, host: &str, port: u16, path: &str) -> Target {
        Target { tls, host: host.to_owned(), port, path_and_query: path.to_owned() }
    }

    #[test]
    fn urls_are_taken_apart() {
        let cases = [
            ("https://a.example", target(true, "a.example", 443, "/")),
            ("https://a.example?x=/", target(true, "a.example", 443, "/?x=/")),
            ("https://a.example:443/", target(true, "a.example", 443, "/")),
            (
                "http://localhost:8080/a//b?c?d=%2F",
                target(false, "localhost", 8080, "/a//b?c?d=%2F"),
            ),
            ("https://xn--bcher-kva.example/", target(true, "xn--bcher-kva.example", 443, "/")),
            ("https://127.0.0.1/a@b:c", target(true, "127.0.0.1", 443, "/a@b:c")),
            ("https://[2001:db8::1]:8443/", target(true, "2001:db8::1", 8443, "/")),
            ("https://[::ffff:10.0.0.1]/", target(true, "::ffff:10.0.0.1", 443, "/")),
            ("https://1.example/", target(true, "1.example", 443, "/")),
        ];
        for (url, expected) in cases {
            assert_eq!(Target::parse(url).as_ref(), Ok(&expected), "{url}");
        }
    }

    #[test]
    fn the_shown_url_has_no_query() {
        for (url, shown) in [
            ("https://a.example:443/v1?token=t", "https://a.example/v1"),
            ("http://[::1]:8080?token=t", "http://[::1]:8080/"),
        ] {
            assert_eq!(Target::parse(url).unwrap().to_string(), shown);
        }
        let error = Target::parse("https://a.example/{}?token=t").unwrap_err();
        assert!(!error.contains("token"), "{error}");
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "one flat table")]
    fn urls_that_programs_read_in_different_ways_are_refused() {
        let cases = [
            ("user", "https://a.example@evil.example/"),
            ("user and password", "https://u:p@a.example/"),
            ("empty user", "https://@a.example/"),
            ("other scheme", "ftp://a.example/"),
            ("scheme in capitals", "HTTPS://a.example/"),
            ("no scheme", "a.example/"),
            ("scheme-relative", "//a.example/"),
            ("one slash", "https:/a.example/"),
            ("three slashes", "https:///a.example/"),
            ("no host", "https://"),
            ("port without host", "https://:443/"),
            ("empty port", "https://a.example:/"),
            ("port zero", "https://a.example:0/"),
            ("port of five digits", "https://a.example:65536/"),
            ("port with zeros", "https://a.example:0443/"),
            ("port with sign", "https://a.example:+443/"),
            ("two ports", "https://a.example:1:2/"),
            ("dot at the end", "https://a.example./"),
            ("two dots", "https://a..example/"),
            ("capitals", "https://A.example/"),
            ("not ASCII", "https://bücher.example/"),
            ("full-width dot", "https://a\u{ff0e}example/"),
            ("soft hyphen", "https://a\u{ad}.example/"),
            ("percent in the host", "https://a%2eexample/"),
            ("underscore", "https://a_b.example/"),
            ("wildcard", "https://*.example/"),
            ("backslash", "https://a.example\\@evil.example/"),
            ("backslash in the path", "https://a.example/\\evil.example"),
            ("fragment", "https://a.example/#x"),
            ("fragment in the authority", "https://a.example#@evil.example/"),
            ("carriage return", "https://a.example/\r\nHost: evil.example"),
            ("line feed in the host", "https://a.exam\nple/"),
            ("zero byte", "https://a.example/\0"),
            ("tab", "https://a.example/\t"),
            ("blank", "https://a.example/ HTTP/1.1"),
            ("blank before", " https://a.example/"),
            ("delete", "https://a.example/\u{7f}"),
            ("bad percent", "https://a.example/%2"),
            ("bad percent digits", "https://a.example/%zz"),
            ("quote", "https://a.example/\""),
            ("angle brackets", "https://a.example/<>"),
            ("decimal address", "https://2130706433/"),
            ("octal address", "https://0177.0.0.1/"),
            ("hexadecimal address", "https://0x7f000001/"),
            ("hexadecimal part", "https://127.0.0.0x1/"),
            ("empty hexadecimal", "https://127.0.0.0x/"),
            ("short address", "https://127.1/"),
            ("address with zeros", "https://127.0.0.01/"),
            ("part over 255", "https://127.0.0.256/"),
            ("five parts", "https://1.2.3.4.5/"),
            ("name and number", "https://a.example.1/"),
            ("address with a dot at the end", "https://127.0.0.1./"),
            ("IPv6 zone", "https://[fe80::1%25eth0]/"),
            ("IPv6 zone, not encoded", "https://[fe80::1%eth0]/"),
            ("long IPv6", "https://[0:0:0:0:0:0:0:1]/"),
            ("IPv6 in capitals", "https://[2001:DB8::1]/"),
            ("IPv6 without end", "https://[::1/"),
            ("IPv6 with a name", "https://[::1]a.example/"),
            ("IPv6 without brackets", "https://::1/"),
            ("name in brackets", "https://[a.example]/"),
            ("IPvFuture", "https://[v1.a]/"),
            ("empty", ""),
        ];
        for (case, url) in cases {
            let parsed = Target::parse(url);
            let error = parsed.expect_err(case);
            assert!(error.contains("; a URL is `https://"), "{case}: {error}");
            assert!(error.chars().all(|shown| !shown.is_control()), "{case}: {error:?}");
        }
        let path = "a".repeat(bounds::URL - "https://a.example/".len());
        assert!(Target::parse(&format!("https://a.example/{path}")).is_ok());
        assert!(Target::parse(&format!("https://a.example/{path}a")).is_err());
        assert!(Target::parse(&format!("https://{}.example/", "a".repeat(64))).is_err());
    }
}
