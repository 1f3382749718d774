//! The order of a merged list: items of the patch in the order of the patch, the others between
//! them in their former order.

use serde_json::Value;

use crate::{
    go::{Plain, type_name},
    patch::PatchError,
};

/// The identity of the items of a list, by which they are ordered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Order<'a> {
    /// The key of maps; `None` for scalars, which identify themselves.
    key: Option<&'a str>,
}

impl<'a> Order<'a> {
    pub(super) fn new(key: Option<&'a str>) -> Self {
        Self { key }
    }

    fn is_same(self, a: &Value, b: &Value) -> bool {
        match self.key {
            Some(key) => a.get(key).is_some_and(|value| b.get(key) == Some(value)),
            None => a == b,
        }
    }

    fn position(self, list: &[Value], item: &Value) -> Option<usize> {
        list.iter().position(|other| self.is_same(other, item))
    }

    /// Checks that all items of a patch, except for those with a directive, are in `wanted`, in its
    /// order.
    pub(super) fn check(self, patch: &[Value], wanted: &[Value]) -> Result<(), PatchError> {
        if wanted.is_empty() {
            return Ok(());
        }
        let mut rest = wanted.iter();
        for item in patch.iter().filter(|item| item.get("$patch").is_none()) {
            loop {
                let Some(other) = rest.next() else { return Err(mismatch(patch, wanted)) };
                self.check_key(item)?;
                self.check_key(other)?;
                if self.is_same(other, item) {
                    break;
                }
            }
        }
        Ok(())
    }

    fn check_key(self, item: &Value) -> Result<(), PatchError> {
        match self.key {
            Some(_) if !item.is_object() => Err(wrong_type("map[string]interface {}", item)),
            Some(key) if item.get(key).is_none() => Err(no_key(item, key)),
            _ => Ok(()),
        }
    }

    /// Returns `merged` with the items that are in `wanted` in its order, and the others in the
    /// order of `before`.
    ///
    /// An item that only the object has comes before the next item of the patch only if it did so
    /// before: new items come first.
    pub(super) fn sorted(
        self,
        merged: Vec<Value>,
        wanted: &[Value],
        before: &[Value],
    ) -> Result<Vec<Value>, PatchError> {
        if let Some(place) = wanted.iter().position(|item| self.key.is_some() && !item.is_object())
            && !merged.is_empty()
        {
            let message = format!("value for key {place} is not a map");
            return Err(PatchError::Unclassified(message));
        }
        wanted.iter().chain(&merged).try_for_each(|item| self.check_key(item))?;
        let (mut patched, mut others): (Vec<Value>, Vec<Value>) =
            merged.into_iter().partition(|item| self.position(wanted, item).is_some());
        patched.sort_by_key(|item| self.position(wanted, item));
        others.sort_by_key(|item| self.position(before, item));
        let mut sorted = Vec::with_capacity(patched.len() + others.len());
        let mut others = others.into_iter().peekable();
        for item in patched {
            let place = self.position(before, &item);
            while let Some(other) = others.next_if(|other| {
                self.position(before, other).zip(place).is_some_and(|(other, place)| other < place)
            }) {
                sorted.push(other);
            }
            sorted.push(item);
        }
        sorted.extend(others);
        Ok(sorted)
    }
}

fn mismatch(patch: &[Value], wanted: &[Value]) -> PatchError {
    let [patch, wanted] = [patch, wanted].map(|list| Value::Array(list.to_vec()));
    PatchError::Unclassified(format!(
        "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
        Plain(&patch),
        Plain(&wanted)
    ))
}

/// Returns the error of a value of another type than the one that Go names so.
pub(super) fn wrong_type(expected: &str, found: &Value) -> PatchError {
    let found = if found.is_null() { "%!s(<nil>)" } else { type_name(found) };
    PatchError::Unclassified(format!("expected a {expected}, but received a {found}"))
}

/// Returns the error of an item without its merge key.
pub(super) fn no_key(item: &Value, key: &str) -> PatchError {
    let message = format!("map: {} does not contain declared merge key: {key}", Plain(item));
    PatchError::Unclassified(message)
}
