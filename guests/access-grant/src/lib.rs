//! The grant without which APIRules of version v1beta1, and Oathkeeper, are not served.
//!
//! The Kyma API Gateway operator, "the original", serves them only in clusters whose domain its
//! vendor has signed. Here the configuration of a processor decides: it allows or denies them, or
//! it names the key whose signature grants them.
//!
//! | module | holds |
//! | --- | --- |
//! | [`openpgp`] | the verification of a signed message |

pub mod openpgp;

use std::collections::BTreeMap;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use mortise_sdk::{Error, Host, Level, Selection, kubernetes::ConfigMap};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::openpgp::Key;

/// Namespace, name and key of the `ConfigMap` value with the signed message.
const SIGNED: (&str, &str, &str) = ("kyma-system", "apirule-access", "access.sig");
const SIGNED_FIELD: &str = "binaryData[\"access.sig\"]";
/// Namespace, name and key of the `ConfigMap` value with the cluster's domain.
const DOMAIN: (&str, &str, &str) = ("kube-system", "shoot-info", "domain");
const DOMAIN_FIELD: &str = "data.domain";

/// A decision in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// They are served.
    Allowed,
    /// They are not served.
    Denied,
}

/// The configured way in which access is decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grant {
    /// Access is always granted.
    Allowed,
    /// Access is never granted.
    Denied,
    /// Access is granted by a message that is signed with this key.
    Signed(Key),
}

impl Grant {
    /// Takes the decision or the key, an armored OpenPGP public key, of a configuration. Without
    /// either, access is denied.
    ///
    /// # Errors
    ///
    /// Fails if the configuration has both, or if the key cannot be used; `fields` are the names of
    /// the two in the configuration.
    pub fn new(
        access: Option<Access>,
        key: Option<&str>,
        fields: (&str, &str),
    ) -> Result<Self, String> {
        match (access, key) {
            (Some(_), Some(_)) => Err(format!(
                "`{}` and `{}` exclude each other: give a decision, or the key of who decides",
                fields.0, fields.1
            )),
            (Some(Access::Allowed), None) => Ok(Self::Allowed),
            (Some(Access::Denied) | None, None) => Ok(Self::Denied),
            (None, Some(key)) => match Key::parse(key) {
                Ok(key) => Ok(Self::Signed(key)),
                Err(message) => Err(format!("`{}`: {message}", fields.1)),
            },
        }
    }

    /// Returns whether access can be granted at all.
    pub fn is_possible(&self) -> bool {
        *self != Self::Denied
    }

    /// Returns the objects that are read to decide on access.
    pub fn reads(&self) -> Vec<Selection> {
        if !matches!(self, Self::Signed(_)) {
            return Vec::new();
        }
        let of = |(namespace, name, _): (&str, &str, &str), field: &str| {
            Selection::of::<ConfigMap>().namespace(namespace).name(name).fields([field])
        };
        vec![of(SIGNED, SIGNED_FIELD), of(DOMAIN, DOMAIN_FIELD)]
    }

    /// Returns whether access is granted.
    ///
    /// # Errors
    ///
    /// Fails if a read cannot be answered at the moment. Access is not granted after any other
    /// failed read.
    pub fn is_granted(&self, host: &Host) -> Result<bool, Error> {
        match self {
            Self::Allowed => Ok(true),
            Self::Denied => Ok(false),
            Self::Signed(key) => is_signed(key, host),
        }
    }
}

fn is_signed(key: &Key, host: &Host) -> Result<bool, Error> {
    let domain = read(host, DOMAIN, DOMAIN_FIELD, |map| map.data)?;
    let signed = read(host, SIGNED, SIGNED_FIELD, |map| map.binary_data)?;
    let (Some(domain), Some(signed)) = (domain, signed) else { return Ok(false) };
    let message = BASE64_STANDARD.decode(signed).map_err(|error| error.to_string());
    let text = message.and_then(|message| key.verify(&message, || host.now() / 1000));
    Ok(match text {
        Ok(text) => covers(&String::from_utf8_lossy(&text), &domain),
        Err(message) => {
            let (namespace, name, _) = SIGNED;
            let fields = [("namespace", namespace), ("name", name), ("error", &message)];
            host.log(Level::Warn, "a ConfigMap grants no access", &fields);
            false
        }
    })
}

/// Reads one value of a `ConfigMap`; `None` if it is not there or may not be read.
fn read(
    host: &Host,
    (namespace, name, key): (&str, &str, &str),
    field: &str,
    values: impl Fn(ConfigMap) -> BTreeMap<String, String>,
) -> Result<Option<String>, Error> {
    match host.get::<ConfigMap>(Some(namespace), name, &[field]) {
        Ok(map) => Ok(map.and_then(|map| values(map).remove(key))),
        Err(error @ Error::Unavailable { .. }) => Err(error),
        Err(error) => {
            let error = error.to_string();
            host.log(Level::Warn, "cannot tell whether access is granted", &[("error", &error)]);
            Ok(None)
        }
    }
}

/// Returns whether a signed text covers a domain: it is the domain, or `*.` and a parent of it.
fn covers(text: &str, domain: &str) -> bool {
    let text = text.trim();
    match text.strip_prefix("*.") {
        Some(parent) if !parent.is_empty() && !parent.contains('*') => {
            domain == parent || domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'))
        }
        _ => !domain.is_empty() && text == domain,
    }
}

#[cfg(test)]
mod tests;
