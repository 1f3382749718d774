//! The servers that a kubeconfig may name.

use std::{fmt, str::FromStr};

use crate::http::Address;

/// A set of servers of one scheme and port: `https://10.0.0.7:6443`,
/// `https://*.provider.example:6443`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Servers {
    /// The host, or the domain of the hosts.
    address: Address,
    is_domain: bool,
}

/// The error of a text that names no servers.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{0}` names no servers: `https://HOST:PORT` is accepted, with `*.` before a domain for all names below it; `http://` with a loopback address only"
)]
pub struct InvalidServer(String);

// === impl Servers ===

impl FromStr for Servers {
    type Err = InvalidServer;

    fn from_str(text: &str) -> Result<Self, InvalidServer> {
        let invalid =
            || InvalidServer(text.chars().take(200).flat_map(char::escape_debug).collect());
        let (scheme, rest) = text.split_once("://").ok_or_else(invalid)?;
        let domain = rest.strip_prefix("*.");
        let address = Address::parse(&format!("{scheme}://{}", domain.unwrap_or(rest)));
        let address = address.filter(|of| of.path_and_query == "/").ok_or_else(invalid)?;
        let is_domain = domain.is_some();
        let is_name = !is_address(&address.host) && !address.host.contains('*');
        // The labels of a domain: `*.example` would be granted whoever registers a name there.
        let is_wide = is_domain && (!is_name || !address.host.contains('.'));
        let is_plain = !address.is_tls && (is_domain || !is_loopback_address(&address));
        if is_wide || is_plain || address.host.contains('*') {
            return Err(invalid());
        }
        Ok(Self { address, is_domain })
    }
}

impl Servers {
    /// Returns whether the origin of a server is in the set.
    pub fn hold(&self, origin: &str) -> bool {
        let Some(server) = Address::parse(origin) else { return false };
        let Address { is_tls, host, port, .. } = &self.address;
        let is_host = if self.is_domain {
            let below = server.host.strip_suffix(host.as_str());
            below.is_some_and(|below| below.ends_with('.') && below.len() > 1)
        } else {
            server.host == *host
        };
        is_host && (server.is_tls, server.port) == (*is_tls, *port)
    }

    /// Returns whether every server of another set is in this one.
    pub fn cover(&self, other: &Self) -> bool {
        let is_of_domain = !other.is_domain || self.is_domain;
        let host = &other.address.host;
        let is_same = *host == self.address.host && other.is_domain == self.is_domain;
        is_same && self.hold_port(other) || is_of_domain && self.hold(&other.address.origin())
    }

    fn hold_port(&self, other: &Self) -> bool {
        let place = |of: &Address| (of.is_tls, of.port);
        place(&self.address) == place(&other.address)
    }
}

impl fmt::Display for Servers {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.address.is_tls { "https" } else { "http" };
        let domain = if self.is_domain { "*." } else { "" };
        write!(to, "{scheme}://{domain}{}", self.address.authority())
    }
}

fn is_address(host: &str) -> bool {
    host.parse::<std::net::IpAddr>().is_ok()
}

/// Returns whether a host is written as a loopback address, and not as a name of one.
pub(super) fn is_loopback_address(of: &Address) -> bool {
    is_address(&of.host) && of.is_loopback()
}

/// Lists servers or origins for a message.
pub(crate) fn listed<T: fmt::Display>(all: &[T]) -> String {
    let all: Vec<String> = all.iter().map(|one| format!("`{one}`")).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(text: &str) -> Servers {
        text.parse().unwrap()
    }

    #[test]
    fn servers_are_compared_by_scheme_host_and_port() {
        let cases = [
            ("https://10.0.0.7:6443", "https://10.0.0.7:6443", true),
            ("https://10.0.0.7:6443", "https://10.0.0.7", false),
            ("https://10.0.0.7:6443", "https://10.0.0.70:6443", false),
            ("https://api.example.com", "https://API.example.com:443", true),
            ("https://api.example.com", "https://evil.example/https://api.example.com", false),
            ("https://api.example.com", "https://api.example.com@evil.example", false),
            ("https://*.example.com:6443", "https://a.example.com:6443", true),
            ("https://*.example.com:6443", "https://a.b.example.com:6443", true),
            ("https://*.example.com:6443", "https://example.com:6443", false),
            ("https://*.example.com:6443", "https://.example.com:6443", false),
            ("https://*.example.com:6443", "https://aexample.com:6443", false),
            ("https://*.example.com:6443", "https://a.example.com:443", false),
            ("https://*.example.com:6443", "https://a.example.com.evil.example:6443", false),
            ("http://127.0.0.1:8001", "http://127.0.0.1:8001", true),
            ("http://127.0.0.1:8001", "https://127.0.0.1:8001", false),
            ("https://127.0.0.1:6443", "https://[::ffff:127.0.0.1]:6443", false),
            ("https://[::1]:6443", "https://[::1]:6443", true),
        ];
        for (granted, server, expected) in cases {
            assert_eq!(servers(granted).hold(server), expected, "{granted} {server}");
        }
    }

    #[test]
    fn a_text_that_names_no_servers_is_refused() {
        let refused = [
            "",
            "*",
            "https://*",
            "https://*.com",
            "https://*.10.0.0.7:6443",
            "https://a.*.example.com",
            "https://user@example.com",
            "https://example.com/path",
            "https://example.com?query",
            "http://example.com",
            "http://localhost:8001",
            "http://10.0.0.7:6443",
            "http://*.example.com",
            "ftp://example.com",
            "example.com:6443",
        ];
        for text in refused {
            let error = text.parse::<Servers>().unwrap_err().to_string();
            assert!(error.contains("`https://HOST:PORT` is accepted"), "{text}: {error}");
        }
    }

    #[test]
    fn a_set_covers_what_lies_within_it() {
        let cases = [
            ("https://*.example.com:6443", "https://*.example.com:6443", true),
            ("https://*.example.com:6443", "https://*.a.example.com:6443", true),
            ("https://*.example.com:6443", "https://a.example.com:6443", true),
            ("https://*.example.com:6443", "https://example.com:6443", false),
            ("https://*.a.example.com", "https://*.example.com", false),
            ("https://*.example.com", "https://*.example.com:6443", false),
            ("https://a.example.com", "https://*.a.example.com", false),
            ("https://10.0.0.7:6443", "https://10.0.0.7:6443", true),
        ];
        for (outer, inner, expected) in cases {
            assert_eq!(servers(outer).cover(&servers(inner)), expected, "{outer} {inner}");
        }
    }
}
