//! Whether all that a manifest holds lies within a set of paths.

use std::fmt::Write;

use serde_json::Value;

use crate::path::{Path, Segment};

/// The first place in `fields` that none of the paths covers, as text, if there is one. The key by which a path selects a list's
/// element may be sent along.
pub(super) fn outside<'a>(
    fields: &Value,
    allowed: impl IntoIterator<Item = &'a Path>,
) -> Option<String> {
    let allowed: Vec<&[Segment]> = allowed.into_iter().map(Path::segments).collect();
    let mut place = String::new();
    walk(fields, &allowed, &mut place).then_some(place)
}

/// Whether something is outside; `place` then says where.
fn walk(value: &Value, allowed: &[&[Segment]], place: &mut String) -> bool {
    if allowed.iter().any(|path| path.is_empty()) {
        return false;
    }
    let length = place.len();
    match value {
        Value::Object(object) if !object.is_empty() && !allowed.is_empty() => {
            object.iter().any(|(key, held)| {
                place.truncate(length);
                push_key(place, key);
                walk(
                    held,
                    &below(
                        allowed,
                        |segment| matches!(segment, Segment::Key(wanted) if **wanted == **key),
                    ),
                    place,
                )
            })
        }
        Value::Array(items) if !items.is_empty() && !allowed.is_empty() => {
            items.iter().enumerate().any(|(index, item)| {
                place.truncate(length);
                _ = write!(place, "[{index}]");
                item_outside(item, allowed, place)
            })
        }
        _ => true,
    }
}

fn item_outside(item: &Value, allowed: &[&[Segment]], place: &mut String) -> bool {
    let below = below(allowed, |segment| segment.selects(item));
    let mut item = item.clone();
    if let Some(object) = item.as_object_mut() {
        for segment in allowed.iter().filter_map(|path| path.first()) {
            if let Segment::Where(keys) = segment {
                object.retain(|key, _| !keys.iter().any(|(named, _)| **named == **key));
            }
        }
    }
    let only_keys = item.as_object().is_some_and(serde_json::Map::is_empty) && !below.is_empty();
    !only_keys && walk(&item, &below, place)
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
