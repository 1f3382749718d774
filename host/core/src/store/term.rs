//! Texts by which indexes and triggers find objects.

use std::{
    hash::{BuildHasher, Hash, RandomState},
    sync::LazyLock,
};

use crate::path::Path;

/// A text by which indexes and triggers find objects.
#[derive(Clone, Copy, Debug, Hash)]
pub enum Term<'a> {
    /// A label's key and value.
    Label(&'a str, &'a str),
    /// A path and a text that an object holds there.
    Path(&'a Path, &'a str),
}

/// Returns a hash that is kept in place of a term or of other texts. The seed is drawn once per
/// process, so that nobody can choose texts with the same hash; with a million texts the odds of
/// two with the same hash are one in thirty million.
pub fn hashed(texts: impl Hash) -> u64 {
    static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    SEED.hash_one(texts)
}
