//! The validation of the configuration of tokens, which differs by handler.

use std::collections::BTreeMap;

use super::{is_empty, unreadable};
use crate::{
    api::{
        JwtAuthentication, JwtAuthorization, JwtConfig,
        v1beta1::{Handler, OryJwt, Rule},
    },
    config,
    v1beta1::strategy,
    validation::{Failure, jwt as uri},
};

pub(super) fn validate(
    handler: config::Handler,
    strategy: &Handler,
    path: &str,
    failures: &mut Vec<Failure>,
) {
    let config_path = format!("{path}.config");
    if is_empty(strategy) {
        failures.push(Failure::new(config_path, "supplied config cannot be empty"));
        return;
    }
    let istio = strategy::config::<JwtConfig>(strategy);
    let ory = strategy::config::<OryJwt>(strategy);
    match (handler, istio, ory) {
        (config::Handler::Istio, Ok(istio), ory) => {
            match ory {
                Ok(ory) => failures.extend(of_ory(&ory, &config_path)),
                Err(error) => failures.push(unreadable(&config_path, &error)),
            }
            validate_authorizations(istio.authorizations.as_deref(), &config_path, failures);
            validate_authentications(&istio.authentications, path, failures);
        }
        (config::Handler::Ory, istio, Ok(ory)) => {
            failures.extend(of_istio(istio, &config_path));
            validate_uris(
                ory.trusted_issuers.as_deref(),
                &format!("{config_path}.trusted_issuers"),
                failures,
            );
            validate_uris(ory.jwks_urls.as_deref(), &format!("{config_path}.jwks_urls"), failures);
        }
        (config::Handler::Istio, Err(error), _) | (config::Handler::Ory, _, Err(error)) => {
            failures.push(unreadable(&config_path, &error));
        }
    }
}

/// Returns the errors for fields that only Oathkeeper knows.
fn of_ory(config: &OryJwt, path: &str) -> Vec<Failure> {
    let fields = [
        ("jwks_urls", &config.jwks_urls),
        ("required_scopes", &config.required_scope),
        ("trusted_issuers", &config.trusted_issuers),
    ];
    let is_set = |list: &Option<Vec<String>>| list.as_ref().is_some_and(|list| !list.is_empty());
    let set = fields.into_iter().filter(|(_, list)| is_set(list));
    set.map(|(field, _)| {
        let message = format!("Configuration for {field} is not supported with Istio handler");
        Failure::new(format!("{path}.{field}"), message)
    })
    .collect()
}

/// Returns the error for the fields that only Istio knows.
fn of_istio(config: Result<JwtConfig, String>, path: &str) -> Option<Failure> {
    match config {
        Err(error) => Some(unreadable(path, &error)),
        Ok(config) if config.authentications.is_empty() => None,
        Ok(_) => Some(Failure::new(
            format!("{path}.authentications"),
            "Configuration for authentications is not supported with Ory handler",
        )),
    }
}

fn validate_uris(uris: Option<&[String]>, path: &str, failures: &mut Vec<Failure>) {
    for (index, text) in uris.unwrap_or_default().iter().enumerate() {
        if let Err(error) = uri::check_uri(text) {
            failures.push(Failure::new(format!("{path}[{index}]"), uri::not_a_uri(&error)));
        }
    }
}

fn validate_authorizations(
    authorizations: Option<&[Option<JwtAuthorization>]>,
    path: &str,
    failures: &mut Vec<Failure>,
) {
    let Some(authorizations) = authorizations else { return };
    let path = format!("{path}.authorizations");
    if authorizations.is_empty() {
        failures.push(Failure::new(path, "value is empty"));
        return;
    }
    for (index, authorization) in authorizations.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let Some(authorization) = authorization else {
            failures.push(Failure::new(path, "authorization is empty"));
            continue;
        };
        let lists = [
            ("requiredScopes", &authorization.required_scopes, "scope value is empty"),
            ("audiences", &authorization.audiences, "audience value is empty"),
        ];
        for (field, list, message) in lists {
            let message = match list {
                Some(list) if list.is_empty() => "value is empty",
                Some(list) if list.iter().any(String::is_empty) => message,
                _ => continue,
            };
            failures.push(Failure::new(format!("{path}.{field}"), message));
        }
    }
}

fn validate_authentications(
    authentications: &[JwtAuthentication],
    path: &str,
    failures: &mut Vec<Failure>,
) {
    if authentications.is_empty() {
        let message = "Authentications are required when using JWT access handler";
        failures.push(Failure::new(path, message));
    }
    let (mut headers, mut params) = (false, false);
    for (index, authentication) in authentications.iter().enumerate() {
        let path = format!("{path}.config.authentications[{index}]");
        if let Err(error) = uri::check_issuer(&authentication.issuer) {
            failures.push(Failure::new(format!("{path}.issuer"), uri::not_a_uri(&error)));
        }
        if let Err(error) = uri::check_uri(&authentication.jwks_uri) {
            failures.push(Failure::new(format!("{path}.jwksUri"), uri::not_a_uri(&error)));
        }
        let (of_headers, of_params) =
            (authentication.from_headers.len(), authentication.from_params.len());
        let is_mixed = [of_headers > 0 && params, of_params > 0 && (headers || of_headers > 0)];
        headers |= of_headers > 0;
        params |= of_params > 0;
        let fields = ["fromHeaders", "fromParams"];
        let mixed = fields.iter().zip(is_mixed).filter(|(_, is_mixed)| *is_mixed);
        failures.extend(mixed.map(|(field, _)| {
            let message = "mixture of multiple fromHeaders and fromParams is not supported";
            Failure::new(format!("{path}.{field}"), message)
        }));
        let several = fields.iter().zip([of_headers, of_params]).filter(|(_, count)| *count > 1);
        failures.extend(several.map(|(field, _)| {
            Failure::new(format!("{path}.{field}"), format!("multiple {field} are not supported"))
        }));
    }
}

/// Adds an error for each authentication that differs from an earlier one with the same issuer and
/// address of keys. Any strategy may have authentications in its configuration.
pub(super) fn validate_differing(rules: &[Rule], path: &str, failures: &mut Vec<Failure>) {
    let mut seen: BTreeMap<String, JwtAuthentication> = BTreeMap::new();
    for (rule, of) in rules.iter().enumerate() {
        for (index, strategy) in of.access_strategies.iter().enumerate() {
            let path = format!("{path}[{rule}].accessStrategy[{index}]");
            let config = match strategy::config::<JwtConfig>(strategy) {
                Ok(config) => config,
                Err(error) => {
                    failures.push(unreadable(path, &error));
                    return;
                }
            };
            for (index, authentication) in config.authentications.into_iter().enumerate() {
                let key = format!("{}{}", authentication.issuer, authentication.jwks_uri);
                let first = seen.entry(key).or_insert_with(|| authentication.clone());
                if *first != authentication {
                    let message = "multiple jwt configurations that differ for the same issuer";
                    let path = format!("{path}.config.authentications[{index}]");
                    failures.push(Failure::new(path, message));
                }
            }
        }
    }
}
