//! The addresses of the ingress gateway: what its load balancer is reached by.

use mortise_sdk::{Error, Host, ObjectRef, Selection, kubernetes};
use serde::Deserialize;

use crate::ISTIO_NAMESPACE;

/// The name of the ingress gateway's Service, in the namespace of Istio.
pub const SERVICE: &str = "istio-ingressgateway";
/// The fields that are read of that Service.
const FIELDS: [&str; 2] = ["spec.ipFamilies", "status.loadBalancer.ingress"];

/// The ingress gateway's addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ingress {
    /// IP addresses and host names of the load balancer, in its order.
    pub targets: Vec<String>,
    /// The families of its IP addresses.
    pub families: Families,
}

/// The families of the ingress gateway's IP addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Families {
    /// IPv4 alone.
    V4,
    /// IPv6 alone.
    V6,
    /// IPv4 and IPv6.
    Both,
}

/// The reason why the ingress gateway has no address, with the original's messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// There is no such Service.
    Service,
    /// The load balancer has no address yet.
    Address,
    /// The load balancer has an address that is neither an IP address nor a host name.
    Target,
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let service = format_args!("{ISTIO_NAMESPACE}/{SERVICE}");
        match self {
            Self::Service => write!(f, "services \"{SERVICE}\" not found"),
            Self::Address => write!(f, "no ingress exists for {service}"),
            Self::Target => write!(f, "no ingress targets found for {service}"),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Service {
    spec: Spec,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    ip_families: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    load_balancer: LoadBalancer,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct LoadBalancer {
    ingress: Vec<Address>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Address {
    ip: String,
    hostname: String,
}

/// Selects the ingress gateway's Service.
pub fn selection() -> Selection {
    Selection::of::<kubernetes::Service>().namespace(ISTIO_NAMESPACE).name(SERVICE).fields(FIELDS)
}

/// Reads the addresses of the ingress gateway. The inner error says why it has none.
///
/// # Errors
///
/// Fails if the Service cannot be read.
pub fn read(host: &Host) -> Result<Result<Ingress, Missing>, Error> {
    let service = ObjectRef::of::<kubernetes::Service>(Some(ISTIO_NAMESPACE), SERVICE);
    let Some(service) = host.get_ref::<Service>(&service, &FIELDS)? else {
        return Ok(Err(Missing::Service));
    };
    let addresses = service.status.load_balancer.ingress;
    if addresses.is_empty() {
        return Ok(Err(Missing::Address));
    }
    let targets: Vec<String> = addresses
        .into_iter()
        .flat_map(|address| [address.ip, address.hostname])
        .filter(|target| !target.is_empty())
        .collect();
    if targets.is_empty() {
        return Ok(Err(Missing::Target));
    }
    let families: Vec<&str> = service.spec.ip_families.iter().map(String::as_str).collect();
    let families = match families.as_slice() {
        [_, _, ..] => Families::Both,
        ["IPv6"] => Families::V6,
        _ => Families::V4,
    };
    Ok(Ok(Ingress { targets, families }))
}

#[cfg(test)]
mod tests {
    use mortise_sdk::testing::Stub;
    use serde_json::{Value, json};

    use super::*;

    fn of(families: &Value, ingress: &Value) -> Result<Ingress, Missing> {
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "istio-ingressgateway", "namespace": "istio-system"},
            "spec": {"ipFamilies": families}, "status": {"loadBalancer": {"ingress": ingress}},
        });
        read(&Stub::new().objects([service]).host()).unwrap()
    }

    #[test]
    fn ip_addresses_and_host_names_are_targets() {
        let ingress = json!([
            {"ip": "1.2.3.4"}, {"hostname": "lb.example.com"}, {"ip": "::1", "hostname": "b"},
        ]);
        let found = of(&json!(["IPv4"]), &ingress).unwrap();
        assert_eq!(found.targets, ["1.2.3.4", "lb.example.com", "::1", "b"]);
        let cases = [
            (json!([]), Families::V4),
            (json!(["IPv4"]), Families::V4),
            (json!(["IPv6"]), Families::V6),
            (json!(["IPv6", "IPv4"]), Families::Both),
        ];
        for (families, expected) in cases {
            let found = of(&families, &json!([{"ip": "1.2.3.4"}])).unwrap();
            assert_eq!(found.families, expected);
        }
    }

    #[test]
    fn a_service_without_an_address_is_told() {
        let none = read(&Stub::new().host()).unwrap().unwrap_err();
        assert_eq!(none.to_string(), r#"services "istio-ingressgateway" not found"#);
        let cases = [
            (json!([]), "no ingress exists for istio-system/istio-ingressgateway"),
            (
                json!([{"ports": []}]),
                "no ingress targets found for istio-system/istio-ingressgateway",
            ),
        ];
        for (ingress, expected) in cases {
            assert_eq!(of(&json!(["IPv4"]), &ingress).unwrap_err().to_string(), expected);
        }
    }
}
