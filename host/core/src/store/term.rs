//! Index terms: labels and values by which indexes and triggers find objects.

use std::{
    hash::{BuildHasher, Hash, RandomState},
    sync::LazyLock,
};

use crate::path::Path;

/// A label or value by which indexes and triggers find objects.
#[derive(Clone, Copy, Debug, Hash)]
pub enum Term<'a> {
    /// A label's key and value.
    Label(&'a str, &'a str),
    /// A path and a text that an object holds there.
    Path(&'a Path, &'a str),
    /// A path at which an object holds too many texts to be indexed by each of them.
    TooMany(&'a Path),
}

/// Returns a hash that stands for a term or for other strings. The seed is random for each process,
/// so that nobody can choose colliding strings; among a million strings, a collision has a chance
/// of one in thirty million.
pub fn hashed(texts: impl Hash) -> u64 {
    static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    SEED.hash_one(texts)
}
