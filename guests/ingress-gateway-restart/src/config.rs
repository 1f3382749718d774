//! The configuration of the processor.

use std::time::Duration;

use istio::cluster::Flavour;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The configuration of the processor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Config {
    /// The interval in minutes at which the Istio resource is reconciled again after a success,
    /// though nothing has changed. 0: never.
    pub resync_minutes: u32,
    /// Accepts experimental features.
    pub experimental: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { resync_minutes: 5, experimental: false }
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
}
