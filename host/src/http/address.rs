//! URLs.

use std::net::IpAddr;

use http::Uri;
use mortise_core::resource;

/// The URL of one request: scheme, host, port, path and query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) is_tls: bool,
    /// A name, or an IP address without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) path_and_query: String,
}

// === impl Address ===

impl Address {
    /// Returns the URL of a path at a host, or at a host and port.
    pub(crate) fn at(is_tls: bool, authority: &str, path_and_query: &str) -> Option<Self> {
        let scheme = if is_tls { "https" } else { "http" };
        Self::parse(&format!("{scheme}://{authority}{path_and_query}"))
    }

    /// Parses an absolute URL; `None` for any other text, and for a URL with credentials.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        let is_tls = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'))?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let path_and_query = uri.path_and_query().map_or("/", |path| path.as_str());
        if host.is_empty() || port == 0 || !path_and_query.starts_with('/') {
            return None;
        }
        let host = host.to_ascii_lowercase();
        Some(Self { is_tls, host, port, path_and_query: path_and_query.to_owned() })
    }

    /// Resolves a `Location` header against this URL; `None` if it is not a valid URL.
    pub(crate) fn join(&self, location: &str) -> Option<Self> {
        if location.contains("://") && !location.starts_with('/') {
            return Self::parse(location);
        }
        if let Some(rest) = location.strip_prefix("//") {
            return Self::at(self.is_tls, rest, "");
        }
        let path = if location.starts_with('/') {
            location.to_owned()
        } else {
            let path = self.path_and_query.split('?').next().unwrap_or_default();
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            format!("{folder}/{location}")
        };
        Self::parse(&format!("{}{path}", self.origin()))
    }

    /// Returns the same URL with one more query parameter.
    pub(crate) fn with_query(mut self, key: &str, value: &str) -> Self {
        self.path_and_query.push(if self.path_and_query.contains('?') { '&' } else { '?' });
        self.path_and_query.push_str(key);
        self.path_and_query.push('=');
        self.path_and_query.push_str(&encoded(value));
        self
    }

    /// Returns host and port, as in the `Host` header and in a CONNECT request.
    pub(crate) fn authority(&self) -> String {
        let host = &self.host;
        if host.contains(':') {
            format!("[{host}]:{}", self.port)
        } else {
            format!("{host}:{}", self.port)
        }
    }

    /// Returns scheme, host and port.
    pub(crate) fn origin(&self) -> String {
        format!("{}://{}", if self.is_tls { "https" } else { "http" }, self.authority())
    }

    /// Returns whether the host is `localhost` or a loopback address.
    pub(crate) fn is_loopback(&self) -> bool {
        self.host == "localhost"
            || self.host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
    }
}

/// Percent-encodes a value for a query.
pub(crate) fn encoded(value: &str) -> String {
    resource::encoded(value).replace(':', "%3A")
}

/// Returns a URL, or what is to be one, for a message: `…` stands for user information and the
/// query, which may hold credentials.
pub(crate) fn shown(url: &str) -> String {
    let (scheme, rest) = url.split_at(url.find("://").map_or(0, |at| at + 3));
    let (user, rest) = rest.rsplit_once('@').map_or(("", rest), |(_, rest)| ("…@", rest));
    let (place, query) = rest.split_once(['?', '#']).map_or((rest, ""), |(of, _)| (of, "?…"));
    format!("{scheme}{user}{place}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        Address::parse(text).unwrap()
    }

    #[test]
    fn a_location_leads_from_where_it_was_given() {
        let from = address("https://example.com/v2/a/blobs/uploads/x?state=1");
        let cases = [
            ("https://other.example.com/b?c=d", "https://other.example.com:443/b?c=d"),
            ("//other.example.com/b", "https://other.example.com:443/b"),
            ("/b?c=http://d", "https://example.com:443/b?c=http://d"),
            ("y", "https://example.com:443/v2/a/blobs/uploads/y"),
            ("http://[::1]:5000/b", "http://[::1]:5000/b"),
        ];
        for (location, expected) in cases {
            let to = from.join(location).unwrap();
            assert_eq!(format!("{}{}", to.origin(), to.path_and_query), expected, "{location}");
        }
        let refused =
            ["ftp://example.com/", "https://user@example.com/", "https:///a", "http://a:0/", "a b"];
        for location in refused {
            assert_eq!(from.join(location), None, "{location}");
        }
    }

    #[test]
    fn a_url_is_shown_without_what_may_be_a_credential() {
        let cases = [
            ("https://example.com:6443/a", "https://example.com:6443/a"),
            ("https://user:secret@example.com/a", "https://…@example.com/a"),
            ("https://user:se/cr?et@example.com", "https://…@example.com"),
            ("user:secret@example.com", "…@example.com"),
            ("https://example.com/a?token=secret#b", "https://example.com/a?…"),
            ("example.com#secret", "example.com?…"),
            ("", ""),
        ];
        for (url, expected) in cases {
            assert_eq!(shown(url), expected);
        }
    }

    #[test]
    fn queries_are_encoded() {
        let of = address("https://example.com/token").with_query("scope", "repository:a/b:pull");
        let of = of.with_query("service", "a b");
        assert_eq!(of.path_and_query, "/token?scope=repository%3Aa%2Fb%3Apull&service=a%20b");
    }
}
