//! Types of functions as text, for messages. The types are untrusted, so the text is bounded.

use std::fmt::{self, Write as _};

use mortise_core::contract::bounds::FUNCTION_TYPE;
use wasmtime::component::types::{ComponentFunc, Type};

/// The text of a type so far. Writing to it fails once it is full.
struct Text(String);

/// Returns a function's type as WIT, truncated at [`FUNCTION_TYPE`] bytes. Names of types are not
/// known: a record is written with its fields.
pub(super) fn function(of: &ComponentFunc) -> String {
    let mut text = Text(String::new());
    if write_function(&mut text, of).is_err() {
        text.0.push('…');
    }
    text.0
}

/// Returns whether a function is synchronous, with parameters and results that can be cached.
pub(super) fn is_plain(function: &ComponentFunc) -> bool {
    let mut types = function.params().map(|(_, of)| of).chain(function.results());
    !function.async_() && types.all(|of| is_plain_value(&of))
}

fn is_plain_value(of: &Type) -> bool {
    match of {
        Type::Own(_) | Type::Borrow(_) | Type::Future(_) | Type::Stream(_) | Type::ErrorContext => {
            false
        }
        Type::List(list) => is_plain_value(&list.ty()),
        Type::FixedLengthList(list) => is_plain_value(&list.ty()),
        Type::Map(map) => is_plain_value(&map.key()) && is_plain_value(&map.value()),
        Type::Record(record) => record.fields().all(|field| is_plain_value(&field.ty)),
        Type::Tuple(tuple) => tuple.types().all(|of| is_plain_value(&of)),
        Type::Variant(variant) => {
            variant.cases().filter_map(|case| case.ty).all(|of| is_plain_value(&of))
        }
        Type::Option(option) => is_plain_value(&option.ty()),
        Type::Result(result) => [result.ok(), result.err()].iter().flatten().all(is_plain_value),
        _ => true,
    }
}

fn write_function(to: &mut Text, of: &ComponentFunc) -> fmt::Result {
    to.write_str(if of.async_() { "async func(" } else { "func(" })?;
    for (index, (name, ty)) in of.params().enumerate() {
        write!(to, "{}{name}: ", if index > 0 { ", " } else { "" })?;
        write_type(to, &ty)?;
    }
    to.write_str(")")?;
    for ty in of.results() {
        to.write_str(" -> ")?;
        write_type(to, &ty)?;
    }
    Ok(())
}

fn write_type(to: &mut Text, of: &Type) -> fmt::Result {
    match of {
        Type::List(list) => write_within(to, "list<", [list.ty()], ">"),
        Type::FixedLengthList(list) => {
            write_within(to, "list<", [list.ty()], &format!(", {}>", list.len()))
        }
        Type::Map(map) => write_within(to, "map<", [map.key(), map.value()], ">"),
        Type::Tuple(tuple) => write_within(to, "tuple<", tuple.types(), ">"),
        Type::Option(option) => write_within(to, "option<", [option.ty()], ">"),
        Type::Record(record) => {
            let fields = record.fields().map(|field| (field.name, Some(field.ty)));
            write_named(to, "record { ", fields)
        }
        Type::Variant(variant) => {
            write_named(to, "variant { ", variant.cases().map(|case| (case.name, case.ty)))
        }
        Type::Enum(names) => write_named(to, "enum { ", names.names().map(|name| (name, None))),
        Type::Flags(names) => write_named(to, "flags { ", names.names().map(|name| (name, None))),
        Type::Result(result) => {
            to.write_str("result<")?;
            match result.ok() {
                Some(ok) => write_type(to, &ok)?,
                None => to.write_str("_")?,
            }
            if let Some(err) = result.err() {
                to.write_str(", ")?;
                write_type(to, &err)?;
            }
            to.write_str(">")
        }
        plain => to.write_str(name(plain)),
    }
}

fn name(of: &Type) -> &'static str {
    match of {
        Type::Bool => "bool",
        Type::S8 => "s8",
        Type::U8 => "u8",
        Type::S16 => "s16",
        Type::U16 => "u16",
        Type::S32 => "s32",
        Type::U32 => "u32",
        Type::S64 => "s64",
        Type::U64 => "u64",
        Type::Float32 => "f32",
        Type::Float64 => "f64",
        Type::Char => "char",
        Type::String => "string",
        Type::Own(_) => "own<_>",
        Type::Borrow(_) => "borrow<_>",
        Type::Future(_) => "future<_>",
        Type::Stream(_) => "stream<_>",
        _ => "_",
    }
}

fn write_within(
    to: &mut Text,
    begin: &str,
    types: impl IntoIterator<Item = Type>,
    end: &str,
) -> fmt::Result {
    to.write_str(begin)?;
    for (index, of) in types.into_iter().enumerate() {
        to.write_str(if index > 0 { ", " } else { "" })?;
        write_type(to, &of)?;
    }
    to.write_str(end)
}

fn write_named<'a>(
    to: &mut Text,
    begin: &str,
    parts: impl Iterator<Item = (&'a str, Option<Type>)>,
) -> fmt::Result {
    to.write_str(begin)?;
    for (index, (name, of)) in parts.enumerate() {
        write!(to, "{}{name}", if index > 0 { ", " } else { "" })?;
        if let Some(of) = of {
            to.write_str(": ")?;
            write_type(to, &of)?;
        }
    }
    to.write_str(" }")
}

// === impl Text ===

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let left = FUNCTION_TYPE.saturating_sub(self.0.len());
        let whole = text.len() <= left;
        self.0.push_str(text.get(..text.floor_char_boundary(left)).unwrap_or_default());
        if whole { Ok(()) } else { Err(fmt::Error) }
    }
}
