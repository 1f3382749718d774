//! Origins: scheme, host and port of the systems that may be called.

mod url;

use std::{fmt, str::FromStr};

use self::url::{Place, check_host};
use super::bounds::{self, text::quoted};

/// The accepted form of an origin, as error messages show it.
const FORM: &str = "an origin is `https://api.example.com`, `https://*.example.com` or `https://10.0.0.7:8443`: a scheme, a host in lower case, whose first \
                    label may be `*`, and a port if it is not the scheme's";

/// The labels that must follow a `*`: `*.com` would be half of all hosts.
const MIN_LABELS: usize = 2;

/// A scheme, a host and a port. `*` in place of the host's first label stands for exactly one label.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin {
    tls: bool,
    /// True if one more label comes before `host`.
    any_label: bool,
    /// Without brackets.
    host: String,
    port: u16,
}

/// The parts of a URL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// True for `https`.
    pub tls: bool,
    /// A DNS name in lower case, or an IP address without brackets.
    pub host: String,
    pub port: u16,
    /// The path and the query, from the first `/` on.
    pub path_and_query: String,
}

// === impl Origin ===

impl Origin {
    /// Returns whether calls go over TLS.
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// Returns whether a call to `target` is one to this origin.
    pub fn holds(&self, target: &Target) -> bool {
        let Target { tls, host, port, path_and_query: _ } = target;
        let is_host = if self.any_label { is_below(host, &self.host) } else { *host == self.host };
        is_host && (self.tls, self.port) == (*tls, *port)
    }

    /// Returns whether this origin holds every target that `other` holds.
    pub fn covers(&self, other: &Self) -> bool {
        let is_host = match (self.any_label, other.any_label) {
            (true, false) => is_below(&other.host, &self.host),
            (mine, theirs) => mine == theirs && self.host == other.host,
        };
        is_host && (self.tls, self.port) == (other.tls, other.port)
    }
}

/// Returns whether a host is one label, a dot and `parent`.
fn is_below(host: &str, parent: &str) -> bool {
    let label = host.strip_suffix(parent).and_then(|rest| rest.strip_suffix('.'));
    label.is_some_and(|label| !label.is_empty() && !label.contains('.'))
}

impl FromStr for Origin {
    type Err = String;

    /// Parses an origin. The error says what is refused and what would be accepted.
    fn from_str(text: &str) -> Result<Self, String> {
        let refused = |problem: &str| format!("{} {problem}; {FORM}", quoted(text));
        if text.len() > bounds::ORIGIN {
            return Err(refused("is too long"));
        }
        let (place, rest) = url::place(text, check_pattern).map_err(refused)?;
        if !rest.is_empty() {
            return Err(refused("has a path or a query"));
        }
        let Place { tls, host, port } = place;
        let (any_label, host) = match host.strip_prefix("*.") {
            Some(parent) => (true, parent),
            None => (false, host),
        };
        Ok(Self { tls, any_label, host: host.to_owned(), port })
    }
}

/// Fails unless a text is a host, or `*.` and a host of two labels at least.
fn check_pattern(host: &str) -> Result<(), &'static str> {
    let Some(parent) = host.strip_prefix("*.") else {
        let is_wild = host.contains('*');
        return if is_wild {
            Err("has `*` that is not its whole first label")
        } else {
            check_host(host)
        };
    };
    if parent.contains('*') {
        return Err("has more than one `*`");
    }
    check_host(parent)?;
    let is_address = parent.parse::<std::net::Ipv4Addr>().is_ok();
    if is_address || parent.split('.').count() < MIN_LABELS {
        return Err("has `*` before less than two labels");
    }
    Ok(())
}

impl fmt::Display for Origin {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.any_label {
            url::write_place(to, self.tls, &format!("*.{}", self.host), self.port)
        } else {
            url::write_place(to, self.tls, &self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(text: &str) -> Origin {
        text.parse().unwrap()
    }

    #[test]
    fn an_origin_is_shown_in_one_way() {
        for (text, shown) in [
            ("https://a.example:443", "https://a.example"),
            ("http://a.example:80", "http://a.example"),
            ("https://*.api.example.com:8443", "https://*.api.example.com:8443"),
            ("https://[::1]:8443", "https://[::1]:8443"),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ] {
            assert_eq!(origin(text).to_string(), shown);
        }
    }

    #[test]
    fn an_origin_that_is_too_wide_or_not_clear_is_refused() {
        for text in [
            "*",
            "https://*",
            "https://*.",
            "https://*.com",
            "https://*.*.example.com",
            "https://a.*.example.com",
            "https://a*.example.com",
            "https://**.example.com",
            "https://*.10.0.0.1",
            "https://[*]",
            "https://a.example/",
            "https://a.example?x",
            "https://A.example",
            "https://a.example.",
            "https://u@a.example",
            "https://a.example:*",
            "https://2130706433",
            "a.example",
            "",
        ] {
            let error = text.parse::<Origin>().expect_err(text);
            assert!(error.contains("; an origin is `https://"), "{text}: {error}");
        }
        let long = format!("https://{}.example", "a.".repeat(150));
        assert!(long.parse::<Origin>().is_err());
    }

    #[test]
    fn a_wildcard_stands_for_one_label() {
        let wide = "https://*.api.konghq.com";
        let cases = [
            (wide, "https://eu.api.konghq.com/v2", true),
            (wide, "https://eu.api.konghq.com:443", true),
            (wide, "https://api.konghq.com/", false),
            (wide, "https://a.eu.api.konghq.com/", false),
            (wide, "https://eu.api.konghq.com.evil.example/", false),
            (wide, "https://euapi.konghq.com/", false),
            (wide, "https://eu.evil-api.konghq.com/", false),
            (wide, "https://evil.example/eu.api.konghq.com", false),
            (wide, "https://evil.example?eu.api.konghq.com", false),
            (wide, "http://eu.api.konghq.com/", false),
            (wide, "https://eu.api.konghq.com:8443/", false),
            ("https://a.example", "https://a.example/", true),
            ("https://a.example", "https://b.a.example/", false),
            ("https://a.example:8443", "https://a.example:8443/", true),
            ("https://a.example:8443", "https://a.example/", false),
            ("http://a.example:443", "https://a.example/", false),
            ("https://[::1]", "https://[::1]/", true),
            ("https://127.0.0.1", "https://127.0.0.1/", true),
        ];
        for (of, url, expected) in cases {
            assert_eq!(origin(of).holds(&Target::parse(url).unwrap()), expected, "{of} {url}");
        }
    }

    #[test]
    fn an_origin_covers_narrower_ones() {
        let cases = [
            ("https://*.example.com", "https://a.example.com", true),
            ("https://*.example.com", "https://*.example.com", true),
            ("https://*.example.com", "https://*.a.example.com", false),
            ("https://*.example.com", "https://a.b.example.com", false),
            ("https://*.example.com", "https://a.example.com:8443", false),
            ("https://*.example.com", "http://a.example.com", false),
            ("https://a.example.com", "https://*.example.com", false),
            ("https://a.example.com", "https://a.example.com:443", true),
        ];
        for (wide, narrow, expected) in cases {
            assert_eq!(origin(wide).covers(&origin(narrow)), expected, "{wide} {narrow}");
        }
    }
}
