//! Quantities of resources in their canonical form: `1000m` is `1`, `0.5` is `500m`, `1024Mi` is
//! `1Gi`.

/// A quantity, exact to a billionth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quantity {
    nanos: i128,
    form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Suffixes `k`, `M`, …: powers of 1000.
    Decimal,
    /// Exponents `e3`, `e6`, ….
    Exponent,
    /// Suffixes `Ki`, `Mi`, …: powers of 1024.
    Binary,
}

const ONE: i128 = 1_000_000_000;
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// The suffixes from billionths on, each a thousand times the one before.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

/// Returns the billionths of a quantity in an object; zero if it is absent or none.
pub(crate) fn nanos(value: &serde_json::Value) -> i128 {
    value.as_str().and_then(Quantity::parse).map_or(0, Quantity::nanos)
}

// === impl Quantity ===

impl Quantity {
    /// Parses a quantity; `None` if the text is no quantity, or too large.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (negative, rest) = match text.as_bytes().first()? {
            b'-' => (true, text.get(1..)?),
            b'+' => (false, text.get(1..)?),
            _ => (false, text),
        };
        let end = rest
            .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
            .unwrap_or(rest.len());
        let (digits, suffix) = rest.split_at(end);
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        let (form, factor, divisor) = scale(suffix)?;
        let mantissa: i128 = format!("0{whole}{fraction}").parse().ok()?;
        let nanos = mantissa.checked_mul(factor)?;
        let divisor =
            divisor.checked_mul(10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?)?;
        // Fractions of a billionth are rounded away from zero.
        let nanos = nanos.div_euclid(divisor) + i128::from(nanos.rem_euclid(divisor) != 0);
        Some(Self { nanos: if negative { -nanos } else { nanos }, form })
    }

    /// Returns the quantity in billionths.
    pub(crate) fn nanos(self) -> i128 {
        self.nanos
    }

    /// Returns the quantity with at most three digits of a fraction, rounded away from zero, as
    /// Kubernetes stores amounts of resources.
    pub(crate) fn in_thousandths(self) -> Self {
        const MILLI: i128 = ONE / 1000;
        let rest = self.nanos % MILLI;
        let up = if rest == 0 { 0 } else { rest.signum() * MILLI };
        Self { nanos: self.nanos - rest + up, ..self }
    }

    /// Returns the sum, in the form of the first that is not zero.
    pub(crate) fn plus(self, other: Self) -> Self {
        let form = if self.nanos == 0 { other.form } else { self.form };
        Self { nanos: self.nanos.saturating_add(other.nanos), form }
    }

    /// Returns the canonical text.
    pub(crate) fn text(self) -> String {
        if self.nanos == 0 {
            return "0".to_owned();
        }
        let fits = self.nanos % ONE == 0 && self.nanos.abs() >= 1024 * ONE;
        if self.form == Form::Binary && fits {
            return binary(self.nanos / ONE);
        }
        self.thousands()
    }

    fn thousands(self) -> String {
        let (mut mantissa, mut steps) = (self.nanos, 0);
        while mantissa % 1000 == 0 && steps + 1 < DECIMAL.len() {
            mantissa /= 1000;
            steps += 1;
        }
        match self.form {
            Form::Exponent if steps == 3 => mantissa.to_string(),
            Form::Exponent => format!("{mantissa}e{}", i64::try_from(steps).unwrap_or(0) * 3 - 9),
            Form::Decimal | Form::Binary => {
                format!("{mantissa}{}", DECIMAL.get(steps).unwrap_or(&""))
            }
        }
    }
}

fn binary(mut whole: i128) -> String {
    let mut steps = 0;
    while whole % 1024 == 0 && steps + 1 < BINARY.len() {
        whole /= 1024;
        steps += 1;
    }
    format!("{whole}{}", BINARY.get(steps).unwrap_or(&""))
}

/// Returns the form of a suffix, and the factor and divisor that give billionths.
fn scale(suffix: &str) -> Option<(Form, i128, i128)> {
    if let Some(power) = BINARY.iter().skip(1).position(|known| *known == suffix) {
        return Some((Form::Binary, ONE * 1024_i128.pow(u32::try_from(power).ok()? + 1), 1));
    }
    if let Some(steps) = DECIMAL.iter().position(|known| *known == suffix) {
        return Some((Form::Decimal, 1000_i128.pow(u32::try_from(steps).ok()?), 1));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    let power = 10_i128.checked_pow(exponent.unsigned_abs())?;
    if exponent < 0 {
        Some((Form::Exponent, ONE, power))
    } else {
        Some((Form::Exponent, ONE.checked_mul(power)?, 1))
    }
}

#[cfg(test)]
mod tests {
    use super::Quantity;

    #[test]
    fn quantities_have_one_canonical_text() {
        let cases = [
            ("1000m", "1"),
            ("0.5", "500m"),
            (".5", "500m"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("100Mi", "100Mi"),
            ("0.1Gi", "107374182400m"),
            ("1000k", "1M"),
            ("1500M", "1500M"),
            ("1e3", "1e3"),
            ("12E6", "12e6"),
            ("0", "0"),
            ("0Mi", "0"),
            ("-1500m", "-1500m"),
            ("512", "512"),
            ("1Ki", "1Ki"),
            ("0.5Ki", "512"),
            ("0.1n", "1n"),
        ];
        for (text, canonical) in cases {
            assert_eq!(
                Quantity::parse(text).map(Quantity::text).as_deref(),
                Some(canonical),
                "{text}"
            );
        }
        for text in ["", "x", "1.2.3", "1Qi", "--1", "1 Gi"] {
            assert_eq!(Quantity::parse(text), None, "{text}");
        }
    }
}
