//! Validation of network policies.

use std::net::IpAddr;

use super::{
    FieldError, FieldPath, Value, items,
    number::{port, port_or_name},
    selector, shown, text,
};

pub(super) fn policy(object: &Value, errors: &mut Vec<FieldError>) {
    let spec = &object["spec"];
    let path = FieldPath::new("spec");
    selector::validate(&spec["podSelector"], &path.child("podSelector"), errors);
    for (list, peers) in [("ingress", "from"), ("egress", "to")] {
        let path = path.child(list);
        for (index, rule) in items(&spec[list]).iter().enumerate() {
            let path = path.index(index);
            ports(rule, &path.child("ports"), errors);
            let path = path.child(peers);
            for (index, peer) in items(&rule[peers]).iter().enumerate() {
                self::peer(peer, &path.index(index), errors);
            }
        }
    }
    let path = path.child("policyTypes");
    let types = items(&spec["policyTypes"]);
    if types.len() > 2 {
        let fault = "may not specify more than two policyTypes";
        return errors.push(FieldError::invalid(path, shown(&spec["policyTypes"]), fault));
    }
    for (index, value) in types.iter().enumerate() {
        let found = value.as_str().unwrap_or("");
        if !matches!(found, "Ingress" | "Egress") {
            errors.push(FieldError::not_supported(path.index(index), found, ["Ingress", "Egress"]));
        }
    }
}

fn ports(rule: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    for (index, value) in items(&rule["ports"]).iter().enumerate() {
        let path = path.index(index);
        let protocol = text(value, "protocol");
        if !matches!(protocol, "TCP" | "UDP" | "SCTP") {
            let known = ["SCTP", "TCP", "UDP"];
            errors.push(FieldError::not_supported(path.child("protocol"), protocol, known));
        }
        let (number, end) = (value["port"].as_i64(), value["endPort"].as_i64());
        let here = path.child("endPort");
        if !value["port"].is_null() {
            port_or_name(&value["port"], &path.child("port"), errors);
        }
        let Some(end) = end else { continue };
        if let Some(number) = number {
            if end < number {
                let fault = "must be greater than or equal to `port`";
                errors.push(FieldError::invalid(here, number, fault));
            }
            port(&value["endPort"], &here, errors);
        } else {
            let how = if value["port"].is_null() { "not specified" } else { "non-numeric" };
            let fault = format!("may not be specified when `port` is {how}");
            errors.push(FieldError::invalid(here, end, fault));
        }
    }
}

fn peer(peer: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let kinds = ["podSelector", "namespaceSelector", "ipBlock"];
    for kind in ["podSelector", "namespaceSelector"] {
        selector::validate(&peer[kind], &path.child(kind), errors);
    }
    if !peer["ipBlock"].is_null() {
        block(&peer["ipBlock"], &path.child("ipBlock"), errors);
    }
    if kinds.iter().all(|kind| peer[kind].is_null()) {
        errors.push(FieldError::required(path, "must specify a peer"));
    } else if !peer["ipBlock"].is_null()
        && kinds.iter().filter(|kind| !peer[kind].is_null()).count() > 1
    {
        let fault = "may not specify both ipBlock and another peer";
        errors.push(FieldError::forbidden(path, fault));
    }
}

/// Validates a block of addresses, and that its exceptions are parts of it.
fn block(value: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let fault = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
    let whole = text(value, "cidr");
    if whole.is_empty() {
        return errors.push(FieldError::required(path.child("cidr"), ""));
    }
    let Some((bits, base, length)) = network(whole) else {
        return errors.push(FieldError::invalid(path.child("cidr"), whole, fault));
    };
    let path = path.child("except");
    for (index, part) in items(&value["except"]).iter().enumerate() {
        let part = part.as_str().unwrap_or("");
        let path = path.index(index);
        match network(part) {
            None => errors.push(FieldError::invalid(path, part, fault)),
            Some((other, start, inner)) => {
                let shift = bits - length;
                let prefix = |start: u128| start.checked_shr(shift).unwrap_or(0);
                if other != bits || prefix(start) != prefix(base) || length >= inner {
                    let fault = "must be a strict subset of `cidr`";
                    errors.push(FieldError::invalid(path, part, fault));
                }
            }
        }
    }
}

/// Returns the bits of an address, the first address and the length of the prefix of a network.
fn network(text: &str) -> Option<(u32, u128, u32)> {
    let (address, length) = text.split_once('/')?;
    let (bits, base) = match address.parse().ok()? {
        IpAddr::V4(address) => (32, u128::from(u32::from(address))),
        IpAddr::V6(address) => (128, address.into()),
    };
    let length: u32 = length.parse().ok().filter(|length| *length <= bits)?;
    Some((bits, base, length))
}
