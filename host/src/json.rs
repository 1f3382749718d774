//! JSON that can be looked into, whoever holds it: a [`Value`], which can be taken apart and changed, or a [`Document`], which is made
//! in one go, read and let go of.

mod document;
mod read;
#[cfg(test)]
mod tests;

pub use document::{Document, Node};

use serde::Serialize;
use serde_json::{Number, Value};

/// A JSON value that is borrowed for `'a`.
pub trait Json<'a>: Copy + Serialize {
    /// What it is.
    fn form(self) -> Form<'a>;

    /// What a map holds, ordered by key; of anything else nothing.
    fn entries(self) -> impl Iterator<Item = (&'a str, Self)>;

    /// What a list holds; of anything else nothing.
    fn items(self) -> impl Iterator<Item = Self>;

    /// What a map holds under a key.
    fn get(self, key: &str) -> Option<Self>;

    /// How many entries or items it has.
    fn size(self) -> usize {
        if let Form::List(size) | Form::Map(size) = self.form() { size } else { 0 }
    }

    /// The text that it is.
    fn text(self) -> Option<&'a str> {
        if let Form::Text(text) = self.form() { Some(text) } else { None }
    }
}

/// What a JSON value is.
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
    /// A list of so many items.
    List(usize),
    /// A map of so many entries.
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
