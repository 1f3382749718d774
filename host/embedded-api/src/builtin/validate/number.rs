//! Validation of numbers, ports and percentages.

use super::{FieldError, FieldPath, Value};

/// Validates that a number is not negative; it may be absent.
pub(super) fn not_negative(value: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    if let Some(number) = value.as_i64().filter(|number| *number < 0) {
        errors.push(FieldError::invalid(path, number, "must be greater than or equal to 0"));
    }
}

/// Validates that a number is greater than zero; it may be absent.
pub(super) fn positive(value: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    if let Some(number) = value.as_i64().filter(|number| *number <= 0) {
        errors.push(FieldError::invalid(path, number, "must be greater than 0"));
    }
}

/// Validates the number of a port.
pub(super) fn port(value: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let number = value.as_i64().unwrap_or(0);
    if !(1..=65535).contains(&number) {
        errors.push(FieldError::invalid(path, number, "must be between 1 and 65535, inclusive"));
    }
}

/// Validates the number or the name of a port.
pub(super) fn port_or_name(value: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    match value.as_str() {
        Some(name) => super::add_invalid(errors, path, name, port_name(name)),
        None => port(value, path, errors),
    }
}

/// Returns the reasons for which a text is no name of a port.
pub(super) fn port_name(name: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if name.len() > 15 {
        faults.push("must be no more than 15 characters".to_owned());
    }
    if name.is_empty()
        || !name.bytes().all(|letter| matches!(letter, b'a'..=b'z' | b'0'..=b'9' | b'-'))
    {
        faults.push(
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned(),
        );
    }
    if !name.bytes().any(|letter| letter.is_ascii_lowercase()) {
        faults.push("must contain at least one letter (a-z)".to_owned());
    }
    if name.contains("--") {
        faults.push("must not contain consecutive hyphens".to_owned());
    }
    if name.starts_with('-') || name.ends_with('-') {
        faults.push("must not begin or end with a hyphen".to_owned());
    }
    faults
}

/// Validates a number that is not negative, or a percentage.
pub(super) fn number_or_percent(value: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    match value.as_str() {
        Some(text) if percent(text).is_none() => {
            let fault = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
            errors.push(FieldError::invalid(path, text, fault));
        }
        Some(_) => {}
        None => not_negative(value, path, errors),
    }
}

/// Validates that a percentage is at most 100%.
pub(super) fn at_most_all(value: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    if let Some(text) = value.as_str()
        && percent(text).is_some_and(|percent| percent > 100)
    {
        errors.push(FieldError::invalid(path, text, "must not be greater than 100%"));
    }
}

/// Returns whether a number or percentage is zero.
pub(super) fn is_zero(value: &Value) -> bool {
    value.as_i64() == Some(0) || value.as_str().and_then(percent) == Some(0)
}

fn percent(text: &str) -> Option<u64> {
    let digits = text.strip_suffix('%')?;
    digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok())?
}
