//! Validation of rules: their texts, and whether their expressions compile.

use kube_cel::cel::parser::Expression;
use serde_json::Value;

use super::super::{
    Node,
    infer::{self, Subject, Wanted},
    rule::{self, PathStep},
};
use crate::field_error::{FieldError, FieldPath, Shown, go_json};

const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Validates the texts of rules.
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

/// The context that all rules of a place share.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) node: &'a Node,
    /// True if the node is that of a whole resource.
    pub(super) resource: bool,
    /// The place around the node below which old and new values are not compared, if any.
    pub(super) incomparable: Option<&'a FieldPath<'a>>,
}

/// Validates the expressions of the rules at a place.
pub(super) fn check_programs(
    rules: &[Value],
    place: Place<'_>,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    for (index, rule) in rules.iter().enumerate() {
        let here = path.index(index);
        let optional = rule.get("optionalOldSelf").and_then(Value::as_bool);
        let subject = Subject {
            node: place.node,
            resource: place.resource,
            optional_old: optional == Some(true),
        };
        let rule_path = here.child("rule");
        let program = compile(rule, "rule", subject, Wanted::Bool);
        let uses_old =
            program.as_ref().is_ok_and(|program| program.references().has_variable("oldSelf"));
        errors.extend(
            program.err().map(|detail| FieldError::invalid(rule_path, shown(rule), detail)),
        );
        if rule
            .get("messageExpression")
            .and_then(Value::as_str)
            .is_some_and(|source| !source.is_empty())
            && let Err(detail) = compile(rule, "messageExpression", subject, Wanted::Text)
        {
            let here = here.child("messageExpression");
            errors.push(FieldError::invalid(here, shown(rule), detail));
        }
        if let Some(around) = place.incomparable.filter(|_| uses_old) {
            let source = rule.get("rule").and_then(Value::as_str).unwrap_or_default();
            let detail = format!(
                "oldSelf cannot be used on the uncorrelatable portion of the schema within {around}"
            );
            errors.push(FieldError::invalid(rule_path, source, detail));
        }
        if let Some(optional) = optional.filter(|_| !uses_old) {
            let detail = "may not be set if oldSelf is not used in rule";
            errors.push(FieldError::invalid(here.child("optionalOldSelf"), optional, detail));
        }
    }
}

/// Compiles an expression of a rule; the error is the text for the `FieldError`.
fn compile(
    rule: &Value,
    key: &str,
    subject: Subject<'_>,
    wanted: Wanted,
) -> Result<Expression, String> {
    let source = rule.get(key).and_then(Value::as_str).unwrap_or_default();
    let prefix = if wanted == Wanted::Text { "messageExpression " } else { "" };
    let program = rule::parse_plain(source)
        .map_err(|fault| format!("{prefix}compilation failed: {fault}"))?;
    infer::fault(source, &program, subject, wanted).map_or(Ok(program), Err)
}

/// Returns a rule as Go prints it.
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
