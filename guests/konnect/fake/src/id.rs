//! Identifiers that the API chooses.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};

/// Chooses the identifier (a UUID) of a collection's n-th entity, counted from 1.
pub type Source = Box<dyn FnMut(&str, u64) -> String + Send>;

/// The origin of an identifier that the API has chosen.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Minted {
    /// The last segment of the path where the entity was created, such as `services`, `key-auth`
    /// or `control-planes`; `organizations` for an organization.
    pub collection: String,
    /// The number of the entity in its collection, in the order of creation, counted from 1.
    pub number: u64,
}

/// Identifiers chosen so far.
pub(crate) struct Ids {
    source: Source,
    counts: HashMap<String, u64>,
    minted: HashMap<String, Minted>,
}

/// Returns a source of identifiers that depend on a seed, the collection and the number only.
pub fn seeded(seed: &str) -> Source {
    let seed = seed.to_owned();
    Box::new(move |collection, number| {
        let digest = Sha256::digest(format!("{seed}\n{collection}\n{number}"));
        let mut bytes = [0; 16];
        bytes.iter_mut().zip(digest).for_each(|(byte, from)| *byte = from);
        uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
    })
}

// === impl Ids ===

impl Ids {
    pub(crate) fn new(source: Source) -> Self {
        Self { source, counts: HashMap::new(), minted: HashMap::new() }
    }

    /// Chooses the next identifier of a collection.
    pub(crate) fn mint(&mut self, collection: &str) -> String {
        let number = self.counts.entry(collection.to_owned()).or_default();
        *number += 1;
        let id = (self.source)(collection, *number);
        let minted = Minted { collection: collection.to_owned(), number: *number };
        self.minted.insert(id.clone(), minted);
        id
    }

    /// Returns the origin of an identifier; nothing if it comes from a caller.
    pub(crate) fn minted(&self, id: &str) -> Option<&Minted> {
        self.minted.get(id)
    }
}
