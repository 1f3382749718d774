//! The processor's configuration.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The configuration of this processor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Config {
    /// The interval in minutes at which a RateLimit is reconciled again after a success, though
    /// nothing has changed. 0: never.
    pub resync_minutes: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { resync_minutes: 30 }
    }
}

impl Config {
    /// Returns the interval after which a RateLimit is reconciled again; zero means never.
    pub fn resync(&self) -> Duration {
        Duration::from_mins(self.resync_minutes.into())
    }
}
