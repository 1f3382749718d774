//! What other clusters have sent of answers that are not complete yet: one sum for all, so that many
//! servers that send half of an answer each take no more memory than one.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

use super::TooMuch;
use crate::share;

/// The maximum of all together, in bytes.
pub(super) const MAX_HELD: u64 = 64 << 20;
/// The first bytes of each answer or line, which are not counted: small ones always come in.
const MAX_UNCOUNTED: u64 = 64 << 10;

/// The bytes by namespaces of the Secrets that name the clusters: who writes such a Secret decides
/// which server answers. Clones share their state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Incoming(Arc<Mutex<BTreeMap<Arc<str>, u64>>>);

/// The part of one namespace, which leaves some to others. Answers of its clusters have it among
/// their extensions.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    all: Incoming,
    namespace: Arc<str>,
}

/// What is held of one answer, until it is dropped. Without a part it is not counted.
#[derive(Debug, Default)]
pub(super) struct Held {
    part: Option<Part>,
    bytes: u64,
}

// === impl Incoming ===

impl Incoming {
    pub(crate) fn part_of(&self, namespace: &str) -> Part {
        Part { all: self.clone(), namespace: namespace.into() }
    }
}

// === impl Held ===

impl Held {
    pub(super) fn of(extensions: &http::Extensions) -> Self {
        Self { part: extensions.get::<Part>().cloned(), bytes: 0 }
    }

    /// Sets the number of bytes that are held. Fails, and changes nothing, if all take too much.
    pub(super) fn set(&mut self, bytes: usize) -> Result<(), TooMuch> {
        let Some(Part { all, namespace }) = &self.part else { return Ok(()) };
        let bytes = (bytes as u64).saturating_sub(MAX_UNCOUNTED);
        if bytes == self.bytes {
            return Ok(());
        }
        let mut all = all.0.lock();
        let of_namespace = all.get(namespace).copied().unwrap_or_default();
        let next = |sum: u64| sum.saturating_sub(self.bytes).saturating_add(bytes);
        let (own, of_all) = (next(of_namespace), next(all.values().sum()));
        if bytes > self.bytes && !share::is_within(own, of_all, MAX_HELD) {
            return Err(TooMuch::Together);
        }
        self.bytes = bytes;
        if own == 0 {
            all.remove(namespace);
        } else {
            all.insert(Arc::clone(namespace), own);
        }
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Less is never refused.
        let _ = self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(all: &Incoming, namespace: &str) -> Held {
        Held { part: Some(all.part_of(namespace)), bytes: 0 }
    }

    #[test]
    fn what_comes_in_is_bounded_together_and_given_back() {
        const MIB: usize = 1 << 20;
        let all = Incoming::default();
        let hold = |namespace: &str| {
            let mut held = one(&all, namespace);
            let most = (1..64).take_while(|mebibytes| held.set(mebibytes * MIB).is_ok()).last();
            (held, most.unwrap_or_default())
        };
        let (mut first, most) = hold("a");
        assert_eq!(most, 32, "half of all");
        let (second, most) = hold("b");
        assert_eq!(most, 16, "half of the rest");
        assert_eq!(hold("a").1, 0);
        let mut small = one(&all, "a");
        small.set(64 << 10).unwrap();
        first.set(MIB).unwrap();
        assert!(hold("a").1 > 8, "of what was given back");
        drop((first, second, small));
        assert!(all.0.lock().is_empty());
    }
}
