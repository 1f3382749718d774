//! Validation of values against the schema, with the texts of the validator that the API server
//! uses.

use serde_json::Value;

use super::{
    Junctors, List, Node, Type, format,
    limit::{self, NumberFault},
    prune,
};
use crate::field_error::{FieldError, FieldPath, Kind, Shown, go_quote};

/// Returns the errors of a value; on updates, only those of values that differ from the old ones.
/// `prefix` is the field that holds the value, if it is not the whole object: the fields of errors
/// begin with it, their texts do not.
pub(super) fn validate(
    node: &Node,
    value: &Value,
    old: Option<&Value>,
    prefix: Option<&str>,
) -> Vec<FieldError> {
    let found = ratcheted(node, value, old, &FieldPath::root());
    found.faults.into_iter().map(|fault| fault.into_error(prefix)).collect()
}

/// The results of validating a value.
#[derive(Default)]
struct Found {
    faults: Vec<Fault>,
    /// The score of passed validations: if all alternatives fail, the one with the highest score is
    /// reported.
    matches: usize,
}

/// An error whose field is not yet put together.
struct Fault {
    kind: Kind,
    /// The path of the value in texts; `None` for errors that name no field of their own.
    name: Option<String>,
    shown: Shown,
    /// The text, by which errors are distinguished.
    text: String,
}

/// The validation of one value at one place of the schema.
struct Check<'a> {
    node: &'a Node,
    value: &'a Value,
    old: Option<&'a Value>,
    path: &'a FieldPath<'a>,
    found: Found,
}

// === impl Fault ===

impl Fault {
    fn into_error(self, prefix: Option<&str>) -> FieldError {
        let name = self.name.filter(|name| !name.is_empty());
        let field = match (prefix, name) {
            (Some(prefix), Some(name)) => format!("{prefix}.{name}"),
            (Some(prefix), None) => prefix.to_owned(),
            (None, Some(name)) => name,
            (None, None) => FieldPath::root().to_string(),
        };
        let detail = if self.kind == Kind::Required { String::new() } else { self.text };
        FieldError::new(self.kind, field, self.shown, detail)
    }
}

// === impl Found ===

impl Found {
    fn add(&mut self, fault: Fault) {
        if !self.faults.iter().any(|known| known.text == fault.text && known.name == fault.name) {
            self.faults.push(fault);
        }
    }

    fn merge(&mut self, other: Found) {
        other.faults.into_iter().for_each(|fault| self.add(fault));
        self.matches += other.matches;
    }

    fn is_valid(&self) -> bool {
        self.faults.is_empty()
    }
}

/// Validates a value, and drops the errors if it is equal to the old one.
fn ratcheted(node: &Node, value: &Value, old: Option<&Value>, path: &FieldPath<'_>) -> Found {
    let mut found = plain(node, value, old, path);
    if !found.is_valid() && old.is_some_and(|old| limit::equal(old, value)) {
        found.faults.clear();
    }
    found
}

fn plain(node: &Node, value: &Value, old: Option<&Value>, path: &FieldPath<'_>) -> Found {
    let mut check = Check { node, value, old, path, found: Found::default() };
    check.run();
    check.found
}

// === impl Check ===

impl Check<'_> {
    fn run(&mut self) {
        self.check_type();
        if self.value.is_null() {
            self.check_listed();
            return;
        }
        if let Some(junctors) = &self.node.junctors {
            self.check_junctors(junctors);
        }
        self.found.matches += 2;
        match self.value {
            Value::String(text) => self.check_text(text),
            Value::Number(number) => {
                self.found.matches += 2;
                for fault in self.node.limits.check_number(number) {
                    let text = self.number_text(&fault);
                    self.add(Kind::Invalid, self.value.clone(), text);
                }
            }
            _ => {}
        }
        if let Value::Array(items) = self.value {
            self.check_items(items);
        }
        self.check_listed();
        if let Value::Object(map) = self.value {
            self.check_map(map);
        }
        self.found.matches += 2;
    }

    fn name(&self) -> String {
        name_of(self.path)
    }

    fn add(&mut self, kind: Kind, shown: impl Into<Shown>, text: String) {
        let fault = Fault { kind, name: Some(self.name()), shown: shown.into(), text };
        self.found.add(fault);
    }

    fn add_plain(&mut self, text: String) {
        self.found.add(Fault { kind: Kind::Invalid, name: None, shown: "".into(), text });
    }

    // --- type ---

    fn check_type(&mut self) {
        let Some((wanted, is)) = type_fault(self.node, self.value) else {
            self.found.matches += 2;
            return;
        };
        self.found.matches += 1;
        let text = format!("{} in body must be of type {wanted}: {}", self.name(), go_quote(is));
        self.add(Kind::TypeInvalid, is, text);
    }

    // --- single values ---

    fn check_text(&mut self, text: &str) {
        let limits = &self.node.limits;
        let length = if limits.length.least.is_some() || limits.length.most.is_some() {
            text.chars().count()
        } else {
            0
        };
        if let Some(most) = limits.length.over(length) {
            let unit = if most == 1 { "byte" } else { "bytes" };
            self.add(Kind::TooLong, Shown::Omitted, format!("may not be more than {most} {unit}"));
        } else if let Some(least) = limits.length.under(length) {
            self.add(
                Kind::Invalid,
                text,
                format!("{} in body should be at least {least} chars long", self.name()),
            );
        } else if let Some(pattern) = &limits.pattern
            && !pattern.matches(text)
        {
            self.add(
                Kind::Invalid,
                text,
                format!("{} in body should match '{}'", self.name(), pattern.text),
            );
        }
        self.found.matches += 1;
        if let Some(format) = &limits.format {
            if !format::matches(format, text) {
                let fault =
                    format!("{} in body must be of type {format}: {}", self.name(), go_quote(text));
                self.add(Kind::TypeInvalid, text, fault);
            }
            self.found.matches += 2;
        }
    }

    fn number_text(&self, fault: &NumberFault) -> String {
        let name = self.name();
        match fault {
            NumberFault::NotMultiple(factor) => {
                format!("{name} in body should be a multiple of {factor}")
            }
            NumberFault::TooBig { exclusive: true, bound } => {
                format!("{name} in body should be less than {bound}")
            }
            NumberFault::TooBig { exclusive: false, bound } => {
                format!("{name} in body should be less than or equal to {bound}")
            }
            NumberFault::TooSmall { exclusive: true, bound } => {
                format!("{name} in body should be greater than {bound}")
            }
            NumberFault::TooSmall { exclusive: false, bound } => {
                format!("{name} in body should be greater than or equal to {bound}")
            }
        }
    }

    fn check_listed(&mut self) {
        if self.node.limits.is_listed(self.value) {
            return;
        }
        let listed = &self.node.limits.one_of_values;
        let texts: Vec<String> = listed
            .iter()
            .map(|value| go_quote(&value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
            .collect();
        self.add(
            Kind::NotSupported,
            self.value.clone(),
            format!("supported values: {}", texts.join(", ")),
        );
    }

    // --- lists ---

    fn check_items(&mut self, items: &[Value]) {
        if let Some(node) = &self.node.items {
            for (index, item) in items.iter().enumerate() {
                let path = self.path.index(index);
                let found = match old_item(self.node, self.old, item) {
                    Some(old) => ratcheted(node, item, Some(old), &path),
                    None => plain(node, item, None, &path),
                };
                self.found.merge(found);
            }
        }
        let limits = &self.node.limits;
        if let Some(least) = limits.items.under(items.len()) {
            self.add(
                Kind::Invalid,
                items.len(),
                format!("{} in body should have at least {least} items", self.name()),
            );
        }
        if let Some(most) = limits.items.over(items.len()) {
            self.add_too_many(items.len(), most);
        }
        if limits.unique_items && has_duplicates(items) {
            self.add(
                Kind::Invalid,
                "",
                format!("{} in body shouldn't contain duplicates", self.name()),
            );
        }
        self.found.matches += 2;
    }

    fn add_too_many(&mut self, count: usize, most: usize) {
        let unit = if most == 1 { "item" } else { "items" };
        self.add(Kind::TooMany, count, format!("must have at most {most} {unit}"));
    }

    // --- maps ---

    fn check_map(&mut self, map: &serde_json::Map<String, Value>) {
        let limits = &self.node.limits;
        if let Some(least) = limits.properties.under(map.len()) {
            self.add(
                Kind::Invalid,
                map.len(),
                format!("{} in body should have at least {least} properties", self.name()),
            );
        }
        if let Some(most) = limits.properties.over(map.len()) {
            self.add_too_many(map.len(), most);
        }
        if let super::Additional::Allowed(false) = self.node.additional {
            self.check_no_others(map);
        } else if let Some(values) = self.node.values() {
            for (name, value) in
                map.iter().filter(|(name, _)| !self.node.properties.contains_key(*name))
            {
                self.check_field(values, name, value);
            }
        }
        for (name, node) in &self.node.properties {
            if let Some(value) = map.get(name) {
                self.check_field(node, name, value);
            }
        }
        for name in self.node.limits.required.iter().filter(|name| !map.contains_key(*name)) {
            let path = self.path.child(name);
            let text = format!("{} in body is required", name_of(&path));
            self.found.add(Fault {
                kind: Kind::Required,
                name: Some(name_of(&path)),
                shown: Shown::Omitted,
                text,
            });
        }
    }

    fn check_field(&mut self, node: &Node, name: &str, value: &Value) {
        let old = self.old.and_then(|old| old.get(name));
        let found = ratcheted(node, value, old, &self.path.child(name));
        self.found.merge(found);
    }

    fn check_no_others(&mut self, map: &serde_json::Map<String, Value>) {
        for name in map.keys().filter(|name| !self.node.properties.contains_key(*name)) {
            let text = format!("{}.{name} in body is a forbidden property", self.name());
            self.add(Kind::Invalid, name.as_str(), text);
        }
    }

    // --- junctors ---

    fn check_junctors(&mut self, junctors: &Junctors) {
        let name = self.name();
        self.check_any_of(&junctors.any_of, &name);
        self.check_one_of(&junctors.one_of, &name);
        self.check_all_of(&junctors.all_of, &name);
        if let Some(not) = &junctors.not
            && self.alternative(not).is_valid()
        {
            self.add_plain(format!("\"{name}\" must not validate the schema (not)"));
        }
    }

    fn alternative(&self, node: &Node) -> Found {
        plain(node, self.value, self.old, self.path)
    }

    fn check_any_of(&mut self, nodes: &[Node], name: &str) {
        let mut best: Option<Found> = None;
        for node in nodes {
            let found = self.alternative(node);
            if found.is_valid() {
                self.found.merge(found);
                return;
            }
            if best.as_ref().is_none_or(|best| found.matches > best.matches) {
                best = Some(found);
            }
        }
        if let Some(best) = best {
            self.add_plain(format!("\"{name}\" must validate at least one schema (anyOf)"));
            self.found.merge(best);
        }
    }

    fn check_one_of(&mut self, nodes: &[Node], name: &str) {
        if nodes.is_empty() {
            return;
        }
        let (valid, invalid): (Vec<Found>, Vec<Found>) =
            nodes.iter().map(|node| self.alternative(node)).partition(Found::is_valid);
        match valid.len() {
            0 => {
                self.add_plain(format!("\"{name}\" must validate one and only one schema (oneOf). Found none valid"));
                let best = invalid.into_iter().reduce(|best, found| if found.matches > best.matches { found } else { best });
                self.found.merge(best.unwrap_or_default());
            }
            1 => valid.into_iter().for_each(|found| self.found.merge(found)),
            count => self.add_plain(format!(
                "\"{name}\" must validate one and only one schema (oneOf). Found {count} valid alternatives"
            )),
        }
    }

    fn check_all_of(&mut self, nodes: &[Node], name: &str) {
        let mut valid = 0;
        for node in nodes {
            let found = self.alternative(node);
            valid += usize::from(found.is_valid());
            self.found.merge(found);
        }
        if valid < nodes.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            self.add_plain(format!("\"{name}\" must validate all the schemas (allOf){none}"));
        }
    }
}

/// Returns the path as texts show it: empty for the object itself.
fn name_of(path: &FieldPath<'_>) -> String {
    if path.is_root() { String::new() } else { path.to_string() }
}

/// Returns the wanted and the actual type, if they do not fit.
fn type_fault<'a>(node: &'a Node, value: &Value) -> Option<(&'a str, &'static str)> {
    if node.int_or_string {
        return match value {
            Value::Null if node.nullable => None,
            Value::String(_) => None,
            Value::Number(number) if is_integer(number) => None,
            other => Some(("integer,string", json_type(other))),
        };
    }
    let kind = node.kind?;
    let fits = match (kind, value) {
        (_, Value::Null) => node.nullable,
        (Type::Object, Value::Object(_))
        | (Type::Array, Value::Array(_))
        | (Type::String, Value::String(_))
        | (Type::Number, Value::Number(_))
        | (Type::Boolean, Value::Bool(_)) => true,
        (Type::Integer, Value::Number(number)) => is_integer(number),
        _ => false,
    };
    if fits {
        return None;
    }
    match &node.limits.format {
        // A quirk of the API server: with a format, types other than string and list are reported
        // by format.
        Some(format) if matches!(value, Value::Bool(_) | Value::Number(_) | Value::Object(_)) => {
            Some((format, format_of(value)))
        }
        Some(_) if kind == Type::String && value.is_array() => None,
        _ => Some((kind.name(), json_type(value))),
    }
}

fn is_integer(number: &serde_json::Number) -> bool {
    number.is_i64() || number.as_f64().and_then(prune::integral).is_some()
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_i64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Returns the format that the API server assumes for a value.
fn format_of(value: &Value) -> &'static str {
    match value {
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        _ => "",
    }
}

/// Returns the old value of an item, if the schema tells which one that is.
fn old_item<'a>(node: &Node, old: Option<&'a Value>, item: &Value) -> Option<&'a Value> {
    let old = old?.as_array()?;
    match &node.list {
        List::Map(keys) => {
            old.iter().find(|old| keys.iter().all(|key| old.get(key) == item.get(key)))
        }
        List::Unsaid | List::Set | List::Atomic => None,
    }
}

fn has_duplicates(items: &[Value]) -> bool {
    items
        .iter()
        .enumerate()
        .any(|(index, item)| items.iter().take(index).any(|before| limit::equal(before, item)))
}
