//! Defaults of custom resources.

use serde_json::Value;

use super::Node;

/// Fills in the defaults below a value.
pub(super) fn default(value: &mut Value, node: &Node) {
    if !node.has.defaults {
        return;
    }
    match value {
        Value::Object(map) => {
            for (name, child) in &node.properties {
                let Some(default) = &child.default else { continue };
                match map.get_mut(name) {
                    Some(present) if present.is_null() && !child.nullable => {
                        *present = default.clone();
                    }
                    Some(_) => {}
                    None => {
                        map.insert(name.clone(), default.clone());
                    }
                }
            }
            for (name, value) in map {
                if let Some(child) = node.properties.get(name) {
                    self::default(value, child);
                } else if let Some(child) = node.values() {
                    item(value, child);
                }
            }
        }
        Value::Array(items) => {
            if let Some(child) = &node.items {
                for value in items {
                    item(value, child);
                }
            }
        }
        _ => {}
    }
}

/// Fills in defaults of an item of a list or a value of a map: there null is replaced by the
/// default, too.
fn item(value: &mut Value, node: &Node) {
    if value.is_null()
        && !node.nullable
        && let Some(default) = &node.default
    {
        *value = default.clone();
    }
    default(value, node);
}
