//! Tables: the server-side printing for `kubectl get`.

mod age;
mod autoscaler;
mod cell;
mod column;
mod network;
mod path;
mod pod;
mod storage;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde_json::{Value, json};

use self::path::Path;
use crate::{
    Failure,
    builtin::edit::{at, set, text},
    field_error::go_json,
    kind::{Column, Form, Resource},
};

/// Returns a table of objects of one resource.
///
/// `list_metadata` becomes the metadata of the table; `include_object` is the query parameter
/// `includeObject`; without `with_columns` the columns are not described, as from the second event
/// of a watch on.
pub(crate) fn table(
    resource: &Resource,
    objects: &[Value],
    list_metadata: Value,
    include_object: &str,
    with_columns: bool,
    now: Timestamp,
) -> Result<Value, Failure> {
    if !matches!(include_object, "" | "Metadata" | "Object" | "None") {
        return Err(Failure::bad_request(format!(
            "Unable to convert to Table as requested: includeObject: Invalid value: \"{include_object}\": must be 'Metadata', 'Object', 'None', or empty"
        )));
    }
    // The objects are scales if the request is for the subresource `scale` of the resource.
    let scales = objects.first().is_some_and(|object| object["kind"] == "Scale");
    let rows = objects.iter().map(|object| {
        let cells =
            if scales { cell::of("Scale", object, now) } else { cells(resource, object, now) };
        json!({"cells": cells, "object": shown(object, include_object)})
    });
    let rows: Vec<_> = rows.collect();
    let columns = match with_columns {
        true if scales => built_in("Scale"),
        true => columns(resource),
        false => Value::Null,
    };
    let mut table = json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1"});
    set(&mut table, "metadata", list_metadata);
    set(&mut table, "columnDefinitions", columns);
    set(&mut table, "rows", rows);
    Ok(table)
}

/// Returns the object that a row holds beside its cells.
fn shown(object: &Value, include_object: &str) -> Value {
    match include_object {
        "Object" => object.clone(),
        "None" => Value::Null,
        _ => json!({
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": object["metadata"],
        }),
    }
}

fn columns(resource: &Resource) -> Value {
    let name = definition("Name", "string", "name", "", 0);
    match &resource.form {
        Form::BuiltIn(_) => built_in(&resource.kind),
        Form::Custom(custom) => {
            let columns = readable(&custom.columns).map(|(column, _)| {
                let Column { name, kind, format, description, priority, .. } = column;
                definition(name, kind, format, description, *priority)
            });
            std::iter::once(name).chain(columns).collect()
        }
        Form::Untyped => json!([name, definition("Age", "date", "", "", 0)]),
    }
}

/// Returns the columns of a built-in kind.
fn built_in(kind: &str) -> Value {
    let columns = column::of(kind).iter();
    let definitions = columns.map(|&(name, kind, priority)| {
        definition(name, kind, if name == "Name" { "name" } else { "" }, "", priority)
    });
    definitions.collect()
}

fn definition(name: &str, kind: &str, format: &str, description: &str, priority: i64) -> Value {
    json!({"name": name, "type": kind, "format": format, "description": description, "priority": priority})
}

fn cells(resource: &Resource, object: &Value, now: Timestamp) -> Vec<Value> {
    let name = Value::from(text(&object["metadata"], "name"));
    match &resource.form {
        Form::BuiltIn(_) => cell::of(&resource.kind, object, now),
        Form::Custom(custom) => {
            let cells = readable(&custom.columns)
                .map(|(column, path)| custom_cell(column, &path, object, now));
            std::iter::once(name).chain(cells).collect()
        }
        Form::Untyped => {
            vec![name, age::since(at(object, &["metadata", "creationTimestamp"]), now)]
        }
    }
}

/// Returns the columns with their paths, before the first one whose path cannot be read: there the
/// table ends.
fn readable(columns: &[Column]) -> impl Iterator<Item = (&Column, Path)> {
    columns.iter().map_while(|column| Some((column, Path::parse(&column.json_path)?)))
}

/// Returns the first value at the path of a column, if it has the column's type; null otherwise.
fn custom_cell(column: &Column, path: &Path, object: &Value, now: Timestamp) -> Value {
    let Some(found) = path.first(object) else { return Value::Null };
    match (column.kind.as_str(), &found) {
        ("string", Value::Null) => "<no value>".into(),
        ("string", Value::String(_))
        | ("number", Value::Number(_))
        | ("boolean", Value::Bool(_)) => found,
        ("string", other) => go_json(other).into(),
        ("integer", Value::Number(number)) => {
            #[expect(clippy::cast_possible_truncation, reason = "the fraction is meant to be cut")]
            let whole = number.as_i64().or_else(|| number.as_f64().map(|float| float as i64));
            whole.into()
        }
        ("date", Value::String(_)) => age::since(&found, now),
        _ => Value::Null,
    }
}
