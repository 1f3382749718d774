//! Evaluation of the rules of a schema, for every value that has rules.

use std::sync::Arc;

use kube_cel::cel::{Context, objects::OptionalValue};
use serde_json::Value;

use super::{
    List, Node, convert, limit,
    rule::{self, Rule, Verdict},
};
use crate::field_error::{FieldError, FieldPath};

/// A value, with the old value at the same place.
#[derive(Clone, Copy)]
struct Place<'a> {
    value: &'a Value,
    /// The value of `oldSelf`, if any.
    old: Option<&'a Value>,
    /// The old value by which an error counts as old, if any: more places have such a value than
    /// have an `oldSelf`.
    before: Option<&'a Value>,
    parent: Option<&'a Place<'a>>,
    /// True for the object itself and for embedded resources.
    resource: bool,
}

/// The errors that rules found.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) errors: Vec<FieldError>,
    /// Errors of unchanged values, which may stay.
    pub(super) doubts: Vec<FieldError>,
}

/// Evaluates the rules for an object.
pub(super) fn validate(root: &Node, object: &Value, old: Option<&Value>) -> Findings {
    let mut found = Findings::default();
    let place = Place { value: object, old, before: old, parent: None, resource: true };
    visit(root, place, &FieldPath::root(), &mut found);
    found
}

/// Returns the errors that rules find in a default, which serves as the old value, too.
pub(super) fn validate_default(node: &Node, default: &Value) -> Vec<FieldError> {
    let mut found = Findings::default();
    let place = Place {
        value: default,
        old: Some(default),
        before: None,
        parent: None,
        resource: node.embedded,
    };
    visit(node, place, &FieldPath::root(), &mut found);
    found.errors
}

fn visit(node: &Node, place: Place<'_>, path: &FieldPath<'_>, found: &mut Findings) {
    if !node.has.rules || place.value.is_null() {
        return;
    }
    if !node.rules.is_empty() {
        evaluate(node, place, path, found);
    }
    match place.value {
        Value::Object(map) => {
            if let Some(values) = node.values() {
                for (key, value) in map {
                    visit(values, place.field(node, values, key, value), &path.key(key), found);
                }
            }
            for (name, value) in map {
                if let Some(child) = node.properties.get(name) {
                    visit(child, place.field(node, child, name, value), &path.child(name), found);
                }
            }
        }
        Value::Array(items) => {
            if let Some(child) = &node.items {
                for (index, item) in items.iter().enumerate() {
                    visit(child, place.item(node, child, item), &path.index(index), found);
                }
            }
        }
        _ => {}
    }
}

fn evaluate(node: &Node, place: Place<'_>, path: &FieldPath<'_>, found: &mut Findings) {
    let contexts = Contexts::new(node, place);
    for rule in &node.rules {
        let Some(context) = contexts.of(rule) else { continue };
        match rule.evaluate(context, &contexts.plain) {
            Verdict::Fine => {}
            Verdict::Failed(detail) => {
                found.errors.push(FieldError::invalid(path, node.type_name(), detail));
            }
            Verdict::Violated { kind, field, detail } => {
                let field = field.map_or_else(|| path.to_string(), |field| below(path, &field));
                let fault = rule::fault(kind, field, node.type_name(), detail);
                let stays = !rule.uses_old && place.is_unchanged();
                if stays { found.doubts.push(fault) } else { found.errors.push(fault) }
            }
        }
    }
}

fn below(path: &FieldPath<'_>, field: &str) -> String {
    if path.is_root() { field.to_owned() } else { format!("{path}.{field}") }
}

/// The CEL contexts of the rules of one place.
struct Contexts {
    /// The context with `oldSelf` if there is an old value.
    plain: Context<'static>,
    has_old: bool,
    /// The context with `oldSelf` as an optional value, if a rule needs it.
    optional: Option<Context<'static>>,
}

impl Contexts {
    fn new(node: &Node, place: Place<'_>) -> Self {
        let new = convert::to_cel(place.value, node, place.resource);
        let uses_old = node.rules.iter().any(|rule| rule.uses_old);
        let old = place.old.filter(|old| uses_old && !old.is_null());
        let old = old.map(|old| convert::old_to_cel(old, place.value, node, place.resource));
        let optional = node.rules.iter().any(|rule| rule.optional_old).then(|| {
            let value = old.clone().map_or_else(OptionalValue::none, OptionalValue::of);
            let mut context = rule::context(new.clone());
            context
                .add_variable_from_value("oldSelf", kube_cel::cel::Value::Opaque(Arc::new(value)));
            context
        });
        let mut plain = rule::context(new);
        let has_old = old.is_some();
        if let Some(old) = old {
            plain.add_variable_from_value("oldSelf", old);
        }
        Self { plain, has_old, optional }
    }

    /// Returns the context for a rule; `None` for a rule that uses `oldSelf` if there is no old
    /// value.
    fn of(&self, rule: &Rule) -> Option<&Context<'static>> {
        if rule.optional_old {
            return self.optional.as_ref();
        }
        (self.has_old || !rule.uses_old).then_some(&self.plain)
    }
}

// === impl Place ===

impl<'a> Place<'a> {
    fn field(&'a self, node: &Node, child: &Node, name: &str, value: &'a Value) -> Place<'a> {
        let old = self.old.filter(|_| !node.atomic_map).and_then(|old| old.get(name));
        let before = self.before.filter(|_| !node.atomic_map).and_then(|before| before.get(name));
        Place { value, old, before, parent: Some(self), resource: child.embedded }
    }

    fn item(&'a self, node: &Node, child: &Node, item: &'a Value) -> Place<'a> {
        let find = |list: Option<&'a Value>, keys: &[String]| {
            let items = list.and_then(Value::as_array)?;
            items.iter().find(|old| keys.iter().all(|key| old.get(key) == item.get(key)))
        };
        let (old, before) = match &node.list {
            List::Map(keys) => (find(self.old, keys), find(self.before, keys)),
            List::Unsaid | List::Set | List::Atomic => (None, None),
        };
        Place { value: item, old, before, parent: Some(self), resource: child.embedded }
    }

    /// Returns whether the value is unchanged or, if the value cannot be compared, the nearest one
    /// around it that can be.
    fn is_unchanged(&self) -> bool {
        match self.before {
            Some(before) => limit::equal(before, self.value),
            None => self.parent.is_some_and(Place::is_unchanged),
        }
    }
}
