//! From the bytes of a module to a version that can be put to work.

use bytes::Bytes;
use jsonschema::PatternOptions;
use serde_json::Value;

use super::{
    fault::Fault,
    recipe::{Pace, Recipe},
};
use crate::{
    chain,
    processor::{self, Engine, Processor},
    run::Loaded,
};

/// How much of a pattern in a schema is tried before it counts as one that does not match.
const BACKTRACKS: usize = 100_000;
/// How many faults of a configuration a message names.
const NAMED: usize = 3;

/// Loads a component and asks it for its description; its configuration is checked against the schema that it declares.
pub(super) async fn load(
    engine: &Engine,
    module: &str,
    bytes: Bytes,
    recipe: &Recipe,
    (name, pace): (&str, Pace),
) -> Result<Loaded, Fault> {
    let limits = recipe.limits.clone();
    let processor = Processor::load(engine, module, bytes, limits).await;
    let processor = processor.map_err(|error| Fault::of_load(&error))?;
    let settings = recipe.settings(name, pace);
    match Loaded::describe(processor.clone(), &recipe.config, settings).await {
        Ok(loaded) => {
            check_config(loaded.description.config_schema.as_deref(), &recipe.config)?;
            Ok(loaded)
        }
        Err(error) => match error.downcast_ref::<processor::Error>() {
            Some(error) => Err(refused(&processor, error, &recipe.config).await),
            None => Err(Fault::new("DescriptionInvalid", format!("{error:#}"))),
        },
    }
}

/// A configuration that the processor does not accept may break its schema, which says more than the processor does. The schema is
/// known where the processor describes itself without any.
async fn refused(processor: &Processor, error: &processor::Error, config: &str) -> Fault {
    if matches!(error, processor::Error::ConfigRefused { .. })
        && let Ok(description) = processor.describe("{}").await
        && let Err(fault) = check_config(description.config_schema.as_deref(), config)
    {
        return fault;
    }
    Fault::of_describe(error)
}

fn check_config(schema: Option<&str>, config: &str) -> Result<(), Fault> {
    let Some(schema) = schema else { return Ok(()) };
    let invalid = |error: &(dyn std::error::Error + 'static)| {
        let message = format!(
            "the schema that the processor declares for its configuration cannot be used: {}",
            chain::whole(error)
        );
        Fault::new("ConfigSchemaInvalid", message)
    };
    let schema: Value = serde_json::from_str(schema).map_err(|error| invalid(&error))?;
    let patterns = PatternOptions::fancy_regex().backtrack_limit(BACKTRACKS);
    let validator = jsonschema::options()
        .with_pattern_options(patterns)
        .build(&schema)
        .map_err(|error| invalid(&error))?;
    let config: Value = serde_json::from_str(config).map_err(|error| invalid(&error))?;
    let mut faults: Vec<String> = validator
        .iter_errors(&config)
        .map(|error| {
            let place = error.instance_path().to_string().replace('/', ".");
            format!("`spec.config{place}`: {error}")
        })
        .collect();
    if faults.is_empty() {
        return Ok(());
    }
    let more = faults.len().saturating_sub(NAMED);
    faults.truncate(NAMED);
    if more > 0 {
        faults.push(format!("and {more} more"));
    }
    let message =
        format!("spec.config breaks the schema that the processor declares: {}", faults.join("; "));
    Err(Fault::new("ConfigInvalid", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = r#"{
        "type": "object", "required": ["class"], "additionalProperties": false,
        "properties": {
            "class": {"type": "string", "pattern": "^[a-z]+$"},
            "replicas": {"type": "integer", "minimum": 1},
            "hosts": {"type": "array", "items": {"type": "string"}}
        }
    }"#;

    #[test]
    fn a_configuration_is_checked_against_the_schema() {
        let cases = [
            ("fits", r#"{"class": "a", "replicas": 2, "hosts": ["b"]}"#, None),
            ("not there", "{}", Some(r#"`spec.config`: "class" is a required property"#)),
            (
                "a type",
                r#"{"class": 1}"#,
                Some(r#"`spec.config.class`: 1 is not of type "string""#),
            ),
            ("a pattern", r#"{"class": "A"}"#, Some(r#"`spec.config.class`: "A" does not match"#)),
            (
                "a bound",
                r#"{"class": "a", "replicas": 0}"#,
                Some("`spec.config.replicas`: 0 is less than the minimum of 1"),
            ),
            (
                "an item",
                r#"{"class": "a", "hosts": ["b", 1]}"#,
                Some("`spec.config.hosts.1`: 1 is not of type"),
            ),
            (
                "unknown",
                r#"{"class": "a", "clas": "b"}"#,
                Some("Additional properties are not allowed ('clas' was unexpected)"),
            ),
        ];
        for (case, config, expected) in cases {
            match (check_config(Some(SCHEMA), config), expected) {
                (Ok(()), None) => {}
                (Err(fault), Some(expected)) => {
                    assert_eq!(fault.reason, "ConfigInvalid", "{case}");
                    assert!(fault.message.contains(expected), "{case}: {}", fault.message);
                }
                (found, _) => panic!("{case}: {found:?}"),
            }
        }
        assert_eq!(check_config(None, r#"{"anything": 1}"#), Ok(()));
    }

    #[test]
    fn a_schema_that_cannot_be_used_is_the_module_s_fault() {
        let elsewhere = r#"{"$ref": "https://example.com/schema.json"}"#;
        for schema in ["{", r#"{"type": "text"}"#, elsewhere] {
            let fault = check_config(Some(schema), "{}").expect_err(schema);
            assert_eq!(fault.reason, "ConfigSchemaInvalid", "{schema}: {}", fault.message);
        }
    }

    #[test]
    fn a_pattern_that_never_ends_is_ended() {
        let schema = r#"{"properties": {"a": {"pattern": "^(?=(a+)+$)(a|a)*b$"}}}"#;
        let config = format!(r#"{{"a": "{}c"}}"#, "a".repeat(40));
        assert_eq!(check_config(Some(schema), &config).unwrap_err().reason, "ConfigInvalid");
    }
}
