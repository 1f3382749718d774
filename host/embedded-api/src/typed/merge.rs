//! Merge of an applied object into the live one.

use serde_json::{Map as Object, Value};

use super::item_element;
use crate::{
    fields::Element,
    schema::{List, Map, Shape, Type},
};

/// Merges `applied` into `live`: maps and associative lists merge, all else is replaced. `None` if
/// nothing is left.
///
/// Both fit the type; items of `applied` are unique.
pub(crate) fn merge(live: Value, applied: &Value, type_: &Type) -> Option<Value> {
    match type_.shape(applied) {
        Shape::Scalar(_) | Shape::List(_, true) | Shape::Map(_, true) => Some(applied.clone()),
        Shape::List(list, false) => merge_lists(live, applied, list),
        Shape::Map(map, false) => merge_maps(live, applied, map),
    }
}

fn merge_maps(live: Value, applied: &Value, map: &Map) -> Option<Value> {
    let mut merged = match live {
        Value::Object(live) => live,
        _ => Object::new(),
    };
    let empty = Object::new();
    let over = applied.as_object().unwrap_or(&empty);
    if merged.is_empty() && over.is_empty() {
        return Some(applied.clone());
    }
    for (key, value) in over {
        match merged.get_mut(key).map(Value::take) {
            None => {
                merged.insert(key.clone(), value.clone());
            }
            Some(live) => match merge(live, value, map.type_of_present(key)) {
                Some(value) => {
                    merged.insert(key.clone(), value);
                }
                None => {
                    merged.remove(key);
                }
            },
        }
    }
    (!merged.is_empty()).then_some(Value::Object(merged))
}

fn merge_lists(live: Value, applied: &Value, list: &List) -> Option<Value> {
    let live = match live {
        Value::Array(live) => live,
        _ => Vec::new(),
    };
    let over = applied.as_array().map_or(&[][..], Vec::as_slice);
    if live.is_empty() && over.is_empty() {
        return Some(applied.clone());
    }
    let merged = Lists::new(list, live, over).merge();
    (!merged.is_empty()).then_some(Value::Array(merged))
}

/// The merge of two associative lists of one type.
///
/// Live items stay in their order; applied ones come in theirs, each after the live items that
/// precede it there.
struct Lists<'a> {
    type_: &'a List,
    /// The elements of the live items, in order.
    live: Vec<Element>,
    /// The live items; each is taken when it is merged.
    items: Vec<Option<Value>>,
    applied: Vec<(Element, &'a Value)>,
}

impl<'a> Lists<'a> {
    fn new(type_: &'a List, live: Vec<Value>, applied: &'a [Value]) -> Self {
        let keyed = live.into_iter().filter_map(|item| {
            let element = item_element(type_, &item).ok()?;
            Some((element, Some(item)))
        });
        let (live, items) = keyed.unzip();
        let applied = applied.iter();
        let applied = applied.filter_map(|item| Some((item_element(type_, item).ok()?, item)));
        Self { type_, live, items, applied: applied.collect() }
    }

    fn merge(mut self) -> Vec<Value> {
        let mut out = Vec::with_capacity(self.live.len().max(self.applied.len()));
        for step in self.steps() {
            let merged = match step {
                Step::Keep(at) => self.items.get_mut(at).and_then(Option::take),
                Step::Apply(at) => self.merged(at),
            };
            out.extend(merged);
        }
        out
    }

    /// Returns the order of the items.
    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::with_capacity(self.live.len().max(self.applied.len()));
        // Applied items that are live as well, in applied order: at the next of them both lists
        // meet.
        let applied = self.applied.iter().map(|(element, _)| element);
        let mut shared = applied.filter(|element| self.live.contains(element));
        let mut next_shared = shared.next();
        let (mut left, mut right) = (0, 0);
        loop {
            let next_live = self.live.get(left);
            let next_applied = self.applied.get(right).map(|(element, _)| element);
            if let (Some(live), Some(applied)) = (next_live, next_applied) {
                if live == applied {
                    steps.push(Step::Apply(right));
                    (left, right) = (left + 1, right + 1);
                    next_shared = shared.next();
                    continue;
                }
                if self.is_applied(live) && next_shared.is_some_and(|next| next != live) {
                    left += 1;
                    continue;
                }
            }
            if let Some(live) = next_live {
                if !self.is_applied(live) {
                    steps.push(Step::Keep(left));
                    left += 1;
                    continue;
                }
                let taken = self.applied.iter().take(right);
                if taken.map(|(element, _)| element).any(|taken| taken == live) {
                    left += 1;
                }
            }
            if next_applied.is_some() {
                steps.push(Step::Apply(right));
                right += 1;
                if next_shared == next_applied {
                    next_shared = shared.next();
                }
            } else if left >= self.live.len() {
                return steps;
            }
        }
    }

    fn is_applied(&self, element: &Element) -> bool {
        self.applied.iter().any(|(applied, _)| applied == element)
    }

    /// Merges an applied item into the live one; live items that occur twice are replaced.
    fn merged(&mut self, at: usize) -> Option<Value> {
        let (element, over) = self.applied.get(at)?;
        let mut places = self.live.iter().enumerate().filter(|(_, live)| *live == element);
        match (places.next(), places.next()) {
            (Some((place, _)), None) => {
                let live = self.items.get_mut(place).and_then(Option::take)?;
                merge(live, over, &self.type_.items)
            }
            _ => Some((*over).clone()),
        }
    }
}

/// The next item of a merged list, by its position in one of the two.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// A live item, unchanged.
    Keep(usize),
    /// An applied item, merged into the live one.
    Apply(usize),
}
