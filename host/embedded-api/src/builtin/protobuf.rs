//! Decoding of objects of built-in kinds from protobuf, which typed clients send
//! (`kubectl create namespace`, Go operators). Answers are always JSON.
//!
//! `protobuf-1.34.json` lists the fields of each definition by number: the name at position
//! `n - 1`, or a list instead of a name for a message whose fields belong to the enclosing object.
//! The types are those of [`definition`].

#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::LazyLock};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::definition::{self, Object, Shape};

/// The bytes that every such body begins with.
const MAGIC: &[u8] = b"k8s\0";
const DELETE_OPTIONS: &str = "apimachinery.pkg.apis.meta.v1.DeleteOptions";

static NUMBERS: LazyLock<HashMap<String, Vec<Slot>>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../protobuf-1.34.json"))
        .expect("the file lists names by definition")
});

/// The meaning of a field number.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Slot {
    Name(String),
    Inlined(Vec<Slot>),
    Unused(()),
}

/// The error of a body that cannot be decoded.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unreadable {
    /// The body is no envelope, or ends too early.
    #[error("the body is no protobuf object of Kubernetes")]
    Malformed,
    /// The kind is not built in.
    #[error("no protobuf form of kind `{kind}` in version `{api_version}` is known")]
    UnknownKind { api_version: String, kind: String },
}

use Unreadable::Malformed;

/// A field on the wire.
#[derive(Clone, Copy)]
enum Wire<'a> {
    /// An integer, in 64 bits whatever its type.
    Number(u64),
    Fixed64([u8; 8]),
    Fixed32,
    Bytes(&'a [u8]),
}

/// Decodes a whole body: an object with `apiVersion` and `kind`.
pub(crate) fn read(body: &[u8]) -> Result<Value, Unreadable> {
    let envelope = body.strip_prefix(MAGIC).ok_or(Malformed)?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for (number, wire) in fields(envelope)? {
        match (number, wire) {
            (1, Wire::Bytes(bytes)) => {
                for (number, wire) in fields(bytes)? {
                    match number {
                        1 => api_version = text(wire)?,
                        2 => kind = text(wire)?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    // `DeleteOptions` is a kind of every group and version.
    let name = if kind == "DeleteOptions" {
        Some(DELETE_OPTIONS)
    } else {
        definition::of_kind(&api_version, &kind)
    };
    let found = name.and_then(|name| Some((name, definition::find(name)?)));
    let Some((name, object)) = found else {
        return Err(Unreadable::UnknownKind { api_version, kind });
    };
    let mut members = message(name, object, raw)?;
    members.insert("apiVersion".to_owned(), api_version.into());
    members.insert("kind".to_owned(), kind.into());
    Ok(Value::Object(members))
}

fn message(name: &str, object: &Object, bytes: &[u8]) -> Result<Map<String, Value>, Unreadable> {
    let mut members = Map::new();
    if let Some(slots) = NUMBERS.get(&format!("io.k8s.{name}")) {
        add(slots, object, bytes, &mut members)?;
    }
    Ok(members)
}

fn add(
    slots: &[Slot],
    object: &Object,
    bytes: &[u8],
    members: &mut Map<String, Value>,
) -> Result<(), Unreadable> {
    for (number, wire) in fields(bytes)? {
        let slot =
            usize::try_from(number).ok().and_then(|number| slots.get(number.checked_sub(1)?));
        match (slot, wire) {
            (Some(Slot::Inlined(slots)), Wire::Bytes(bytes)) => add(slots, object, bytes, members)?,
            (Some(Slot::Name(name)), _) => {
                let Some(field) = object.fields.get(name) else { continue };
                add_field(&field.shape, wire, name, members)?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn add_field(
    shape: &Shape,
    wire: Wire<'_>,
    name: &str,
    members: &mut Map<String, Value>,
) -> Result<(), Unreadable> {
    match shape {
        Shape::List(item) => {
            let list = members.entry(name).or_insert_with(|| json!([]));
            if let Some(list) = list.as_array_mut() {
                list.push(value(item, wire)?);
            }
        }
        Shape::Map(item) => {
            let Wire::Bytes(entry) = wire else { return Err(Malformed) };
            let (mut key, mut found) = (String::new(), item.zero());
            for (number, wire) in fields(entry)? {
                match number {
                    1 => key = text(wire)?,
                    2 => found = value(item, wire)?,
                    _ => {}
                }
            }
            let map = members.entry(name).or_insert_with(|| json!({}));
            if let Some(map) = map.as_object_mut() {
                map.insert(key, found);
            }
        }
        _ => {
            members.insert(name.to_owned(), value(shape, wire)?);
        }
    }
    Ok(())
}

fn value(shape: &Shape, wire: Wire<'_>) -> Result<Value, Unreadable> {
    Ok(match (shape, wire) {
        (Shape::Text, wire) => text(wire)?.into(),
        (Shape::Bytes, Wire::Bytes(bytes)) => STANDARD.encode(bytes).into(),
        (Shape::Integer { .. } | Shape::Number, Wire::Number(number)) => {
            number.cast_signed().into()
        }
        (Shape::Boolean, Wire::Number(number)) => (number != 0).into(),
        (Shape::Number, Wire::Fixed64(bytes)) => f64::from_le_bytes(bytes).into(),
        (Shape::Object(index), Wire::Bytes(bytes)) => object(*index, bytes)?,
        (Shape::ObjectOr(index), Wire::Bytes(bytes)) => object_or(*index, bytes)?,
        (Shape::Time { micro }, Wire::Bytes(bytes)) => time(bytes, *micro)?,
        (Shape::Quantity, Wire::Bytes(bytes)) => match field(bytes, 1)? {
            Some(wire) => text(wire)?.into(),
            None => json!("0"),
        },
        (Shape::IntOrText, Wire::Bytes(bytes)) => int_or_text(bytes)?,
        (Shape::Any, Wire::Bytes(bytes)) => match field(bytes, 1)? {
            Some(Wire::Bytes(raw)) => serde_json::from_slice(raw).map_err(|_| Malformed)?,
            _ => Value::Null,
        },
        _ => return Err(Malformed),
    })
}

fn object(index: usize, bytes: &[u8]) -> Result<Value, Unreadable> {
    let found = definition::name(index).and_then(|name| Some((name, definition::object(index)?)));
    let (name, object) = found.ok_or(Malformed)?;
    message(name, object, bytes).map(Value::Object)
}

/// Decodes a schema, a list of schemas, or whether anything is allowed.
fn object_or(index: usize, bytes: &[u8]) -> Result<Value, Unreadable> {
    let mut allowed = None;
    let mut schemas = Vec::new();
    for (number, wire) in fields(bytes)? {
        match (number, wire) {
            (1, Wire::Number(number)) => allowed = Some(number != 0),
            (1, Wire::Bytes(bytes)) => return object(index, bytes),
            (2, Wire::Bytes(bytes)) => schemas.push(object(index, bytes)?),
            _ => {}
        }
    }
    match (allowed, schemas.len()) {
        (Some(allowed), 0) => Ok(allowed.into()),
        (Some(_), _) => Ok(schemas.swap_remove(0)),
        (None, _) => Ok(schemas.into()),
    }
}

fn time(bytes: &[u8], micro: bool) -> Result<Value, Unreadable> {
    let number = |wire: Option<Wire<'_>>| match wire {
        Some(Wire::Number(number)) => Ok(number.cast_signed()),
        None => Ok(0),
        Some(_) => Err(Malformed),
    };
    let (seconds, nanos) = (number(field(bytes, 1)?)?, number(field(bytes, 2)?)?);
    if seconds == 0 && nanos == 0 {
        return Ok(Value::Null);
    }
    let nanos = i32::try_from(nanos).map_err(|_| Malformed)?;
    let time = Timestamp::new(seconds, nanos).map_err(|_| Malformed)?;
    let format = if micro { "%Y-%m-%dT%H:%M:%S.%6fZ" } else { "%Y-%m-%dT%H:%M:%SZ" };
    Ok(time.strftime(format).to_string().into())
}

fn int_or_text(bytes: &[u8]) -> Result<Value, Unreadable> {
    let is_text = matches!(field(bytes, 1)?, Some(Wire::Number(1)));
    match (is_text, field(bytes, 2)?, field(bytes, 3)?) {
        (true, _, Some(wire)) => Ok(text(wire)?.into()),
        (true, _, None) => Ok(json!("")),
        (false, Some(Wire::Number(number)), _) => Ok(number.cast_signed().into()),
        (false, ..) => Ok(json!(0)),
    }
}

/// Returns the last field with a number.
fn field(bytes: &[u8], number: u64) -> Result<Option<Wire<'_>>, Unreadable> {
    let all = fields(bytes)?;
    Ok(all.into_iter().rev().find(|(found, _)| *found == number).map(|(_, wire)| wire))
}

fn text(wire: Wire<'_>) -> Result<String, Unreadable> {
    let Wire::Bytes(bytes) = wire else { return Err(Malformed) };
    String::from_utf8(bytes.to_vec()).map_err(|_| Malformed)
}

/// Returns the fields of a message, in their order.
fn fields(mut bytes: &[u8]) -> Result<Vec<(u64, Wire<'_>)>, Unreadable> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let wire = match tag & 7 {
            0 => Wire::Number(varint(&mut bytes)?),
            1 => Wire::Fixed64(*bytes.split_off(..8).and_then(<[u8]>::as_array).ok_or(Malformed)?),
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).map_err(|_| Malformed)?;
                Wire::Bytes(bytes.split_off(..length).ok_or(Malformed)?)
            }
            5 => {
                bytes.split_off(..4).ok_or(Malformed)?;
                Wire::Fixed32
            }
            _ => return Err(Malformed),
        };
        found.push((tag >> 3, wire));
    }
    Ok(found)
}

fn varint(bytes: &mut &[u8]) -> Result<u64, Unreadable> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.split_off_first().ok_or(Malformed)?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(Malformed)
}
