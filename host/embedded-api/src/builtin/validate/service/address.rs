//! Validation of addresses: those in the cluster, which must be consistent and must not change, and
//! those outside of it.

use std::net::IpAddr;

use super::{super::shown, FieldError, FieldPath, Value, add_invalid, is_empty, items, text};
use crate::name;

const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];
const POLICIES: [&str; 3] = ["PreferDualStack", "RequireDualStack", "SingleStack"];
const NO_ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

/// Validates the addresses and families of a spec; addresses of the old one are not validated
/// again.
pub(crate) fn related(spec: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if text(spec, "type") == "ExternalName" {
        return errors;
    }
    let path = FieldPath::new("spec");
    let here = path.child("clusterIPs");
    let all = items(&spec["clusterIPs"]);
    let whole = || shown(&spec["clusterIPs"]);
    let address = text(spec, "clusterIP");
    match all.first().map(|first| first.as_str().unwrap_or("")) {
        None if !address.is_empty() => errors.push(FieldError::required(here, "")),
        Some(_) if address.is_empty() => {
            let fault = "must be empty when `clusterIP` is not specified";
            errors.push(FieldError::invalid(here, whole(), fault));
        }
        Some(first) if first != address => {
            let fault = "first value must match `clusterIP`";
            errors.push(FieldError::invalid(here, whole(), fault));
        }
        _ => {}
    }
    families(spec, &path, &mut errors);
    let mut is_wrong = false;
    for (index, address) in all.iter().enumerate() {
        let address = address.as_str().unwrap_or("");
        let is_none = address == "None" && index == 0;
        if is_none && all.len() > 1 {
            is_wrong = true;
            let fault = "'None' must be the first and only value";
            errors.push(FieldError::invalid(here, whole(), fault));
        }
        let fault = fault(address, old.map(|old| &old["clusterIPs"])).filter(|_| !is_none);
        if let Some(fault) = fault {
            is_wrong = true;
            errors.push(FieldError::invalid(here.index(index), address, fault));
        }
    }
    if all.len() > 2 {
        errors.push(FieldError::invalid(here, whole(), "may only hold up to 2 values"));
    }
    if !is_wrong {
        of_families(spec, &here, &mut errors);
    }
    errors
}

/// Validates the families and the family policy.
fn families(spec: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let here = path.child("ipFamilies");
    let families = items(&spec["ipFamilies"]);
    for (index, family) in families.iter().enumerate() {
        let text = family.as_str().unwrap_or("");
        if !FAMILIES.contains(&text) {
            errors.push(FieldError::not_supported(here.index(index), text, FAMILIES));
        }
        if families.iter().take(index).any(|other| other == family) {
            errors.push(FieldError::duplicate(here.index(index), text));
        }
    }
    if let Some(policy) = spec["ipFamilyPolicy"].as_str()
        && !POLICIES.contains(&policy)
    {
        errors.push(FieldError::not_supported(path.child("ipFamilyPolicy"), policy, POLICIES));
    }
}

/// Validates that there is one address of each family, in the order of the families.
fn of_families(spec: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let all: Vec<&str> =
        items(&spec["clusterIPs"]).iter().map(|address| address.as_str().unwrap_or("")).collect();
    let is_later = |address: &str| address.contains(':');
    if let [first, others @ ..] = all.as_slice()
        && !others.is_empty()
        && others.iter().all(|other| is_later(other) == is_later(first))
    {
        let fault = "may specify no more than one IP for each IP family";
        errors.push(FieldError::invalid(path, shown(&spec["clusterIPs"]), fault));
    }
    if is_headless(spec) {
        return;
    }
    for (index, (address, family)) in all.iter().zip(items(&spec["ipFamilies"])).enumerate() {
        let family = family.as_str().unwrap_or("");
        let wanted = match family {
            "IPv4" if is_later(address) => "an IPv4",
            "IPv6" if !is_later(address) => "an IPv6",
            _ => continue,
        };
        let fault = format!("expected {wanted} value as indicated by `ipFamilies[{index}]`");
        errors.push(FieldError::invalid(path.index(index), *address, fault));
    }
}

/// Returns whether the Service has no address.
pub(super) fn is_headless(spec: &Value) -> bool {
    matches!(items(&spec["clusterIPs"]), [only] if only == "None")
}

/// Validates that an address stays unchanged while the Service needs one, and so do the families.
pub(crate) fn update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let (new, old) = (&new["spec"], &old["spec"]);
    let is_external = |spec: &Value| text(spec, "type") == "ExternalName";
    if is_external(new) || is_external(old) || (is_headless(new) && is_headless(old)) {
        return;
    }
    addresses_stay(new, old, errors);
    if is_headless(new) == is_headless(old) {
        families_stay(new, old, errors);
    }
}

fn addresses_stay(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let path = FieldPath::new("spec.clusterIPs");
    let (now, before) = (items(&new["clusterIPs"]), items(&old["clusterIPs"]));
    let whole = || shown(&new["clusterIPs"]);
    let changed =
        |index| FieldError::invalid(path.index(index), whole(), "may not change once set");
    if now.len() == before.len() {
        let differ = before.iter().zip(now).enumerate().filter(|(_, (old, new))| old != new);
        errors.extend(differ.map(|(index, _)| changed(index)));
        return;
    }
    if now.is_empty() {
        let fault = "primary clusterIP can not be unset";
        errors.push(FieldError::invalid(path.index(0), whole(), fault));
    }
    if let (Some(new), Some(old)) = (now.first(), before.first())
        && new != old
    {
        errors.push(changed(0));
    }
    let policy = text(new, "ipFamilyPolicy");
    if now.len() == 1 && before.len() > 1 && policy != "SingleStack" {
        let fault = "must be set to 'SingleStack' when releasing the secondary clusterIP";
        errors.push(FieldError::invalid("spec.ipFamilyPolicy", policy, fault));
    }
}

fn families_stay(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let path = FieldPath::new("spec.ipFamilies[0]");
    let (now, before) = (items(&new["ipFamilies"]), items(&old["ipFamilies"]));
    let fault = "may not change once set";
    if now.len() == before.len() {
        let differ = before.iter().zip(now).filter(|(old, new)| old != new);
        errors.extend(differ.map(|_| FieldError::invalid(path, shown(&new["ipFamilies"]), fault)));
        return;
    }
    if before.len() > now.len() && is_empty(&new["clusterIPs"]) {
        let fault = "primary ipFamily can not be unset";
        errors.push(FieldError::invalid(path, shown(&new["ipFamilies"]), fault));
    }
    if let (Some(first), Some(old)) = (now.first(), before.first())
        && first != old
    {
        // The message shows the addresses.
        errors.push(FieldError::invalid(path, shown(&new["clusterIPs"]), fault));
    }
    let policy = text(new, "ipFamilyPolicy");
    if before.len() > now.len() && now.len() == 1 && policy != "SingleStack" {
        let fault = "must be set to 'SingleStack' when releasing the secondary ipFamily";
        errors.push(FieldError::invalid("spec.ipFamilyPolicy", policy, fault));
    }
}

/// Returns the error of an address, unless it was there before.
pub(super) fn fault(address: &str, before: Option<&Value>) -> Option<&'static str> {
    let was_there = before.is_some_and(|before| items(before).iter().any(|old| old == address));
    (!was_there && address.parse::<IpAddr>().is_err()).then_some(NO_ADDRESS)
}

pub(super) fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

pub(super) fn is_link_local_multicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.octets().starts_with(&[224, 0, 0]),
        IpAddr::V6(address) => address.segments()[0] == 0xff02,
    }
}

/// Validates a range of addresses; spaces around it are ignored.
pub(super) fn range(text: &str, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let text = text.trim();
    let is_right = text.split_once('/').is_some_and(|(address, length)| {
        let most = match address.parse() {
            Ok(IpAddr::V4(_)) => 32,
            Ok(IpAddr::V6(_)) => 128,
            Err(_) => return false,
        };
        length.bytes().all(|digit| digit.is_ascii_digit())
            && length.parse::<u8>().is_ok_and(|length| length <= most)
    });
    if !is_right {
        let fault = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
        errors.push(FieldError::invalid(path, text, fault));
    }
}

/// Validates a point at which a load balancer is reached.
pub(super) fn balanced(point: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let address = text(point, "ip");
    if !address.is_empty()
        && let Some(fault) = fault(address, None)
    {
        errors.push(FieldError::invalid(path.child("ip"), address, fault));
    }
    let here = path.child("ipMode");
    match point["ipMode"].as_str() {
        None if !address.is_empty() => {
            errors.push(FieldError::required(here, "must be specified when `ip` is set"));
        }
        Some(_) if address.is_empty() => {
            errors.push(FieldError::forbidden(here, "may not be specified when `ip` is not set"));
        }
        Some(mode) if !["Proxy", "VIP"].contains(&mode) => {
            errors.push(FieldError::not_supported(here, mode, ["Proxy", "VIP"]));
        }
        _ => {}
    }
    let host = text(point, "hostname");
    if !host.is_empty() {
        let here = path.child("hostname");
        add_invalid(errors, &here, host, name::is_subdomain(host));
        if host.parse::<IpAddr>().is_ok() {
            let fault = "must be a DNS name, not an IP address";
            errors.push(FieldError::invalid(here, host, fault));
        }
    }
}
