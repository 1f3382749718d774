//! The IP addresses of names, and those that must not be contacted.
//!
//! A URL may be named by somebody else, as that of a redirect. So each IP address is checked after
//! name resolution and before connecting: nobody must make the host send requests to its own
//! machine or to a cloud's metadata service (server-side request forgery).

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs as _},
};

use tokio::sync::Semaphore;

use super::{Error, public};

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
/// The permits for concurrent DNS lookups of the whole host, each on a thread that waits for a name
/// server: if the name server hangs, the rest of the host still has threads (see `program`).
static LOOKUPS: Semaphore = Semaphore::const_new(3);
/// The maximum number of addresses of one name that are checked and tried: whoever answers for the
/// name chooses their number.
const MAX_ADDRESSES: usize = 16;

/// The IP addresses that may be contacted. Never contacted are link-local addresses and metadata
/// services.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Policy {
    /// True if this machine may be contacted.
    pub(crate) loopback: bool,
    /// True if the URL comes from somebody who may choose every address: an IP address that the URL
    /// itself names is contacted, whatever it is.
    pub(crate) literal: bool,
    /// True if only addresses of the internet may be contacted, and none of a private network.
    pub(crate) public: bool,
}

// === impl Policy ===

impl Policy {
    /// Fails if no request may be sent to this resolved IP address of a host.
    pub(super) fn check(self, host: &str, ip: IpAddr) -> Result<(), Error> {
        if self.literal && host.parse() == Ok(ip) {
            return Ok(());
        }
        let host = host.to_owned();
        match why_refused(ip) {
            Some(found) => Err(Error::Refused { host, found: format!("{ip} {found}") }),
            None if self.public && !public::is_public(meant(ip)) => {
                Err(Error::Refused { host, found: format!("{ip} is not a public address") })
            }
            None if self.loopback || !is_this_machine(ip) => Ok(()),
            None => Err(Error::Loopback { host, ip }),
        }
    }
}

/// Returns whether an IP address is a loopback address, also of NAT64 or 6to4.
pub(super) fn is_this_machine(ip: IpAddr) -> bool {
    meant(ip).is_loopback()
}

/// Returns the first IP addresses of a host.
pub(super) async fn addresses(host: &str) -> Result<Vec<IpAddr>, Error> {
    if let Ok(ip) = host.parse() {
        return Ok(vec![ip]);
    }
    let place = LOOKUPS.acquire().await;
    let name = host.to_owned();
    let looked_up = tokio::task::spawn_blocking(move || {
        // Held until the name server has answered, even if the caller has given up.
        let _place = place;
        let found = (name.as_str(), 0).to_socket_addrs()?;
        io::Result::Ok(found.map(|address| address.ip()).take(MAX_ADDRESSES).collect::<Vec<_>>())
    });
    let found = looked_up.await.map_err(io::Error::other).flatten();
    found.map_err(|error| Error::unreachable(host, &error))
}

/// Returns the reason why an IP address is never contacted, if there is one.
fn why_refused(ip: IpAddr) -> Option<&'static str> {
    if let Some(candidates) = candidates(ip) {
        // Only one of them is meant, and the others are mostly zeros: that an address is one of no
        // single host says nothing here.
        return candidates.into_iter().find_map(|ip| why_protected(ip.into()));
    }
    let ip = meant(ip);
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

/// Returns the IP address that a packet to this one reaches in the end.
fn meant(ip: IpAddr) -> IpAddr {
    embedded(ip).map_or_else(|| ip.to_canonical(), IpAddr::V4)
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

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWING: Policy = Policy { loopback: true, literal: false, public: false };

    #[test]
    fn an_address_that_a_trusted_url_names_is_contacted_and_no_name_of_it() {
        let literal = Policy { literal: true, ..Policy::default() };
        for ip in ["127.0.0.1", "::1", "169.254.169.254", "fe80::1", "10.0.0.7"] {
            literal.check(ip, ip.parse().unwrap()).unwrap();
        }
        let cases = [
            ("localhost", "127.0.0.1"),
            ("2130706433", "127.0.0.1"),
            ("0x7f.1", "127.0.0.1"),
            ("::ffff:127.0.0.1", "127.0.0.1"),
            ("127.0.0.1", "127.0.0.2"),
            ("metadata.example.com", "169.254.169.254"),
        ];
        for (host, ip) in cases {
            literal.check(host, ip.parse().unwrap()).unwrap_err();
        }
    }

    #[test]
    fn no_request_is_sent_to_metadata_and_neighbours_on_the_link() {
        let refused = [
            "169.254.169.254",
            "169.254.42.42",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
            "64:ff9b::100.100.100.200",
            "2002:a83f:8110::",
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
            for policy in [ALLOWING, Policy { literal: true, ..ALLOWING }] {
                let checked = policy.check("example.com", ip.parse().unwrap());
                assert!(matches!(checked, Err(Error::Refused { .. })), "{ip}");
            }
        }
        for ip in ["93.184.216.34", "10.0.0.1", "2606:4700::1111", "fd12::1", "100.64.0.1"] {
            Policy::default().check("example.com", ip.parse().unwrap()).unwrap();
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
            let checked = Policy::default().check("example.com", ip.parse().unwrap());
            let found = checked.err().map(|error| error.to_string());
            let is_it = match expected {
                Some(expected) => found.as_ref().is_some_and(|found| found.ends_with(expected)),
                None => found.is_none(),
            };
            assert!(is_it, "{case}: {found:?}");
        }
    }

    #[test]
    fn this_machine_is_asked_only_if_the_policy_allows_it() {
        let embedded =
            ["64:ff9b::7f00:1", "64:ff9b::127.9.9.9", "2002:7f00:1::", "2002:7f09:909::1"];
        for ip in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"].into_iter().chain(embedded)
        {
            let ip = ip.parse().unwrap();
            ALLOWING.check("example.com", ip).unwrap();
            let refused = Policy::default().check("example.com", ip);
            assert!(matches!(refused, Err(Error::Loopback { .. })), "{ip}");
        }
    }
    #[test]
    fn only_addresses_of_the_internet_are_public() {
        let public = Policy { public: true, ..Policy::default() };
        // Translated by NAT64 and 6to4, where that is meant.
        let reached = [
            "93.184.216.34",
            "100.63.255.255",
            "172.32.0.1",
            "2606:4700::1111",
            "::ffff:93.184.216.34",
            "64:ff9b::5db8:d822",
            "2002:5db8:d822::1",
        ];
        for ip in reached {
            public.check("example.com", ip.parse().unwrap()).unwrap();
        }
        let refused = [
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.9.9.9",
            "192.0.2.1",
            "198.18.0.1",
            "198.19.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "224.0.0.1",
            "239.255.255.250",
            "169.254.169.254",
            "100.100.100.200",
            "0.0.0.0",
            "::",
            "::1",
            "::10.0.0.1",
            "::93.184.216.34",
            "::ffff:10.0.0.1",
            "::ffff:127.0.0.1",
            "fe80::1",
            "fec0::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "64:ff9b::a00:1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b::6440:1",
            "64:ff9b:1::5db8:d822",
            "2002:a00:1::1",
            "2002:7f00:1::1",
            "2002:c0a8:101::1",
            "2001:0:5db8:d822::1",
            "2001:db8::1",
            "4000::1",
        ];
        for ip in refused {
            let checked = public.check("example.com", ip.parse().unwrap());
            assert!(matches!(checked, Err(Error::Refused { .. })), "{ip}: {checked:?}");
        }
    }
}
