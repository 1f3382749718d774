//! Parsing of CEL expressions, the macros that the parser lacks, and rewriting for the evaluator.

use kube_cel::cel::{
    common::{
        ast::{
            CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, ListExpr,
            LiteralValue, MapEntryExpr, MapExpr, operators,
        },
        types::CelBool,
    },
    parser::{Expression, Parser},
};

/// The name of the result of a macro, which no rule can write.
const RESULT: &str = "@result";
/// The name of a pair of index and value, or key and value.
const PAIR: &str = "#pair";
/// The function that returns the pairs of a list or map.
pub(in super::super) const PAIRS: &str = "#pairs";
/// The function that adds the entries of a map to another one.
pub(in super::super) const MERGE: &str = "#merge";

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
    let mut expression = parsed.map_err(|errors| errors.to_string().replace("\n| ", "\n | "))?;
    expand(&mut expression);
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

/// Calls a function for each direct part of an expression.
fn each_part(expression: &mut IdedExpr, mut visit: impl FnMut(&mut IdedExpr)) {
    match &mut expression.expr {
        Expr::Call(call) => {
            call.target.iter_mut().for_each(|target| visit(target));
            call.args.iter_mut().for_each(visit);
        }
        Expr::Select(select) => visit(&mut select.operand),
        Expr::List(list) => list.elements.iter_mut().for_each(visit),
        Expr::Map(map) => {
            for entry in &mut map.entries {
                if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                    visit(&mut entry.key);
                    visit(&mut entry.value);
                }
            }
        }
        Expr::Comprehension(comprehension) => {
            let ComprehensionExpr { iter_range, accu_init, loop_cond, loop_step, result, .. } =
                comprehension.as_mut();
            [iter_range, accu_init, loop_cond, loop_step, result].into_iter().for_each(visit);
        }
        Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified => {}
    }
}

/// Expands the macros with two variables, index and value or key and value.
fn expand(expression: &mut IdedExpr) {
    each_part(expression, expand);
    if let Expr::Call(called) = &mut expression.expr
        && let Some(expanded) = comprehension_of_two(called)
    {
        expression.expr = expanded;
    }
}

/// Returns the comprehension of a macro with two variables; `None` if the call is none.
fn comprehension_of_two(called: &mut CallExpr) -> Option<Expr> {
    let [one, two, rest @ ..] = called.args.as_slice() else { return None };
    let (Expr::Ident(one), Expr::Ident(two)) = (&one.expr, &two.expr) else { return None };
    let accu = || ided(Expr::Ident(RESULT.to_owned()));
    let boolean = |value: bool| literal(LiteralValue::Boolean(CelBool::from(value)));
    let number = |value: i64| literal(LiteralValue::Int(value.into()));
    let of = |name: &str, args: Vec<IdedExpr>| ided(call(name, None, args));
    let list = |elements| ided(Expr::List(ListExpr { elements, ..ListExpr::default() }));
    let (begin, step, filter) = match (called.func_name.as_str(), rest) {
        ("all", [holds]) => {
            let step = of(operators::LOGICAL_AND, vec![accu(), holds.clone()]);
            (boolean(true), step, None)
        }
        ("exists", [holds]) => {
            let step = of(operators::LOGICAL_OR, vec![accu(), holds.clone()]);
            (boolean(false), step, None)
        }
        ("existsOne" | "exists_one", [holds]) => {
            (number(0), of(operators::ADD, vec![accu(), number(1)]), Some(holds))
        }
        ("transformList", [filter @ .., value]) if filter.len() < 2 => {
            let step = of(operators::ADD, vec![accu(), list(vec![value.clone()])]);
            (list(Vec::new()), step, filter.first())
        }
        ("transformMap", [filter @ .., value]) if filter.len() < 2 => {
            let entry = map_of(Some((ided(Expr::Ident(one.clone())), value.clone())));
            (map_of(None), of(MERGE, vec![accu(), entry]), filter.first())
        }
        ("transformMapEntry", [filter @ .., entry]) if filter.len() < 2 => {
            (map_of(None), of(MERGE, vec![accu(), entry.clone()]), filter.first())
        }
        _ => return None,
    };
    let loop_cond = match called.func_name.as_str() {
        "all" => of(operators::NOT_STRICTLY_FALSE, vec![accu()]),
        "exists" => {
            let not = of(operators::LOGICAL_NOT, vec![accu()]);
            of(operators::NOT_STRICTLY_FALSE, vec![not])
        }
        _ => boolean(true),
    };
    let loop_step = match filter {
        Some(filter) => of(operators::CONDITIONAL, vec![filter.clone(), step, accu()]),
        None => step,
    };
    let result = match begin.expr {
        Expr::Literal(LiteralValue::Int(_)) => of(operators::EQUALS, vec![accu(), number(1)]),
        _ => accu(),
    };
    Some(Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_var: one.clone(),
        iter_var2: Some(two.clone()),
        iter_range: *called.target.take()?,
        accu_var: RESULT.to_owned(),
        accu_init: begin,
        loop_cond,
        loop_step,
        result,
    })))
}

fn map_of(entry: Option<(IdedExpr, IdedExpr)>) -> IdedExpr {
    let entry = entry.map(|(key, value)| IdedEntryExpr {
        id: 0,
        expr: EntryExpr::MapEntry(MapEntryExpr { key, value, optional: false }),
    });
    ided(Expr::Map(MapExpr { entries: entry.into_iter().collect() }))
}

/// Rewrites parts that the evaluator lacks to parts that it has: fields of optional values,
/// `optMap` and `optFlatMap`, comprehensions with two variables.
fn rewrite(expression: &mut IdedExpr) {
    each_part(expression, rewrite);
    match &mut expression.expr {
        Expr::Call(call) => {
            if call.func_name == operators::OPT_SELECT {
                operators::OPT_INDEX.clone_into(&mut call.func_name);
            } else if let Some(mapped) = optional_map(call) {
                expression.expr = mapped;
            }
        }
        Expr::Select(select) if is_optional(&select.operand) => {
            let field = literal(LiteralValue::String(select.field.as_str().into()));
            let select_optional =
                call(operators::OPT_INDEX, None, vec![std::mem::take(&mut *select.operand), field]);
            expression.expr = if select.test {
                call("hasValue", Some(ided(select_optional)), vec![])
            } else {
                select_optional
            };
        }
        Expr::Comprehension(comprehension) => {
            if let Some(second) = comprehension.iter_var2.take() {
                of_pairs(comprehension, second);
            }
        }
        _ => {}
    }
}

/// Makes a comprehension with two variables one over the pairs of its range.
fn of_pairs(comprehension: &mut ComprehensionExpr, second: String) {
    let pair = |part: i64| {
        let pair = ided(Expr::Ident(PAIR.to_owned()));
        ided(call(operators::INDEX, None, vec![pair, literal(LiteralValue::Int(part.into()))]))
    };
    let range = std::mem::take(&mut comprehension.iter_range);
    comprehension.iter_range = ided(call(PAIRS, None, vec![range]));
    let first = std::mem::replace(&mut comprehension.iter_var, PAIR.to_owned());
    let step = std::mem::take(&mut comprehension.loop_step);
    comprehension.loop_step = bound(first, pair(0), bound(second, pair(1), step));
}

/// Returns an expression with a name bound to a value: a comprehension over nothing.
fn bound(name: String, value: IdedExpr, expression: IdedExpr) -> IdedExpr {
    ided(Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: ided(Expr::List(ListExpr::default())),
        iter_var: "#unused".to_owned(),
        iter_var2: None,
        accu_var: name.clone(),
        accu_init: value,
        loop_cond: literal(LiteralValue::Boolean(CelBool::from(false))),
        loop_step: ided(Expr::Ident(name)),
        result: expression,
    })))
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
    let bound = bound(name, ided(call("value", Some(*target.clone()), vec![])), value);
    let optional = Some(ided(Expr::Ident("optional".to_owned())));
    let some = if flat { bound } else { ided(call("of", optional.clone(), vec![bound])) };
    let there = ided(call("hasValue", Some(*target), vec![]));
    Some(call(
        operators::CONDITIONAL,
        None,
        vec![there, some, ided(call("none", optional, vec![]))],
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
