//! The bytes of what comes in and is not complete yet: one sum for all, so that many senders of half
//! a message each take no more memory than one.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

use super::is_within;

/// The first bytes of each message, which are not counted: small ones always come in.
pub(crate) const MAX_UNCOUNTED: u64 = 64 << 10;

/// The bytes by tenants, such as namespaces. Clones share their state.
#[derive(Clone, Debug)]
pub(crate) struct Sum {
    by_tenant: Arc<Mutex<BTreeMap<Arc<str>, u64>>>,
    /// The maximum of all together.
    limit: u64,
}

/// The part of one tenant, which leaves some to others.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    all: Sum,
    tenant: Arc<str>,
}

/// The bytes of one message, counted until this is dropped. Without a part they are not counted.
#[derive(Debug, Default)]
pub(crate) struct Held {
    part: Option<Part>,
    bytes: u64,
}

// === impl Sum ===

impl Sum {
    pub(crate) fn new(limit: u64) -> Self {
        Self { by_tenant: Arc::default(), limit }
    }

    pub(crate) fn part_of(&self, tenant: &str) -> Part {
        Part { all: self.clone(), tenant: tenant.into() }
    }
}

// === impl Held ===

impl Held {
    pub(crate) fn of(part: Option<Part>) -> Self {
        Self { part, bytes: 0 }
    }

    /// Sets the number of bytes that are held. Returns false, and changes nothing, if all take too
    /// much.
    pub(crate) fn set(&mut self, bytes: usize) -> bool {
        let Some(Part { all: Sum { by_tenant, limit }, tenant }) = &self.part else { return true };
        let bytes = (bytes as u64).saturating_sub(MAX_UNCOUNTED);
        if bytes == self.bytes {
            return true;
        }
        let mut all = by_tenant.lock();
        let of_tenant = all.get(tenant).copied().unwrap_or_default();
        let next = |sum: u64| sum.saturating_sub(self.bytes).saturating_add(bytes);
        let (own, of_all) = (next(of_tenant), next(all.values().sum()));
        if bytes > self.bytes && !is_within(own, of_all, *limit) {
            return false;
        }
        self.bytes = bytes;
        if own == 0 {
            all.remove(tenant);
        } else {
            all.insert(Arc::clone(tenant), own);
        }
        true
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Less is never refused.
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(all: &Sum, tenant: &str) -> Held {
        Held::of(Some(all.part_of(tenant)))
    }

    #[test]
    fn what_comes_in_is_bounded_together_and_given_back() {
        const MIB: usize = 1 << 20;
        let all = Sum::new(64 << 20);
        let hold = |tenant: &str| {
            let mut held = one(&all, tenant);
            let most = (1..64).take_while(|mebibytes| held.set(mebibytes * MIB)).last();
            (held, most.unwrap_or_default())
        };
        let (mut first, most) = hold("a");
        assert_eq!(most, 32, "half of all");
        let (second, most) = hold("b");
        assert_eq!(most, 16, "half of the rest");
        assert_eq!(hold("a").1, 0);
        let mut small = one(&all, "a");
        assert!(small.set(64 << 10) && first.set(MIB));
        assert!(hold("a").1 > 8, "of what was given back");
        drop((first, second, small));
        assert!(all.by_tenant.lock().is_empty());
    }
}
