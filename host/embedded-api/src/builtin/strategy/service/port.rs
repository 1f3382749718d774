//! Node ports of Services: allotted to each port of Services that are reached through the nodes,
//! and kept.

use std::collections::{BTreeMap, BTreeSet};

use super::{Addresses, Failure, Value, is_balanced, items, set, text};
use crate::{
    builtin::{address, edit::items_mut},
    field_error::{FieldError, FieldPath},
    status::Named,
};

/// Allots node ports where they are needed.
///
/// # Errors
/// Fails if a requested node port is out of range, or in use.
pub(super) fn allot(
    spec: &mut Value,
    old: Option<&Value>,
    name: &str,
    addresses: &Addresses,
) -> Result<(), Failure> {
    let held = old.map(numbers).unwrap_or_default();
    let mut allotment = Allotment { addresses, held, taken: BTreeSet::new(), name };
    if matches!(text(spec, "type"), "NodePort" | "LoadBalancer") {
        match old {
            None => allotment.new_ports(spec)?,
            Some(_) => allotment.changed_ports(spec)?,
        }
    }
    if is_checked(spec) && !old.is_some_and(is_checked) {
        allotment.health_check(spec)?;
    }
    Ok(())
}

/// Keeps the node port of a port of the same name, unless another port has it now.
pub(super) fn keep(spec: &mut Value, old: &Value) {
    if is_given_ports(spec) && is_given_ports(old) {
        let before = items(&old["ports"]);
        let now = numbers(spec);
        for port in items_mut(spec, "ports").filter(|port| number(port).is_none()) {
            let same = before.iter().rfind(|other| text(other, "name") == text(port, "name"));
            if let Some(number) = same.and_then(number).filter(|number| !now.contains(number)) {
                set(port, "nodePort", number);
            }
        }
    }
    if is_checked(spec)
        && is_checked(old)
        && let Some(number) = old["healthCheckNodePort"].as_u64()
        && spec["healthCheckNodePort"].as_u64().unwrap_or(0) == 0
    {
        set(spec, "healthCheckNodePort", number);
    }
}

/// Returns the node ports of a Service.
pub(super) fn numbers(spec: &Value) -> BTreeSet<u64> {
    items(&spec["ports"]).iter().filter_map(number).collect()
}

/// Returns whether the load balancer checks at a separate port which nodes have endpoints.
pub(super) fn is_checked(spec: &Value) -> bool {
    is_balanced(spec) && text(spec, "externalTrafficPolicy") == "Local"
}

/// Returns whether all ports get node ports; a load balancer may have none.
fn is_given_ports(spec: &Value) -> bool {
    match text(spec, "type") {
        "NodePort" => true,
        "LoadBalancer" => spec["allocateLoadBalancerNodePorts"] != false,
        _ => false,
    }
}

fn number(port: &Value) -> Option<u64> {
    port["nodePort"].as_u64().filter(|number| *number != 0)
}

/// The allotment of node ports for one write.
struct Allotment<'a> {
    addresses: &'a Addresses,
    /// The node ports that the Service already has.
    held: BTreeSet<u64>,
    /// The node ports that this write takes.
    taken: BTreeSet<u64>,
    name: &'a str,
}

impl Allotment<'_> {
    /// Allots node ports of a new Service: ports of the same number with two protocols share one.
    fn new_ports(&mut self, spec: &mut Value) -> Result<(), Failure> {
        let gives = is_given_ports(spec);
        let asked: Vec<(i64, Option<u64>)> =
            items(&spec["ports"]).iter().map(|port| (of(port), number(port))).collect();
        let mut of_number: BTreeMap<i64, u64> = BTreeMap::new();
        for (index, port) in items_mut(spec, "ports").enumerate() {
            if number(port).is_none() && !gives {
                continue;
            }
            let wanted = number(port);
            let same = of_number.get(&of(port)).copied();
            let number = match (same, wanted) {
                (Some(same), None) => same,
                (Some(same), Some(wanted)) if same == wanted => same,
                (Some(_), Some(wanted)) => self.take(index, wanted)?,
                (None, _) => {
                    let first = asked
                        .iter()
                        .find_map(|(other, asked)| asked.filter(|_| *other == of(port)));
                    let number = match first {
                        Some(number) => self.take(index, number)?,
                        None => self.free()?,
                    };
                    of_number.insert(of(port), number);
                    number
                }
            };
            set(port, "nodePort", number);
        }
        Ok(())
    }

    /// Allots node ports of an existing Service: those it has are kept, each other port gets its
    /// own.
    fn changed_ports(&mut self, spec: &mut Value) -> Result<(), Failure> {
        let gives = is_given_ports(spec);
        let mut seen = BTreeSet::new();
        for (index, port) in items_mut(spec, "ports").enumerate() {
            let number = match number(port) {
                None if !gives => continue,
                None => self.free()?,
                Some(number) if self.held.contains(&number) || self.taken.contains(&number) => {
                    number
                }
                Some(number) => self.take(index, number)?,
            };
            set(port, "nodePort", number);
            let protocol = text(port, "protocol");
            if !seen.insert((protocol.to_owned(), number)) {
                let why = format!("duplicate nodePort: {{{protocol} {number}}}");
                return Err(Failure::unclassified(why));
            }
        }
        Ok(())
    }

    fn health_check(&mut self, spec: &mut Value) -> Result<(), Failure> {
        let wanted = spec["healthCheckNodePort"].as_u64().filter(|number| *number != 0);
        let Some(number) = wanted else {
            let number = self.free()?;
            set(spec, "healthCheckNodePort", number);
            return Ok(());
        };
        self.check(number).map_err(|why| {
            let what = format!("failed to allocate requested HealthCheck NodePort {number}: {why}");
            Failure::internal(&what)
        })
    }

    /// Takes the requested node port.
    fn take(&mut self, index: usize, number: u64) -> Result<u64, Failure> {
        let taken = self.check(number);
        taken.map(|()| number).map_err(|why| {
            let path = FieldPath::new("spec.ports");
            let path = path.index(index);
            let fault = FieldError::invalid(path.child("nodePort"), number, why);
            Failure::invalid(Named::new("", "Service", self.name), [fault])
        })
    }

    fn check(&mut self, number: u64) -> Result<(), &'static str> {
        if !address::is_node_port(number) {
            return Err(
                "provided port is not in the valid range. The range of valid ports is 30000-32767",
            );
        }
        if self.addresses.is_port_used(number) || !self.taken.insert(number) {
            return Err("provided port is already allocated");
        }
        Ok(())
    }

    /// Takes a free node port.
    fn free(&mut self) -> Result<u64, Failure> {
        let number = self
            .addresses
            .free_port(&self.taken)
            .ok_or_else(|| Failure::internal("failed to allocate a nodePort: range is full"))?;
        self.taken.insert(number);
        Ok(number)
    }
}

/// Returns the number of a port.
fn of(port: &Value) -> i64 {
    port["port"].as_i64().unwrap_or(0)
}
