//! The processor's configuration.

use std::{collections::BTreeMap, time::Duration};

use istio::{
    cluster::Flavour,
    images::{Images, PULL_SECRET},
    version::Version,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The place in texts that stands for the version of Istio, such as `1.31.0`.
const VERSION: &str = "{version}";
/// The registry of Istio's own images.
const HUB: &str = "docker.io/istio";
/// A version with which a configuration is checked.
const ANY_VERSION: &str = "0.0.0";

/// The configuration of this processor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Config {
    /// Accepts experimental features (`spec.experimental`), as the original's experimental image
    /// does.
    pub experimental: bool,
    /// The tag that is recorded as the installed version. `{version}` stands for the release of the
    /// library.
    pub tag: String,
    /// The environment variables of the original: the images `pilot`, `install-cni`, `proxyv2` and
    /// `ztunnel` (with `-fips` if `KYMA_FIPS_MODE_ENABLED` is `true`), and the Secret
    /// `SKR_IMG_PULL_SECRET`. `{version}` stands for the release of the library.
    pub env: BTreeMap<String, String>,
    /// The time in seconds after which a workload that does not become ready is an error, even if
    /// no cause is known.
    pub readiness_timeout_seconds: u32,
    /// The interval in minutes at which a resource is reconciled again after a success, though
    /// nothing has changed. 0: never.
    pub resync_minutes: u32,
}

impl Default for Config {
    fn default() -> Self {
        let image = |name: &str| (name.to_owned(), format!("{HUB}/{name}:{VERSION}-distroless"));
        Self {
            experimental: false,
            tag: format!("{VERSION}-distroless"),
            env: ["pilot", "install-cni", "proxyv2", "ztunnel"].map(image).into(),
            readiness_timeout_seconds: 150,
            resync_minutes: 5,
        }
    }
}

impl Config {
    /// Checks the images and the tag.
    ///
    /// # Errors
    ///
    /// Fails as the original does at its start.
    pub fn check(&self) -> Result<(), String> {
        self.images(ANY_VERSION)?;
        Version::parse(&self.tag(ANY_VERSION)).map(drop).map_err(|error| format!("tag: {error}"))
    }

    /// Returns the images of a release.
    ///
    /// # Errors
    ///
    /// Fails if an image is missing or is no reference, or if two differ in registry or tag.
    pub fn images(&self, release: &str) -> Result<Images, String> {
        let filled = |(name, value): (&String, &String)| (name.clone(), fill(value, release));
        Images::read(&self.env.iter().map(filled).collect())
    }

    /// Returns the tag of a release.
    pub fn tag(&self, release: &str) -> String {
        fill(&self.tag, release)
    }

    /// Returns the flavour of the module.
    pub fn flavour(&self) -> Flavour {
        if self.experimental { Flavour::Experimental } else { Flavour::Regular }
    }

    /// Returns the name of the Secret with which images are pulled.
    pub fn pull_secret(&self) -> Option<&str> {
        self.env.get(PULL_SECRET).map(String::as_str)
    }

    /// Returns the interval after which a resource is reconciled again; zero means never.
    pub fn resync(&self) -> Duration {
        Duration::from_mins(self.resync_minutes.into())
    }
}

fn fill(text: &str, release: &str) -> String {
    text.replace(VERSION, release)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn config(value: Value) -> Config {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn images_and_tag_follow_the_library() {
        let config = Config::default();
        config.check().unwrap();
        assert_eq!(config.images("1.31.0").unwrap().tag(), "1.31.0-distroless");
        assert_eq!(config.tag("1.31.0"), "1.31.0-distroless");
        assert_eq!(config.resync(), Duration::from_mins(5));
    }

    #[test]
    fn a_configuration_without_images_is_refused() {
        let cases = [
            (json!({"env": {}}), "missing required environment variables env"),
            (json!({"tag": "latest"}), "tag: latest is not in dotted-tri format"),
            (
                json!({"env": {"pilot": "a/b:1", "install-cni": "a/c:2", "proxyv2": "a/d:1"}}),
                "does not have the same tag",
            ),
        ];
        for (value, expected) in cases {
            let error = config(value).check().unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
