//! The validation of the tokens that a rule demands.

use std::collections::BTreeMap;

use super::Failure;
use crate::{
    api::{JwtAuthentication, JwtAuthorization, JwtConfig, Rule},
    uri,
};

pub(super) fn validate(config: &JwtConfig, path: &str, failures: &mut Vec<Failure>) {
    if let Some(authorizations) = &config.authorizations {
        let path = format!("{path}.authorizations");
        if authorizations.is_empty() {
            failures
                .push(Failure::new(&path, "authorizations defined, but no configuration exists"));
        }
        for (index, authorization) in authorizations.iter().enumerate() {
            validate_authorization(authorization.as_ref(), &format!("{path}[{index}]"), failures);
        }
    }
    validate_authentications(&config.authentications, &format!("{path}.authentications"), failures);
}

fn validate_authorization(
    authorization: Option<&JwtAuthorization>,
    path: &str,
    failures: &mut Vec<Failure>,
) {
    let Some(authorization) = authorization else {
        failures.push(Failure::new(path, "authorization is empty"));
        return;
    };
    let lists = [
        ("requiredScopes", &authorization.required_scopes, "scope value is empty"),
        ("audiences", &authorization.audiences, "audience value is empty"),
    ];
    for (field, list, message) in lists {
        let Some(list) = list else { continue };
        if list.is_empty() {
            failures.push(Failure::new(format!("{path}.{field}"), "value is empty"));
        }
        let empty = list.iter().filter(|value| value.is_empty());
        failures.extend(empty.map(|_| Failure::new(format!("{path}.{field}"), message)));
    }
}

fn validate_authentications(
    authentications: &[JwtAuthentication],
    path: &str,
    failures: &mut Vec<Failure>,
) {
    if authentications.is_empty() {
        failures.push(Failure::new(path, "A JWT config must have at least one authentication"));
    }
    let (mut headers, mut params) = (false, false);
    for (index, authentication) in authentications.iter().enumerate() {
        let path = format!("{path}[{index}]");
        if let Err(error) = check_issuer(&authentication.issuer) {
            failures.push(Failure::new(format!("{path}.issuer"), not_a_uri(&error)));
        }
        if let Err(error) = check_uri(&authentication.jwks_uri) {
            failures.push(Failure::new(format!("{path}.jwksUri"), not_a_uri(&error)));
        }
        let count = authentication.from_headers.len();
        headers |= count > 0;
        failures.extend(check_sources(count, params, "fromHeaders", &path));
        let count = authentication.from_params.len();
        params |= count > 0;
        failures.extend(check_sources(count, headers, "fromParams", &path));
    }
}

pub(crate) fn not_a_uri(error: &str) -> String {
    format!("value is empty or not a valid uri err={error}")
}

/// Fails if an issuer is empty, or holds a colon and is no URI.
pub(crate) fn check_issuer(issuer: &str) -> Result<(), String> {
    if issuer.is_empty() || issuer.contains(':') { check_uri(issuer) } else { Ok(()) }
}

pub(crate) fn check_uri(text: &str) -> Result<(), String> {
    if text.is_empty() { Err("value is empty".to_owned()) } else { uri::check_request_uri(text) }
}

/// Returns an error unless all tokens come from one header or from one parameter, and not from
/// both.
fn check_sources(count: usize, other_kind_seen: bool, field: &str, path: &str) -> Option<Failure> {
    let message = match count {
        0 => return None,
        _ if other_kind_seen => {
            "mixture of multiple fromHeaders and fromParams is not supported".to_owned()
        }
        1 => return None,
        _ => format!("multiple {field} are not supported"),
    };
    Some(Failure::new(format!("{path}.{field}"), message))
}

/// Adds an error for each authentication that differs from an earlier one with the same issuer and
/// `jwksUri`.
pub(super) fn validate_differing(rules: &[Rule], failures: &mut Vec<Failure>) {
    let mut seen: BTreeMap<(&str, &str), &JwtAuthentication> = BTreeMap::new();
    for (rule, config) in
        rules.iter().enumerate().filter_map(|(index, rule)| Some((index, rule.jwt.as_ref()?)))
    {
        for (index, authentication) in config.authentications.iter().enumerate() {
            let key = (authentication.issuer.as_str(), authentication.jwks_uri.as_str());
            if *seen.entry(key).or_insert(authentication) != authentication {
                let path = format!(".spec.rules[{rule}].jwt.authentications[{index}]");
                let message = "multiple jwt configurations that differ for the same issuer";
                failures.push(Failure::new(path, message));
            }
        }
    }
}
