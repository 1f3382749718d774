//! People's own objects of Istio's kinds, which block the deletion.

use std::collections::BTreeMap;

use mortise_sdk::Kind;

use crate::{api::ISTIO_NAMESPACE, predicate::MODULE_LABEL};

/// The kinds that block: group, version and kind. Some may not be installed.
pub const KINDS: [(&str, &str, &str); 14] = [
    ("networking.istio.io", "v1", "DestinationRule"),
    ("networking.istio.io", "v1", "Gateway"),
    ("networking.istio.io", "v1", "ServiceEntry"),
    ("networking.istio.io", "v1", "Sidecar"),
    ("networking.istio.io", "v1", "VirtualService"),
    ("networking.istio.io", "v1", "WorkloadEntry"),
    ("networking.istio.io", "v1", "WorkloadGroup"),
    ("networking.istio.io", "v1beta1", "ProxyConfig"),
    ("networking.istio.io", "v1alpha3", "EnvoyFilter"),
    ("security.istio.io", "v1", "AuthorizationPolicy"),
    ("security.istio.io", "v1", "PeerAuthentication"),
    ("security.istio.io", "v1", "RequestAuthentication"),
    ("telemetry.istio.io", "v1", "Telemetry"),
    ("extensions.istio.io", "v1alpha1", "WasmPlugin"),
];

/// The objects in `istio-system` that the module or a former version of it has made. In a name, 0
/// stands for any digit.
const MANAGED: [(&str, &str); 6] = [
    ("EnvoyFilter", "stats-filter-0.00"),
    ("EnvoyFilter", "tcp-stats-filter-0.00"),
    ("EnvoyFilter", "kyma-referer"),
    ("EnvoyFilter", "proxy-protocol"),
    ("PeerAuthentication", "default"),
    ("VirtualService", "istio-healthz"),
];

/// Returns the kinds that block.
pub fn kinds() -> impl Iterator<Item = Kind> {
    KINDS.into_iter().map(|(group, version, kind)| Kind::new(group, version, kind))
}

/// Returns whether an object of one of the kinds blocks the deletion.
///
/// A name must match as a whole; for the original a part is enough, so that `my-default-x` counts
/// as one of its own and is deleted with the CRD.
pub fn blocks(kind: &str, namespace: &str, name: &str, labels: &BTreeMap<String, String>) -> bool {
    let is_of_module = labels.get(MODULE_LABEL).is_some_and(|module| module == "istio");
    let is_managed = namespace == ISTIO_NAMESPACE
        && MANAGED.iter().any(|(of, pattern)| *of == kind && matches(pattern, name));
    !is_of_module && !is_managed
}

fn matches(pattern: &str, name: &str) -> bool {
    pattern.len() == name.len()
        && pattern.bytes().zip(name.bytes()).all(|(expected, actual)| match expected {
            b'0' => actual.is_ascii_digit(),
            expected => expected == actual,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_objects_of_the_module_do_not_block() {
        let cases = [
            ("VirtualService", "shop", "web", "", true),
            ("VirtualService", "shop", "web", "istio", false),
            ("VirtualService", "shop", "web", "api-gateway", true),
            ("VirtualService", "istio-system", "istio-healthz", "", false),
            ("VirtualService", "shop", "istio-healthz", "", true),
            ("Gateway", "istio-system", "istio-healthz", "", true),
            ("EnvoyFilter", "istio-system", "stats-filter-1.10", "", false),
            ("EnvoyFilter", "istio-system", "tcp-stats-filter-1.10", "", false),
            ("EnvoyFilter", "istio-system", "stats-filter-1.1", "", true),
            ("EnvoyFilter", "istio-system", "stats-filter-1x10", "", true),
            ("EnvoyFilter", "istio-system", "my-proxy-protocol", "", true),
            ("PeerAuthentication", "istio-system", "default", "", false),
            ("PeerAuthentication", "istio-system-x", "my-default-x", "", true),
        ];
        for (kind, namespace, name, module, expected) in cases {
            let mut labels = BTreeMap::new();
            if !module.is_empty() {
                labels.insert(MODULE_LABEL.to_owned(), module.to_owned());
            }
            let case = format!("{kind} {namespace}/{name} {module}");
            assert_eq!(blocks(kind, namespace, name, &labels), expected, "{case}");
        }
        assert_eq!(kinds().count(), 14);
    }
}
