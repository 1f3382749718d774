//! Whether rules are written as they must be, and compile.

use serde_json::Value;

use super::super::Node;
use super::super::infer::{self, Subject, Wanted};
use super::super::rule::{self, PathStep};
use crate::field_error::{FieldError, FieldPath, Shown, go_json};

const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// The faults of the texts of rules.
pub(super) fn check_texts(
    rules: &[Value],
    schema: &Value,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    for (index, rule) in rules.iter().enumerate() {
        let here = path.index(index);
        let text = |key: &str| rule.get(key).and_then(Value::as_str).unwrap_or_default();
        message(text("rule"), text("message"), &here, errors);
        if !text("messageExpression").is_empty() && text("messageExpression").trim().is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            errors.push(FieldError::required(here.child("messageExpression"), detail));
        }
        if let Some(reason) =
            rule.get("reason").and_then(Value::as_str).filter(|reason| !REASONS.contains(reason))
        {
            errors.push(FieldError::not_supported(here.child("reason"), reason, REASONS));
        }
        field_path(text("fieldPath"), schema, &here.child("fieldPath"), errors);
    }
}

fn message(rule: &str, message: &str, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let here = path.child("message");
    if rule.trim().is_empty() {
        errors.push(FieldError::required(path.child("rule"), "rule is not specified"));
    } else if !message.is_empty() && message.trim().is_empty() {
        errors.push(FieldError::invalid(here, message, "message must be non-empty if specified"));
    } else if has_newlines(message.trim()) {
        errors.push(FieldError::invalid(here, message, "message must not contain line breaks"));
    } else if has_newlines(rule.trim()) && message.trim().is_empty() {
        errors.push(FieldError::required(
            here,
            "message must be specified if rule contains line breaks",
        ));
    }
}

fn has_newlines(text: &str) -> bool {
    text.contains(['\n', '\r'])
}

fn field_path(text: &str, schema: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    if text.is_empty() {
        return;
    }
    if text.trim().is_empty() {
        errors.push(FieldError::invalid(path, text, "fieldPath must be non-empty if specified"));
    }
    if has_newlines(text) {
        errors.push(FieldError::invalid(path, text, "fieldPath must not contain line breaks"));
    }
    if let Err(fault) = resolve(text, schema) {
        errors.push(FieldError::invalid(
            path,
            text,
            format!("fieldPath must be a valid path: {fault}"),
        ));
    }
}

fn resolve(path: &str, schema: &Value) -> Result<(), String> {
    let mut schema = schema;
    for step in rule::path_steps(path)? {
        let (PathStep::Name(name) | PathStep::Key(name)) = step;
        let properties = schema
            .get("properties")
            .and_then(Value::as_object)
            .filter(|properties| !properties.is_empty());
        let below = match properties {
            Some(properties) => properties.get(&name),
            None => schema.get("additionalProperties").filter(|additional| additional.is_object()),
        };
        schema = below.ok_or_else(|| "does not refer to a valid field".to_owned())?;
    }
    Ok(())
}

/// What holds for all rules of a place.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) node: &'a Node,
    /// The place is that of a whole resource.
    pub(super) resource: bool,
    /// The place around it below which old and new values are not compared.
    pub(super) incomparable: Option<&'a FieldPath<'a>>,
}

/// The faults of the expressions of rules at a place.
pub(super) fn check_programs(
    rules: &[Value],
    place: Place<'_>,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    for (index, rule) in rules.iter().enumerate() {
        let here = path.index(index);
        let text = |key: &str| rule.get(key).and_then(Value::as_str).unwrap_or_default();
        let optional = rule.get("optionalOldSelf").and_then(Value::as_bool);
        let subject = Subject {
            node: place.node,
            resource: place.resource,
            optional_old: optional == Some(true),
        };
        let program = rule::parse_plain(text("rule"));
        let fault = match &program {
            Ok(program) => infer::fault(text("rule"), program, subject, Wanted::Bool),
            Err(fault) => Some(format!("compilation failed: {fault}")),
        };
        errors.extend(
            fault.map(|detail| FieldError::invalid(here.child("rule"), shown(rule), detail)),
        );
        if !text("messageExpression").is_empty() {
            let fault = match rule::parse_plain(text("messageExpression")) {
                Ok(program) => {
                    infer::fault(text("messageExpression"), &program, subject, Wanted::Text)
                }
                Err(fault) => Some(format!("messageExpression compilation failed: {fault}")),
            };
            errors.extend(fault.map(|detail| {
                FieldError::invalid(here.child("messageExpression"), shown(rule), detail)
            }));
        }
        let uses_old = program.is_ok_and(|program| program.references().has_variable("oldSelf"));
        if let Some(around) = place.incomparable.filter(|_| uses_old) {
            let detail = format!(
                "oldSelf cannot be used on the uncorrelatable portion of the schema within {around}"
            );
            errors.push(FieldError::invalid(here.child("rule"), text("rule"), detail));
        }
        if let Some(optional) = optional.filter(|_| !uses_old) {
            let detail = "may not be set if oldSelf is not used in rule";
            errors.push(FieldError::invalid(here.child("optionalOldSelf"), optional, detail));
        }
    }
}

/// A rule as Go writes it.
fn shown(rule: &Value) -> Shown {
    let value = |key: &str, absent: &str| rule.get(key).map_or_else(|| absent.to_owned(), go_json);
    Shown::Raw(format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        value("rule", "\"\""),
        value("message", "\"\""),
        value("messageExpression", "\"\""),
        value("reason", "null"),
        value("fieldPath", "\"\""),
        value("optionalOldSelf", "null"),
    ))
}
