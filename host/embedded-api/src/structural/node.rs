//! The tree of a schema, read from its JSON.

use serde_json::{Map, Value};

use super::{Additional, Has, Junctors, List, Node, Type, limit::Limits, rule::Rule};

impl Node {
    /// Compiles one place of a schema with everything below; a schema that is no object counts as
    /// empty.
    pub(super) fn compile(schema: &Value) -> Self {
        let Some(schema) = schema.as_object() else { return Self::default() };
        let mut node = Self {
            kind: text(schema, "type").and_then(Type::parse),
            nullable: flag(schema, "nullable"),
            int_or_string: flag(schema, "x-kubernetes-int-or-string"),
            preserve_unknown: flag(schema, "x-kubernetes-preserve-unknown-fields"),
            embedded: flag(schema, "x-kubernetes-embedded-resource"),
            list: list(schema),
            atomic_map: text(schema, "x-kubernetes-map-type") == Some("atomic"),
            default: schema.get("default").filter(|default| !default.is_null()).cloned(),
            properties: properties(schema),
            additional: additional(schema),
            items: schema.get("items").map(|items| Box::new(Self::compile(items))),
            limits: Limits::compile(schema),
            junctors: junctors(schema),
            rules: rules(schema),
            has: Has::default(),
        };
        node.has = node.find();
        node
    }

    /// Returns the schema of the values of a map, if any.
    pub(super) fn values(&self) -> Option<&Node> {
        match &self.additional {
            Additional::Values(values) => Some(values),
            Additional::Unsaid | Additional::Allowed(_) => None,
        }
    }

    /// Returns the schema of a field, by name or as a value of a map.
    pub(super) fn field(&self, name: &str) -> Option<&Node> {
        self.properties.get(name).or_else(|| self.values())
    }

    /// Returns the name of the type as schemas write it; empty if there is none.
    pub(super) fn type_name(&self) -> &'static str {
        self.kind.map_or("", Type::name)
    }

    fn find(&self) -> Has {
        let mut has = Has {
            defaults: self.default.is_some(),
            embedded: self.embedded,
            unique_lists: matches!(self.list, List::Set | List::Map(_)),
            rules: !self.rules.is_empty(),
        };
        for child in self.properties.values().chain(self.values()).chain(self.items.as_deref()) {
            has.defaults |= child.has.defaults;
            has.embedded |= child.has.embedded;
            has.unique_lists |= child.has.unique_lists;
            has.rules |= child.has.rules;
        }
        has
    }
}

fn text<'a>(schema: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    schema.get(key).and_then(Value::as_str)
}

fn flag(schema: &Map<String, Value>, key: &str) -> bool {
    schema.get(key).and_then(Value::as_bool).unwrap_or(false)
}

fn list(schema: &Map<String, Value>) -> List {
    match text(schema, "x-kubernetes-list-type") {
        Some("atomic") => List::Atomic,
        Some("set") => List::Set,
        Some("map") => {
            let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
            List::Map(
                keys.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect(),
            )
        }
        _ => List::Unsaid,
    }
}

fn rules(schema: &Map<String, Value>) -> Vec<Rule> {
    let rules = schema.get("x-kubernetes-validations").and_then(Value::as_array);
    rules.into_iter().flatten().filter_map(Rule::compile).collect()
}

fn properties(schema: &Map<String, Value>) -> std::collections::BTreeMap<String, Node> {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties
        .into_iter()
        .flatten()
        .map(|(name, schema)| (name.clone(), Node::compile(schema)))
        .collect()
}

fn additional(schema: &Map<String, Value>) -> Additional {
    match schema.get("additionalProperties") {
        None | Some(Value::Null) => Additional::Unsaid,
        Some(Value::Bool(allowed)) => Additional::Allowed(*allowed),
        Some(values) => Additional::Values(Box::new(Node::compile(values))),
    }
}

fn junctors(schema: &Map<String, Value>) -> Option<Box<Junctors>> {
    let several = |key: &str| -> Vec<Node> {
        schema.get(key).and_then(Value::as_array).into_iter().flatten().map(Node::compile).collect()
    };
    let junctors = Junctors {
        all_of: several("allOf"),
        any_of: several("anyOf"),
        one_of: several("oneOf"),
        not: schema.get("not").map(Node::compile),
    };
    let empty = junctors.all_of.is_empty()
        && junctors.any_of.is_empty()
        && junctors.one_of.is_empty()
        && junctors.not.is_none();
    (!empty).then(|| Box::new(junctors))
}
