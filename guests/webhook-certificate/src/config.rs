//! The processor's configuration.

use std::{fmt, str::FromStr, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The configuration of this processor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Config {
    /// The name of the CRD whose objects the webhook converts.
    pub definition: String,
    /// The name of the configuration of the mutating webhooks.
    pub mutating_configuration: String,
    /// The name of the configuration of the validating webhooks.
    pub validating_configuration: String,
    /// The Secret with the certificate and its key, as `NAMESPACE/NAME`.
    #[schemars(with = "String")]
    pub secret: Name,
    /// The Service of the webhooks, as `NAMESPACE/NAME`. The certificate is for it, and for those
    /// that the objects above name.
    #[schemars(with = "String")]
    pub service: Name,
    /// The time in seconds from the moment at which the API server is told a new authority to that
    /// at which its certificate is served.
    pub announced_seconds: u32,
}

impl Default for Config {
    fn default() -> Self {
        let of_kyma = |name: &str| Name { namespace: "kyma-system".into(), name: name.into() };
        Self {
            definition: "apirules.gateway.kyma-project.io".to_owned(),
            mutating_configuration: "api-gateway-mutating-webhook-configuration".to_owned(),
            validating_configuration: "api-gateway-validating-webhook-configuration".to_owned(),
            secret: of_kyma("api-gateway-webhook-certificate"),
            service: of_kyma("api-gateway-webhook-service"),
            announced_seconds: 5 * 60,
        }
    }
}

impl Config {
    /// Checks what the schema cannot say.
    ///
    /// # Errors
    ///
    /// Fails if a name is empty.
    pub fn check(&self) -> Result<(), String> {
        let names = [
            ("definition", &self.definition),
            ("mutatingConfiguration", &self.mutating_configuration),
            ("validatingConfiguration", &self.validating_configuration),
        ];
        match names.iter().find(|(_, name)| name.is_empty()) {
            Some((field, _)) => Err(format!("{field} is empty: it must name an object")),
            None => Ok(()),
        }
    }

    /// Returns the time for which an authority is announced.
    pub fn announced(&self) -> Duration {
        Duration::from_secs(self.announced_seconds.into())
    }
}

/// A namespace and a name in it, written as `NAMESPACE/NAME`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name {
    /// The namespace.
    pub namespace: String,
    /// The name of the object in it.
    pub name: String,
}

// === impl Name ===

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((namespace, name)) if is_label(namespace) && is_name(name) => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err(format!("`{text}` is no name of an object: it must be NAMESPACE/NAME")),
        }
    }
}

impl TryFrom<String> for Name {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.to_string()
    }
}

fn is_name(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label)
}

fn is_label(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(is_inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_a_namespace() {
        let name: Name = "kyma-system/my.secret".parse().unwrap();
        assert_eq!((name.namespace.as_str(), name.name.as_str()), ("kyma-system", "my.secret"));
        for wrong in ["", "a", "a/", "/b", "a/b/c", "a.b/c", "A/b", "a/-b", "a/b-", "a/b..c"] {
            let error = serde_json::from_value::<Name>(wrong.into()).unwrap_err().to_string();
            let expected = format!("`{wrong}` is no name of an object: it must be NAMESPACE/NAME");
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn objects_must_be_named() {
        assert_eq!(Config::default().check(), Ok(()));
        let config = Config { mutating_configuration: String::new(), ..Config::default() };
        let expected = "mutatingConfiguration is empty: it must name an object";
        assert_eq!(config.check(), Err(expected.to_owned()));
    }
}
