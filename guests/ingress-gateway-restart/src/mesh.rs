//! The settings of the mesh in Istio's `ConfigMap`, which the ingress gateway reads at its start.

use istio::api::ISTIO_NAMESPACE;
use mortise_sdk::{Error, Host, Level, kubernetes::ConfigMap};
use serde_json::Value;

use crate::record::Settings;

/// The name of the `ConfigMap` in `istio-system`.
pub(crate) const NAME: &str = "istio";
/// The fields that are read of it.
pub(crate) const FIELDS: [&str; 1] = ["data.mesh"];
/// The trust domain of a mesh for which none is set: the template's.
const DEFAULT_TRUST_DOMAIN: &str = "cluster.local";

/// Returns whether the mesh has the wanted settings. A restart before that would change nothing.
///
/// Without the `ConfigMap` there is nothing to wait for.
pub(crate) fn has(wanted: &Settings, host: &Host) -> Result<bool, Error> {
    let map = host.get::<ConfigMap>(Some(ISTIO_NAMESPACE), NAME, &FIELDS)?;
    let Some(text) = map.as_ref().and_then(|map| map.data.get("mesh")) else { return Ok(true) };
    match serde_saphyr::from_str::<Value>(text) {
        Ok(mesh) => Ok(matches(&mesh, wanted)),
        Err(error) => {
            let error = error.to_string();
            let fields = [("configmap", "istio-system/istio"), ("error", error.as_str())];
            host.log(Level::Warn, "cannot read the mesh's settings, no restart yet", &fields);
            Ok(false)
        }
    }
}

/// Returns whether the settings of a mesh are the wanted ones.
fn matches(mesh: &Value, wanted: &Settings) -> bool {
    let topology = |key: &str| mesh.pointer(&format!("/defaultConfig/gatewayTopology/{key}"));
    let proxies = topology("numTrustedProxies").and_then(Value::as_i64);
    let details = topology("forwardClientCertDetails").and_then(Value::as_str);
    let trust_domain = mesh.pointer("/trustDomain").and_then(Value::as_str);
    let wanted_trust_domain = wanted.trust_domain.as_deref();
    let regexps = mesh.pointer("/defaultConfig/proxyStatsMatcher/inclusionRegexps");
    let mut regexps: Vec<&str> =
        regexps.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    regexps.sort_unstable();
    proxies.unwrap_or_default() == wanted.num_trusted_proxies.unwrap_or_default()
        && details == wanted.forward_client_cert_details.as_deref()
        && trust_domain.unwrap_or(DEFAULT_TRUST_DOMAIN)
            == wanted_trust_domain.unwrap_or(DEFAULT_TRUST_DOMAIN)
        && regexps == wanted.inclusion_regexps
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_mesh_has_the_wanted_settings_or_not() {
        let wanted = Settings {
            num_trusted_proxies: Some(2),
            forward_client_cert_details: Some("SANITIZE".to_owned()),
            trust_domain: Some("one.example.com".to_owned()),
            inclusion_regexps: vec!["a".to_owned(), "b".to_owned()],
            network_policies_enabled: true,
        };
        let mesh = json!({
            "trustDomain": "one.example.com",
            "defaultConfig": {
                "gatewayTopology": {
                    "numTrustedProxies": 2, "forwardClientCertDetails": "SANITIZE",
                },
                "proxyStatsMatcher": {"inclusionRegexps": ["b", "a"]},
            },
        });
        assert!(matches(&mesh, &wanted));
        let changes = [
            ("/trustDomain", json!("cluster.local")),
            ("/defaultConfig/gatewayTopology/numTrustedProxies", json!(1)),
            ("/defaultConfig/gatewayTopology/forwardClientCertDetails", json!("FORWARD_ONLY")),
            ("/defaultConfig/proxyStatsMatcher/inclusionRegexps", json!(["a"])),
        ];
        for (at, value) in changes {
            let mut other = mesh.clone();
            *other.pointer_mut(at).unwrap() = value;
            assert!(!matches(&other, &wanted), "{at}");
        }
        let default = json!({"trustDomain": "cluster.local", "defaultConfig": {}});
        let zero = Settings { num_trusted_proxies: Some(0), ..Settings::default() };
        assert!(matches(&default, &Settings::default()) && matches(&default, &zero));
        assert!(!matches(&mesh, &Settings::default()), "settings that were taken away");
    }

    #[test]
    fn a_trust_domain_that_is_not_set_is_the_default_one() {
        let cases = [
            (json!({"trustDomain": "one.example.com"}), None, false),
            (json!({"trustDomain": "cluster.local"}), None, true),
            (json!({}), None, true),
            (json!({}), Some("cluster.local"), true),
            (json!({}), Some("one.example.com"), false),
        ];
        for (mesh, wanted, expected) in cases {
            let trust_domain = wanted.map(str::to_owned);
            let settings = Settings { trust_domain, ..Settings::default() };
            assert_eq!(matches(&mesh, &settings), expected, "{mesh} {wanted:?}");
        }
    }
}
