//! The order of versions: `v1` before `v1beta2` before `v1alpha1`, then all others by their text.

use std::cmp::{Ordering, Reverse};

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Rank<'a> {
    /// Stability and numbers, the preferred ones first.
    Known(Stability, Reverse<u64>, Reverse<u64>),
    Other(&'a str),
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Stability {
    Stable,
    Beta,
    Alpha,
}

/// Compares two versions; the preferred one is less.
pub(crate) fn by_priority(left: &str, right: &str) -> Ordering {
    rank(left).cmp(&rank(right))
}

fn rank(version: &str) -> Rank<'_> {
    parse(version).unwrap_or(Rank::Other(version))
}

fn parse(version: &str) -> Option<Rank<'_>> {
    let rest = version.strip_prefix('v')?;
    let (major, rest) = number(rest)?;
    if rest.is_empty() {
        return Some(Rank::Known(Stability::Stable, Reverse(major), Reverse(0)));
    }
    let (stability, rest) = match rest.strip_prefix("beta") {
        Some(rest) => (Stability::Beta, rest),
        None => (Stability::Alpha, rest.strip_prefix("alpha")?),
    };
    let (minor, rest) = number(rest)?;
    rest.is_empty().then_some(Rank::Known(stability, Reverse(major), Reverse(minor)))
}

/// Returns a number without leading zeros, and the rest of the text.
fn number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    if digits.starts_with('0') {
        return None;
    }
    Some((digits.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::by_priority;

    #[test]
    fn stable_versions_come_first_and_unknown_ones_last() {
        let mut versions =
            ["v1alpha2", "foo1", "v10", "v1", "v2beta1", "v2", "v1beta2", "v1beta10", "bar"];
        versions.sort_by(|left, right| by_priority(left, right));
        let expected =
            ["v10", "v2", "v1", "v2beta1", "v1beta10", "v1beta2", "v1alpha2", "bar", "foo1"];
        assert_eq!(versions, expected);
    }
}
