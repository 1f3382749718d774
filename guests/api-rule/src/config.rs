//! The processor's configuration, and the part of the original's configuration that is still
//! checked.

use std::time::Duration;

use mortise_sdk::{Error, Host, kubernetes::ConfigMap};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::yaml;

/// The configuration of this processor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Config {
    /// The interval in seconds at which an APIRule is reconciled again after a success, though nothing has changed. 0: never.
    pub resync_interval_seconds: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { resync_interval_seconds: 30 * 60 }
    }
}

impl Config {
    /// Returns the interval after which an APIRule is reconciled again; zero means never.
    pub fn resync_interval(&self) -> Duration {
        Duration::from_secs(self.resync_interval_seconds.into())
    }
}

/// Namespace and name of the `ConfigMap` with the original's configuration.
pub(crate) const CONFIG_MAP: (&str, &str) = ("kyma-system", "api-gateway-config");
/// The fields that are read of that `ConfigMap`.
pub(crate) const CONFIG_MAP_FIELDS: [&str; 1] = ["data[\"api-gateway-config\"]"];

/// Fails if the JWT handler in the original's configuration is unknown. The handler has no effect
/// any more.
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
