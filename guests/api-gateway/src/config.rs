//! The processor's configuration.

use std::time::Duration;

use access_grant::{Access, Grant};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most bytes of a label's value.
const MAX_LABEL_BYTES: usize = 63;

/// The configuration of this processor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Config {
    /// The interval in minutes at which the APIGateway is reconciled again after a success, though
    /// nothing has changed. 0: never.
    pub resync_minutes: u32,
    /// The version of the module, for the label `app.kubernetes.io/version` of the default
    /// Gateway's objects.
    pub module_version: String,
    /// The decision on APIRules in version v1beta1, for which Oathkeeper is installed. Denied if
    /// neither this nor `v1beta1Key` is given.
    pub v1beta1: Option<Access>,
    /// The armored OpenPGP public key whose signature in the ConfigMap `kyma-system/apirule-access`
    /// allows version v1beta1.
    pub v1beta1_key: Option<String>,
    /// The images of Oathkeeper; needed where v1beta1 can be allowed.
    pub images: Images,
    /// The time in seconds after which Oathkeeper is an error if it is not available.
    pub oathkeeper_start_seconds: u32,
}

/// The images of Oathkeeper.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Images {
    /// Ory Oathkeeper.
    pub oathkeeper: String,
    /// Ory Oathkeeper Maester, which gives Oathkeeper its rules.
    pub oathkeeper_maester: String,
    /// Busybox, which makes the file of rules.
    pub busybox: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            resync_minutes: 600,
            module_version: "dev".to_owned(),
            v1beta1: None,
            v1beta1_key: None,
            images: Images::default(),
            oathkeeper_start_seconds: 120,
        }
    }
}

impl Config {
    /// Checks the version, the grant and the images.
    ///
    /// # Errors
    ///
    /// Fails with the field and what would be accepted.
    pub fn check(&self) -> Result<(), String> {
        let is_label = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let version = &self.module_version;
        if version.len() > MAX_LABEL_BYTES || !version.bytes().all(is_label) {
            return Err(format!(
                "moduleVersion: `{version}` is no value of a label: at most {MAX_LABEL_BYTES} \
                 letters, digits, `-`, `_` and `.`"
            ));
        }
        if !self.grant()?.is_possible() {
            return Ok(());
        }
        let images = [
            ("oathkeeper", &self.images.oathkeeper),
            ("oathkeeperMaester", &self.images.oathkeeper_maester),
            ("busybox", &self.images.busybox),
        ];
        match images.iter().find(|(_, image)| image.is_empty()) {
            Some((name, _)) => Err(format!(
                "images.{name}: an image is needed where v1beta1 can be allowed; \
                 v1beta1 may be `denied`"
            )),
            None => Ok(()),
        }
    }

    /// Returns the way in which access to v1beta1 is decided.
    ///
    /// # Errors
    ///
    /// Fails if both a decision and a key are given, or if the key cannot be used.
    pub fn grant(&self) -> Result<Grant, String> {
        Grant::new(self.v1beta1, self.v1beta1_key.as_deref(), ("v1beta1", "v1beta1Key"))
    }

    /// Returns the interval after which the APIGateway is reconciled again; zero means never.
    pub fn resync(&self) -> Duration {
        Duration::from_mins(self.resync_minutes.into())
    }

    /// Returns the time after which Oathkeeper is an error if it is not available.
    pub fn oathkeeper_start(&self) -> Duration {
        Duration::from_secs(self.oathkeeper_start_seconds.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn oathkeeper_needs_its_images() {
        let images = json!({"oathkeeper": "a", "oathkeeperMaester": "b", "busybox": "c"});
        let cases = [
            (json!({}), ""),
            (json!({"v1beta1": "denied"}), ""),
            (json!({"v1beta1": "allowed", "images": images}), ""),
            (json!({"v1beta1": "allowed"}), "images.oathkeeper: an image is needed"),
            (
                json!({"v1beta1": "allowed", "images": {"oathkeeper": "a"}}),
                "images.oathkeeperMaester: an image is needed",
            ),
            (
                json!({"v1beta1": "allowed", "v1beta1Key": "k"}),
                "`v1beta1` and `v1beta1Key` exclude each other",
            ),
            (json!({"v1beta1Key": "no key"}), "`v1beta1Key`: "),
            (json!({"moduleVersion": "a b"}), "moduleVersion: `a b` is no value of a label"),
        ];
        for (config, expected) in cases {
            let config: Config = serde_json::from_value(config).unwrap();
            let error = config.check().err().unwrap_or_default();
            assert!(
                error.starts_with(expected) && error.is_empty() == expected.is_empty(),
                "{error}"
            );
        }
        let unknown = serde_json::from_value::<Config>(json!({"v1beta1": "yes"})).unwrap_err();
        assert!(unknown.to_string().contains("expected `allowed` or `denied`"), "{unknown}");
    }
}
