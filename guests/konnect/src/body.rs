//! The body of a request: the fields of an object as the API wants them.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use serde_json::{Map, Value, json};

use crate::{
    kind::{Api, Entity, Field, How, Marks, Special, Update},
    tag,
};

/// The values that a body takes from other objects.
#[derive(Debug, Default)]
pub struct Resolved {
    /// The IDs of referenced entities by `Reference::id`: texts, or lists of them.
    pub ids: Map<String, Value>,
    /// Fields of the body that come from Secrets.
    pub values: BTreeMap<String, String>,
    /// What keeps the entity from being sent: the first key that a Secret lacks.
    pub lacking: Option<String>,
    /// The `KongPlugin` of a binding, with the configuration of `plugin::configured`.
    pub plugin: Option<Value>,
    /// The groups of a consumer that have no entity, each with the reason.
    pub missing_groups: Vec<String>,
}

/// Returns the body with which the entity of an object is created, or replaced by a PUT.
pub fn body(entity: &Entity, api: &Api, object: &Value, resolved: &Resolved) -> Value {
    let mut body = Map::new();
    for (field, value) in api.constants {
        body.insert((*field).to_owned(), parse(value));
    }
    let plugin = resolved.plugin.as_ref().filter(|_| api.special.contains(&Special::Plugin));
    if let (Some(plugin), Some(row)) = (plugin, crate::kind::find("KongPlugin")) {
        add(&mut body, row.root, plugin, resolved);
    }
    add(&mut body, entity.root, object, resolved);
    if let Some(spec) = object.get("spec") {
        add(&mut body, entity.spec, spec, resolved);
    }
    let values = resolved.values.iter();
    body.extend(values.map(|(field, value)| (field.clone(), value.as_str().into())));
    match api.marks {
        Marks::Tags => {
            let more = plugin.map(tag::annotated).unwrap_or_default();
            body.insert("tags".to_owned(), tag::tags(entity, object, &more).into());
        }
        Marks::Labels => {
            body.insert("labels".to_owned(), tag::labels(entity, object).into());
        }
        Marks::None => {}
    }
    Value::Object(body)
}

/// Returns the part of a body that updates an entity.
pub fn for_update(api: &Api, body: &Value) -> Value {
    match (api.update, body) {
        (Update::Patch(fields), Value::Object(body)) => {
            let fields = fields.iter().filter_map(|field| Some((*field, body.get(*field)?)));
            fields.map(|(field, value)| (field.to_owned(), value.clone())).collect()
        }
        _ => body.clone(),
    }
}

/// Returns whether the API refuses a second entity with this body.
pub fn is_unique(api: &Api, body: &Value) -> bool {
    api.unique.iter().any(|field| body.get(*field).is_some_and(|value| !is_empty(value)))
}

/// Returns a number that changes with a body, as 16 hexadecimal digits.
pub fn hash(body: &Value) -> String {
    let mut hasher = DefaultHasher::new();
    body.to_string().hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

fn add(body: &mut Map<String, Value>, fields: &[Field], object: &Value, resolved: &Resolved) {
    for field in fields {
        add_field(body, field, object.get(field.name), resolved);
    }
}

fn add_field(
    body: &mut Map<String, Value>,
    field: &Field,
    value: Option<&Value>,
    resolved: &Resolved,
) {
    let value = value.filter(|value| !value.is_null());
    let sent = match field.how {
        How::Unsent => None,
        How::Plain => value.cloned(),
        How::OmitEmpty => value.filter(|value| !is_empty(value)).cloned(),
        How::Or(other) => Some(value.cloned().unwrap_or_else(|| parse(other))),
        How::NonEmptyOr(other) => {
            Some(value.filter(|value| !is_empty(value)).cloned().unwrap_or_else(|| parse(other)))
        }
        How::Not => Some((value != Some(&Value::Bool(true))).into()),
        How::Spread => {
            body.extend(value.and_then(Value::as_object).cloned().unwrap_or_default());
            None
        }
        How::Ids(ids) => {
            body.extend(ids.iter().filter_map(|(field, id)| {
                value?;
                let id = resolved.ids.get(*id).filter(|id| !is_empty(id))?;
                Some(((*field).to_owned(), json!({"id": id})))
            }));
            None
        }
        How::IdList(ids) => {
            value.and_then(|_| resolved.ids.get(ids)).filter(|ids| !is_empty(ids)).cloned()
        }
        How::IdWithin(key, id) => {
            let id = value.and_then(|_| resolved.ids.get(id));
            id.map(|id| within(body.get(field.to), key, id))
        }
    };
    if let Some(sent) = sent {
        body.insert(field.to.to_owned(), sent);
    }
}

/// Returns an object with one more field.
fn within(object: Option<&Value>, key: &str, value: &Value) -> Value {
    let mut object = object.and_then(Value::as_object).cloned().unwrap_or_default();
    object.insert(key.to_owned(), value.clone());
    Value::Object(object)
}

/// Returns whether a value says nothing: false, zero, or empty.
pub(crate) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(is_true) => !is_true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// Parses a JSON text of the table, all of which a test parses.
pub(crate) fn parse(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_default()
}

/// Returns the path of an entity's collection for an object, or the ID that is missing.
///
/// `id` returns an ID by its field; in a path, one is used only if it is a single segment.
pub fn collection<'a>(path: &str, id: impl Fn(&str) -> Option<&'a str>) -> Result<String, String> {
    let mut filled = String::new();
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('{') {
        let (field, after) = after.split_once('}').unwrap_or((after, ""));
        let id = id(field).filter(|id| is_segment(id)).ok_or_else(|| field.to_owned())?;
        filled.push_str(before);
        filled.push_str(id);
        rest = after;
    }
    Ok(filled + rest)
}

/// Returns whether an ID can stand in a path as it is. IDs come from statuses, which whoever may
/// write them fills, and from answers.
pub fn is_segment(id: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !id.is_empty() && id.len() <= 256 && id.bytes().all(is_plain)
}

#[cfg(test)]
mod tests;
