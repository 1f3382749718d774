//! The configuration.

use std::time::Duration;

use istio::{cluster::Flavour, images::Image, version::Version};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::window::Window;

/// The place of the version in the reference of an image.
const VERSION: &str = "{version}";

/// The configuration of this processor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Config {
    /// The image of sidecars; `{version}` stands for the version of the installed Istio, such as
    /// 1.30.2. Without a value: the image in the injector's values, or `proxyv2` with the registry
    /// and tag of istiod's image if they name none with a registry.
    pub proxy_image: Option<String>,
    /// Accepts experimental features in the Istio resource.
    pub experimental: bool,
    /// The most workloads that are rolled out, and Pods that are evicted, at a time.
    #[schemars(range(min = 1, max = 1000))]
    pub restarts: u32,
    /// Restarts workloads whose Pods should have a sidecar and have none, once each.
    pub missing_sidecars: bool,
    /// The daily windows, in UTC, in which workloads are restarted. None: at any time.
    #[schemars(length(max = 24))]
    pub windows: Vec<Window>,
    /// The time in minutes after which others are restarted although a roll-out has not come to its
    /// end. The removal of sidecars holds up the deletion of an Istio resource for no longer than
    /// this for each turn of `restarts`.
    #[schemars(range(min = 1, max = 1440))]
    pub patience_minutes: u32,
    /// The interval in minutes at which all Pods are looked at though nothing has changed. 0:
    /// never.
    pub resync_minutes: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            proxy_image: None,
            experimental: false,
            restarts: 30,
            missing_sidecars: true,
            windows: Vec::new(),
            patience_minutes: 10,
            resync_minutes: 5,
        }
    }
}

impl Config {
    /// Checks what the schema cannot.
    ///
    /// # Errors
    ///
    /// Fails with a text that names the wrong value.
    pub fn check(&self) -> Result<(), String> {
        if self.restarts == 0 || self.patience_minutes == 0 {
            return Err("`restarts` and `patienceMinutes` must be at least 1".to_owned());
        }
        Ok(())
    }

    pub(crate) fn flavour(&self) -> Flavour {
        if self.experimental { Flavour::Experimental } else { Flavour::Regular }
    }

    /// Returns the most restarts at a time.
    pub(crate) fn limit(&self) -> usize {
        usize::try_from(self.restarts).unwrap_or(usize::MAX)
    }

    pub(crate) fn patience(&self) -> Duration {
        Duration::from_mins(self.patience_minutes.into())
    }

    pub(crate) fn resync(&self) -> Duration {
        Duration::from_mins(self.resync_minutes.into())
    }

    /// Returns the image of sidecars, given the one that the injector's values name, that of istiod,
    /// and its version.
    ///
    /// # Errors
    ///
    /// Fails if neither the configuration nor the injector nor istiod tells it.
    pub(crate) fn image(
        &self,
        injected: Option<&str>,
        istiod: Option<&str>,
        version: &Version,
    ) -> Result<String, String> {
        if let Some(image) = &self.proxy_image {
            return Ok(image.replace(VERSION, &version.clone().without_flavour().to_string()));
        }
        if let Some(image) = injected {
            return Ok(image.to_owned());
        }
        let istiod =
            Image::parse(istiod.ok_or("there is no istiod to tell the image of sidecars")?)?;
        Ok(format!("{}/proxyv2:{}", istiod.registry, istiod.tag_only()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_is_configured_or_that_of_the_injector_or_told_by_istiod() {
        let version = Version::parse("1.30.2-distroless").unwrap();
        let image = |proxy_image: Option<&str>, injected: Option<&str>, istiod: Option<&str>| {
            let proxy_image = proxy_image.map(str::to_owned);
            Config { proxy_image, ..Config::default() }.image(injected, istiod, &version)
        };
        let istiod = "example.com/istio/pilot:1.30.2-distroless@sha256:0";
        let expected = Ok("example.com/istio/proxyv2:1.30.2-distroless".to_owned());
        assert_eq!(image(None, None, Some(istiod)), expected);
        let injected = "example.com/istio/istio-proxy-fips:1.30.2-1@sha256:0";
        assert_eq!(image(None, Some(injected), Some(istiod)).as_deref(), Ok(injected));
        let own = Some("example.com/proxy-fips:{version}-1@sha256:0");
        let own = image(own, Some(injected), Some(istiod));
        assert_eq!(own.as_deref(), Ok("example.com/proxy-fips:1.30.2-1@sha256:0"));
        assert!(image(None, None, None).is_err() && image(None, None, Some("pilot")).is_err());
    }

    #[test]
    fn nothing_at_a_time_is_refused() {
        assert_eq!(Config::default().check(), Ok(()));
        assert!(Config { restarts: 0, ..Config::default() }.check().is_err());
        assert!(Config { patience_minutes: 0, ..Config::default() }.check().is_err());
    }
}
