//! The kinds of Gardener by which a domain gets a DNS record and a certificate.

use mortise_sdk::{Error, Host, Kind, Selection};
use serde_json::{Value, json};

/// The annotation that hands a `DNSEntry` to Gardener, and its value.
const CLASS: (&str, &str) = ("dns.gardener.cloud/class", "garden");

/// Returns the kind of DNS records.
pub fn dns_entry() -> Kind {
    Kind::new("dns.gardener.cloud", "v1alpha1", "DNSEntry")
}

/// Returns the kind of certificates.
pub fn certificate() -> Kind {
    Kind::new("cert.gardener.cloud", "v1alpha1", "Certificate")
}

/// Returns whether the cluster knows both kinds. These are selections of them that were declared.
///
/// # Errors
///
/// Fails if a kind cannot be read for another reason.
pub fn is_available(host: &Host, declared: [Selection; 2]) -> Result<bool, Error> {
    for selection in declared {
        match host.objects::<Value>(&selection, 1).next() {
            Some(Err(error)) if error.is_unknown_kind() => return Ok(false),
            Some(Err(error)) => return Err(error),
            _ => {}
        }
    }
    Ok(true)
}

/// Returns a DNS record without its labels, with the annotation that hands it to Gardener.
pub fn dns_entry_object((namespace, name): (&str, &str), host: &str, targets: &[String]) -> Value {
    let (class, garden) = CLASS;
    json!({
        "apiVersion": dns_entry().api_version(),
        "kind": dns_entry().kind,
        "metadata": {"name": name, "namespace": namespace, "annotations": {class: garden}},
        "spec": {"dnsName": host, "ttl": 600, "targets": targets},
    })
}

/// Returns a certificate without its labels. Gardener puts it into a Secret of the same namespace,
/// with these labels.
pub fn certificate_object(
    (namespace, name): (&str, &str),
    host: &str,
    (secret, labels): (&str, &Value),
) -> Value {
    json!({
        "apiVersion": certificate().api_version(),
        "kind": certificate().kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "commonName": host,
            "secretName": secret,
            "secretLabels": labels,
            "issuerRef": {"name": "garden"},
            "privateKey": {"size": 4096},
        },
    })
}

#[cfg(test)]
mod tests {
    use mortise_sdk::testing::Stub;

    use super::*;

    #[test]
    fn gardener_needs_both_kinds() {
        let declared = || [dns_entry(), certificate()].map(Selection::new);
        let is_available = |stub: Stub| is_available(&stub.host(), declared()).unwrap();
        assert!(is_available(Stub::new()));
        assert!(!is_available(Stub::new().without_kind("dns.gardener.cloud", "DNSEntry")));
        assert!(!is_available(Stub::new().without_kind("cert.gardener.cloud", "Certificate")));
        let unavailable = Stub::new().unavailable("Certificate");
        assert!(super::is_available(&unavailable.host(), declared()).is_err());
    }
}
