//! Features that a `ConfigMap` switches on.

use mortise_sdk::kubernetes::ConfigMap;
use serde::{Deserialize, Serialize};

use crate::{api::null_is_default, json};

/// The name of the `ConfigMap` in `kyma-system`.
pub const NAME: &str = "istio-features";

const KEY: &str = "features";

/// Features that are off by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Features {
    /// Installs no CNI plugin.
    #[serde(rename = "disableCni", deserialize_with = "null_is_default")]
    pub disable_cni: bool,
    /// Installs vertical autoscalers for Istio's own workloads.
    #[serde(rename = "enableControlPlaneVPA", deserialize_with = "null_is_default")]
    pub enable_control_plane_vpa: bool,
}

impl Features {
    /// Reads the features; none are on without the `ConfigMap` or its key.
    ///
    /// # Errors
    ///
    /// Fails if the value is no JSON object of features. Only the restart of sidecars takes that
    /// for an error; for all else no feature is on.
    pub fn read(config_map: Option<&ConfigMap>) -> Result<Self, String> {
        let Some(text) = config_map.and_then(|config_map| config_map.data.get(KEY)) else {
            return Ok(Self::default());
        };
        let features: Option<Self> = json::parse(text)?;
        Ok(features.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Features, String> {
        let data = [(KEY.to_owned(), text.to_owned())].into();
        Features::read(Some(&ConfigMap { data, ..ConfigMap::default() }))
    }

    #[test]
    fn features_are_off_unless_switched_on() {
        let off = Features::default();
        let both = Features { disable_cni: true, enable_control_plane_vpa: true };
        assert_eq!(Features::read(None), Ok(off));
        assert_eq!(Features::read(Some(&ConfigMap::default())), Ok(off));
        let cases = [
            ("{}", off),
            ("null", off),
            (r#"{"other": 1, "disableCni": false}"#, off),
            (r#"{"disableCni": null, "enableControlPlaneVPA": null}"#, off),
            (r#"{"disableCni": true}"#, Features { disable_cni: true, ..off }),
            (r#"{"disableCni": true, "enableControlPlaneVPA": true}"#, both),
        ];
        for (text, expected) in cases {
            assert_eq!(read(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_broken_value_is_an_error() {
        let message = "invalid character 'd' looking for beginning of object key string";
        assert_eq!(read("{disableCni"), Err(message.to_owned()));
        assert_eq!(read(""), Err("unexpected end of JSON input".to_owned()));
        assert!(read(r#"{"disableCni": "true"}"#).is_err());
    }
}
