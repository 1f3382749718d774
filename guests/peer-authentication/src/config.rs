//! The configuration of the processor.

use std::time::Duration;

use istio::cluster::Flavour;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most bytes of a label's value.
const MAX_LABEL_BYTES: usize = 63;

/// The configuration of the processor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Config {
    /// The interval in minutes at which the Istio resource is reconciled again after a success,
    /// though nothing has changed. 0: never.
    pub resync_minutes: u32,
    /// The version of the module, for the label `app.kubernetes.io/version` of all objects.
    pub module_version: String,
    /// Accepts experimental features, and asks whether the cluster has IPv4 and IPv6.
    pub experimental: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { resync_minutes: 5, module_version: "dev".to_owned(), experimental: false }
    }
}

impl Config {
    /// Returns the interval after which a resource is reconciled again; zero means never.
    pub fn resync(&self) -> Duration {
        Duration::from_secs(60 * u64::from(self.resync_minutes))
    }

    /// Returns the flavour of the module.
    pub fn flavour(&self) -> Flavour {
        if self.experimental { Flavour::Experimental } else { Flavour::Regular }
    }

    /// Checks that the version may be the value of a label.
    pub(crate) fn check(&self) -> Result<(), String> {
        let version = self.module_version.as_bytes();
        let is_end = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
        let is_valid = version.len() <= MAX_LABEL_BYTES
            && is_end(version.first())
            && is_end(version.last())
            && version.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte));
        if is_valid {
            return Ok(());
        }
        Err(format!(
            "`moduleVersion` must be the value of a label: at most {MAX_LABEL_BYTES} letters, digits, `-`, `_` and `.`, with a letter or digit at both ends"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_must_be_the_value_of_a_label() {
        let long = "1".repeat(MAX_LABEL_BYTES + 1);
        let cases = [
            ("dev", true),
            ("1.30.0-rc_1", true),
            ("", true),
            ("1.30.0+build", false),
            ("-1", false),
            ("1.", false),
            (long.as_str(), false),
        ];
        for (version, is_valid) in cases {
            let config = Config { module_version: version.to_owned(), ..Config::default() };
            assert_eq!(config.check().is_ok(), is_valid, "{version}");
        }
    }
}
