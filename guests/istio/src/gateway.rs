//! The restart of the ingress gateway and of the control plane.

use crate::{api::Istio, last_applied::LastApplied};

/// Returns whether the ingress gateway must be restarted: whether a setting that it reads only at
/// its start differs from the one that was last applied. Absent and default differ.
///
/// # Errors
///
/// Fails if the last applied configuration cannot be read.
pub fn needs_restart(istio: &Istio) -> Result<bool, String> {
    let last = LastApplied::read(istio)?.unwrap_or_default();
    let (former, new) = (&last.spec.config, &istio.spec.config);
    Ok(former.num_trusted_proxies != new.num_trusted_proxies
        || former.forward_client_cert_details != new.forward_client_cert_details
        || former.trust_domain != new.trust_domain
        || former.sorted_regexps() != new.sorted_regexps())
}

/// Returns whether gateway, istiod and CNI plugin must be restarted, because network policies were
/// switched on or off.
///
/// # Errors
///
/// Fails if the last applied configuration cannot be read.
pub fn network_policies_changed(istio: &Istio) -> Result<bool, String> {
    let last = LastApplied::read(istio)?.unwrap_or_default();
    Ok(last.spec.network_policies_enabled != istio.spec.network_policies_enabled)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::last_applied::ANNOTATION;

    fn istio(last: &str, spec: serde_json::Value) -> Istio {
        let mut istio = json!({"metadata": {"annotations": {ANNOTATION: last}}});
        istio["spec"] = spec;
        serde_json::from_value(istio).unwrap()
    }

    #[test]
    fn regular_expressions_are_a_list_without_order_in_which_duplicates_count() {
        let last = r#"{"config":{"proxyStatsMatcher":{"inclusionRegexps":["a","b"]}}}"#;
        let cases = [
            (json!({"inclusionRegexps": ["b", "a"]}), false),
            (json!({"inclusionRegexps": ["a", "b", "b"]}), true),
            (json!({}), true),
        ];
        for (matcher, expected) in cases {
            let istio = istio(last, json!({"config": {"proxyStatsMatcher": matcher}}));
            assert_eq!(needs_restart(&istio), Ok(expected), "{matcher}");
        }
        let none = istio("{}", json!({"config": {"proxyStatsMatcher": {"inclusionRegexps": []}}}));
        assert_eq!(needs_restart(&none), Ok(false));
    }

    #[test]
    fn a_broken_annotation_is_an_error() {
        let istio = istio("{", json!({}));
        let error = Err("unexpected end of JSON input".to_owned());
        assert_eq!(needs_restart(&istio), error);
        assert_eq!(network_policies_changed(&istio), error);
    }

    #[test]
    fn network_policies_change_with_their_switch_only() {
        let cases = [("{}", false, false), ("{}", true, true)];
        for (last, enabled, expected) in cases {
            let istio = istio(last, json!({"networkPoliciesEnabled": enabled}));
            assert_eq!(network_policies_changed(&istio), Ok(expected));
        }
        let off = istio(r#"{"networkPoliciesEnabled":true}"#, json!({}));
        assert_eq!(network_policies_changed(&off), Ok(true));
    }
}
