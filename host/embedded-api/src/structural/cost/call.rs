//! The costs of calls, without those of their arguments.

use kube_cel::cel::common::ast::{CallExpr, Expr, operators};

use super::{Estimate, Flavor, scaled};

/// The cost for each character that is read.
const CHARACTER_COST: f64 = 0.1;
/// The cost for each character of a regular expression.
const PATTERN_CHARACTER_COST: f64 = 0.25;

/// Returns whether an apparent method is a function with a dot in its name.
pub(super) fn is_namespace(call: &CallExpr) -> bool {
    let name = match call.target.as_deref().map(|target| &target.expr) {
        Some(Expr::Ident(name)) => name.as_str(),
        _ => return false,
    };
    matches!(
        (name, call.func_name.as_str()),
        ("sets" | "optional" | "format" | "strings" | "base64" | "lists", _)
            | ("ip", "isCanonical")
    )
}

/// Returns the estimate of a call with its target and arguments.
pub(super) fn estimate<'a>(
    name: &str,
    target: Option<&Estimate<'a>>,
    arguments: &[Estimate<'a>],
) -> Estimate<'a> {
    if let Some(target) = target {
        return method(name, target, arguments);
    }
    match (name, arguments) {
        (operators::EQUALS | operators::NOT_EQUALS, [left, right]) => compared(left, right),
        (
            operators::LESS
            | operators::LESS_EQUALS
            | operators::GREATER
            | operators::GREATER_EQUALS,
            [left, right],
        ) => {
            if left.flavor == Flavor::Text && right.flavor == Flavor::Text {
                compared(left, right)
            } else {
                plain(1)
            }
        }
        (operators::IN, [_, list]) => {
            plain(if list.flavor == Flavor::List { list.size() } else { 1 })
        }
        (operators::ADD, [left, right]) => added(left, right),
        (operators::INDEX, [of, _]) => Estimate { cost: 1, ..of.value() },
        ("matches", [text, pattern]) => plain(matched(text, pattern)),
        ("url", [text]) => {
            Estimate::made(scaled(text.size(), CHARACTER_COST), Flavor::Unknown, None)
        }
        ("contains" | "intersects", [one, other]) => {
            plain(1_u64.saturating_add(one.size().saturating_mul(other.size())))
        }
        ("equivalent", [one, other]) => {
            plain(1_u64.saturating_add(one.size().saturating_mul(other.size()).saturating_mul(2)))
        }
        ("string", [_]) => Estimate::made(1, Flavor::Text, None),
        ("bytes", [text]) => Estimate::made(
            scaled(text.size(), CHARACTER_COST),
            Flavor::Text,
            Some(text.size().saturating_mul(4)),
        ),
        _ => other(name),
    }
}

fn method<'a>(name: &str, target: &Estimate<'a>, arguments: &[Estimate<'a>]) -> Estimate<'a> {
    let once = scaled(target.size(), CHARACTER_COST);
    match (name, arguments) {
        ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", _) => {
            if target.flavor != Flavor::List {
                return plain(once);
            }
            let item = target.item();
            let each = if item.flavor == Flavor::Text {
                1_u64.saturating_add(scaled(item.size(), CHARACTER_COST))
            } else {
                1
            };
            Estimate { cost: target.size().saturating_mul(each), ..item }
        }
        ("lowerAscii" | "upperAscii" | "substring" | "trim", _) => {
            Estimate::made(once, Flavor::Text, target.size)
        }
        ("replace", [old, new, ..]) => {
            let size = replaced(target.size(), old, new);
            Estimate::made(scaled(target.size(), 2.0 * CHARACTER_COST), Flavor::Text, Some(size))
        }
        ("split", _) => {
            Estimate::made(scaled(target.size(), 2.0 * CHARACTER_COST), Flavor::List, target.size)
        }
        ("join", separator) => {
            let between = separator
                .first()
                .map_or(0, Estimate::size)
                .saturating_mul(target.size().saturating_sub(1));
            let size = target.size().saturating_mul(target.item().size()).saturating_add(between);
            Estimate::made(scaled(size, CHARACTER_COST), Flavor::Text, Some(size))
        }
        ("matches", [pattern]) => plain(matched(target, pattern)),
        ("find", [pattern]) => Estimate::made(matched(target, pattern), Flavor::Text, target.size),
        ("findAll", [pattern, ..]) => {
            Estimate::made(matched(target, pattern), Flavor::List, target.size)
        }
        ("contains", [part]) => plain(once.saturating_mul(scaled(part.size(), CHARACTER_COST))),
        ("startsWith" | "endsWith", [part]) => plain(scaled(part.size(), CHARACTER_COST)),
        ("format", [list]) => {
            Estimate::made(once, Flavor::Text, Some(target.size().saturating_add(list.size())))
        }
        ("value" | "orValue", _) => Estimate { cost: 1, ..*target },
        _ => other(name),
    }
}

fn plain<'a>(cost: u64) -> Estimate<'a> {
    Estimate::made(cost, Flavor::Plain, None)
}

fn other<'a>(name: &str) -> Estimate<'a> {
    let opaque = matches!(
        name,
        "url"
            | "ip"
            | "cidr"
            | "quantity"
            | "semver"
            | "of"
            | "none"
            | operators::OPT_INDEX
            | operators::OPT_SELECT
    );
    let text = matches!(
        name,
        "charAt"
            | "getHost"
            | "getHostname"
            | "getPort"
            | "getScheme"
            | "getEscapedPath"
            | "quote"
            | "reverse"
    );
    let flavor = if opaque {
        Flavor::Unknown
    } else if text {
        Flavor::Text
    } else {
        Flavor::Plain
    };
    Estimate::made(1, flavor, None)
}

fn compared<'a>(left: &Estimate<'a>, right: &Estimate<'a>) -> Estimate<'a> {
    plain(scaled(left.size().min(right.size()), CHARACTER_COST))
}

fn added<'a>(left: &Estimate<'a>, right: &Estimate<'a>) -> Estimate<'a> {
    let size = left.size().saturating_add(right.size());
    match (left.flavor, right.flavor) {
        (Flavor::List, _) | (_, Flavor::List) => {
            let items = left.items.into_iter().chain(right.items).max();
            Estimate { items, ..Estimate::made(1, Flavor::List, Some(size)) }
        }
        (Flavor::Text, _) | (_, Flavor::Text) => {
            Estimate::made(scaled(size, CHARACTER_COST), Flavor::Text, Some(size))
        }
        _ => plain(1),
    }
}

fn matched(text: &Estimate<'_>, pattern: &Estimate<'_>) -> u64 {
    scaled(text.size().saturating_add(1), CHARACTER_COST)
        .saturating_mul(scaled(pattern.size(), PATTERN_CHARACTER_COST))
}

/// Returns the largest length of a text after a replacement.
fn replaced(size: u64, old: &Estimate<'_>, new: &Estimate<'_>) -> u64 {
    if old.least == 0 {
        return size.saturating_add(1).saturating_mul(new.size()).saturating_add(size);
    }
    if new.size() <= old.least { size } else { size.div_ceil(old.least).saturating_mul(new.size()) }
}
