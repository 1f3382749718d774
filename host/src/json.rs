//! JSON that can be inspected in either form: a [`Value`], which can be taken apart and changed, or
//! a [`Document`], which is built in one go, read and dropped.

mod document;
mod read;
#[cfg(test)]
mod tests;

pub use document::{Document, Node};

use serde::Serialize;
use serde_json::{Number, Value};

/// A JSON value that is borrowed for `'a`.
pub trait Json<'a>: Copy + Serialize {
    /// Returns the type of the value, with its content or size.
    fn form(self) -> Form<'a>;

    /// Returns the entries of a map, ordered by key; none for any other value.
    fn entries(self) -> impl Iterator<Item = (&'a str, Self)>;

    /// Returns the items of a list; none for any other value.
    fn items(self) -> impl Iterator<Item = Self>;

    /// Returns the value of a map under a key, if any.
    fn get(self, key: &str) -> Option<Self>;

    /// Returns the number of entries or items; 0 for a value that is neither a map nor a list.
    fn size(self) -> usize {
        if let Form::List(size) | Form::Map(size) = self.form() { size } else { 0 }
    }

    /// Returns the text, if the value is a text.
    fn text(self) -> Option<&'a str> {
        if let Form::Text(text) = self.form() { Some(text) } else { None }
    }
}

/// The type of a JSON value, with its content or size.
#[derive(Clone, Copy, Debug)]
pub enum Form<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(&'a Number),
    /// A text.
    Text(&'a str),
    /// A list, with its number of items.
    List(usize),
    /// A map, with its number of entries.
    Map(usize),
}

impl<'a> Json<'a> for &'a Value {
    fn form(self) -> Form<'a> {
        match self {
            Value::Null => Form::Null,
            Value::Bool(held) => Form::Bool(*held),
            Value::Number(number) => Form::Number(number),
            Value::String(text) => Form::Text(text),
            Value::Array(items) => Form::List(items.len()),
            Value::Object(entries) => Form::Map(entries.len()),
        }
    }

    fn entries(self) -> impl Iterator<Item = (&'a str, Self)> {
        self.as_object().into_iter().flatten().map(|(key, value)| (key.as_str(), value))
    }

    fn items(self) -> impl Iterator<Item = Self> {
        self.as_array().into_iter().flatten()
    }

    fn get(self, key: &str) -> Option<Self> {
        self.get(key)
    }
}
