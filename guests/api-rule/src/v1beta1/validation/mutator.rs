//! The validation of mutators, which Istio carries out for rules that demand tokens.

use std::collections::{BTreeMap, BTreeSet};

use super::unreadable;
use crate::{
    api::v1beta1::{Handler, Rule},
    json,
    v1beta1::strategy,
    validation::Failure,
};

pub(super) fn validate(of: &Rule, path: &str, failures: &mut Vec<Failure>) {
    if !strategy::is_jwt(of) {
        return;
    }
    let mut seen = BTreeSet::new();
    for (index, mutator) in of.mutators.iter().enumerate() {
        if !seen.insert(&mutator.name) {
            let path = format!("{path}[{index}].handler.{}", mutator.name);
            failures.push(Failure::new(path, "mutator for same handler already exists"));
        }
    }
    for (index, mutator) in of.mutators.iter().enumerate() {
        failures.extend(validate_mutator(mutator, &format!("{path}[{index}].handler")));
    }
}

fn validate_mutator(mutator: &Handler, path: &str) -> Option<Failure> {
    let field = match mutator.name.as_str() {
        "header" => "headers",
        "cookie" => "cookies",
        "" => return Some(Failure::new(path, "mutator handler cannot be empty")),
        other => return Some(Failure::new(path, format!("unsupported mutator: {other}"))),
    };
    let path = format!("{path}.config");
    let values = mutator.config.as_ref().and_then(|config| config.get(field));
    let values = match values.map(json::read::<BTreeMap<String, Option<String>>>).transpose() {
        Ok(values) => values.unwrap_or_default(),
        Err(error) => return Some(unreadable(path, &error)),
    };
    if values.is_empty() {
        return Some(Failure::new(path, format!("{field} cannot be empty")));
    }
    values.contains_key("").then(|| Failure::new(format!("{path}.{field}.name"), "cannot be empty"))
}
