//! `FieldsV1`, the JSON form of a set.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Element, Node, Set};
use crate::field_error::go_json;

/// The error of a `FieldsV1` that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidFields {
    /// A level is no object.
    #[error("a set of fields is an object")]
    NotAnObject,

    /// A key is not a letter, a colon and a value of the kind that the letter requires.
    #[error("`{0}` names no field, key, value or index")]
    Element(String),
}

pub(super) fn read(fields: &Value) -> Result<Set, InvalidFields> {
    let level = fields.as_object().ok_or(InvalidFields::NotAnObject)?;
    let mut nodes = Vec::with_capacity(level.len());
    for (key, below) in level.iter().filter(|(key, _)| *key != ".") {
        let Some(element) = read_element(key)? else { continue };
        let below_level = below.as_object().ok_or(InvalidFields::NotAnObject)?;
        let member = below_level.is_empty() || below_level.contains_key(".");
        nodes.push(Node::new(element, member, read(below)?));
    }
    Ok(Set::from_nodes(nodes))
}

/// Parses an element; `None` for letters of a later Kubernetes, which are ignored.
fn read_element(key: &str) -> Result<Option<Element>, InvalidFields> {
    let invalid = || InvalidFields::Element(key.to_owned());
    let (letter, rest) = key.split_once(':').ok_or_else(invalid)?;
    let element = match letter {
        "f" => Element::field(rest),
        "v" => Element::value(serde_json::from_str(rest).map_err(|_| invalid())?),
        "k" => {
            let keys: Map<String, Value> = serde_json::from_str(rest).map_err(|_| invalid())?;
            Element::key(keys.into_iter().collect())
        }
        "i" => Element::Index(rest.parse().map_err(|_| invalid())?),
        _ => return Ok(None),
    };
    Ok(Some(element))
}

pub(super) fn write(set: &Set) -> Map<String, Value> {
    set.nodes().iter().map(|node| (write_element(node.element()), write_node(node))).collect()
}

fn write_node(node: &Node) -> Value {
    let mut level = write(node.children());
    if node.is_member() && !level.is_empty() {
        level.insert(".".to_owned(), Value::Object(Map::new()));
    }
    Value::Object(level)
}

fn write_element(element: &Element) -> String {
    match element {
        Element::Field(name) => ["f:", name].concat(),
        Element::Value(value) => format!("v:{}", go_json(value)),
        Element::Index(index) => format!("i:{index}"),
        Element::Key(keys) => {
            let each: Vec<String> = Arc::as_ref(keys)
                .iter()
                .map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), go_json(value)))
                .collect();
            format!("k:{{{}}}", each.join(","))
        }
    }
}
