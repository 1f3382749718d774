//! The parts of the CRD's schema that the Rust types do not express.

use schemars::Schema;
use serde_json::json;

pub(super) fn not_empty(schema: &mut Schema) {
    schema.insert("minProperties".to_owned(), json!(1));
}

/// Demands a path or headers of each bucket.
pub(super) fn buckets(schema: &mut Schema) {
    let rule = json!([{
        "rule": "has(self.path) || has(self.headers)",
        "message": "At least one of 'path' or 'headers' must be set",
    }]);
    if let Some(items) = schema.get_mut("items").and_then(|items| items.as_object_mut()) {
        items.insert("x-kubernetes-validations".to_owned(), rule);
    }
}
