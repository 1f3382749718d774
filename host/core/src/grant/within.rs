//! The check that all fields of a manifest lie within a set of paths.

use std::fmt::Write;

use serde_json::{Map, Value};

use crate::path::{Path, Segment};

/// The maximum number of path steps that one manifest is compared with, some milliseconds' worth.
/// Thousands of declared paths and an object of a hundred thousand fields would take seconds.
const MAX_PATH_STEPS: usize = 4_000_000;

/// A place in a manifest at which the check failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undeclared {
    /// A field that no path covers.
    Field(String),
    /// The first field that was not compared: there are too many fields and paths.
    NotCompared(String),
}

/// The state of the walk through a manifest.
struct Walk {
    /// The current place in the manifest.
    place: String,
    steps_left: usize,
}

/// Returns the first place in `fields` that no path covers, if any. The key by which a path selects
/// a list's element may be sent along.
pub(super) fn outside<'a>(
    fields: &Value,
    allowed: impl IntoIterator<Item = &'a Path>,
) -> Option<Undeclared> {
    let allowed: Vec<&[Segment]> = allowed.into_iter().map(Path::segments).collect();
    let mut at = Walk { place: String::new(), steps_left: MAX_PATH_STEPS };
    if !walk(fields, &allowed, &[], &mut at) {
        return None;
    }
    let Walk { place, steps_left } = at;
    Some(if steps_left > 0 { Undeclared::Field(place) } else { Undeclared::NotCompared(place) })
}

/// Returns whether a field is outside of the paths; `at` then holds its place. The fields of `value`
/// with these `keys` are not compared.
fn walk(value: &Value, allowed: &[&[Segment]], keys: &[&str], at: &mut Walk) -> bool {
    if allowed.iter().any(|path| path.is_empty()) {
        return false;
    }
    let length = at.place.len();
    match value {
        Value::Object(object) if !object.is_empty() && !allowed.is_empty() => {
            object.iter().filter(|(key, _)| !keys.contains(&key.as_str())).any(|(key, held)| {
                at.place.truncate(length);
                push_key(&mut at.place, key);
                let is_key =
                    |segment: &Segment| matches!(segment, Segment::Key(wanted) if **wanted == **key);
                !at.can_compare(allowed.len()) || walk(held, &below(allowed, is_key), &[], at)
            })
        }
        Value::Array(items) if !items.is_empty() && !allowed.is_empty() => {
            items.iter().enumerate().any(|(index, item)| {
                at.place.truncate(length);
                _ = write!(at.place, "[{index}]");
                !at.can_compare(allowed.len()) || item_outside(item, allowed, at)
            })
        }
        _ => true,
    }
}

fn item_outside(item: &Value, allowed: &[&[Segment]], at: &mut Walk) -> bool {
    let pairs = allowed.iter().filter_map(|path| path.first()).flat_map(Segment::pairs);
    let keys: Vec<&str> = pairs.map(|(key, _)| &**key).collect();
    let fields = item.as_object().map_or(0, Map::len);
    if !at.can_compare(keys.len() * (1 + fields)) {
        return true;
    }
    let below = below(allowed, |segment| segment.selects(item));
    let is_key = |field: &String| keys.contains(&field.as_str());
    let only_keys = item.as_object().is_some_and(|object| object.keys().all(is_key));
    (!only_keys || below.is_empty()) && walk(item, &below, &keys, at)
}

// === impl Walk ===

impl Walk {
    /// Returns whether one more place may be compared in so many steps, and counts them.
    fn can_compare(&mut self, steps: usize) -> bool {
        self.steps_left = self.steps_left.saturating_sub(steps);
        self.steps_left > 0
    }
}

fn below<'a>(allowed: &[&'a [Segment]], selected: impl Fn(&Segment) -> bool) -> Vec<&'a [Segment]> {
    allowed
        .iter()
        .filter_map(|path| path.split_first())
        .filter(|(first, _)| selected(first))
        .map(|(_, rest)| rest)
        .collect()
}

fn push_key(place: &mut String, key: &str) {
    let plain = !key.is_empty()
        && key
            .chars()
            .all(|character| character.is_ascii_alphanumeric() || matches!(character, '-' | '_'));
    match (plain, place.is_empty()) {
        (true, true) => place.push_str(key),
        (true, false) => _ = write!(place, ".{key}"),
        (false, _) => _ = write!(place, "[{key:?}]"),
    }
}
