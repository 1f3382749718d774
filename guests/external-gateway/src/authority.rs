//! The bundle of authorities that sign the clients' certificates.

use std::collections::BTreeMap;

use mortise_sdk::{Error, Host, kubernetes::Secret};

use crate::{
    api::ExternalGateway,
    status::{Fault, reason},
};

/// The key of the bundle in the Secret that Istio reads, and in a Secret with several keys.
pub(crate) const KEY: &str = "ca.crt";
/// The fields that are read of Secrets.
pub(crate) const FIELDS: [&str; 2] = ["data", "metadata.labels"];

/// Returns the bundle in base64, as it is in the Secret that an ExternalGateway names.
pub(crate) fn read(gateway: &ExternalGateway, host: &Host) -> Result<Result<String, Fault>, Error> {
    let of = &gateway.spec.ca_secret_ref;
    let namespace =
        if of.namespace.is_empty() { gateway.namespace() } else { of.namespace.as_str() };
    let title = format!("{namespace}/{}", of.name);
    let Some(secret) = host.get::<Secret>(Some(namespace), &of.name, &["data"])? else {
        let message = format!("CA secret {title} referenced by spec.caSecretRef not found");
        return Ok(Err(Fault::new(reason::CA_NOT_FOUND, message)));
    };
    Ok(bundle(&secret.data, &title))
}

fn bundle(data: &BTreeMap<String, String>, title: &str) -> Result<String, Fault> {
    let only = if data.len() == 1 { data.values().next() } else { data.get(KEY) };
    match only {
        Some(bundle) if !bundle.is_empty() => Ok(bundle.clone()),
        None if !data.is_empty() => {
            let keys: Vec<&str> = data.keys().map(String::as_str).collect();
            let keys = keys.join(" ");
            let message = format!(
                "source CA secret {title} has keys [{keys}]; expected a single key or '{KEY}' \
                 (Istio convention)"
            );
            Err(Fault::new(reason::CA_AMBIGUOUS, message))
        }
        _ => Err(Fault::new(reason::CA_INVALID, format!("source CA secret {title} is empty"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_key_of_any_name_or_the_key_of_authorities_is_taken() {
        let cases = [
            (&[("a", "YQ==")][..], Ok("YQ==")),
            (&[("a", "YQ=="), ("ca.crt", "Yg==")], Ok("Yg==")),
            (&[], Err(("CASecretInvalid", "source CA secret n/s is empty"))),
            (&[("ca.crt", "")], Err(("CASecretInvalid", "source CA secret n/s is empty"))),
            (
                &[("b", "YQ=="), ("a", "Yg==")],
                Err((
                    "CASecretKeyAmbiguous",
                    "source CA secret n/s has keys [a b]; expected a single key or 'ca.crt' (Istio convention)",
                )),
            ),
        ];
        for (data, expected) in cases {
            let data = data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            let found = bundle(&data.collect(), "n/s");
            let found = found.as_deref().map_err(|fault| (fault.reason, fault.message.as_str()));
            assert_eq!(found, expected);
        }
    }
}
