//! Validation of values against their types, with the messages of Kubernetes.

use std::fmt;

use serde_json::Value;

use super::item_element;
use crate::{
    fields::Element,
    go::{Plain, Syntax, type_name},
    schema::{List, Map, Relation, Scalar, Shape, Type},
};

/// The type errors of a value, each with its path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) struct TypeErrors(Vec<String>);

impl fmt::Display for TypeErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [one] => f.write_str(one),
            many => {
                f.write_str("errors:")?;
                many.iter().try_for_each(|each| write!(f, "\n  {each}"))
            }
        }
    }
}

/// Fails if `value` is not of this type: no undeclared fields, no wrong types, items with keys that
/// identify them.
///
/// With `duplicates`, items may have the same key: a stored object may be older than the rule.
pub(crate) fn validate(value: &Value, type_: &Type, duplicates: bool) -> Result<(), TypeErrors> {
    let mut walker = Walker { path: Vec::new(), duplicates, errors: Vec::new() };
    walker.visit(value, type_);
    if walker.errors.is_empty() { Ok(()) } else { Err(TypeErrors(walker.errors)) }
}

/// A step of the path to the visited value; converted to text only for an error.
enum Step<'a> {
    Key(&'a str),
    Index(usize),
    Element(Element),
}

struct Walker<'a> {
    path: Vec<Step<'a>>,
    duplicates: bool,
    errors: Vec<String>,
}

impl<'a> Walker<'a> {
    fn visit(&mut self, value: &'a Value, type_: &'a Type) {
        match (type_.shape(value), value) {
            (_, Value::Null) => {}
            (Shape::Scalar(scalar), value) => self.scalar(scalar, value),
            (Shape::List(list, atomic), Value::Array(items)) => self.list(list, atomic, items),
            (Shape::Map(map, _), Value::Object(object)) => self.map(map, object),
            (Shape::List(..), other) => {
                self.error(&format!("expected list, got &{{{}}}", Plain(other)));
            }
            (Shape::Map(..), other) => {
                self.error(&format!("expected map, got &{{{}}}", Plain(other)));
            }
        }
    }

    fn scalar(&mut self, scalar: Scalar, value: &Value) {
        match (scalar, value) {
            (Scalar::Numeric, Value::Number(_))
            | (Scalar::String, Value::String(_))
            | (Scalar::Boolean, Value::Bool(_))
            | (Scalar::Untyped, Value::Number(_) | Value::String(_) | Value::Bool(_)) => {}
            (Scalar::Numeric, other) => {
                self.error(&format!("expected numeric (int or float), got {}", type_name(other)));
            }
            (Scalar::String, other) => self.error(&format!(
                "expected string, got &value.valueUnstructured{{Value:{}}}",
                Syntax(other)
            )),
            (Scalar::Boolean, other) => {
                self.error(&format!("expected boolean, got &{{{}}}", Plain(other)));
            }
            (Scalar::Untyped, other) => {
                self.error(&format!("expected any scalar, got &{{{}}}", Plain(other)));
            }
        }
    }

    fn list(&mut self, list: &'a List, atomic: bool, items: &'a [Value]) {
        let associative = !atomic && list.relation != Relation::Atomic;
        let mut seen = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let step = if associative {
                match item_element(list, item) {
                    Ok(element) => {
                        if !self.duplicates && seen.contains(&element) {
                            self.error(&format!("duplicate entries for key {element}"));
                        }
                        seen.push(element.clone());
                        Step::Element(element)
                    }
                    // Without an element for the item there is no path for the values below.
                    Err(why) => return self.error(&format!("element {index}: {why}")),
                }
            } else {
                Step::Index(index)
            };
            self.path.push(step);
            self.visit(item, &list.items);
            self.path.pop();
        }
    }

    fn map(&mut self, map: &'a Map, object: &'a serde_json::Map<String, Value>) {
        for (key, value) in object {
            self.path.push(Step::Key(key));
            let type_ = map.type_of(key);
            match type_ {
                Some(type_) => self.visit(value, type_),
                None => self.error("field not declared in schema"),
            }
            self.path.pop();
            if type_.is_none() {
                return;
            }
        }
    }

    fn error(&mut self, message: &str) {
        let path: String = self.path.iter().map(Step::text).collect();
        let separator = if path.is_empty() { "" } else { ": " };
        self.errors.push(format!("{path}{separator}{message}"));
    }
}

impl Step<'_> {
    fn text(&self) -> String {
        match self {
            Self::Key(key) => format!(".{key}"),
            Self::Index(index) => format!("[{index}]"),
            Self::Element(element) => element.to_string(),
        }
    }
}
