//! Labels and values as 64-bit terms: indexes hold terms and selections compare them, so that no
//! text is stored for either.
//!
//! The seed is drawn once per process. Two texts of one key with the same term would have to be
//! found without knowing the seed: with a million different terms of a kind the odds are one in
//! thirty million.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::labels::{LabelSelector, Test};

static SEED: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one("mortise"));

/// The kind of text that a term is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Space {
    /// A label's key.
    Label = 1,
    /// A path of `matching`.
    Path = 2,
    /// An object's namespace or name.
    Place = 3,
}

/// Returns the first half of a term, made of a label's key or of a path.
pub(crate) fn key(space: Space, text: &str) -> u64 {
    xxh3_64_with_seed(text.as_bytes(), SEED.wrapping_add(space as u64))
}

/// Returns the term of a key with a value.
pub(crate) fn term(key: u64, value: &str) -> u64 {
    xxh3_64_with_seed(value.as_bytes(), key)
}

/// A label selector over hashed labels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HashedSelector(Box<[(u64, HashedTest)]>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum HashedTest {
    Exists,
    Absent,
    In(Box<[u64]>),
    NotIn(Box<[u64]>),
}

/// Returns the term of an object's namespace (empty if it has none) and name.
pub(crate) fn place(namespace: &str, name: &str) -> u64 {
    term(key(Space::Place, namespace), name)
}

// === impl HashedSelector ===

impl HashedSelector {
    pub(crate) fn new(selector: &LabelSelector) -> Self {
        let requirements = selector.requirements().iter().map(|requirement| {
            let key = key(Space::Label, &requirement.key);
            let terms = |values: &std::collections::BTreeSet<Box<str>>| {
                values.iter().map(|value| term(key, value)).collect()
            };
            let test = match &requirement.test {
                Test::Exists => HashedTest::Exists,
                Test::Absent => HashedTest::Absent,
                Test::In(values) => HashedTest::In(terms(values)),
                Test::NotIn(values) => HashedTest::NotIn(terms(values)),
            };
            (key, test)
        });
        Self(requirements.collect())
    }

    /// Returns whether the selector selects the labels, given as a function from key to term.
    pub(crate) fn matches(&self, label: impl Fn(u64) -> Option<u64>) -> bool {
        self.0.iter().all(|(key, test)| match (test, label(*key)) {
            (HashedTest::Exists, label) => label.is_some(),
            (HashedTest::Absent, label) => label.is_none(),
            (HashedTest::In(terms), label) => label.is_some_and(|label| terms.contains(&label)),
            (HashedTest::NotIn(terms), label) => label.is_none_or(|label| !terms.contains(&label)),
        })
    }

    /// Returns the labels for which one value is required: key and term.
    pub(crate) fn equalities(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().filter_map(|(key, test)| match test {
            HashedTest::In(terms) => {
                terms.first().filter(|_| terms.len() == 1).map(|term| (*key, *term))
            }
            _ => None,
        })
    }
}
