//! Values passed between a module and its library: their digest and their size.

use ring::digest::{Context, SHA256};
use wasmtime::component::Val;

use super::answers::Key;

/// Returns the digest of a function's names and arguments. The arguments of one function have one
/// type, so different arguments are different bytes.
pub(super) fn key(names: [&str; 3], arguments: &[Val]) -> Key {
    let mut to = Context::new(&SHA256);
    for name in names {
        add_text(&mut to, name);
    }
    for argument in arguments {
        add(&mut to, argument);
    }
    let mut key = Key::default();
    key.copy_from_slice(to.finish().as_ref());
    key
}

/// Returns the bytes of memory that a value takes.
pub(super) fn size(of: &Val) -> usize {
    size_of::<Val>() + beside(of)
}

/// Returns the heap bytes of a value.
fn beside(of: &Val) -> usize {
    match of {
        Val::String(text) | Val::Enum(text) => text.len(),
        Val::List(values) | Val::Tuple(values) | Val::FixedLengthList(values) => {
            values.iter().map(size).sum()
        }
        Val::Map(entries) => entries.iter().map(|(key, value)| size(key) + size(value)).sum(),
        Val::Record(fields) => {
            let size =
                |(name, value): &(String, Val)| size_of::<String>() + name.len() + size(value);
            fields.iter().map(size).sum()
        }
        Val::Variant(name, value) => name.len() + boxed(value.as_deref()),
        Val::Option(value) | Val::Result(Ok(value) | Err(value)) => boxed(value.as_deref()),
        Val::Flags(names) => names.iter().map(|name| size_of::<String>() + name.len()).sum(),
        _ => 0,
    }
}

fn boxed(of: Option<&Val>) -> usize {
    of.map_or(0, size)
}

fn add(to: &mut Context, value: &Val) {
    match value {
        Val::Bool(value) => to.update(&[u8::from(*value)]),
        Val::S8(value) => to.update(&value.to_le_bytes()),
        Val::U8(value) => to.update(&value.to_le_bytes()),
        Val::S16(value) => to.update(&value.to_le_bytes()),
        Val::U16(value) => to.update(&value.to_le_bytes()),
        Val::S32(value) => to.update(&value.to_le_bytes()),
        Val::U32(value) => to.update(&value.to_le_bytes()),
        Val::S64(value) => to.update(&value.to_le_bytes()),
        Val::U64(value) => to.update(&value.to_le_bytes()),
        Val::Float32(value) => to.update(&value.to_bits().to_le_bytes()),
        Val::Float64(value) => to.update(&value.to_bits().to_le_bytes()),
        Val::Char(value) => to.update(&u32::from(*value).to_le_bytes()),
        Val::String(text) | Val::Enum(text) => add_text(to, text),
        Val::List(values) | Val::Tuple(values) | Val::FixedLengthList(values) => {
            add_length(to, values.len());
            for value in values {
                add(to, value);
            }
        }
        Val::Map(entries) => {
            add_length(to, entries.len());
            for (key, value) in entries {
                add(to, key);
                add(to, value);
            }
        }
        Val::Record(fields) => {
            for (_, value) in fields {
                add(to, value);
            }
        }
        Val::Variant(name, value) => {
            add_text(to, name);
            add_some(to, value.as_deref());
        }
        Val::Option(value) => add_some(to, value.as_deref()),
        Val::Result(result) => {
            to.update(&[u8::from(result.is_ok())]);
            let (Ok(value) | Err(value)) = result;
            add_some(to, value.as_deref());
        }
        Val::Flags(names) => {
            add_length(to, names.len());
            for name in names {
                add_text(to, name);
            }
        }
        // Functions of libraries have no such parameters: see `describe::is_plain`.
        Val::Resource(_) | Val::Future(_) | Val::Stream(_) | Val::ErrorContext(_) => {}
    }
}

fn add_some(to: &mut Context, value: Option<&Val>) {
    to.update(&[u8::from(value.is_some())]);
    if let Some(value) = value {
        add(to, value);
    }
}

fn add_text(to: &mut Context, text: &str) {
    add_length(to, text.len());
    to.update(text.as_bytes());
}

fn add_length(to: &mut Context, length: usize) {
    to.update(&(length as u64).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Val {
        Val::String(text.to_owned())
    }

    #[test]
    fn different_arguments_have_different_keys() {
        let some = |value: Val| Val::Option(Some(Box::new(value)));
        let of = |arguments: &[Val]| key(["l", "i", "f"], arguments);
        let all = [
            of(&[text("ab"), text("c")]),
            of(&[text("a"), text("bc")]),
            of(&[Val::List(vec![text("a")]), Val::List(vec![])]),
            of(&[Val::List(vec![]), Val::List(vec![text("a")])]),
            of(&[Val::Option(None), some(text(""))]),
            of(&[some(text("")), Val::Option(None)]),
            of(&[Val::Result(Ok(None))]),
            of(&[Val::Result(Err(None))]),
            key(["l", "i", "g"], &[text("ab"), text("c")]),
            key(["l", "if", ""], &[text("ab"), text("c")]),
        ];
        for (index, one) in all.iter().enumerate() {
            for (other, key) in all.iter().enumerate() {
                assert_eq!(one == key, index == other, "{index} and {other}");
            }
        }
        assert_eq!(of(&[text("ab")]), of(&[text("ab")]));
    }

    #[test]
    fn the_size_counts_texts_and_every_value() {
        let list = Val::List(vec![Val::U8(1); 1000]);
        assert_eq!(size(&list), 1001 * size_of::<Val>());
        let record = Val::Record(vec![("name".to_owned(), text("value"))]);
        assert_eq!(size(&record), 2 * size_of::<Val>() + size_of::<String>() + 9);
    }
}
