//! Laying an applied object over the one that is there.

use serde_json::{Map as Object, Value};

use super::item_element;
use crate::fields::Element;
use crate::schema::{List, Map, Shape, Type};

/// `applied` over `live`: maps and associative lists merge, all else is replaced. `None` where nothing is left.
///
/// Both fit the type; items of `applied` are there once.
pub(crate) fn merge(live: &Value, applied: &Value, type_: &Type) -> Option<Value> {
    match type_.shape(applied) {
        Shape::Scalar(_) | Shape::List(_, true) | Shape::Map(_, true) => Some(applied.clone()),
        Shape::List(list, false) => merge_lists(live, applied, list),
        Shape::Map(map, false) => merge_maps(live, applied, map),
    }
}

fn merge_maps(live: &Value, applied: &Value, map: &Map) -> Option<Value> {
    let empty = Object::new();
    let (live, over) = (live.as_object().unwrap_or(&empty), applied.as_object().unwrap_or(&empty));
    if live.is_empty() && over.is_empty() {
        return Some(applied.clone());
    }
    let mut merged = Object::new();
    for (key, value) in live {
        let both = over.get(key).map(|over| merge(value, over, map.type_of_present(key)));
        if let Some(value) = both.unwrap_or_else(|| Some(value.clone())) {
            merged.insert(key.clone(), value);
        }
    }
    let new = over.iter().filter(|(key, _)| !live.contains_key(*key));
    merged.extend(new.map(|(key, value)| (key.clone(), value.clone())));
    (!merged.is_empty()).then_some(Value::Object(merged))
}

fn merge_lists(live: &Value, applied: &Value, list: &List) -> Option<Value> {
    let slice = |value: &'_ Value| value.as_array().is_none_or(Vec::is_empty);
    if slice(live) && slice(applied) {
        return Some(applied.clone());
    }
    let merged = Lists::new(list, live, applied).merge();
    (!merged.is_empty()).then_some(Value::Array(merged))
}

/// An item with what tells it from others.
type Keyed<'a> = (Element, &'a Value);

/// Two associative lists of one type.
///
/// Live items stay in their order; applied ones come in theirs, each after the live items that precede it there.
struct Lists<'a> {
    type_: &'a List,
    live: Vec<Keyed<'a>>,
    applied: Vec<Keyed<'a>>,
}

impl<'a> Lists<'a> {
    fn new(type_: &'a List, live: &'a Value, applied: &'a Value) -> Self {
        let keyed = |list: &'a Value| {
            let items = list.as_array().into_iter().flatten();
            items.filter_map(|item| Some((item_element(type_, item).ok()?, item))).collect()
        };
        Self { type_, live: keyed(live), applied: keyed(applied) }
    }

    fn merge(&self) -> Vec<Value> {
        let mut out = Vec::with_capacity(self.live.len().max(self.applied.len()));
        let mut taken: Vec<&Element> = Vec::new();
        // Applied items that are live as well, in applied order: the next of them is where both lists meet.
        let mut shared =
            self.applied.iter().map(|(element, _)| element).filter(|element| self.is_live(element));
        let mut next_shared = shared.next();
        let (mut lefts, mut rights) = (self.live.iter().peekable(), self.applied.iter().peekable());
        loop {
            if let (Some((left, _)), Some((right, over))) = (lefts.peek(), rights.peek()) {
                if left == right {
                    taken.push(right);
                    out.extend(self.merged(right, over));
                    lefts.next();
                    rights.next();
                    next_shared = shared.next();
                    continue;
                }
                if self.is_applied(left) && next_shared.is_some_and(|next| next != left) {
                    lefts.next();
                    continue;
                }
            }
            if let Some((left, value)) = lefts.peek() {
                if !self.is_applied(left) {
                    out.push((*value).clone());
                    lefts.next();
                    continue;
                }
                if taken.contains(&left) {
                    lefts.next();
                }
            }
            let Some((right, over)) = rights.next() else {
                if lefts.peek().is_some() {
                    continue;
                }
                return out;
            };
            taken.push(right);
            out.extend(self.merged(right, over));
            if next_shared == Some(right) {
                next_shared = shared.next();
            }
        }
    }

    fn is_live(&self, element: &Element) -> bool {
        self.live.iter().any(|(live, _)| live == element)
    }

    fn is_applied(&self, element: &Element) -> bool {
        self.applied.iter().any(|(applied, _)| applied == element)
    }

    /// An applied item over the live one; live items that are there twice are replaced.
    fn merged(&self, element: &Element, over: &Value) -> Option<Value> {
        let mut live = self.live.iter().filter(|(live, _)| live == element);
        match (live.next(), live.next()) {
            (Some((_, live)), None) => merge(live, over, &self.type_.items),
            _ => Some(over.clone()),
        }
    }
}
