//! URLs of registries, and the IP addresses that must not be contacted.
//!
//! A registry names further URLs: redirects, and its token service. So each IP address is checked
//! after name resolution and before connecting: a module's author must not make the host send
//! requests to its own machine or to a cloud's metadata service (server-side request forgery).

use std::{
    fmt::{self, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use http::Uri;

use super::Error;

/// Addresses of cloud metadata services outside of the link-local ranges.
const METADATA: [IpAddr; 6] = [
    // Alibaba Cloud, Oracle Cloud, Azure.
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    // AWS, Google Cloud, Scaleway.
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42)),
];

/// The URL of one request: scheme, host, port, path and query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) is_tls: bool,
    /// A name, or an IP address without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) path_and_query: String,
}

// === impl Address ===

impl Address {
    /// Returns the URL of a path at a registry, given the registry of a reference.
    pub(super) fn of_registry(registry: &str, is_tls: bool, path_and_query: &str) -> Option<Self> {
        let scheme = if is_tls { "https" } else { "http" };
        Self::parse(&format!("{scheme}://{registry}{path_and_query}"))
    }

    /// Parses an absolute URL; `None` for any other text, and for a URL with credentials.
    pub(super) fn parse(text: &str) -> Option<Self> {
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
    pub(super) fn join(&self, location: &str) -> Option<Self> {
        if location.contains("://") && !location.starts_with('/') {
            return Self::parse(location);
        }
        if let Some(rest) = location.strip_prefix("//") {
            let scheme = if self.is_tls { "https" } else { "http" };
            return Self::parse(&format!("{scheme}://{rest}"));
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
    pub(super) fn with_query(mut self, key: &str, value: &str) -> Self {
        self.path_and_query.push(if self.path_and_query.contains('?') { '&' } else { '?' });
        self.path_and_query.push_str(key);
        self.path_and_query.push('=');
        self.path_and_query.push_str(&encoded(value));
        self
    }

    /// Returns host and port, as in the `Host` header and in a CONNECT request.
    pub(super) fn authority(&self) -> String {
        let host = &self.host;
        if host.contains(':') {
            format!("[{host}]:{}", self.port)
        } else {
            format!("{host}:{}", self.port)
        }
    }

    /// Returns scheme, host and port.
    pub(super) fn origin(&self) -> String {
        format!("{}://{}", if self.is_tls { "https" } else { "http" }, self.authority())
    }

    /// Returns whether the host is `localhost` or a loopback address.
    pub(super) fn is_loopback(&self) -> bool {
        self.host == "localhost"
            || self.host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
    }

    /// Fails if no request may be sent to this resolved IP address.
    pub(super) fn check(&self, ip: IpAddr, may_be_loopback: bool) -> Result<(), Error> {
        let refused = |found: &str| {
            Err(Error::AddressRefused { host: self.host.clone(), found: format!("{ip} {found}") })
        };
        match why_refused(ip) {
            Some(found) => refused(found),
            None if ip.to_canonical().is_loopback() && !may_be_loopback => {
                refused("is this machine, and a registry elsewhere named it")
            }
            None => Ok(()),
        }
    }
}

/// Shows origin and path, without the query, which may hold a signature.
impl fmt::Display for Address {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path_and_query.split('?').next().unwrap_or_default();
        write!(to, "{}{path}", self.origin())
    }
}

/// Returns the reason why an IP address is never contacted, if there is one.
fn why_refused(ip: IpAddr) -> Option<&'static str> {
    if let Some(candidates) = candidates(ip) {
        // Only one of them is meant, and the others are mostly zeros: that an address is one of no
        // single host says nothing here.
        return candidates.into_iter().find_map(|ip| why_protected(ip.into()));
    }
    let ip = embedded(ip).map_or_else(|| ip.to_canonical(), IpAddr::V4);
    let is_no_host = ip.is_unspecified()
        || ip.is_multicast()
        || matches!(ip, IpAddr::V4(ip) if ip.is_broadcast() || ip.octets()[0] == 0);
    why_protected(ip).or_else(|| is_no_host.then_some("is the address of no single host"))
}

/// Returns the reason why the host with an IP address is never contacted: it is a metadata service,
/// or on the same link.
fn why_protected(ip: IpAddr) -> Option<&'static str> {
    if METADATA.contains(&ip) {
        return Some("is the address of a metadata service");
    }
    let is_link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    is_link_local.then_some("is a link-local address")
}

/// Returns the IPv4 address embedded in an IPv6 address of NAT64 or 6to4.
fn embedded(ip: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(ip) = ip else { return None };
    let of = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match ip.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => Some(of(high, low)),
        _ => None,
    }
}

/// Returns the IPv4 addresses that may be embedded in an IPv6 address of `64:ff9b:1::/48`, the
/// prefix for local use of NAT64 (RFC 8215). A network chooses a prefix of 48, 56, 64 or 96 bits in
/// it, which tells where the IPv4 address is (RFC 6052, section 2.2), and is not known here.
fn candidates(ip: IpAddr) -> Option<[Ipv4Addr; 4]> {
    let IpAddr::V6(ip) = ip else { return None };
    if !matches!(ip.segments(), [0x64, 0xff9b, 1, ..]) {
        return None;
    }
    // Byte 8 is always zero, and no part of the IPv4 address.
    let bytes = ip.octets();
    Some([
        Ipv4Addr::new(bytes[6], bytes[7], bytes[9], bytes[10]),
        Ipv4Addr::new(bytes[7], bytes[9], bytes[10], bytes[11]),
        Ipv4Addr::new(bytes[9], bytes[10], bytes[11], bytes[12]),
        Ipv4Addr::new(bytes[12], bytes[13], bytes[14], bytes[15]),
    ])
}

/// Percent-encodes a value for a query.
pub(super) fn encoded(value: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let mut text = String::with_capacity(value.len());
    for byte in value.bytes() {
        if plain(byte) {
            text.push(byte.into());
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        Address::parse(text).unwrap()
    }

    #[test]
    fn no_request_is_sent_to_metadata_and_neighbours_on_the_link() {
        let refused = [
            "169.254.169.254",
            "169.254.42.42",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
            "fe80::1",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "fd00:ec2::254",
            "fd20:ce::254",
            "0.0.0.0",
            "0.1.2.3",
            "::",
            "224.0.0.1",
            "ff02::1",
            "255.255.255.255",
        ];
        for ip in refused {
            let checked = address("https://example.com/").check(ip.parse().unwrap(), true);
            assert!(matches!(checked, Err(Error::AddressRefused { .. })), "{ip}");
        }
        for ip in ["93.184.216.34", "10.0.0.1", "2606:4700::1111", "fd12::1", "100.64.0.1"] {
            address("https://example.com/").check(ip.parse().unwrap(), false).unwrap();
        }
    }

    #[test]
    fn a_local_prefix_of_nat64_hides_neither_metadata_nor_neighbours() {
        let cases = [
            ("48 bits, link-local", "64:ff9b:1:a9fe:a9:fe00::", Some("is a link-local address")),
            ("56 bits, link-local", "64:ff9b:1:a9:fe:a9fe::", Some("is a link-local address")),
            ("64 bits, link-local", "64:ff9b:1:7:a9:fea9:fe00:0", Some("is a link-local address")),
            ("96 bits, link-local", "64:ff9b:1::a9fe:a9fe", Some("is a link-local address")),
            ("48 bits, metadata", "64:ff9b:1:6464:64:c800::", Some("of a metadata service")),
            ("96 bits, metadata", "64:ff9b:1:2:3::a83f:8110", Some("of a metadata service")),
            ("48 bits, public", "64:ff9b:1:5db8:d8:2200::", None),
            ("56 bits, public", "64:ff9b:1:5d:b8:d822::", None),
            ("64 bits, public", "64:ff9b:1:7:5d:b8d8:2200:0", None),
            ("96 bits, public", "64:ff9b:1::5db8:d822", None),
            ("the well-known prefix, public", "64:ff9b::5db8:d822", None),
            ("another prefix", "64:ff9b:2::a9fe:a9fe", None),
        ];
        for (case, ip, expected) in cases {
            let checked = address("https://example.com/").check(ip.parse().unwrap(), false);
            let found = checked.err().map(|error| error.to_string());
            let is_it = match expected {
                Some(expected) => found.as_ref().is_some_and(|found| found.ends_with(expected)),
                None => found.is_none(),
            };
            assert!(is_it, "{case}: {found:?}");
        }
    }

    #[test]
    fn this_machine_is_asked_only_if_the_registry_is_there_too() {
        for ip in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            let ip = ip.parse().unwrap();
            let of = address("https://example.com/");
            of.check(ip, true).unwrap();
            let message = of.check(ip, false).unwrap_err().to_string();
            assert!(message.contains("is this machine"), "{message}");
        }
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
    fn queries_are_encoded_and_not_shown() {
        let of = address("https://example.com/token").with_query("scope", "repository:a/b:pull");
        let of = of.with_query("service", "a b");
        assert_eq!(of.path_and_query, "/token?scope=repository%3Aa%2Fb%3Apull&service=a%20b");
        assert_eq!(of.to_string(), "https://example.com:443/token");
    }
}
