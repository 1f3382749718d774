//! The configuration of the processor.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The configuration of this processor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Config {
    /// The time in seconds after which each entity is sent again, whatever Konnect has. At least 1.
    pub sync_period_seconds: u32,
    /// The time in seconds for each call. At least 1.
    pub request_timeout_seconds: u32,
    /// When a change of only labels or annotations is sent.
    pub labels: Labels,
}

/// When a change of only labels or annotations is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Labels {
    /// With the next change of the spec, or when the period is over.
    WithPeriod,
    /// At once.
    AtOnce,
}

impl Default for Config {
    fn default() -> Self {
        Self { sync_period_seconds: 60, request_timeout_seconds: 10, labels: Labels::WithPeriod }
    }
}

impl Config {
    /// Fails if a time is 0.
    pub fn check(&self) -> Result<(), String> {
        let times = [
            ("syncPeriodSeconds", self.sync_period_seconds),
            ("requestTimeoutSeconds", self.request_timeout_seconds),
        ];
        match times.into_iter().find(|(_, seconds)| *seconds == 0) {
            Some((field, _)) => Err(format!("`{field}` is 0; at least 1 is accepted")),
            None => Ok(()),
        }
    }

    /// Returns the time after which each entity is sent again.
    pub fn sync_period(&self) -> Duration {
        Duration::from_secs(self.sync_period_seconds.into())
    }

    /// Returns the time for each call.
    pub fn request_timeout(&self) -> Duration {
        Duration::from_secs(self.request_timeout_seconds.into())
    }
}
