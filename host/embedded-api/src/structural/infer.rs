//! Type inference for rules: a rule that could not be evaluated is refused before its CRD is
//! stored.
//!
//! The parser keeps no positions, but the parts of an expression come in the order of the text:
//! each part takes the next token that fits.

mod kind;
mod signature;
#[cfg(test)]
mod tests;
mod token;

use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, ListExpr, LiteralValue,
    MapExpr, SelectExpr, operators,
};

use self::{
    kind::{Kind, common, join},
    token::Tokens,
};
use super::{Node, convert, re2};

/// The value that a rule is about.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) node: &'a Node,
    /// True if the node is that of a whole resource.
    pub(super) resource: bool,
    /// True if `oldSelf` may be absent.
    pub(super) optional_old: bool,
}

/// The type that an expression must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Bool,
    Text,
}

/// Returns the errors of an expression, as one text; `None` if there are none. `expression` is as
/// it was parsed.
pub(super) fn fault(
    source: &str,
    expression: &IdedExpr,
    subject: Subject<'_>,
    wanted: Wanted,
) -> Option<String> {
    let mut inference = Inference {
        source,
        tokens: Tokens::read(source),
        names: names(subject),
        faults: Vec::new(),
    };
    let kind = inference.kind(expression);
    if !inference.faults.is_empty() {
        let prefix = if wanted == Wanted::Text { "messageExpression " } else { "" };
        return Some(format!("{prefix}compilation failed: {}", inference.faults.join("\n")));
    }
    match wanted {
        Wanted::Bool if kind != Kind::BOOL => {
            Some("cel expression must evaluate to a bool".to_owned())
        }
        Wanted::Text if kind != Kind::TEXT => {
            Some("messageExpression must evaluate to a string".to_owned())
        }
        _ => None,
    }
}

fn names(subject: Subject<'_>) -> Vec<(String, Kind<'_>)> {
    let of_self = Kind::of(subject.node, subject.resource).unwrap_or(Kind::Dyn);
    let old = if subject.optional_old {
        Kind::Optional(Box::new(of_self.clone()))
    } else {
        of_self.clone()
    };
    let types =
        ["int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type", "type"];
    let types = types.into_iter().map(|name| (name.to_owned(), Kind::TYPE));
    types.chain([("self".to_owned(), of_self), ("oldSelf".to_owned(), old)]).collect()
}

struct Inference<'a> {
    source: &'a str,
    tokens: Tokens<'a>,
    names: Vec<(String, Kind<'a>)>,
    faults: Vec<String>,
}

// === impl Inference ===

impl<'a> Inference<'a> {
    fn kind(&mut self, expression: &IdedExpr) -> Kind<'a> {
        match &expression.expr {
            Expr::Literal(literal) => self.literal(literal),
            Expr::Ident(name) => self.name(name),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::List(list) => self.list(list),
            Expr::Map(map) => self.map(map),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Struct(_) | Expr::Unspecified => Kind::Dyn,
        }
    }

    fn add(&mut self, position: usize, message: &str) -> Kind<'a> {
        let before = self.source.get(..position).unwrap_or_default();
        let line_number = before.matches('\n').count();
        let line = self.source.lines().nth(line_number).unwrap_or_default();
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count();
        let dots = ".".repeat(column);
        self.faults.push(format!(
            "ERROR: <input>:{}:{}: {message}\n | {line}\n | {dots}^",
            line_number + 1,
            column + 1
        ));
        Kind::Faulty
    }

    fn literal(&mut self, literal: &LiteralValue) -> Kind<'a> {
        self.tokens.take_literal();
        match literal {
            LiteralValue::Boolean(_) => Kind::BOOL,
            LiteralValue::Bytes(_) => Kind::BYTES,
            LiteralValue::Double(_) => Kind::DOUBLE,
            LiteralValue::Int(_) => Kind::INT,
            LiteralValue::Null => Kind::NULL,
            LiteralValue::String(_) => Kind::TEXT,
            LiteralValue::UInt(_) => Kind::UINT,
        }
    }

    fn name(&mut self, name: &str) -> Kind<'a> {
        let position = self.tokens.take(&[name]);
        let known =
            self.names.iter().rev().find(|(known, _)| known == name).map(|(_, kind)| kind.clone());
        known.unwrap_or_else(|| {
            self.add(position, &format!("undeclared reference to '{name}' (in container '')"))
        })
    }

    fn select(&mut self, select: &SelectExpr) -> Kind<'a> {
        let macro_position = if select.test { self.tokens.take(&["has", "("]) } else { 0 };
        let operand = self.kind(&select.operand);
        let dot = self.tokens.take_first(&[".", &select.field]);
        let position = if select.test { macro_position } else { dot };
        let field = self.field(&operand, &select.field, position);
        if select.test {
            if field == Kind::Faulty { Kind::Faulty } else { Kind::BOOL }
        } else {
            field
        }
    }

    fn field(&mut self, operand: &Kind<'a>, field: &str, position: usize) -> Kind<'a> {
        let found = match operand {
            Kind::Dyn | Kind::Faulty => return Kind::Dyn,
            Kind::Map(_, value) => return (**value).clone(),
            Kind::Optional(inner) => {
                let inner = (**inner).clone();
                return match self.field(&inner, field, position) {
                    optional @ (Kind::Optional(_) | Kind::Faulty) => optional,
                    kind => Kind::Optional(Box::new(kind)),
                };
            }
            Kind::Object(shape) => shape.field(field),
            Kind::Metadata => matches!(field, "name" | "generateName").then_some(Kind::TEXT),
            other => {
                return self
                    .add(position, &format!("type '{other}' does not support field selection"));
            }
        };
        found.unwrap_or_else(|| self.add(position, &format!("undefined field '{field}'")))
    }

    fn list(&mut self, list: &ListExpr) -> Kind<'a> {
        let kinds: Vec<Kind<'a>> = list.elements.iter().map(|element| self.kind(element)).collect();
        Kind::List(Box::new(common(kinds)))
    }

    fn map(&mut self, map: &MapExpr) -> Kind<'a> {
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for entry in &map.entries {
            if let EntryExpr::MapEntry(entry) = &entry.expr {
                keys.push(self.kind(&entry.key));
                values.push(self.kind(&entry.value));
            }
        }
        Kind::Map(Box::new(common(keys)), Box::new(common(values)))
    }

    // --- calls ---

    fn call(&mut self, call: &CallExpr) -> Kind<'a> {
        match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::CONDITIONAL, [condition, yes, no]) => self.conditional(condition, yes, no),
            (operators::OPT_SELECT, [operand, field]) => {
                let operand = self.kind(operand);
                let name = match &field.expr {
                    Expr::Literal(LiteralValue::String(name)) => name.inner().to_owned(),
                    _ => return Kind::Dyn,
                };
                let position = self.tokens.take_first(&[".?", &name]);
                match self.field(&operand, &name, position) {
                    kind @ (Kind::Optional(_) | Kind::Faulty) => kind,
                    kind => Kind::Optional(Box::new(kind)),
                }
            }
            (operator, [left, right]) if token::operator(operator).is_some() => {
                let left = self.kind(left);
                let position =
                    self.tokens.take_first(&[token::operator(operator).unwrap_or_default()]);
                let right = self.kind(right);
                self.overload(operator, None, &[left, right], position)
            }
            (operator @ (operators::LOGICAL_NOT | operators::NEGATE), [operand]) => {
                let position = self.tokens.take_first(&[if operator == operators::NEGATE {
                    "-"
                } else {
                    "!"
                }]);
                let operand = self.kind(operand);
                self.overload(operator, None, &[operand], position)
            }
            ("optMap" | "optFlatMap", [name, value]) if call.target.is_some() => {
                self.optional_map(call, name, value)
            }
            _ => self.function(call),
        }
    }

    fn conditional(&mut self, condition: &IdedExpr, yes: &IdedExpr, no: &IdedExpr) -> Kind<'a> {
        let condition = self.kind(condition);
        let position = self.tokens.take_first(&["?"]);
        let kinds = [self.kind(yes), self.kind(no)];
        let [yes, no] = kinds;
        if condition != Kind::BOOL && !condition.is_open() || join(&yes, &no).is_none() {
            return self.no_overload(operators::CONDITIONAL, None, &[condition, yes, no], position);
        }
        join(&yes, &no).unwrap_or(Kind::Dyn)
    }

    fn optional_map(&mut self, call: &CallExpr, name: &IdedExpr, value: &IdedExpr) -> Kind<'a> {
        let target = call.target.as_ref().map_or(Kind::Dyn, |target| self.kind(target));
        let position = self.tokens.take(&[".", &call.func_name, "("]);
        let inner = match target {
            Kind::Optional(inner) => *inner,
            open if open.is_open() => Kind::Dyn,
            other => return self.no_overload(&call.func_name, Some(&other), &[], position),
        };
        let Expr::Ident(name) = &name.expr else { return Kind::Dyn };
        self.tokens.take(&[name]);
        self.names.push((name.clone(), inner));
        let kind = self.kind(value);
        self.names.pop();
        match kind {
            Kind::Faulty => Kind::Faulty,
            kind if call.func_name == "optFlatMap" => kind,
            kind => Kind::Optional(Box::new(kind)),
        }
    }

    fn function(&mut self, call: &CallExpr) -> Kind<'a> {
        let qualified = match call.target.as_deref() {
            Some(IdedExpr { expr: Expr::Ident(space), .. }) => {
                Some((space, format!("{space}.{}", call.func_name)))
            }
            _ => None,
        };
        if let Some((space, name)) = qualified.filter(|(_, name)| signature::is_known(name)) {
            let position = self.tokens.take(&[space, ".", &call.func_name, "("]);
            let arguments = self.arguments(&call.args);
            return self.overload(&name, None, &arguments, position);
        }
        let target = call.target.as_ref().map(|target| self.kind(target));
        let position = self.tokens.take(&[&call.func_name, "("]);
        if !signature::is_known(&call.func_name) {
            self.add(
                position,
                &format!("undeclared reference to '{}' (in container '')", call.func_name),
            );
            self.arguments(&call.args);
            return Kind::Faulty;
        }
        let arguments = self.arguments(&call.args);
        self.check_literal(&call.func_name, &call.args);
        self.overload(&call.func_name, target.as_ref(), &arguments, position)
    }

    fn arguments(&mut self, arguments: &[IdedExpr]) -> Vec<Kind<'a>> {
        arguments.iter().map(|argument| self.kind(argument)).collect()
    }

    /// Validates literal arguments that are parsed when evaluated: patterns, timestamps, durations.
    fn check_literal(&mut self, function: &str, arguments: &[IdedExpr]) {
        let [IdedExpr { expr: Expr::Literal(LiteralValue::String(text)), .. }] = arguments else {
            return;
        };
        let text = text.inner();
        let fits = match function {
            "matches" => re2::compile(text).is_ok(),
            "timestamp" => chrono::DateTime::parse_from_rfc3339(text).is_ok(),
            "duration" => convert::duration(text).is_some(),
            _ => true,
        };
        if !fits {
            let position = self.tokens.last_literal();
            self.add(position, &format!("invalid {function} argument"));
        }
    }

    fn overload(
        &mut self,
        name: &str,
        target: Option<&Kind<'a>>,
        arguments: &[Kind<'a>],
        position: usize,
    ) -> Kind<'a> {
        if target.into_iter().chain(arguments).any(|kind| *kind == Kind::Faulty) {
            return Kind::Faulty;
        }
        match signature::resolve(name, target, arguments) {
            Some(kind) => kind,
            None => self.no_overload(name, target, arguments, position),
        }
    }

    fn no_overload(
        &mut self,
        name: &str,
        target: Option<&Kind<'a>>,
        arguments: &[Kind<'a>],
        position: usize,
    ) -> Kind<'a> {
        if target.into_iter().chain(arguments).any(|kind| *kind == Kind::Faulty) {
            return Kind::Faulty;
        }
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let target = target.map_or_else(String::new, |target| format!("{target}."));
        let message = format!(
            "found no matching overload for '{name}' applied to '{target}({})'",
            arguments.join(", ")
        );
        self.add(position, &message)
    }

    // --- macros ---

    fn comprehension(&mut self, comprehension: &ComprehensionExpr) -> Kind<'a> {
        let before = self.tokens.position();
        let range = self.kind(&comprehension.iter_range);
        let two = comprehension.iter_var2.as_ref();
        let (item, second) = match range {
            Kind::List(item) if two.is_some() => (Kind::INT, *item),
            Kind::List(item) => (*item, Kind::Dyn),
            Kind::Map(key, value) => (*key, *value),
            Kind::Dyn | Kind::Faulty => (Kind::Dyn, Kind::Dyn),
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.add(before, &message);
                (Kind::Faulty, Kind::Faulty)
            }
        };
        let position = self.tokens.take(&["(", &comprehension.iter_var]);
        let known = self.names.len();
        self.names.push((comprehension.iter_var.clone(), item.clone()));
        if let Some(two) = two {
            self.tokens.take(&[",", two]);
            self.names.push((two.clone(), second));
        }
        let kind = self.step(comprehension, item, position);
        self.names.truncate(known);
        kind
    }

    /// Returns the type of a macro from its step for each item, by recognizing the expansions of
    /// the parser.
    fn step(
        &mut self,
        comprehension: &ComprehensionExpr,
        item: Kind<'a>,
        position: usize,
    ) -> Kind<'a> {
        let Expr::Call(step) = &comprehension.loop_step.expr else { return Kind::Dyn };
        let gathers = matches!(comprehension.accu_init.expr, Expr::List(_));
        let makes_map = matches!(comprehension.accu_init.expr, Expr::Map(_));
        match (step.func_name.as_str(), step.args.as_slice()) {
            (operators::CONDITIONAL, [predicate, gathered, _]) => {
                let predicate = self.kind(predicate);
                if predicate != Kind::BOOL && !predicate.is_open() {
                    return self.no_overload(
                        operators::CONDITIONAL,
                        None,
                        &[predicate, Kind::Dyn, Kind::Dyn],
                        position,
                    );
                }
                if makes_map {
                    return self.entry(gathered, item);
                }
                if !gathers {
                    return Kind::BOOL;
                }
                let is_item = gathered_value(gathered)
                    .is_none_or(|value| value.expr == Expr::Ident(comprehension.iter_var.clone()));
                let value = if is_item {
                    item
                } else {
                    gathered_value(gathered).map_or(Kind::Dyn, |value| self.kind(value))
                };
                Kind::List(Box::new(value))
            }
            (_, [_, _]) if gathers => {
                let value = gathered_value(&comprehension.loop_step)
                    .map_or(Kind::Dyn, |value| self.kind(value));
                Kind::List(Box::new(value))
            }
            _ if makes_map => self.entry(&comprehension.loop_step, item),
            (operator, [_, predicate]) => {
                let predicate = self.kind(predicate);
                self.overload(operator, None, &[Kind::BOOL, predicate], position)
            }
            _ => Kind::Dyn,
        }
    }
    /// Returns the type of the map that a step makes; the key of a macro that has no key in the text
    /// is the first variable, of the type `item`.
    fn entry(&mut self, step: &IdedExpr, item: Kind<'a>) -> Kind<'a> {
        let Expr::Call(CallExpr { args, .. }) = &step.expr else { return Kind::Dyn };
        let [_, made] = args.as_slice() else { return Kind::Dyn };
        match &made.expr {
            Expr::Map(map) if made.id == 0 => match map.entries.as_slice() {
                [IdedEntryExpr { expr: EntryExpr::MapEntry(entry), .. }] => {
                    let value = self.kind(&entry.value);
                    Kind::Map(Box::new(item), Box::new(value))
                }
                _ => Kind::Dyn,
            },
            _ => self.kind(made),
        }
    }
}

/// Returns the value of `@result + [value]`.
fn gathered_value(step: &IdedExpr) -> Option<&IdedExpr> {
    let Expr::Call(CallExpr { args, .. }) = &step.expr else { return None };
    match args.as_slice() {
        [_, IdedExpr { expr: Expr::List(list), .. }] => list.elements.first(),
        _ => None,
    }
}
