//! Counts what a JSON text becomes when it is parsed, while its bytes come in.

use serde_json::Value;

use super::ENTRY;

/// The depth of JSON that is parsed at all, as that of the parser. The API server accepts 10,000.
pub const MAX_LEVELS: usize = 127;

/// A count of the entries of a JSON text: members of objects and items of lists, down to the depth
/// to which the text will be parsed. What is deeper stays text, whose bytes count.
///
/// The count is exact for valid JSON. Of other texts, it is that of the part before the error, at
/// least, which is all that a parser makes of them.
#[derive(Debug)]
pub struct Entries {
    deepest: usize,
    depth: usize,
    /// The largest depth so far.
    reached: usize,
    is_in_text: bool,
    is_escaped: bool,
}

// === impl Entries ===

impl Entries {
    /// Starts a count. The members of the outermost object have depth 1.
    pub fn to_depth(deepest: usize) -> Self {
        Self { deepest, depth: 0, reached: 0, is_in_text: false, is_escaped: false }
    }

    /// Returns the number of entries that begin in the next bytes of the text. A list or object
    /// without entries counts as one entry more.
    pub fn count(&mut self, bytes: &[u8]) -> usize {
        let mut entries = 0;
        for byte in bytes {
            if self.is_in_text {
                match byte {
                    _ if self.is_escaped => self.is_escaped = false,
                    b'\\' => self.is_escaped = true,
                    b'"' => self.is_in_text = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.is_in_text = true,
                b'{' | b'[' => {
                    self.depth += 1;
                    self.reached = self.reached.max(self.depth);
                    entries += usize::from(self.depth <= self.deepest);
                }
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                b',' => entries += usize::from(self.depth <= self.deepest),
                _ => {}
            }
        }
        entries
    }

    /// Returns the largest depth of the text so far, also of what is not counted.
    pub fn reached(&self) -> usize {
        self.reached
    }
}

/// Returns whether a JSON text is nested deeper than this.
pub fn is_deeper_than(text: &[u8], levels: usize) -> bool {
    // Few texts have so many brackets, and these are counted much faster than entries.
    let brackets = text.iter().filter(|byte| matches!(byte, b'{' | b'[')).count();
    if brackets <= levels {
        return false;
    }
    let mut entries = Entries::to_depth(0);
    entries.count(text);
    entries.reached() > levels
}

/// Returns the account of a JSON text that will be parsed to a depth: its bytes, and [`ENTRY`] more
/// for each entry.
pub fn account(text: &[u8], parsed_depth: usize) -> usize {
    text.len() + ENTRY * Entries::to_depth(parsed_depth).count(text)
}

/// Returns the account of parsed JSON: the bytes of its keys and texts, and [`ENTRY`] more for each
/// entry.
pub fn account_of(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(|item| ENTRY + account_of(item)).sum(),
        Value::Object(members) => {
            members.iter().map(|(key, member)| ENTRY + key.len() + account_of(member)).sum()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn count(text: &str, deepest: usize) -> usize {
        Entries::to_depth(deepest).count(text.as_bytes())
    }

    #[test]
    fn members_and_items_count_down_to_a_depth() {
        let cases = [
            ("3", 9, 0),
            ("[0,0,0]", 1, 3),
            (r#"{"a": [0, 0], "b": {"c": 1}}"#, 1, 2),
            (r#"{"a": [0, 0], "b": {"c": 1}}"#, 2, 5),
            (r#"{"a,\",[": "{,\\"}"#, 9, 1),
            ("[[],[]]", 2, 4),
        ];
        for (text, deepest, expected) in cases {
            assert_eq!(count(text, deepest), expected, "{text}");
        }
    }

    #[test]
    fn a_text_is_as_deep_as_its_deepest_member() {
        let cases = [
            ("3", 0),
            (r#"{"a": {}, "b": [[0]], "c": {}}"#, 3),
            (r#"{"[[[[": "{{{\"{{{"}"#, 1),
            ("[[]]\n[]\n[[]]", 2),
        ];
        for (text, levels) in cases {
            assert!(!is_deeper_than(text.as_bytes(), levels), "{text}");
            assert!(levels == 0 || is_deeper_than(text.as_bytes(), levels - 1), "{text}");
        }
    }

    fn entries(value: &Value, deepest: usize) -> usize {
        let each: Vec<&Value> = match value {
            Value::Array(items) => items.iter().collect(),
            Value::Object(members) => members.values().collect(),
            _ => return 0,
        };
        let Some(deepest) = deepest.checked_sub(1) else { return 0 };
        each.len().max(1) + each.iter().map(|value| entries(value, deepest)).sum::<usize>()
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(Value::Null), any::<String>().prop_map(Value::from)];
        leaf.prop_recursive(5, 60, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..5)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_count_is_that_of_the_parsed_text_however_it_is_cut(
            value in values(),
            deepest in 0_usize..6,
            size in 1_usize..9,
        ) {
            let text = value.to_string();
            let mut counted = Entries::to_depth(deepest);
            let sum: usize = text.as_bytes().chunks(size).map(|part| counted.count(part)).sum();
            prop_assert_eq!(sum, entries(&value, deepest));
        }
    }
}
