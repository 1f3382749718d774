//! One rule of `x-kubernetes-validations`: an expression in CEL, compiled once.

use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, Expr, IdedExpr, ListExpr, LiteralValue, operators,
};
use kube_cel::cel::common::types::CelBool;
use kube_cel::cel::parser::{Expression, Parser};
use kube_cel::cel::{Context, ExecutionError, Value as Cel};
use serde_json::Value;

use super::function;
use crate::field_error::{FieldError, Kind};

/// A message that a rule makes may have so many bytes.
const MESSAGE_SIZE: usize = 5 * 1024;

/// A compiled rule.
#[derive(Debug)]
pub(super) struct Rule {
    program: Result<Expression, String>,
    message_program: Option<Expression>,
    source: String,
    message: String,
    reason: Kind,
    /// The path below the value that faults name, as messages show it.
    field: Option<String>,
    pub(super) optional_old: bool,
    pub(super) uses_old: bool,
}

/// What a rule says of a value.
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
    /// Compiles a rule; an empty one is none.
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
                .and_then(|path| shown_path(path).ok()),
            optional_old: rule.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or(false),
            uses_old,
        })
    }

    /// Evaluates the rule; `context` has `self`, and `oldSelf` as this rule wants it; `plain` has it as message expressions want it.
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
        let usable = made
            .filter(|text| !text.is_empty() && !text.contains('\n') && text.len() <= MESSAGE_SIZE);
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

/// What CEL in Go says of an error; `None` where it says that there is no such overload.
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

/// A fault of a rule at a field.
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

/// A context with `self` inside of the one that has the functions.
pub(super) fn context(value: Cel) -> Context<'static> {
    let mut context = function::ROOT.new_inner_scope();
    context.add_variable_from_value("self", value);
    context
}

// === parsing ===

/// Parses an expression for evaluation; the error is what the API server would say of it.
pub(super) fn parse(source: &str) -> Result<Expression, String> {
    let mut expression = parse_plain(source)?;
    rewrite(&mut expression);
    Ok(expression)
}

/// Parses an expression as it is written.
pub(super) fn parse_plain(source: &str) -> Result<Expression, String> {
    let parsed = Parser::new().enable_optional_syntax(true).parse(source);
    parsed.map_err(|errors| errors.to_string().replace("\n| ", "\n | "))
}

/// Expresses with what the evaluator has what it lacks: fields of optional values, `optMap` and `optFlatMap`.
fn rewrite(expression: &mut IdedExpr) {
    match &mut expression.expr {
        Expr::Call(call) => {
            call.target.iter_mut().for_each(|target| rewrite(target));
            call.args.iter_mut().for_each(rewrite);
            if call.func_name == operators::OPT_SELECT {
                operators::OPT_INDEX.clone_into(&mut call.func_name);
            } else if let Some(mapped) = optional_map(call) {
                expression.expr = mapped;
            }
        }
        Expr::Select(select) => {
            rewrite(&mut select.operand);
            if is_optional(&select.operand) {
                let field = literal(LiteralValue::String(select.field.as_str().into()));
                let select_optional = call(
                    operators::OPT_INDEX,
                    None,
                    vec![std::mem::take(&mut *select.operand), field],
                );
                expression.expr = if select.test {
                    call("hasValue", Some(ided(select_optional)), vec![])
                } else {
                    select_optional
                };
            }
        }
        Expr::List(list) => list.elements.iter_mut().for_each(rewrite),
        Expr::Map(map) => {
            for entry in &mut map.entries {
                if let kube_cel::cel::common::ast::EntryExpr::MapEntry(entry) = &mut entry.expr {
                    rewrite(&mut entry.key);
                    rewrite(&mut entry.value);
                }
            }
        }
        Expr::Comprehension(comprehension) => {
            let ComprehensionExpr { iter_range, accu_init, loop_cond, loop_step, result, .. } =
                comprehension.as_mut();
            [iter_range, accu_init, loop_cond, loop_step, result].into_iter().for_each(rewrite);
        }
        Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified => {}
    }
}

/// `target.optMap(name, value)`: the value is evaluated with the name bound to what the target holds.
fn optional_map(called: &mut CallExpr) -> Option<Expr> {
    let flat = match called.func_name.as_str() {
        "optMap" => false,
        "optFlatMap" => true,
        _ => return None,
    };
    let [IdedExpr { expr: Expr::Ident(name), .. }, _] = called.args.as_slice() else { return None };
    let name = name.clone();
    let (target, value) = (called.target.take()?, called.args.pop()?);
    let bound = Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: ided(Expr::List(ListExpr::default())),
        iter_var: "#unused".to_owned(),
        iter_var2: None,
        accu_var: name.clone(),
        accu_init: ided(call("value", Some(*target.clone()), vec![])),
        loop_cond: literal(LiteralValue::Boolean(CelBool::from(false))),
        loop_step: ided(Expr::Ident(name)),
        result: value,
    }));
    let optional = Some(ided(Expr::Ident("optional".to_owned())));
    let some = if flat { bound } else { call("of", optional.clone(), vec![ided(bound)]) };
    let there = ided(call("hasValue", Some(*target), vec![]));
    Some(call(
        operators::CONDITIONAL,
        None,
        vec![there, ided(some), ided(call("none", optional, vec![]))],
    ))
}

/// Whether the expression is the access to a part that may be absent.
fn is_optional(expression: &IdedExpr) -> bool {
    match &expression.expr {
        Expr::Call(call) if call.func_name == operators::OPT_INDEX => true,
        Expr::Call(call) if call.func_name == operators::INDEX => {
            call.args.first().is_some_and(is_optional)
        }
        _ => false,
    }
}

fn ided(expr: Expr) -> IdedExpr {
    IdedExpr { id: 0, expr }
}

fn literal(value: LiteralValue) -> IdedExpr {
    ided(Expr::Literal(value))
}

fn call(name: &str, target: Option<IdedExpr>, args: Vec<IdedExpr>) -> Expr {
    Expr::Call(CallExpr { func_name: name.to_owned(), target: target.map(Box::new), args })
}

// === field paths of rules ===

/// One step of `fieldPath`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PathStep {
    /// `.name`
    Name(String),
    /// `['key']`
    Key(String),
}

/// Reads `.a['b.c'].d`; the error is the one of the API server.
pub(super) fn path_steps(path: &str) -> Result<Vec<PathStep>, String> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[', ']']).unwrap_or(after.len());
            let (name, after) = after.split_at(end);
            if name.is_empty() && after.is_empty() {
                return Err("unexpected end of JSON path".to_owned());
            }
            steps.push(PathStep::Name(name.to_owned()));
            rest = after;
        } else if let Some(after) = rest.strip_prefix('[') {
            let (key, after) = quoted_key(after)?;
            steps.push(PathStep::Key(key));
            rest = after;
        } else {
            let end = rest
                .get(1..)
                .and_then(|rest| rest.find(['.', '[', ']']))
                .map_or(rest.len(), |end| end + 1);
            return Err(format!(
                "expected [ or . but got: {}",
                rest.get(..end).unwrap_or_default()
            ));
        }
    }
    Ok(steps)
}

fn quoted_key(text: &str) -> Result<(String, &str), String> {
    let inside = text.strip_prefix('\'').and_then(|inside| {
        let mut escaped = false;
        let end = inside.char_indices().find_map(|(at, character)| {
            let end = character == '\'' && !escaped;
            escaped = character == '\\' && !escaped;
            end.then_some(at)
        })?;
        Some((inside.get(..end)?, inside.get(end + 1..)?))
    });
    let Some((key, after)) = inside else {
        let token = text.split(['.', '[', ']']).next().unwrap_or_default();
        return Err(if token.is_empty() {
            "unexpected end of JSON path".to_owned()
        } else {
            format!("expected single quoted string but got {token}")
        });
    };
    let after = after.strip_prefix(']').ok_or_else(|| "unexpected end of JSON path".to_owned())?;
    Ok((key.replace("\\'", "'").replace("\\\\", "\\"), after))
}

/// The path of a rule as faults show it. Keys of maps and fields are not told apart here: the check of the schema has seen to it that they are there.
fn shown_path(path: &str) -> Result<String, String> {
    let mut shown = String::new();
    for step in path_steps(path)? {
        match step {
            PathStep::Name(name) if shown.is_empty() => shown = name,
            PathStep::Name(name) => shown = format!("{shown}.{name}"),
            PathStep::Key(key) => shown = format!("{shown}[{key}]"),
        }
    }
    Ok(shown)
}
