//! Rules of single fields as tables: each names a place in an object, `containers[].image`.

use super::{FieldError, FieldPath, Value, items, one_of, text};

/// A rule for the value at a place, if there is one.
pub(super) enum Rule {
    /// A number from the first to the second; the message is the third.
    Range(i64, i64, &'static str),
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// An object in which this field is not empty.
    Has(&'static str),
}

/// Validates an object by a table of rules.
pub(super) fn check(
    rules: &[(&str, Rule)],
    object: &Value,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    for (place, rule) in rules {
        each(object, place, path, &mut |value, path| match rule {
            Rule::Range(least, most, fault) => {
                if let Some(found) = value.as_i64().filter(|found| !(least..=most).contains(&found))
                {
                    errors.push(FieldError::invalid(path, found, *fault));
                }
            }
            Rule::OneOf(known) => one_of(value, known, path, errors),
            Rule::Has(field) if text(value, field).is_empty() => {
                errors.push(FieldError::required(path.child(field), ""));
            }
            Rule::Has(_) => {}
        });
    }
}

/// Visits the values at a place that are not null, with their paths.
pub(super) fn each(
    value: &Value,
    place: &str,
    path: &FieldPath<'_>,
    visit: &mut dyn FnMut(&Value, &FieldPath<'_>),
) {
    let (step, rest) = place.split_once('.').unwrap_or((place, ""));
    let name = step.trim_end_matches("[]");
    let (value, path) = (&value[name], path.child(name));
    let mut go = |value: &Value, path: &FieldPath<'_>| match rest {
        "" => visit(value, path),
        rest => each(value, rest, path, visit),
    };
    if name != step {
        items(value).iter().enumerate().for_each(|(index, item)| go(item, &path.index(index)));
    } else if !value.is_null() {
        go(value, &path);
    }
}
