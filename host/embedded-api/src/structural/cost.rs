//! The largest cost of rules, from the sizes that the schema allows: rules that may cost too much
//! are refused.
//!
//! The estimate is that of the API server 1.34, of which only the upper bound counts:
//! <https://pkg.go.dev/github.com/google/cel-go/checker#Cost>.

mod call;
mod size;
#[cfg(test)]
mod tests;

use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr, operators,
};

use self::size::Declared;
use super::Node;

/// The limit for the cost of one rule, and for that of one message expression.
pub(super) const MAX_RULE_COST: u64 = 10_000_000;
/// The limit for the cost of all rules of a schema together.
pub(super) const MAX_SCHEMA_COST: u64 = 100_000_000;

/// Returns how many values of a node fit into a request: their largest number if a list or map
/// around them is unbounded.
pub(super) fn cardinality(node: &Node, resource: bool) -> u64 {
    size::MAX_REQUEST_BYTES / (Declared::Node { node, resource }.least_size() + 1)
}

/// Returns by how much a node multiplies the number of values below it; `None` if unbounded.
pub(super) fn factor(node: &Node) -> Option<u64> {
    match node.kind {
        Some(super::Type::Array) => node.limits.items.most.map(|most| most as u64),
        Some(super::Type::Object) if node.values().is_some() => {
            node.limits.properties.most.map(|most| most as u64)
        }
        _ => Some(1),
    }
}

/// Returns the largest cost of evaluating an expression once; `expression` is as it was parsed.
pub(super) fn estimate(expression: &IdedExpr, node: &Node, resource: bool) -> u64 {
    let of_self = Declared::Node { node, resource };
    let names =
        ["self", "oldSelf"].map(|name| (name.to_owned(), Estimate::declared(of_self))).into();
    Estimation { names }.of(expression).cost
}

/// Returns the message for a cost that exceeds its limit, with the factor.
pub(super) fn excess(what: &str, cost: u64, limit: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "only the magnitude is shown")]
    let times = cost as f64 / limit as f64;
    let factor = if times > 100.0 {
        "more than 100x".to_owned()
    } else if times < 1.5 {
        format!("{times:.6}x")
    } else {
        format!("{times:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, \
         maps, and strings are declared)"
    )
}

/// The estimated cost and size of an expression.
#[derive(Debug, Clone, Copy)]
struct Estimate<'a> {
    /// The largest cost of evaluating the expression.
    cost: u64,
    /// The largest size of the value: characters, items, entries, 1 for plain values. `None` if
    /// unknown.
    size: Option<u64>,
    /// The smallest size of the value; known for literals only.
    least: u64,
    flavor: Flavor,
    /// The place in the schema that declares the value, if any.
    declared: Option<Declared<'a>>,
    /// The largest size of the items of a list that the expression makes.
    items: Option<u64>,
}

/// The part of a type that costs depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flavor {
    /// Numbers, booleans, times.
    Plain,
    Text,
    List,
    /// Objects and maps, whose fields can be selected.
    Fields,
    Unknown,
}

struct Estimation<'a> {
    names: Vec<(String, Estimate<'a>)>,
}

// === impl Estimate ===

impl<'a> Estimate<'a> {
    fn declared(declared: Declared<'a>) -> Self {
        let size = Some(declared.most_elements());
        Self {
            cost: 1,
            size,
            least: 0,
            flavor: declared.flavor(),
            declared: Some(declared),
            items: None,
        }
    }

    fn made(cost: u64, flavor: Flavor, size: Option<u64>) -> Self {
        let size = if flavor == Flavor::Plain { Some(1) } else { size };
        Self { cost, size, least: 0, flavor, declared: None, items: None }
    }

    fn size(&self) -> u64 {
        self.size.unwrap_or(u64::MAX)
    }

    fn plus(self, cost: u64) -> Self {
        Self { cost: self.cost.saturating_add(cost), ..self }
    }

    /// Returns the estimate of an item of the list, or of a key of the map.
    fn item(&self) -> Estimate<'a> {
        match self.declared.map(Declared::iterated) {
            Some(Some(item)) => Self::declared(item),
            _ => Self { cost: 1, ..Self::made(1, Flavor::Unknown, self.items) },
        }
    }

    /// Returns the estimate of an item of the list, or of a value of the map.
    fn value(&self) -> Estimate<'a> {
        match self.declared.map(Declared::value) {
            Some(Some(value)) => Self::declared(value),
            _ => Self::made(0, Flavor::Unknown, self.items),
        }
    }
}

/// Returns a cost for each of `size` parts, rounded up.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturating, as the estimate is"
)]
fn scaled(size: u64, each: f64) -> u64 {
    (size as f64 * each).ceil() as u64
}

// === impl Estimation ===

impl<'a> Estimation<'a> {
    fn of(&mut self, expression: &IdedExpr) -> Estimate<'a> {
        match &expression.expr {
            Expr::Literal(literal) => Self::literal(literal),
            Expr::Ident(name) => self.name(name),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::List(list) => {
                let elements: Vec<Estimate<'a>> =
                    list.elements.iter().map(|element| self.of(element)).collect();
                let cost =
                    elements.iter().fold(10, |sum: u64, element| sum.saturating_add(element.cost));
                let items = elements.iter().map(Estimate::size).max().unwrap_or(0);
                Estimate {
                    items: Some(items),
                    ..Estimate::made(cost, Flavor::List, Some(elements.len() as u64))
                }
            }
            Expr::Map(map) => {
                let mut cost: u64 = 30;
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        cost = cost
                            .saturating_add(self.of(&entry.key).cost)
                            .saturating_add(self.of(&entry.value).cost);
                    }
                }
                Estimate::made(cost, Flavor::Fields, Some(map.entries.len() as u64))
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Struct(_) | Expr::Unspecified => Estimate::made(40, Flavor::Unknown, None),
        }
    }

    fn literal(literal: &LiteralValue) -> Estimate<'a> {
        let (flavor, size) = match literal {
            LiteralValue::String(text) => (Flavor::Text, text.inner().len() as u64),
            LiteralValue::Bytes(bytes) => (Flavor::Text, bytes.inner().len() as u64),
            _ => (Flavor::Plain, 1),
        };
        Estimate { least: size, ..Estimate::made(0, flavor, Some(size)) }
    }

    fn name(&mut self, name: &str) -> Estimate<'a> {
        let known =
            self.names.iter().rev().find(|(known, _)| known == name).map(|(_, estimate)| *estimate);
        known
            .map_or(Estimate::made(1, Flavor::Unknown, None), |known| Estimate { cost: 1, ..known })
    }

    fn select(&mut self, select: &SelectExpr) -> Estimate<'a> {
        let operand = self.of(&select.operand);
        if select.test {
            return Estimate::made(operand.cost, Flavor::Plain, None);
        }
        let own = u64::from(operand.flavor == Flavor::Fields);
        let field = operand.declared.and_then(|declared| declared.field(&select.field));
        let field = field.map_or(Estimate::made(0, Flavor::Unknown, None), Estimate::declared);
        Estimate { cost: operand.cost.saturating_add(own), ..field }
    }

    fn call(&mut self, call: &CallExpr) -> Estimate<'a> {
        let target = call
            .target
            .as_ref()
            .filter(|_| !call::is_namespace(call))
            .map(|target| self.of(target));
        if matches!(call.func_name.as_str(), "optMap" | "optFlatMap") {
            return self.optional_map(call, target);
        }
        let arguments: Vec<Estimate<'a>> =
            call.args.iter().map(|argument| self.of(argument)).collect();
        let parts =
            arguments.iter().chain(&target).fold(0, |sum: u64, part| sum.saturating_add(part.cost));
        match (call.func_name.as_str(), arguments.as_slice()) {
            (operators::LOGICAL_AND | operators::LOGICAL_OR, _) => {
                Estimate::made(parts, Flavor::Plain, None)
            }
            (operators::CONDITIONAL, [condition, yes, no]) => {
                let cost = condition.cost.saturating_add(yes.cost.max(no.cost));
                let size = Some(yes.size().max(no.size()));
                Estimate {
                    items: yes.items.max(no.items),
                    ..Estimate::made(cost, yes.flavor, size)
                }
            }
            ("dyn", [argument]) => argument.plus(1),
            _ => call::estimate(&call.func_name, target.as_ref(), &arguments).plus(parts),
        }
    }

    fn optional_map(&mut self, call: &CallExpr, target: Option<Estimate<'a>>) -> Estimate<'a> {
        let target = target.unwrap_or(Estimate::made(0, Flavor::Unknown, None));
        let [IdedExpr { expr: Expr::Ident(name), .. }, value] = call.args.as_slice() else {
            return target;
        };
        self.names.push((name.clone(), target));
        let value = self.of(value);
        self.names.pop();
        // Kubernetes expands this to `target.hasValue() ? optional.of(value) : …`, where the name
        // is bound to `target.value()` by a loop over an empty list.
        let around = target.cost.saturating_mul(2).saturating_add(13);
        value.plus(around)
    }

    fn comprehension(&mut self, comprehension: &ComprehensionExpr) -> Estimate<'a> {
        let range = self.of(&comprehension.iter_range);
        let begin = self.of(&comprehension.accu_init);
        self.names.push((comprehension.accu_var.clone(), Estimate { declared: None, ..begin }));
        self.names.push((comprehension.iter_var.clone(), range.item()));
        let condition = self.of(&comprehension.loop_cond);
        let step = self.of(&comprehension.loop_step);
        self.names.pop();
        let result = self.of(&comprehension.result);
        self.names.pop();
        let round = condition.cost.saturating_add(step.cost);
        let rounds = range.size().saturating_mul(round);
        let cost =
            [range.cost, begin.cost, result.cost, rounds].into_iter().fold(0, u64::saturating_add);
        if begin.flavor == Flavor::List {
            return Estimate {
                items: step.items,
                ..Estimate::made(cost, Flavor::List, range.size)
            };
        }
        Estimate::made(cost, Flavor::Plain, None)
    }
}
