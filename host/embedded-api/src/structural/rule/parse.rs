//! Parsing of CEL expressions, and rewriting for the evaluator.

use kube_cel::cel::{
    common::{
        ast::{
            CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue,
            operators,
        },
        types::CelBool,
    },
    parser::{Expression, Parser},
};

/// Parses an expression for evaluation; the error is the message of the API server.
pub(in super::super) fn parse(source: &str) -> Result<Expression, String> {
    let mut expression = parse_plain(source)?;
    rewrite(&mut expression);
    Ok(expression)
}

/// Parses an expression without rewriting it. Message literals are refused: rules have no message
/// types, and the evaluator cannot make messages.
pub(in super::super) fn parse_plain(source: &str) -> Result<Expression, String> {
    let parsed = Parser::new().enable_optional_syntax(true).parse(source);
    let expression = parsed.map_err(|errors| errors.to_string().replace("\n| ", "\n | "))?;
    match made_message(&expression) {
        None => Ok(expression),
        Some(name) => {
            let column = source.find(&format!("{name}{{")).unwrap_or_default() + name.len();
            let dots = ".".repeat(column);
            Err(format!(
                "ERROR: <input>:1:{}: undeclared reference to '{name}' (in container '')\n | {source}\n | {dots}^",
                column + 1
            ))
        }
    }
}

/// Returns the type of a message literal in an expression, if any: `Type{field: value}`.
fn made_message(expression: &IdedExpr) -> Option<&str> {
    match &expression.expr {
        Expr::Struct(message) => Some(&message.type_name),
        Expr::Call(call) => {
            call.target.iter().map(|target| &**target).chain(&call.args).find_map(made_message)
        }
        Expr::Select(select) => made_message(&select.operand),
        Expr::List(list) => list.elements.iter().find_map(made_message),
        Expr::Map(map) => map.entries.iter().find_map(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => {
                made_message(&entry.key).or_else(|| made_message(&entry.value))
            }
            EntryExpr::StructField(_) => None,
        }),
        Expr::Comprehension(comprehension) => {
            let ComprehensionExpr { iter_range, accu_init, loop_cond, loop_step, result, .. } =
                comprehension.as_ref();
            [iter_range, accu_init, loop_cond, loop_step, result].into_iter().find_map(made_message)
        }
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => None,
    }
}

/// Rewrites parts that the evaluator lacks to parts that it has: fields of optional values,
/// `optMap` and `optFlatMap`.
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
                if let EntryExpr::MapEntry(entry) = &mut entry.expr {
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

/// Rewrites `target.optMap(name, value)`: the value is evaluated with the name bound to the value
/// of the target.
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

/// Returns whether the expression is the access to an optional part.
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
