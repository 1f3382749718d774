//! `mortise check-config`: checks a configuration against the JSON schema that a processor declares
//! for it, within limits.
//!
//! A schema is untrusted, and a small one can take unbounded time to evaluate. `mortise run` starts
//! this command for each version that declares a schema; see `wasm/config.rs`.

use std::{
    borrow::Cow,
    io::{self, Read as _, Write as _},
    process::ExitCode,
};

use anyhow::Context as _;
use jsonschema::PatternOptions;
use mortise_core::{contract::bounds::text::shortened_to_characters, error_chain};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::OwnLimits;

/// The backtracking steps after which a schema's regular expression does not match.
const MAX_BACKTRACKS: usize = 100_000;
/// The maximum number of validation errors in a message.
const MAX_LISTED_FAULTS: usize = 3;
/// The maximum length of a validation error, in characters: it may quote a large value.
const MAX_FAULT_CHARACTERS: usize = 1024;

/// A configuration and the schema that it is checked against, both as JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Question<'a> {
    #[serde(borrow)]
    pub(crate) schema: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) config: Cow<'a, str>,
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Verdict {
    /// The configuration is valid.
    Valid,
    /// The configuration violates the schema, for these reasons.
    Invalid(String),
    /// The schema cannot be used, for this reason.
    SchemaInvalid(String),
}

/// Reads a [`Question`] from standard input and writes the [`Verdict`] to standard output, both as
/// JSON.
pub(crate) fn run(limits: &OwnLimits) -> anyhow::Result<ExitCode> {
    super::confine(limits)?;
    let mut input = Vec::new();
    io::stdin().lock().read_to_end(&mut input).context("cannot read the configuration")?;
    let verdict = answer(&input).context("the input is not a configuration and a schema")?;
    let mut output = io::stdout().lock();
    serde_json::to_writer(&mut output, &verdict).context("cannot write the verdict")?;
    output.flush().context("cannot write the verdict")?;
    Ok(ExitCode::SUCCESS)
}

/// Answers a [`Question`] in JSON.
pub(crate) fn answer(question: &[u8]) -> serde_json::Result<Verdict> {
    serde_json::from_slice(question).map(|question| check(&question))
}

/// Checks a configuration. May take unbounded time and memory: the caller has to set limits.
fn check(question: &Question<'_>) -> Verdict {
    try_check(question).unwrap_or_else(Verdict::SchemaInvalid)
}

fn try_check(question: &Question<'_>) -> Result<Verdict, String> {
    let schema = json(&question.schema)?;
    let patterns = PatternOptions::fancy_regex().backtrack_limit(MAX_BACKTRACKS);
    let validator = jsonschema::options().with_pattern_options(patterns).build(&schema);
    let validator = validator.map_err(|error| shortened(&error_chain::whole(&error)))?;
    let config = json(&question.config)?;
    let mut errors = validator.iter_errors(&config);
    let faults = errors.by_ref().take(MAX_LISTED_FAULTS).map(|error| {
        let place = error.instance_path().to_string().replace('/', ".");
        shortened(&format!("`spec.config{place}`: {error}"))
    });
    let mut faults: Vec<String> = faults.collect();
    if faults.is_empty() {
        return Ok(Verdict::Valid);
    }
    let more = errors.count();
    if more > 0 {
        faults.push(format!("and {more} more"));
    }
    Ok(Verdict::Invalid(faults.join("; ")))
}

fn json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn shortened(message: &str) -> String {
    shortened_to_characters(message, MAX_FAULT_CHARACTERS)
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

    fn found(schema: &str, config: &str) -> Verdict {
        check(&Question { schema: schema.into(), config: config.into() })
    }

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
            (
                "many",
                r#"{"class": "a", "hosts": [1, 2, 3, 4, 5]}"#,
                Some("`spec.config.hosts.2`: 3 is not of type \"string\"; and 2 more"),
            ),
        ];
        for (case, config, expected) in cases {
            match (found(SCHEMA, config), expected) {
                (Verdict::Valid, None) => {}
                (Verdict::Invalid(message), Some(expected)) => {
                    assert!(message.contains(expected), "{case}: {message}");
                }
                (found, _) => panic!("{case}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_schema_that_cannot_be_used_is_the_module_s_fault() {
        let elsewhere = r#"{"$ref": "https://example.com/schema.json"}"#;
        for schema in ["{", r#"{"type": "text"}"#, elsewhere] {
            let verdict = found(schema, "{}");
            assert!(matches!(verdict, Verdict::SchemaInvalid(_)), "{schema}: {verdict:?}");
        }
    }

    #[test]
    fn a_pattern_that_never_ends_is_ended() {
        let schema = r#"{"properties": {"a": {"pattern": "^(?=(a+)+$)(a|a)*b$"}}}"#;
        let config = format!(r#"{{"a": "{}c"}}"#, "a".repeat(40));
        let verdict = found(schema, &config);
        assert!(matches!(verdict, Verdict::Invalid(_)), "{verdict:?}");
    }

    #[test]
    fn a_fault_of_a_large_value_is_cut() {
        let config = format!(r#"{{"class": "{}"}}"#, "A".repeat(1 << 20));
        let Verdict::Invalid(message) = found(SCHEMA, &config) else {
            panic!("it breaks the schema")
        };
        assert!(message.len() <= MAX_FAULT_CHARACTERS + 3, "{}", message.len());
    }
}
