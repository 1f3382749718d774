//! The validation of an APIRule, with the order, the paths and the messages of the original.

mod jwt;
mod mutator;

use std::collections::BTreeSet;

use mortise_sdk::{Error, Host};

use super::{
    Subject, is_short,
    strategy::{ALLOW, INTROSPECTION, JWT, NO_AUTH, NOOP},
};
use crate::{
    api::v1beta1::{Handler, Rule},
    config,
    validation::{Failure, occupants},
    workload::{Missing, Workloads},
};

const CLIENT_CREDENTIALS: &str = "oauth2_client_credentials";
const COOKIE_SESSION: &str = "cookie_session";
const UNAUTHORIZED: &str = "unauthorized";
const ANONYMOUS: &str = "anonymous";

/// The strategies that let only some requests through.
const SECURE: [&str; 4] = [CLIENT_CREDENTIALS, INTROSPECTION, JWT, COOKIE_SESSION];
/// The strategies that ask for nothing.
const UNSECURE: [&str; 5] = [NOOP, NO_AUTH, ALLOW, UNAUTHORIZED, ANONYMOUS];

/// Returns all errors of an APIRule. `Err` means that a read cannot be answered at the moment.
pub(super) fn validate(
    subject: &Subject<'_>,
    workloads: &Workloads<'_>,
    host: &Host,
) -> Result<Vec<Failure>, Error> {
    let mut failures = Vec::new();
    if subject.spec.gateway.is_none() {
        // The schema requires one, so that the original does not look.
        failures.push(Failure::new(".spec.gateway", "Gateway was nil"));
    }
    validate_host(subject, host, &mut failures)?;
    validate_rules(subject, workloads, &mut failures)?;
    Ok(failures)
}

fn validate_host(
    subject: &Subject<'_>,
    host: &Host,
    failures: &mut Vec<Failure>,
) -> Result<(), Error> {
    const PATH: &str = ".spec.host";
    if subject.spec.host.is_none() {
        failures.push(Failure::new(PATH, "Host was nil"));
        return Ok(());
    }
    if is_short(&subject.spec) && !subject.host.contains('.') {
        let message =
            "Host does not contain a domain name and no default domain name is configured";
        failures.push(Failure::new(PATH, message));
    }
    for _ in 0..occupants(subject.rule, &subject.host, host)? {
        failures.push(Failure::new(PATH, "This host is occupied by another Virtual Service"));
    }
    Ok(())
}

fn validate_rules(
    subject: &Subject<'_>,
    workloads: &Workloads<'_>,
    failures: &mut Vec<Failure>,
) -> Result<(), Error> {
    const PATH: &str = ".spec.rules";
    let rules = subject.spec.rules();
    if rules.is_empty() {
        failures.push(Failure::new(PATH, "No rules defined"));
        return Ok(());
    }
    if has_duplicates(rules) {
        failures.push(Failure::new(PATH, "multiple rules defined for the same path and method"));
    }
    for (index, of) in rules.iter().enumerate() {
        let path = format!("{PATH}[{index}]");
        if subject.spec.service(of).is_some() {
            validate_strategies(subject, of, &path, workloads, failures)?;
        } else {
            let message = "No service defined with no main service on spec level";
            failures.push(Failure::new(format!("{path}.service"), message));
        }
        if subject.handler == config::Handler::Istio {
            mutator::validate(of, &format!("{path}.mutators"), failures);
        }
    }
    if subject.handler == config::Handler::Istio {
        jwt::validate_differing(rules, PATH, failures);
    }
    Ok(())
}

/// Returns whether two rules have a path and a method in common. Rules without methods have their
/// path alone.
fn has_duplicates(rules: &[Rule]) -> bool {
    let keys = |rule: &Rule| -> Vec<(String, Option<String>)> {
        let path = || rule.path.clone();
        let of_methods: Vec<_> =
            rule.methods.iter().map(|method| (path(), Some(method.clone()))).collect();
        if of_methods.is_empty() { vec![(path(), None)] } else { of_methods }
    };
    let mut seen = BTreeSet::new();
    rules.len() > 1 && rules.iter().flat_map(keys).any(|key| !seen.insert(key))
}

fn validate_strategies(
    subject: &Subject<'_>,
    of: &Rule,
    path: &str,
    workloads: &Workloads<'_>,
    failures: &mut Vec<Failure>,
) -> Result<(), Error> {
    let path = format!("{path}.accessStrategies");
    let strategies = of.access_strategies.as_slice();
    if strategies.is_empty() {
        failures.push(Failure::new(path, "No accessStrategies defined"));
        return Ok(());
    }
    failures.extend(exclusive(subject.handler, strategies, &path));
    failures.extend(mixed(strategies, &path));
    for (index, strategy) in strategies.iter().enumerate() {
        let path = format!("{path}[{index}]");
        if strategy.name == JWT && subject.handler == config::Handler::Istio {
            validate_sidecars(subject, of, &path, workloads, failures)?;
        }
        validate_strategy(subject.handler, strategy, &path, failures);
    }
    Ok(())
}

/// Returns an error for each strategy that must be the only one of its rule and is not.
fn exclusive(handler: config::Handler, strategies: &[Handler], path: &str) -> Vec<Failure> {
    let exclusive: &[&str] = match handler {
        config::Handler::Ory => &[ALLOW, NO_AUTH, NOOP],
        config::Handler::Istio => &[ALLOW, NO_AUTH, JWT, NOOP],
    };
    if strategies.len() < 2 {
        return Vec::new();
    }
    let failure = |name: &&str| {
        let index = strategies.iter().position(|strategy| strategy.name == *name)?;
        let message = format!(
            "{name} access strategy is not allowed in combination with other access strategies"
        );
        Some(Failure::new(format!("{path}.accessStrategies[{index}].handler"), message))
    };
    exclusive.iter().filter_map(failure).collect()
}

/// Returns an error if some strategies let everybody through and others do not.
fn mixed(strategies: &[Handler], path: &str) -> Option<Failure> {
    let has =
        |names: &[&str]| strategies.iter().any(|strategy| names.contains(&strategy.name.as_str()));
    let message =
        "Secure access strategies cannot be used in combination with unsecure access strategies";
    (has(&SECURE) && has(&UNSECURE)).then(|| Failure::new(path, message))
}

/// Adds errors for workloads that Istio cannot guard. A missing service is told when the objects
/// are built; the original looks at all Pods of the namespace instead.
fn validate_sidecars(
    subject: &Subject<'_>,
    of: &Rule,
    path: &str,
    workloads: &Workloads<'_>,
    failures: &mut Vec<Failure>,
) -> Result<(), Error> {
    let path = format!("{path}.injection");
    match subject.labels(of, workloads) {
        Err(Missing::Unavailable(error)) => return Err(error),
        Err(Missing::Service(_)) => {}
        Ok(labels) if labels.is_empty() => {
            let message = "Target service label selectors are not defined";
            failures.push(Failure::new(format!("{path}.injection"), message));
        }
        Ok(labels) => {
            let pods = workloads.pods_without_sidecar(subject.namespace(of), &labels)?;
            failures.extend(pods.iter().map(|pod| {
                Failure::new(&path, format!("Pod {pod} does not have an injected istio sidecar"))
            }));
        }
    }
    Ok(())
}

fn validate_strategy(
    handler: config::Handler,
    strategy: &Handler,
    path: &str,
    failures: &mut Vec<Failure>,
) {
    match strategy.name.as_str() {
        ALLOW | NO_AUTH | NOOP | UNAUTHORIZED | ANONYMOUS | COOKIE_SESSION => {
            if !is_empty(strategy) {
                let message = format!("strategy: {} does not support configuration", strategy.name);
                failures.push(Failure::new(format!("{path}.config"), message));
            }
        }
        CLIENT_CREDENTIALS | INTROSPECTION => {}
        JWT => jwt::validate(handler, strategy, path, failures),
        other => {
            let message = format!("Unsupported accessStrategy: {other}");
            failures.push(Failure::new(format!("{path}.handler"), message));
        }
    }
}

/// Returns whether a handler has no configuration, or one without fields.
fn is_empty(handler: &Handler) -> bool {
    handler.config.as_ref().is_none_or(|config| {
        config.is_null() || config.as_object().is_some_and(serde_json::Map::is_empty)
    })
}

/// Returns the error for a configuration that cannot be read.
fn unreadable(path: impl Into<String>, error: &str) -> Failure {
    Failure::new(path, format!("Can't read json: {error}"))
}

#[cfg(test)]
mod tests;
