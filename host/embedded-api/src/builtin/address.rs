//! Addresses and node ports of Services: tracks those in use, and finds free ones.

use std::{
    collections::{BTreeSet, HashSet},
    net::Ipv4Addr,
};

use parking_lot::Mutex;
use serde_json::Value;

use super::edit::{items, text};

/// The network of the addresses: 10.0.0.0/16.
const NETWORK: u32 = 0x0a00_0000;
/// The hosts that are allotted: the first address is the network, the second the API's own, the
/// last one for broadcasts.
const HOSTS: std::ops::Range<u32> = 2..0xffff;
const NODE_PORTS: std::ops::Range<u32> = 30_000..32_768;

/// The addresses and node ports in use by the Services of a cluster.
#[derive(Debug)]
pub(crate) struct Addresses(Mutex<Used>);

#[derive(Debug)]
struct Used {
    hosts: HashSet<u32>,
    next_host: u32,
    ports: HashSet<u32>,
    next_port: u32,
}

// === impl Addresses ===

impl Default for Addresses {
    fn default() -> Self {
        Self::new()
    }
}

impl Addresses {
    pub(crate) fn new() -> Self {
        let used = Used {
            hosts: HashSet::new(),
            next_host: HOSTS.start,
            ports: HashSet::new(),
            next_port: NODE_PORTS.start,
        };
        Self(Mutex::new(used))
    }

    /// Returns an address that no Service has; it is in use once the Service is stored.
    pub(crate) fn free_address(&self) -> Option<Ipv4Addr> {
        let used = &mut *self.0.lock();
        let host = next(&used.hosts, &mut used.next_host, HOSTS)?;
        Some(Ipv4Addr::from(NETWORK | host))
    }

    /// Returns a node port that no Service has and that is not in `also`.
    pub(crate) fn free_port(&self, also: &BTreeSet<u64>) -> Option<u64> {
        let used = &mut *self.0.lock();
        loop {
            let port = next(&used.ports, &mut used.next_port, NODE_PORTS)?;
            let port = u64::from(port);
            if !also.contains(&port) {
                return Some(port);
            }
        }
    }

    pub(crate) fn is_address_used(&self, address: &str) -> bool {
        host(address).is_some_and(|host| self.0.lock().hosts.contains(&host))
    }

    pub(crate) fn is_port_used(&self, port: u64) -> bool {
        u32::try_from(port).is_ok_and(|port| self.0.lock().ports.contains(&port))
    }

    /// Updates the addresses and ports in use after a Service was stored, changed or removed.
    pub(crate) fn committed(&self, old: Option<&Value>, new: Option<&Value>) {
        let mut used = self.0.lock();
        if let Some(service) = old {
            hosts(service).for_each(|host| _ = used.hosts.remove(&host));
            ports(service).for_each(|port| _ = used.ports.remove(&port));
        }
        if let Some(service) = new {
            used.hosts.extend(hosts(service));
            used.ports.extend(ports(service));
        }
    }
}

/// Returns whether an address is in the range for Services.
pub(crate) fn is_in_range(address: &str) -> bool {
    host(address).is_some_and(|host| host != 0 && host != 0xffff)
}

/// Returns whether a port is in the range of node ports.
pub(crate) fn is_node_port(port: u64) -> bool {
    u32::try_from(port).is_ok_and(|port| NODE_PORTS.contains(&port))
}

/// Returns the next free number from `start` on, wrapping around the range once.
fn next(used: &HashSet<u32>, start: &mut u32, range: std::ops::Range<u32>) -> Option<u32> {
    let found =
        (*start..range.end).chain(range.start..*start).find(|number| !used.contains(number))?;
    *start = if found + 1 < range.end { found + 1 } else { range.start };
    Some(found)
}

fn host(address: &str) -> Option<u32> {
    let address = u32::from(address.parse::<Ipv4Addr>().ok()?);
    (address & 0xffff_0000 == NETWORK).then_some(address & 0xffff)
}

fn hosts(service: &Value) -> impl Iterator<Item = u32> {
    let spec = &service["spec"];
    let all = items(&spec["clusterIPs"]).iter().filter_map(Value::as_str);
    all.chain([text(spec, "clusterIP")]).filter_map(host)
}

fn ports(service: &Value) -> impl Iterator<Item = u32> {
    let spec = &service["spec"];
    let ports = items(&spec["ports"]).iter().map(|port| &port["nodePort"]);
    let all = ports.chain([&spec["healthCheckNodePort"]]).filter_map(Value::as_u64);
    all.filter_map(|port| u32::try_from(port).ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Addresses, is_in_range};

    #[test]
    fn an_address_is_given_again_only_after_its_service_is_gone() {
        let addresses = Addresses::new();
        let first = addresses.free_address().unwrap().to_string();
        let service = json!({"spec": {"clusterIP": first, "clusterIPs": [first]}});
        addresses.committed(None, Some(&service));
        assert!(addresses.is_address_used(&first) && is_in_range(&first));
        for _ in 0..70_000 {
            assert_ne!(addresses.free_address().unwrap().to_string(), first);
        }
        addresses.committed(Some(&service), None);
        assert!(!addresses.is_address_used(&first));
    }
}
