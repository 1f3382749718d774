//! Comparison of two values of one type.

use serde_json::Value;

use super::item_element;
use crate::{
    fields::{Element, Set, equal},
    schema::{List, Map, Shape, Type},
};

/// The fields in which two values differ.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Comparison {
    /// Fields that only the second has.
    pub(crate) added: Set,
    /// Fields that both have with other values.
    pub(crate) modified: Set,
    /// Fields that only the first has.
    pub(crate) removed: Set,
}

impl Comparison {
    /// Returns the fields that the second value has new or with another value.
    pub(crate) fn written(&self) -> Set {
        self.added.clone().union(self.modified.clone())
    }
}

/// Compares an object before and after a change.
pub(crate) fn compare(old: &Value, new: &Value, type_: &Type) -> Comparison {
    let mut walker = Walker { path: Vec::new(), found: Comparison::default() };
    walker.visit(Some(old), Some(new), type_);
    walker.found
}

type Side<'a> = Option<&'a Value>;

struct Walker {
    path: Vec<Element>,
    found: Comparison,
}

impl Walker {
    fn visit(&mut self, old: Side<'_>, new: Side<'_>, type_: &Type) {
        if let (Some(old), Some(new)) = (old, new)
            && !same_form(old, new)
        {
            return self.other_form(old, new, type_);
        }
        let Some(shape) = decisive(old, new).map(|value| type_.shape(value)) else { return };
        let leaf = match shape {
            Shape::Scalar(_) => true,
            Shape::List(list, atomic) => {
                let (olds, news) = (items(old), items(new));
                let leaf = atomic || (olds.is_empty() && news.is_empty());
                if !leaf && !olds.iter().eq(news.iter()) {
                    self.list(list, olds, news);
                }
                leaf
            }
            Shape::Map(map, atomic) => {
                let (olds, news) = (entries(old), entries(new));
                let empty = |map: Option<&serde_json::Map<String, Value>>| {
                    map.is_none_or(serde_json::Map::is_empty)
                };
                let leaf = atomic || (empty(olds) && empty(news));
                if !leaf {
                    self.map(map, olds, news);
                }
                leaf
            }
        };
        match (old, new) {
            (None, _) => self.found.added.insert(&self.path),
            (_, None) => self.found.removed.insert(&self.path),
            (Some(old), Some(new)) if leaf && !equal(old, new) => {
                self.found.modified.insert(&self.path);
            }
            _ => {}
        }
    }

    /// Compares values of different forms: the fields below the old one are removed, those below
    /// the new one added.
    fn other_form(&mut self, old: &Value, new: &Value, type_: &Type) {
        match type_.shape(old) {
            Shape::Map(map, false) => self.map(map, old.as_object(), None),
            Shape::List(list, false) => self.list(list, items(Some(old)), &[]),
            Shape::Scalar(_) | Shape::List(_, true) | Shape::Map(_, true) => {}
        }
        match type_.shape(new) {
            Shape::Map(map, false) => self.map(map, None, new.as_object()),
            Shape::List(list, false) => self.list(list, &[], items(Some(new))),
            Shape::Scalar(_) | Shape::List(_, true) | Shape::Map(_, true) => {}
        }
        self.found.modified.insert(&self.path);
    }

    fn map(
        &mut self,
        map: &Map,
        olds: Option<&serde_json::Map<String, Value>>,
        news: Option<&serde_json::Map<String, Value>>,
    ) {
        for (key, old) in olds.into_iter().flatten() {
            let new = news.and_then(|news| news.get(key));
            self.field(map, key, Some(old), new);
        }
        for (key, new) in news.into_iter().flatten() {
            if !olds.is_some_and(|olds| olds.contains_key(key)) {
                self.field(map, key, None, Some(new));
            }
        }
    }

    fn field(&mut self, map: &Map, key: &str, old: Side<'_>, new: Side<'_>) {
        if let (Some(old), Some(new)) = (old, new)
            && old == new
        {
            return;
        }
        self.below(Element::field(key), old, new, map.type_of_present(key));
    }

    fn below(&mut self, element: Element, old: Side<'_>, new: Side<'_>, type_: &Type) {
        self.path.push(element);
        self.visit(old, new, type_);
        self.path.pop();
    }

    fn list(&mut self, list: &List, olds: &[Value], news: &[Value]) {
        let (olds, news) = (by_element(list, olds), by_element(list, news));
        for (element, old) in &olds {
            let new = find(&news, element).map_or(&[][..], |(_, new)| new);
            self.items(list, element, old, new);
        }
        for (element, new) in &news {
            if find(&olds, element).is_none() {
                self.items(list, element, &[], new);
            }
        }
    }

    /// Compares all items of one key: if there are several, they count as one value.
    fn items(&mut self, list: &List, element: &Element, old: &[&Value], new: &[&Value]) {
        let path = [self.path.as_slice(), std::slice::from_ref(element)].concat();
        match (old, new) {
            ([] | [_], [] | [_]) => {
                let (old, new) = (old.first().copied(), new.first().copied());
                self.below(element.clone(), old, new, &list.items);
            }
            ([_, _, ..], [_, _, ..]) => {
                let same = old.len() == new.len() && old.iter().zip(new).all(|(a, b)| equal(a, b));
                if !same {
                    self.found.modified.insert(&path);
                }
            }
            ([_, _, ..], _) => {
                if let Some(new) = new.first() {
                    self.below(element.clone(), None, Some(new), &list.items);
                }
                self.found.removed.insert(&path);
            }
            (_, [_, _, ..]) => {
                if let Some(old) = old.first() {
                    self.below(element.clone(), Some(old), None, &list.items);
                }
                self.found.added.insert(&path);
            }
        }
    }
}

type Items<'a> = Vec<(Element, Vec<&'a Value>)>;

/// Returns the items by the elements that identify them, sorted.
fn by_element<'a>(list: &List, items: &'a [Value]) -> Items<'a> {
    let mut found: Items<'a> = Vec::with_capacity(items.len());
    for item in items {
        let Ok(element) = item_element(list, item) else { continue };
        match found.binary_search_by(|(other, _)| other.cmp(&element)) {
            Ok(at) => found.get_mut(at).into_iter().for_each(|(_, same)| same.push(item)),
            Err(at) => found.insert(at, (element, vec![item])),
        }
    }
    found
}

fn find<'i, 'a>(items: &'i Items<'a>, element: &Element) -> Option<&'i (Element, Vec<&'a Value>)> {
    let at = items.binary_search_by(|(other, _)| other.cmp(element)).ok()?;
    items.get(at)
}

/// Returns the value whose form counts for both: the new one if there is one.
fn decisive<'a>(old: Side<'a>, new: Side<'a>) -> Side<'a> {
    match (old, new) {
        (Some(old), Some(Value::Null)) => Some(old),
        (old, new) => new.or(old),
    }
}

/// Returns whether one part of a type fits both values; null has every form.
fn same_form(old: &Value, new: &Value) -> bool {
    let form = |value: &Value| match value {
        Value::Null => None,
        Value::Object(_) => Some(0),
        Value::Array(_) => Some(1),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(2),
    };
    form(old).zip(form(new)).is_none_or(|(old, new)| old == new)
}

fn items(side: Side<'_>) -> &[Value] {
    side.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn entries(side: Side<'_>) -> Option<&serde_json::Map<String, Value>> {
    side.and_then(Value::as_object)
}
