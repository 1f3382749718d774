//! A rule of `x-kubernetes-validations`: a CEL expression, compiled once.

mod parse;
mod path;

pub(super) use parse::{MERGE, PAIRS, parse, parse_plain};
pub(super) use path::{PathStep, path_steps};

use kube_cel::cel::{Context, ExecutionError, Value as Cel, parser::Expression};
use serde_json::Value;

use super::function;
use crate::field_error::{FieldError, Kind};

/// The largest size of a message that a rule makes, in bytes.
const MAX_MESSAGE_BYTES: usize = 5 * 1024;

/// A compiled rule.
#[derive(Debug)]
pub(super) struct Rule {
    program: Result<Expression, String>,
    message_program: Option<Expression>,
    source: String,
    message: String,
    reason: Kind,
    /// The path below the value that errors name, as messages show it.
    field: Option<String>,
    pub(super) optional_old: bool,
    pub(super) uses_old: bool,
}

/// The result of evaluating a rule for a value.
pub(super) enum Verdict {
    Fine,
    /// The rule is violated.
    Violated {
        kind: Kind,
        field: Option<String>,
        detail: String,
    },
    /// The rule could not be evaluated.
    Failed(String),
}

// === impl Rule ===

impl Rule {
    /// Compiles a rule; `None` if it is empty.
    pub(super) fn compile(rule: &Value) -> Option<Self> {
        let text = |key: &str| rule.get(key).and_then(Value::as_str).unwrap_or_default();
        let source = text("rule");
        if source.trim().is_empty() {
            return None;
        }
        let program = parse(source);
        let uses_old =
            program.as_ref().is_ok_and(|program| program.references().has_variable("oldSelf"));
        Some(Self {
            program,
            message_program: Some(text("messageExpression"))
                .filter(|source| !source.is_empty())
                .and_then(|source| parse(source).ok()),
            source: source.trim().to_owned(),
            message: text("message").trim().to_owned(),
            reason: match text("reason") {
                "FieldValueForbidden" => Kind::Forbidden,
                "FieldValueRequired" => Kind::Required,
                "FieldValueDuplicate" => Kind::Duplicate,
                _ => Kind::Invalid,
            },
            field: Some(text("fieldPath"))
                .filter(|path| !path.is_empty())
                .and_then(|path| path::shown_path(path).ok()),
            optional_old: rule.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or(false),
            uses_old,
        })
    }

    /// Evaluates the rule. `context` has `self`, and `oldSelf` as this rule expects it; `plain` has
    /// `oldSelf` as message expressions expect it.
    pub(super) fn evaluate(&self, context: &Context<'_>, plain: &Context<'_>) -> Verdict {
        let program = match &self.program {
            Ok(program) => program,
            Err(fault) => return Verdict::Failed(format!("rule compile error: {fault}")),
        };
        match Cel::resolve(program, context) {
            Ok(Cel::Bool(true)) => Verdict::Fine,
            Ok(_) => Verdict::Violated {
                kind: self.reason,
                field: self.field.clone(),
                detail: self.detail(plain),
            },
            Err(error) => Verdict::Failed(self.failure(&error)),
        }
    }

    fn detail(&self, context: &Context<'_>) -> String {
        let made = self.message_program.as_ref().and_then(|program| {
            match Cel::resolve(program, context) {
                Ok(Cel::String(text)) => Some(text.trim().to_owned()),
                _ => None,
            }
        });
        let usable = made.filter(|text| {
            !text.is_empty() && !text.contains('\n') && text.len() <= MAX_MESSAGE_BYTES
        });
        usable.unwrap_or_else(|| {
            if self.message.is_empty() {
                format!("failed rule: {}", self.source)
            } else {
                self.message.clone()
            }
        })
    }

    fn failure(&self, error: &ExecutionError) -> String {
        let name = if self.message.is_empty() { &self.source } else { &self.message };
        match text_of(error) {
            None => format!(
                "'no such overload': call arguments did not match a supported operator, function or macro signature for rule: {name}"
            ),
            Some(text) => format!("{text} evaluating rule: {name}"),
        }
    }
}

/// Returns the message of CEL in Go for an error; `None` where it says that there is no such
/// overload.
fn text_of(error: &ExecutionError) -> Option<String> {
    Some(match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::UndeclaredReference(name) => {
            format!("undeclared reference to '{name}' (in container '')")
        }
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(_, Cel::UInt(_), _) => "unsigned integer overflow".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::IndexOutOfBounds(Cel::Int(index)) => {
            format!("index out of bounds: {index}")
        }
        ExecutionError::FunctionError { message, .. } => message.clone(),
        _ => return None,
    })
}

/// Returns the error of a violated rule at a field.
pub(super) fn fault(
    kind: Kind,
    field: String,
    type_name: &'static str,
    detail: String,
) -> FieldError {
    match kind {
        Kind::Forbidden => FieldError::forbidden(field, detail),
        Kind::Required => FieldError::required(field, detail),
        Kind::Duplicate => FieldError::duplicate(field, type_name),
        _ => FieldError::invalid(field, type_name, detail),
    }
}

/// Returns a context with `self`, inside of the one with the functions.
pub(super) fn context(value: Cel) -> Context<'static> {
    let mut context = function::ROOT.new_inner_scope();
    context.add_variable_from_value("self", value);
    context
}
