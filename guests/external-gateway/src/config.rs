//! The processor's configuration.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The configuration of this processor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Config {
    /// The interval in minutes at which an ExternalGateway is reconciled again after a success,
    /// though nothing has changed. 0: never.
    pub resync_minutes: u32,
    /// The interval in seconds at which an ExternalGateway is reconciled again while its DNS record
    /// or its certificate is not ready.
    pub pending_seconds: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { resync_minutes: 60, pending_seconds: 5 }
    }
}

impl Config {
    /// Returns the interval after which an ExternalGateway is reconciled again; zero means never.
    pub fn resync(&self) -> Duration {
        Duration::from_mins(self.resync_minutes.into())
    }

    /// Returns the interval after which an ExternalGateway that waits is reconciled again.
    pub fn pending(&self) -> Duration {
        Duration::from_secs(self.pending_seconds.into())
    }
}
