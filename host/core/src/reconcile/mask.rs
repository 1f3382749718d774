//! Masks the values of Secrets in the texts of a processor: `***` stands for them in failures,
//! notes, logs and denials.
//!
//! The mask finds a value as it stands in `data`, the same value decoded, a value of `stringData`,
//! and each line of a value of several lines. It does not find values of less than six bytes, parts
//! of a value or of a line, and texts derived from a value: another encoding, quotes, a digest. A
//! processor that reads a Secret can evade the mask, which only prevents accidental leaks.

use std::collections::{BTreeSet, HashSet};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::Value;

use crate::store::Entry;

/// The minimum length of a masked value: shorter ones, such as `true` and `8080`, occur in many
/// texts.
const MIN_VALUE_BYTES: usize = 6;
/// The maximum number of bytes of Secrets that are searched for one run. If the run has read more,
/// none of its texts is shown.
const MAX_SECRET_BYTES: usize = 4 << 20;
/// The maximum number of different values in the texts of one run. Above it, no text is shown.
const MAX_VALUES: usize = 256;
/// The replacement of a value.
const MASK: &str = "***";
/// The replacement of a whole text.
const WITHHELD: &str =
    "*** (withheld: the run has read more of Secrets than can be looked for in what it says)";

/// The first bytes of a value.
type Start = [u8; MIN_VALUE_BYTES];

/// The values to be masked in the texts of a run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Mask {
    /// These values, if any.
    Values(BTreeSet<String>),
    /// Every text as a whole.
    All,
}

// === impl Mask ===

impl Mask {
    /// Finds the values of Secrets that may stand in the texts. Those of credentials are few and
    /// short, and are looked for as they are.
    pub(crate) fn new<'a>(
        secrets: impl Iterator<Item = &'a Entry>,
        credentials: impl Iterator<Item = &'a str>,
        texts: impl Iterator<Item = &'a str>,
    ) -> Self {
        let is_long = |value: &&str| value.len() >= MIN_VALUE_BYTES;
        let mut values: BTreeSet<String> = credentials.filter(is_long).map(str::to_owned).collect();
        let mut left = MAX_SECRET_BYTES;
        let mut starts: Option<HashSet<Start>> = None;
        let mut texts = Some(texts);
        for secret in secrets {
            let Some(rest) = left.checked_sub(secret.json().len()) else { return Self::All };
            left = rest;
            // Computed only here: most runs read no Secret.
            let starts = starts.get_or_insert_with(|| {
                texts.take().into_iter().flatten().flat_map(starts_of).collect()
            });
            each_value(&secret.value(), |value| {
                let start = value.as_bytes().first_chunk::<MIN_VALUE_BYTES>();
                if start.is_some_and(|start| starts.contains(start)) && values.len() <= MAX_VALUES {
                    values.insert(value.to_owned());
                }
            });
            if values.len() > MAX_VALUES {
                return Self::All;
            }
        }
        Self::Values(values)
    }

    /// Returns the text without the values; `None` if it holds none.
    pub(crate) fn masked(&self, text: &str) -> Option<String> {
        let values = match self {
            Self::All => return Some(WITHHELD.to_owned()),
            Self::Values(values) => values,
        };
        let found = |value: &String| {
            let length = value.len();
            text.match_indices(value.as_str())
                .map(move |(at, _)| (at, at + length))
                .collect::<Vec<_>>()
        };
        let mut ranges: Vec<(usize, usize)> = values.iter().flat_map(found).collect();
        ranges.sort_unstable();
        let (mut masked, mut end) = (String::new(), 0);
        for (from, to) in &ranges {
            if *from >= end {
                masked.push_str(text.get(end..*from)?);
                masked.push_str(MASK);
            }
            end = end.max(*to);
        }
        masked.push_str(text.get(end..)?);
        (!ranges.is_empty()).then_some(masked)
    }
}

fn starts_of(text: &str) -> impl Iterator<Item = Start> {
    text.as_bytes().windows(MIN_VALUE_BYTES).filter_map(|window| window.try_into().ok())
}

/// Calls `each` with every text that counts as a value of a Secret.
fn each_value(secret: &Value, mut each: impl FnMut(&str)) {
    let values = |field: &str| {
        let values = secret.get(field).and_then(Value::as_object);
        values.into_iter().flatten().filter_map(|(_, value)| value.as_str())
    };
    for encoded in values("data") {
        each(encoded);
        let decoded = BASE64_STANDARD.decode(encoded).unwrap_or_default();
        each_line(&String::from_utf8_lossy(&decoded), &mut each);
    }
    values("stringData").for_each(|value| each_line(value, &mut each));
}

/// Calls `each` with the whole text, and with each of its lines.
fn each_line(text: &str, each: &mut impl FnMut(&str)) {
    each(text);
    text.lines().for_each(|line| each(line.trim()));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn secret(data: &Value) -> Entry {
        let metadata =
            json!({"name": "s", "namespace": "shop", "uid": "u", "resourceVersion": "1"});
        let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data,
            "stringData": {"plain": "in-the-clear"}});
        Entry::alone(&object)
    }

    fn masked(secret: &Entry, text: &str) -> String {
        let mask = Mask::new([secret].into_iter(), std::iter::empty(), [text].into_iter());
        mask.masked(text).unwrap_or_else(|| text.to_owned())
    }

    #[test]
    fn values_are_found_in_each_of_their_forms() {
        let encoded = |text: &str| BASE64_STANDARD.encode(text);
        let data = json!({
            "password": encoded("correct horse\n"),
            "file": encoded("user: admin\r\n  token: 0123456789\nx: y\n"),
            "port": encoded("8080"),
            "overlap": encoded("horse battery"),
            "bytes": BASE64_STANDARD.encode([0xff, 0xfe, b'a', b'b', b'c', b'd', b'e']),
            "no base64": "not-base64-at-all",
        });
        let secret = secret(&data);
        let cases = [
            ("wrong password: correct horse!", "wrong password: ***!"),
            ("correct horse battery staple", "*** staple"),
            ("correct horsecorrect horse", "******"),
            (&*format!("data: {}", encoded("correct horse\n")), "data: ***"),
            ("line token: 0123456789, then", "line ***, then"),
            ("user: admin\r\n  token: 0123456789\nx: y\n", "***"),
            ("in-the-clear", "***"),
            ("not-base64-at-all", "***"),
            ("port 8080", "port 8080"),
            ("correct horses", "***s"),
            ("correct hors", "correct hors"),
            ("nothing of it", "nothing of it"),
            ("", ""),
        ];
        for (text, expected) in cases {
            assert_eq!(masked(&secret, text), expected);
        }
    }

    #[test]
    fn texts_are_withheld_if_secrets_exceed_the_masking_limits() {
        let large = secret(&json!({"a": "A".repeat(MAX_SECRET_BYTES)}));
        assert_eq!(
            Mask::new([&large].into_iter(), std::iter::empty(), ["text"].into_iter()),
            Mask::All
        );
        let numbers = (0..2 * MAX_VALUES).map(|number| format!("{number:06}secret"));
        let lines = numbers.collect::<Vec<_>>().join(
            "
",
        );
        let many = secret(&json!({"a": BASE64_STANDARD.encode(&lines)}));
        assert_eq!(
            Mask::new([&many].into_iter(), std::iter::empty(), [lines.as_str()].into_iter()),
            Mask::All
        );
        assert_eq!(Mask::All.masked("text").as_deref(), Some(WITHHELD));
        assert_eq!(masked(&many, "000007secret, 9secret"), "***, 9secret");
    }

    #[test]
    fn runs_that_read_no_secret_are_not_looked_through() {
        let texts =
            std::iter::from_fn(|| -> Option<&str> { panic!("the texts are looked through") });
        assert_eq!(
            Mask::new(std::iter::empty(), std::iter::empty(), texts),
            Mask::Values(BTreeSet::new())
        );
    }
}
