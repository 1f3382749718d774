//! Quantities as Kubernetes reads and writes them, such as `250m` or `1Gi`.

use std::cmp::Ordering;

/// An amount of a resource.
///
/// Equality and order are those of the amounts: `1` equals `1000m`.
#[derive(Debug, Clone, Copy)]
pub struct Quantity {
    nanos: i128,
    form: Form,
}

/// The form in which a quantity was written, and is written again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Decimal,
    Binary,
    Exponent,
}

/// A text that is no quantity, with Kubernetes' messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text as a whole has another form.
    #[error(
        "quantities must match the regular expression \
         '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )]
    Form,
    /// The text after the number is no suffix.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// The amount of one in the smallest unit.
const ONE: i128 = 1_000_000_000;
/// The largest amount; larger ones are cut down to it.
const MAX_AMOUNT: i128 = i64::MAX as i128 * ONE;

const DECIMAL: [(&str, i32); 9] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15)];
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

// === impl Quantity ===

impl Quantity {
    /// The amount of nothing.
    pub const ZERO: Self = Self { nanos: 0, form: Form::Decimal };

    /// Returns a whole number.
    pub const fn of(number: i64) -> Self {
        Self { nanos: number as i128 * ONE, form: Form::Decimal }
    }

    /// Reads a quantity. Amounts below a billionth are rounded up to one.
    ///
    /// # Errors
    ///
    /// Fails with Kubernetes' message if the text is no quantity.
    pub fn parse(text: &str) -> Result<Self, Error> {
        if text.is_empty() {
            return Err(Error::Form);
        }
        let is_negative = text.starts_with('-');
        let rest = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (whole, rest) = digits(rest);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => digits(rest),
            None => ("", rest),
        };
        has_form_of_suffix(suffix)?;
        let (form, base, exponent) = unit(suffix).ok_or(Error::Suffix)?;
        let amount = amount(whole, fraction, base, exponent);
        Ok(Self { nanos: if is_negative { -amount } else { amount }, form })
    }

    /// Returns the sum of two quantities, in the form of the first that is not nothing.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let form = if self.nanos == 0 { other.form } else { self.form };
        Self { nanos: self.nanos.saturating_add(other.nanos), form }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

/// The canonical form: the number as small as it can be without a fraction.
impl std::fmt::Display for Quantity {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.nanos == 0 {
            return formatter.write_str("0");
        }
        let number = self.nanos / ONE;
        if self.form == Form::Binary && self.nanos % ONE == 0 && number.abs() >= 1024 {
            let (number, suffix) = binary(number);
            return write!(formatter, "{number}{suffix}");
        }
        let (number, exponent) = decimal(self.nanos);
        match DECIMAL.iter().chain(&[("E", 18)]).find(|(_, known)| *known == exponent) {
            Some((suffix, _)) if self.form != Form::Exponent => {
                write!(formatter, "{number}{suffix}")
            }
            _ if exponent == 0 => write!(formatter, "{number}"),
            _ => write!(formatter, "{number}e{exponent}"),
        }
    }
}

fn digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// Checks that a suffix consists of letters of suffixes, then a sign, then digits.
fn has_form_of_suffix(suffix: &str) -> Result<(), Error> {
    let rest = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let rest = rest.strip_prefix(['-', '+']).unwrap_or(rest);
    if digits(rest).1.is_empty() { Ok(()) } else { Err(Error::Form) }
}

/// Returns the form, base and exponent of a suffix.
fn unit(suffix: &str) -> Option<(Form, u32, i32)> {
    if let Some((_, exponent)) = DECIMAL.iter().find(|(known, _)| *known == suffix) {
        return Some((Form::Decimal, 10, *exponent));
    }
    if suffix == "E" {
        return Some((Form::Decimal, 10, 18));
    }
    if let Some(place) = BINARY.iter().position(|known| *known == suffix) {
        return Some((Form::Binary, 1024, i32::try_from(place).ok()? + 1));
    }
    let exponent: i64 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    let exponent = exponent.clamp(-1000, 1000);
    Some((Form::Exponent, 10, i32::try_from(exponent).ok()?))
}

/// Returns the billionths of a number, rounded up, and at most as many as there may be.
fn amount(whole: &str, fraction: &str, base: u32, exponent: i32) -> i128 {
    let digits = whole.bytes().chain(fraction.bytes()).map(|byte| i128::from(byte - b'0'));
    // Digits beyond these decide only whether there is anything to round up.
    let (mut number, mut scale, mut rest) = (0_i128, 0_i32, false);
    for (place, digit) in digits.enumerate() {
        let is_whole = place < whole.len();
        if number < 10_i128.pow(26) {
            number = number * 10 + digit;
            scale -= i32::from(!is_whole);
        } else {
            scale += i32::from(is_whole);
            rest |= digit != 0;
        }
    }
    if number == 0 {
        return 0;
    }
    let (factor, decimal) = match base {
        10 => (1, scale.saturating_add(exponent)),
        _ => (1024_i128.pow(exponent.unsigned_abs()), scale),
    };
    let mut decimal = decimal.saturating_add(9);
    let mut amount = loop {
        match number.checked_mul(factor) {
            Some(amount) => break amount,
            None if decimal >= 0 => return MAX_AMOUNT,
            None => {
                rest |= number % 10 != 0;
                (number, decimal) = (number / 10, decimal + 1);
            }
        }
    };
    for _ in 0..decimal {
        if amount > MAX_AMOUNT {
            return MAX_AMOUNT;
        }
        amount *= 10;
    }
    for _ in decimal..0 {
        rest |= amount % 10 != 0;
        amount /= 10;
    }
    (amount + i128::from(rest)).min(MAX_AMOUNT)
}

fn binary(mut number: i128) -> (i128, &'static str) {
    let mut suffix = "";
    for next in BINARY {
        if number % 1024 != 0 {
            break;
        }
        (number, suffix) = (number / 1024, next);
    }
    (number, suffix)
}

/// Returns a number of billionths without zeros at its end, and the exponent that goes with it, a
/// multiple of three.
fn decimal(mut number: i128) -> (i128, i32) {
    let mut exponent = -9;
    while number % 1000 == 0 {
        (number, exponent) = (number / 1000, exponent + 3);
    }
    (number, exponent)
}

#[cfg(test)]
mod tests;
