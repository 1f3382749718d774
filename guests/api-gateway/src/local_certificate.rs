//! The certificate of the default Gateway in a cluster that is not Gardener's: it signs itself, in
//! effect, since nobody keeps its authority.

use std::time::Duration;

use api_gateway_module::ISTIO_NAMESPACE;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use certificate::{Chain, Server, issue::issue};
use mortise_sdk::{Error, Host, ObjectRef, kubernetes::Secret};
use serde_json::{Value, json};

/// The fields that are read of the Secret.
pub(crate) const FIELDS: [&str; 3] = ["data[\"tls.crt\"]", "data[\"tls.key\"]", "metadata.labels"];
const DAY: Duration = Duration::from_hours(24);
/// The time before its end at which a pair is replaced.
const RENEWAL_LEAD_TIME: Duration = DAY.saturating_mul(14);
/// The time for which a pair is valid.
const LIFETIME: Duration = DAY.saturating_mul(3650);
/// The time by which clocks of clients may be late.
const MAX_CLOCK_SKEW: Duration = Duration::from_hours(1);

/// Returns the data of the Secret: the pair that is there while it is valid, else a new one.
///
/// # Errors
///
/// Fails if the Secret cannot be read. The inner error says why no pair can be made.
pub(crate) fn data(
    secret: &str,
    domain: &str,
    host: &Host,
) -> Result<Result<Value, String>, Error> {
    let of = ObjectRef::of::<Secret>(Some(ISTIO_NAMESPACE), secret);
    let now = Duration::from_millis(host.now());
    let existing = host.get_ref::<Secret>(&of, &FIELDS)?.map(|secret| secret.data);
    let value = |key: &str| existing.as_ref()?.get(key).cloned();
    if let (Some(chain), Some(key)) = (value("tls.crt"), value("tls.key"))
        && is_valid(&chain, &key, now + RENEWAL_LEAD_TIME)
    {
        return Ok(Ok(json!({"tls.crt": chain, "tls.key": key})));
    }
    let hosts = [format!("*.{domain}")];
    let server =
        Server { hosts: &hosts, from: now.saturating_sub(MAX_CLOCK_SKEW), until: now + LIFETIME };
    let issued = issue(&server).map_err(|error| format!("no certificate for {domain}: {error}"));
    Ok(issued.map(|issued| {
        json!({
            "tls.crt": STANDARD.encode(issued.chain),
            "tls.key": STANDARD.encode(issued.key),
        })
    }))
}

fn is_valid(chain: &str, key: &str, at: Duration) -> bool {
    let text = |base64: &str| String::from_utf8(STANDARD.decode(base64).ok()?).ok();
    let (Some(chain), Some(key)) = (text(chain), text(key)) else { return false };
    Chain::read(&chain).is_ok_and(|chain| chain.check_pair(&key, at).is_ok())
}

#[cfg(test)]
mod tests {
    use mortise_sdk::testing::Stub;

    use super::*;

    fn secret(data: &Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Secret", "data": data,
            "metadata": {"name": "certs", "namespace": "istio-system"},
        })
    }

    fn made(stub: Stub, at: &str) -> Value {
        data("certs", "local.kyma.dev", &stub.at(at).host()).unwrap().unwrap()
    }

    #[test]
    fn a_pair_is_kept_until_it_ends() {
        let first = made(Stub::new(), "2026-01-01T00:00:00Z");
        let again = |at| made(Stub::new().objects([secret(&first)]), at);
        assert_eq!(again("2026-01-01T00:00:00Z"), first);
        assert_eq!(again("2035-12-10T00:00:00Z"), first);
        assert_ne!(again("2035-12-20T00:00:00Z"), first);
        let broken = [
            json!({}),
            json!({"tls.crt": first["tls.crt"]}),
            json!({"tls.crt": first["tls.key"], "tls.key": first["tls.key"]}),
            json!({"tls.crt": "!", "tls.key": first["tls.key"]}),
        ];
        for broken in broken {
            let stub = Stub::new().objects([secret(&broken)]);
            assert_ne!(made(stub, "2026-01-01T00:00:00Z")["tls.crt"], broken["tls.crt"]);
        }
    }
}
