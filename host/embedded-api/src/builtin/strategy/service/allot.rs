//! The IP families and addresses of Services, in a cluster with one family.

use super::{Addresses, Failure, Value, is_empty, is_external, items, json, set, text};
use crate::{
    builtin::{
        address,
        edit::default,
        validate::{service_addresses, shown},
    },
    field_error::{FieldError, FieldPath},
    status::Named,
};

/// The family of the cluster, and the one that it lacks.
const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];

/// Sets the families of a Service, and allots an address if it needs one.
///
/// # Errors
/// Fails if the requested values contradict each other, or the cluster lacks them.
pub(super) fn addresses(
    spec: &mut Value,
    old: Option<&Value>,
    name: &str,
    addresses: &Addresses,
) -> Result<(), Failure> {
    if is_external(spec) {
        return Ok(());
    }
    let refused = |faults| Failure::invalid(Named::new("", "Service", name), faults);
    families(spec, old).map_err(refused)?;
    if old.is_none_or(is_external) && !is_headless(spec) {
        address(spec, addresses, name)?;
    }
    Ok(())
}

/// Fills in the families of a Service that is read without any.
pub(super) fn complete_families(spec: &mut Value) {
    if !is_empty(&spec["ipFamilies"]) {
        return;
    }
    let found: Vec<&str> = match text(spec, "clusterIP") {
        "None" if is_empty(&spec["selector"]) => FAMILIES.to_vec(),
        "None" => FAMILIES[..1].to_vec(),
        _ => addresses_of(spec).map(family_of).collect(),
    };
    let policy = match found.len() {
        0 => return,
        1 => "SingleStack",
        _ => "RequireDualStack",
    };
    set(spec, "ipFamilies", json!(found));
    set(spec, "ipFamilyPolicy", policy);
}

fn is_headless(spec: &Value) -> bool {
    addresses_of(spec).next() == Some("None")
}

fn addresses_of(spec: &Value) -> impl Iterator<Item = &str> {
    items(&spec["clusterIPs"]).iter().map(|address| address.as_str().unwrap_or(""))
}

fn family_of(address: &str) -> &'static str {
    if address.contains(':') { FAMILIES[1] } else { FAMILIES[0] }
}

fn families(spec: &mut Value, old: Option<&Value>) -> Result<(), Vec<FieldError>> {
    if old.is_some_and(|old| prefers_both_as_before(spec, old)) {
        return Ok(());
    }
    let is_free = text(spec, "clusterIP") == "None" && is_empty(&spec["selector"]);
    let before = old.map_or("", |old| text(old, "ipFamilyPolicy"));
    let policy = match before {
        "" if is_free => "RequireDualStack",
        "" => "SingleStack",
        before => before,
    };
    default(spec, "ipFamilyPolicy", policy);
    refuse(service_addresses(spec, old))?;
    if let Some(old) = old {
        reduce(spec, old)?;
    }
    refuse(too_many(spec))?;
    infer(spec)?;
    if is_free {
        default(spec, "ipFamilies", json!([FAMILIES[0]]));
        add_other_family(spec);
        return Ok(());
    }
    refuse(not_configured(spec))?;
    default(spec, "ipFamilies", json!([FAMILIES[0]]));
    Ok(())
}

fn refuse(faults: Vec<FieldError>) -> Result<(), Vec<FieldError>> {
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// Returns whether a spec prefers both families and changes nothing of them: such a spec stays
/// unchanged, whatever the cluster has by now.
fn prefers_both_as_before(spec: &Value, old: &Value) -> bool {
    let same = |key: &str| items(&spec[key]) == items(&old[key]);
    text(spec, "ipFamilyPolicy") == "PreferDualStack"
        && matches!(text(old, "ipFamilyPolicy"), "" | "PreferDualStack")
        && text(spec, "type") == text(old, "type")
        && matches!(text(spec, "type"), "ClusterIP" | "NodePort" | "LoadBalancer")
        && same("clusterIPs")
        && same("ipFamilies")
}

/// Reduces unchanged lists to one family if the policy is `SingleStack`; fails if the update
/// shortens the lists under another policy.
fn reduce(spec: &mut Value, old: &Value) -> Result<(), Vec<FieldError>> {
    const LISTS: [(&str, &str); 2] = [("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")];
    let is_single = text(spec, "ipFamilyPolicy") == "SingleStack";
    let mut faults = Vec::new();
    for (key, what) in LISTS {
        let (now, before) = (items(&spec[key]).len(), items(&old[key]).len());
        if is_single {
            let is_same = spec[key] == old[key];
            if let Some(Value::Array(list)) = spec.get_mut(key).filter(|_| is_same) {
                list.truncate(1);
            }
        } else if now > 0 && now < before {
            let why = format!("must be 'SingleStack' to release the secondary {what}");
            faults.push(of_policy(spec, why));
        }
    }
    refuse(faults)
}

fn of_policy(spec: &Value, why: impl Into<String>) -> FieldError {
    FieldError::invalid("spec.ipFamilyPolicy", text(spec, "ipFamilyPolicy"), why)
}

/// Returns errors for lists of two if the policy is `SingleStack`.
fn too_many(spec: &Value) -> Vec<FieldError> {
    if text(spec, "ipFamilyPolicy") != "SingleStack" {
        return Vec::new();
    }
    let lists = [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")];
    let both = lists.iter().filter(|(key, _)| items(&spec[*key]).len() == 2);
    let faults = both.map(|(_, what)| {
        let why = format!(
            "must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
        );
        of_policy(spec, why)
    });
    faults.collect()
}

/// Infers families from addresses.
fn infer(spec: &mut Value) -> Result<(), Vec<FieldError>> {
    let known = items(&spec["ipFamilies"]).len();
    let mut found = items(&spec["ipFamilies"]).to_vec();
    let mut faults = Vec::new();
    let path = FieldPath::new("spec.clusterIPs");
    for (index, address) in addresses_of(spec).enumerate() {
        if address == "None" {
            break;
        }
        let family = family_of(address);
        if index >= known && family == FAMILIES[0] {
            found.push(json!(family));
        } else if index >= known {
            let why = format!("{family} is not configured on this cluster");
            let value = shown(&spec["clusterIPs"]);
            faults.push(FieldError::invalid(path.index(index), value, why));
        }
    }
    refuse(faults)?;
    if !found.is_empty() {
        set(spec, "ipFamilies", json!(found));
    }
    Ok(())
}

/// Adds the other family to a Service without selector and address, which may have both, unless its
/// policy is `SingleStack`.
fn add_other_family(spec: &mut Value) {
    if text(spec, "ipFamilyPolicy") == "SingleStack" {
        return;
    }
    if let [only] = items(&spec["ipFamilies"]) {
        let only = only.as_str().unwrap_or_default().to_owned();
        let other = if only == FAMILIES[0] { FAMILIES[1] } else { FAMILIES[0] };
        set(spec, "ipFamilies", json!([only, other]));
    }
}

/// Returns errors for families that the cluster lacks.
fn not_configured(spec: &Value) -> Vec<FieldError> {
    let mut faults = Vec::new();
    if text(spec, "ipFamilyPolicy") == "RequireDualStack" {
        faults.push(of_policy(spec, "this cluster is not configured for dual-stack services"));
    }
    let path = FieldPath::new("spec.ipFamilies");
    for (index, family) in items(&spec["ipFamilies"]).iter().enumerate() {
        if family != FAMILIES[0] {
            let fault = "not configured on this cluster";
            faults.push(FieldError::invalid(path.index(index), family.clone(), fault));
        }
    }
    faults
}

/// Allots the requested address, else any.
fn address(spec: &mut Value, addresses: &Addresses, name: &str) -> Result<(), Failure> {
    let asked = addresses_of(spec).next().unwrap_or("").to_owned();
    if asked.is_empty() {
        let free = addresses
            .free_address()
            .ok_or_else(|| Failure::internal("failed to allocate a serviceIP: range is full"))?;
        set(spec, "clusterIPs", json!([free.to_string()]));
        set(spec, "clusterIP", free.to_string());
        return Ok(());
    }
    let why = if !address::is_in_range(&asked) {
        format!(
            "the provided IP ({asked}) is not in the valid range. The range of valid IPs is 10.0.0.0/16"
        )
    } else if addresses.is_address_used(&asked) {
        "provided IP is already allocated".to_owned()
    } else {
        return Ok(());
    };
    let why = format!("failed to allocate IP {asked}: {why}");
    let fault = FieldError::invalid("spec.clusterIPs", shown(&spec["clusterIPs"]), why);
    Err(Failure::invalid(Named::new("", "Service", name), [fault]))
}
