//! The conversion of v1beta1's access rules to those of v2.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::{
    api::{
        JwtAuthentication, JwtAuthorization, JwtConfig,
        v1beta1::{Handler, OryJwt, Rule},
    },
    json, path,
};

/// A strategy of v1beta1 as v2 has it.
enum Strategy {
    NoAuth,
    Jwt(JwtConfig),
}

/// Converts rules; `None` if not all of them have an equal in v2.
pub(super) fn convert(rules: &[Rule]) -> Option<Vec<Value>> {
    rules.iter().map(convert_rule).collect()
}

fn convert_rule(rule: &Rule) -> Option<Value> {
    let mut members = Map::new();
    let mut set = |key: &str, value: Value| members.insert(key.to_owned(), value);
    set("path", path::is_valid(&rule.path).then(|| rule.path.as_str().into())?);
    set("methods", rule.methods.clone().into());
    if let Some(service) = &rule.service {
        set("service", value(service)?);
    }
    if let Some(timeout) = rule.timeout {
        set("timeout", timeout.into());
    }
    for strategy in &rule.access_strategies {
        match convert_strategy(strategy)? {
            Strategy::NoAuth => set("noAuth", true.into()),
            Strategy::Jwt(config) => set("jwt", value(&config)?),
        };
    }
    if !rule.mutators.is_empty() {
        set("request", request(&rule.mutators));
    }
    Some(Value::Object(members))
}

fn convert_strategy(strategy: &Handler) -> Option<Strategy> {
    match strategy.name.as_str() {
        "no_auth" => Some(Strategy::NoAuth),
        "jwt" => jwt(strategy.config.as_ref()?).map(Strategy::Jwt),
        _ => None,
    }
}

/// Converts a configuration of either handler. That of Ory may have several issuers, and v2 none
/// but one for each address of keys.
fn jwt(config: &Value) -> Option<JwtConfig> {
    let istio = json::read::<JwtConfig>(config).ok()?;
    let has_authorizations = istio.authorizations.as_ref().is_some_and(|list| !list.is_empty());
    if has_authorizations || !istio.authentications.is_empty() {
        return Some(istio);
    }
    let ory = json::read::<OryJwt>(config).ok()?;
    let (Some([issuer]), Some([jwks_uri])) =
        (ory.trusted_issuers.as_deref(), ory.jwks_urls.as_deref())
    else {
        return None;
    };
    let authentication = JwtAuthentication {
        issuer: issuer.clone(),
        jwks_uri: jwks_uri.clone(),
        ..JwtAuthentication::default()
    };
    let authorization =
        JwtAuthorization { required_scopes: ory.required_scope, audiences: ory.target_audience };
    Some(JwtConfig {
        authentications: vec![authentication],
        authorizations: Some(vec![Some(authorization)]),
    })
}

/// Converts mutators, as far as v2 has their equals: of headers and cookies. One without a usable
/// configuration changes nothing.
fn request(mutators: &[Handler]) -> Value {
    let mut request = Map::new();
    for (handler, field) in [("header", "headers"), ("cookie", "cookies")] {
        let mutators = mutators.iter().rev().filter(|mutator| mutator.name == handler);
        let values = mutators.filter_map(|mutator| mutator.config.as_ref()?.get(field));
        let mut maps =
            values.filter_map(|values| json::read::<BTreeMap<String, String>>(values).ok());
        if let Some(map) = maps.next().filter(|map| !map.is_empty()) {
            request.insert(field.to_owned(), value(&map).unwrap_or_default());
        }
    }
    Value::Object(request)
}

/// Returns a value as JSON. It has no map whose keys are not text, so it always can be.
fn value(of: &impl serde::Serialize) -> Option<Value> {
    serde_json::to_value(of).ok()
}
