//! The processor's configuration, and the part of the original's configuration that is read.

use std::time::Duration;

use access_grant::{Access, Grant};
use mortise_sdk::{Error, Host, kubernetes::ConfigMap};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::yaml;

/// The configuration of this processor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Config {
    /// The interval in seconds at which an APIRule is reconciled again after a success, though
    /// nothing has changed. 0: never.
    pub resync_interval_seconds: u32,
    /// The decision on APIRules of version v1beta1, and on their migration in steps. Denied if
    /// neither this nor `v1beta1Key` is given.
    pub v1beta1: Option<Access>,
    /// The armored OpenPGP public key whose signature in the ConfigMap `kyma-system/apirule-access`
    /// allows version v1beta1.
    pub v1beta1_key: Option<String>,
    /// The time in seconds from one step of a migration to the next.
    pub migration_interval_seconds: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            resync_interval_seconds: 30 * 60,
            v1beta1: None,
            v1beta1_key: None,
            migration_interval_seconds: 60,
        }
    }
}

impl Config {
    /// Returns the interval after which an APIRule is reconciled again; zero means never.
    pub fn resync_interval(&self) -> Duration {
        Duration::from_secs(self.resync_interval_seconds.into())
    }

    /// Returns the time from one step of a migration to the next.
    pub fn migration_interval(&self) -> Duration {
        Duration::from_secs(self.migration_interval_seconds.into())
    }

    /// Returns the way in which access to v1beta1 is decided.
    ///
    /// # Errors
    ///
    /// Fails if both a decision and a key are given, or if the key cannot be used.
    pub fn grant(&self) -> Result<Grant, String> {
        Grant::new(self.v1beta1, self.v1beta1_key.as_deref(), ("v1beta1", "v1beta1Key"))
    }
}

/// Namespace and name of the `ConfigMap` with the original's configuration.
pub(crate) const CONFIG_MAP: (&str, &str) = ("kyma-system", "api-gateway-config");
/// The fields that are read of that `ConfigMap`.
pub(crate) const CONFIG_MAP_FIELDS: [&str; 1] = ["data[\"api-gateway-config\"]"];

/// The program that checks tokens for APIRules of version v1beta1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handler {
    /// Istio, by `RequestAuthentications` and `AuthorizationPolicies`.
    Istio,
    /// Ory Oathkeeper, by `Rule`s.
    Ory,
}

/// Returns the handler in the original's configuration. v2 has no use for it, and is not reconciled
/// either if it is unknown: the inner error is a message that says so.
pub(crate) fn handler(host: &Host) -> Result<Result<Handler, String>, Error> {
    let name = match host.get::<ConfigMap>(Some(CONFIG_MAP.0), CONFIG_MAP.1, &CONFIG_MAP_FIELDS) {
        Ok(None) => "ory".to_owned(),
        Ok(Some(map)) => name_of_handler(&map).unwrap_or_default(),
        Err(error @ Error::Unavailable { .. }) => return Err(error),
        Err(_) => String::new(),
    };
    Ok(match name.as_str() {
        "istio" => Ok(Handler::Istio),
        "ory" => Ok(Handler::Ory),
        _ => Err(format!("Unsupported JWT Handler: {name}")),
    })
}

fn name_of_handler(map: &ConfigMap) -> Option<String> {
    let config = yaml::parse(map.data.get("api-gateway-config")?).ok()?;
    Some(config.get("jwtHandler")?.as_str()?.to_owned())
}
