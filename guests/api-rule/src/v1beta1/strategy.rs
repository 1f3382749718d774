//! The access strategies of a rule, and the configuration of tokens.

use serde::de::DeserializeOwned;

use crate::{
    api::{
        JwtAuthentication, JwtConfig,
        v1beta1::{Handler, Rule},
    },
    json,
};

pub(super) const ALLOW: &str = "allow";
pub(super) const NO_AUTH: &str = "no_auth";
pub(super) const NOOP: &str = "noop";
pub(super) const JWT: &str = "jwt";
pub(super) const INTROSPECTION: &str = "oauth2_introspection";

/// Returns whether a rule has a strategy.
pub(super) fn has(rule: &Rule, strategy: &str) -> bool {
    rule.access_strategies.iter().any(|other| other.name == strategy)
}

/// Returns whether a rule demands tokens.
pub(super) fn is_jwt(rule: &Rule) -> bool {
    has(rule, JWT)
}

/// Returns whether a rule has a strategy that Oathkeeper carries out, or Istio in its place.
pub(super) fn is_secured(rule: &Rule) -> bool {
    rule.access_strategies
        .iter()
        .any(|strategy| ![ALLOW, NO_AUTH].contains(&strategy.name.as_str()))
}

/// Reads a configuration; an absent one is empty.
pub(super) fn config<T: DeserializeOwned + Default>(handler: &Handler) -> Result<T, String> {
    handler.config.as_ref().map_or_else(|| Ok(T::default()), json::read)
}

/// Returns the authentications in the configuration of a strategy; none if it cannot be read.
pub(super) fn authentications(strategy: &Handler) -> Vec<JwtAuthentication> {
    config::<JwtConfig>(strategy).unwrap_or_default().authentications
}
