//! The names and the labels of the objects of an ExternalGateway.

use std::collections::BTreeMap;

use api_gateway_module::MODULE_LABEL;
use sha2::{Digest as _, Sha256};

use crate::api::ExternalGateway;

/// The label with the name of the ExternalGateway.
pub(crate) const NAME_LABEL: &str = "externalgateway.gateway.kyma-project.io/name";
/// The label with the namespace of the ExternalGateway.
pub(crate) const NAMESPACE_LABEL: &str = "externalgateway.gateway.kyma-project.io/namespace";
/// The longest name that is part of other names as it is.
const MAX_NAME_BYTES: usize = 45;
/// The characters of a longer name that are kept.
const KEPT_NAME_BYTES: usize = 37;

/// The names of the objects. The `Gateway` is in the namespace of the ExternalGateway, all others
/// are in that of Istio.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) gateway: String,
    pub(crate) certificate: String,
    pub(crate) tls: String,
    pub(crate) authorities: String,
    pub(crate) dns: String,
    pub(crate) forwarding: String,
    pub(crate) validation: String,
}

impl Names {
    pub(crate) fn of(gateway: &ExternalGateway) -> Self {
        let base = base(&gateway.metadata.name);
        let name = |suffix: &str| format!("{base}-{suffix}");
        Self {
            gateway: name("gw"),
            certificate: name("cert"),
            tls: name("tls"),
            authorities: name("tls-cacert"),
            dns: name("dns"),
            forwarding: name("xfcc"),
            validation: name("cv"),
        }
    }
}

/// Returns the part that all names begin with: the name itself or, of a long one, its beginning and
/// seven digits of its SHA-256.
fn base(name: &str) -> String {
    if name.len() <= MAX_NAME_BYTES {
        return name.to_owned();
    }
    let bytes = Sha256::digest(name);
    let first = bytes.iter().take(4).fold(0, |number, byte| number << 8 | u32::from(*byte)) >> 4;
    format!("{}-{first:07x}", name.get(..KEPT_NAME_BYTES).unwrap_or(name))
}

/// Returns the labels of all objects.
pub(crate) fn labels(gateway: &ExternalGateway) -> BTreeMap<String, String> {
    let (module, of_module) = MODULE_LABEL;
    [
        (module, of_module),
        ("app.kubernetes.io/managed-by", "externalgateway-controller"),
        ("app.kubernetes.io/component", of_module),
        ("app.kubernetes.io/part-of", of_module),
        (NAME_LABEL, &gateway.metadata.name),
        (NAMESPACE_LABEL, gateway.namespace()),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_is_cut_and_gets_a_hash() {
        let cases = [
            ("ext".to_owned(), "ext".to_owned()),
            ("a".repeat(45), "a".repeat(45)),
            ("a".repeat(46), format!("{}-6643110", "a".repeat(37))),
            (
                "a-very-long-external-gateway-name-that-exceeds-45".to_owned(),
                "a-very-long-external-gateway-name-tha-bbc8e73".to_owned(),
            ),
        ];
        for (name, expected) in cases {
            assert_eq!(base(&name), expected);
        }
    }
}
