//! The hash in the label of an `AuthorizationPolicy`, by which the original operator finds its
//! policies again.
//!
//! The hash is FNV-1 over the structure of a value. Maps and lists count without order, structs
//! with the names of their type and fields.

use std::collections::BTreeMap;

use crate::istio::Operation;

const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// Returns the hash label of a policy in this namespace, for these workloads, with this `to` in its
/// first rule.
pub(crate) fn label(
    namespace: &str,
    selector: &BTreeMap<String, String>,
    to: &[&Operation],
) -> String {
    format!(
        "{}.{}.{}",
        of_namespace(namespace),
        text(of_selector(selector), 32),
        text(of_to(to), 32)
    )
}

/// Returns the first part of a label, which is the hash of the namespace.
pub(crate) fn of_namespace(namespace: &str) -> String {
    text(fnv(namespace.as_bytes()), 36)
}

fn of_selector(selector: &BTreeMap<String, String>) -> u64 {
    if selector.is_empty() {
        return finish(0); // a selector that is not there
    }
    let entries =
        selector.iter().map(|(key, value)| ordered(fnv(key.as_bytes()), fnv(value.as_bytes())));
    let map = finish(entries.fold(0, |hash, entry| hash ^ entry));
    structure("WorkloadSelector", &[("MatchLabels", map)])
}

fn of_to(to: &[&Operation]) -> u64 {
    to.iter()
        .map(|operation| structure("Rule_To", &[("Operation", of_operation(operation))]))
        .fold(0, |hash, to| hash ^ to)
}

fn of_operation(operation: &Operation) -> u64 {
    structure(
        "Operation",
        &[
            ("Hosts", strings(&operation.hosts)),
            ("NotHosts", 0),
            ("Ports", 0),
            ("NotPorts", 0),
            ("Methods", strings(&operation.methods)),
            ("NotMethods", 0),
            ("Paths", strings(&operation.paths)),
            ("NotPaths", strings(&operation.not_paths)),
        ],
    )
}

fn strings(list: &[String]) -> u64 {
    list.iter().fold(0, |hash, text| hash ^ fnv(text.as_bytes()))
}

fn structure(name: &str, fields: &[(&str, u64)]) -> u64 {
    fields.iter().fold(fnv(name.as_bytes()), |hash, (field, value)| {
        finish(hash ^ ordered(fnv(field.as_bytes()), *value))
    })
}

fn ordered(a: u64, b: u64) -> u64 {
    continue_fnv(fnv(&a.to_le_bytes()), &b.to_le_bytes())
}

fn finish(hash: u64) -> u64 {
    fnv(&hash.to_le_bytes())
}

fn fnv(bytes: &[u8]) -> u64 {
    continue_fnv(0xcbf2_9ce4_8422_2325, bytes)
}

fn continue_fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(hash, |hash, byte| hash.wrapping_mul(0x0000_0100_0000_01b3) ^ u64::from(*byte))
}

fn text(mut number: u64, base: u64) -> String {
    let mut digits = Vec::with_capacity(13);
    loop {
        let digit = usize::try_from(number % base).ok().and_then(|digit| DIGITS.get(digit));
        digits.push(char::from(digit.copied().unwrap_or(b'0')));
        number /= base;
        if number == 0 {
            return digits.into_iter().rev().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(
        hosts: &[&str],
        methods: &[&str],
        paths: &[&str],
        not_paths: &[&str],
    ) -> Operation {
        let own = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        Operation {
            hosts: own(hosts),
            methods: own(methods),
            not_paths: own(not_paths),
            paths: own(paths),
        }
    }

    #[test]
    fn known_hashes_are_reached() {
        assert_eq!(of_namespace("default"), "3dwn0t8m8jhso");
        assert_eq!(of_namespace(""), "33niihzj4ux45");
        let selector = [("app".to_owned(), "httpbin".to_owned())].into();
        assert_eq!(text(of_selector(&selector), 32), "47fnidc80q3pr");
        assert_eq!(text(of_selector(&BTreeMap::new()), 32), "ahhvo68k1kee5");
        let host = ["httpbin.example.com"];
        let cases = [
            (operation(&host, &["GET"], &["/{**}"], &[]), "2o19i6s0at6p9"),
            (operation(&host, &["GET"], &["/{**}"], &["/anything"]), "26c3f9lvs0d7k"),
            (operation(&[], &["GET"], &["/noop"], &[]), "dpooib1upst1t"),
        ];
        for (operation, expected) in cases {
            assert_eq!(text(of_to(&[&operation]), 32), expected, "{operation:?}");
        }
        assert_eq!(text(of_to(&[]), 32), "0");
    }

    #[test]
    fn the_order_in_lists_does_not_matter() {
        let one = operation(&["a", "b"], &["GET", "PUT"], &["/"], &["/x", "/y"]);
        let other = operation(&["b", "a"], &["PUT", "GET"], &["/"], &["/y", "/x"]);
        assert_eq!(of_to(&[&one]), of_to(&[&other]));
    }
}
