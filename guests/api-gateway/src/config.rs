//! The processor's configuration.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most bytes of a label's value.
const LONGEST_LABEL: usize = 63;

/// The configuration of this processor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Config {
    /// The interval in minutes at which the APIGateway is reconciled again after a success, though nothing has changed. 0: never.
    pub resync_minutes: u32,
    /// The version of the module, for the label `app.kubernetes.io/version` of the default Gateway's objects.
    pub module_version: String,
    /// Allows APIRules in version v1beta1, and installs Oathkeeper for them.
    pub v1beta1: Access,
    /// The images of Oathkeeper; needed where v1beta1 is allowed.
    pub images: Images,
    /// The time in seconds after which Oathkeeper is an error if it is not available.
    pub oathkeeper_start_seconds: u32,
}

/// The answer to the question whether APIRules in version v1beta1 are allowed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Access {
    /// They are.
    Allowed,
    /// They are not.
    #[default]
    Denied,
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
            v1beta1: Access::default(),
            images: Images::default(),
            oathkeeper_start_seconds: 120,
        }
    }
}

impl Config {
    /// Checks the version and the images.
    ///
    /// # Errors
    ///
    /// Fails with the field and what would be accepted.
    pub fn check(&self) -> Result<(), String> {
        let is_label = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let version = &self.module_version;
        if version.len() > LONGEST_LABEL || !version.bytes().all(is_label) {
            return Err(format!(
                "moduleVersion: `{version}` is no value of a label: at most {LONGEST_LABEL} \
                 letters, digits, `-`, `_` and `.`"
            ));
        }
        if self.v1beta1 == Access::Denied {
            return Ok(());
        }
        let images = [
            ("oathkeeper", &self.images.oathkeeper),
            ("oathkeeperMaester", &self.images.oathkeeper_maester),
            ("busybox", &self.images.busybox),
        ];
        match images.iter().find(|(_, image)| image.is_empty()) {
            Some((name, _)) => Err(format!(
                "images.{name}: an image is needed where v1beta1 is `allowed`; \
                 v1beta1 may be `denied`"
            )),
            None => Ok(()),
        }
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
