//! The order of a merged list: items of the patch in the order of the patch, the others between
//! them in their former order.

use serde_json::Value;

use crate::go::Plain;
use crate::patch::PatchError;

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

    /// Returns whether all items of a patch, except for deletions, are in `wanted`, in its order.
    pub(super) fn is_kept(self, patch: &[Value], wanted: &[Value]) -> bool {
        let deletes = |item: &&Value| item.get("$patch").is_some_and(|patch| patch == "delete");
        let mut rest = wanted.iter();
        let mut set = patch.iter().filter(|item| !deletes(item));
        set.all(|item| rest.any(|other| self.is_same(other, item)))
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
        if let (Some(key), Some(item)) = (
            self.key,
            merged.iter().find(|item| self.key.is_some_and(|key| item.get(key).is_none())),
        ) {
            return Err(no_key(item, key));
        }
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

/// Returns the error of an item without its merge key.
pub(super) fn no_key(item: &Value, key: &str) -> PatchError {
    let message = format!("map: {} does not contain declared merge key: {key}", Plain(item));
    PatchError::Unclassified(message)
}
