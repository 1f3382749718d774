//! The default domain: the one of the Kyma Gateway, which hosts without a domain belong to.

use mortise_sdk::{Error, Host, ObjectRef};
use serde::Deserialize;

use crate::istio;

/// Namespace and name of the Istio `Gateway` with the domain.
pub(crate) const KYMA_GATEWAY: (&str, &str) = ("kyma-system", "kyma-gateway");
/// The fields that are read of it.
pub(crate) const FIELDS: [&str; 2] = ["spec.servers[].hosts", "spec.servers[].port.protocol"];

#[derive(Default, Deserialize)]
#[serde(default)]
struct Gateway {
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    servers: Vec<Server>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Server {
    hosts: Vec<String>,
    port: Port,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Port {
    protocol: String,
}

/// Returns the default domain, or `None` if the Kyma Gateway does not exist. The inner error is a
/// message about a gateway that has no single domain.
///
/// # Errors
///
/// Fails if the read cannot be answered at the moment.
pub fn read(host: &Host) -> Result<Result<Option<String>, String>, Error> {
    let (namespace, name) = KYMA_GATEWAY;
    let reference = ObjectRef::new(istio::gateway(), Some(namespace), name);
    match host.get_ref::<Gateway>(&reference, &FIELDS) {
        Ok(gateway) => Ok(gateway.map(|gateway| domain(&gateway.spec.servers)).transpose()),
        Err(error @ Error::Unavailable { .. }) => Err(error),
        Err(error) => Ok(Err(error.to_string())),
    }
}

fn domain(servers: &[Server]) -> Result<String, String> {
    let is_https = |server: &&Server| server.port.protocol.eq_ignore_ascii_case("HTTPS");
    let https: Vec<&Server> = servers.iter().filter(is_https).collect();
    let [server] = https.as_slice() else {
        let number = https.len();
        return Err(format!("gateway must have a single https server definition, num={number}"));
    };
    let [host] = server.hosts.as_slice() else {
        let number = server.hosts.len();
        return Err(format!(
            "gateway https server must have a single host definition, num={number}"
        ));
    };
    match host.strip_prefix("*.") {
        None => {
            Err(format!("gateway https server host {host:?} does not start with the prefix \"*.\""))
        }
        Some("") => Err(format!(
            "gateway https server host {host:?} does not define domain after the prefix \"*.\""
        )),
        Some(domain) => Ok(domain.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use mortise_sdk::testing::Stub;
    use serde_json::{Value, json};

    use super::*;

    fn read_of(servers: &Value) -> Result<Option<String>, String> {
        let gateway = json!({
            "apiVersion": "networking.istio.io/v1beta1", "kind": "Gateway",
            "metadata": {"name": "kyma-gateway", "namespace": "kyma-system"},
            "spec": {"servers": servers},
        });
        read(&Stub::new().objects([gateway]).host()).unwrap()
    }

    #[test]
    fn the_gateway_has_one_domain() {
        let server =
            |protocol: &str, hosts: Value| json!({"port": {"protocol": protocol}, "hosts": hosts});
        let plain = server("HTTP", json!(["*.example.com"]));
        let cases = [
            (json!([server("https", json!(["*.example.com"])), plain]), Ok("example.com")),
            (json!([plain]), Err("gateway must have a single https server definition, num=0")),
            (
                json!([server("HTTPS", json!(["*.a.com"])), server("HTTPS", json!(["*.a.com"]))]),
                Err("gateway must have a single https server definition, num=2"),
            ),
            (
                json!([server("HTTPS", json!([]))]),
                Err("gateway https server must have a single host definition, num=0"),
            ),
            (
                json!([server("HTTPS", json!(["*.a.com", "*.b.com"]))]),
                Err("gateway https server must have a single host definition, num=2"),
            ),
            (
                json!([server("HTTPS", json!(["a.com"]))]),
                Err(r#"gateway https server host "a.com" does not start with the prefix "*.""#),
            ),
            (
                json!([server("HTTPS", json!(["*."]))]),
                Err(
                    r#"gateway https server host "*." does not define domain after the prefix "*.""#,
                ),
            ),
        ];
        for (servers, expected) in cases {
            let expected = expected.map(|domain| Some(domain.to_owned())).map_err(str::to_owned);
            assert_eq!(read_of(&servers), expected, "{servers}");
        }
        assert_eq!(read(&Stub::new().host()).unwrap(), Ok(None));
        assert!(read(&Stub::new().unavailable("Gateway").host()).is_err());
    }
}
