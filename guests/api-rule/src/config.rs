//! The processor's configuration, and that of the original which it still follows.

use std::time::Duration;

use mortise_sdk::{Error, Host, kubernetes::ConfigMap};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::yaml;

/// The configuration of this processor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Config {
    /// How many seconds after a success an APIRule is reconciled again though nothing has changed. 0: never.
    pub resync_interval_seconds: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { resync_interval_seconds: 30 * 60 }
    }
}

impl Config {
    /// The interval.
    pub fn resync_interval(&self) -> Duration {
        Duration::from_secs(self.resync_interval_seconds.into())
    }
}

/// Where the original's configuration is.
pub(crate) const CONFIG_MAP: (&str, &str) = ("kyma-system", "api-gateway-config");
/// What is read of it.
pub(crate) const CONFIG_MAP_FIELDS: [&str; 1] = ["data[\"api-gateway-config\"]"];

/// Checks the JWT handler, which has no effect any more, but must be one that is known.
pub(crate) fn check_jwt_handler(host: &Host) -> Result<Result<(), String>, Error> {
    let handler = match host.get::<ConfigMap>(Some(CONFIG_MAP.0), CONFIG_MAP.1, &CONFIG_MAP_FIELDS)
    {
        Ok(None) => "ory".to_owned(),
        Ok(Some(map)) => jwt_handler(&map).unwrap_or_default(),
        Err(error @ Error::Unavailable { .. }) => return Err(error),
        Err(_) => String::new(),
    };
    let known = matches!(handler.as_str(), "ory" | "istio");
    Ok(if known { Ok(()) } else { Err(format!("Unsupported JWT Handler: {handler}")) })
}

fn jwt_handler(map: &ConfigMap) -> Option<String> {
    let config = yaml::parse(map.data.get("api-gateway-config")?).ok()?;
    Some(config.get("jwtHandler")?.as_str()?.to_owned())
}
