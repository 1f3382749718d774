//! What a processor may read and write: the declarations of its description, parsed and checked.
//!
//! A description is checked once, when the processor is loaded ([`Grant::new`]); from then on every
//! read of a call and every write of an outcome is checked against the grant.
//!
//! Pure: no I/O, no clock. Does not cut the declarations down to the rights of a `ServiceAccount`.

mod connect;
mod declared;
pub mod effective;
pub mod granted;
mod hidden;
mod limited;
mod outbound;
mod reads;
mod reconciler;
pub mod rights;
pub mod role;
mod selected;
#[cfg(test)]
mod tests;
pub mod text;
mod within;
mod writes;

pub use connect::secret_of;
pub use declared::Declared;
pub use limited::{Limited, LimitsMet};
pub use reads::{Demand, Readable, watched};
pub use reconciler::DeclaredReconciler;
pub use selected::{Selected, Selections};
pub use text::{accepted, display_selection, verb_names};
pub use within::Undeclared;
pub use writes::{Denied, Writable};

pub(crate) use outbound::OutboundRule;
pub(crate) use reads::RECONCILE;

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

use self::{hidden::Hidden, reads::Lists, writes::Rule};
use crate::{
    contract::{Description, Kind},
    store::{Scope, Wanted},
};

/// The parsed declarations of a description.
#[derive(Debug, Default)]
pub struct Grant {
    reconcilers: Vec<Arc<DeclaredReconciler>>,
    /// The selections of the reconcilers, then those of `reads`.
    reads: Vec<Arc<Readable>>,
    writes: Vec<Arc<Rule>>,
    /// The systems outside of the cluster that may be called.
    outbound: Vec<OutboundRule>,
    /// The fields of the credentials for them.
    hidden: Hidden,
    /// The watches that the declarations need.
    wanted: Vec<(Kind, Scope, Wanted)>,
    /// The caches of the lists of fields that calls read with.
    lists: Mutex<Lists>,
    limited: Limited,
}

/// A description that cannot be granted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// A path, selector or name that does not parse.
    #[error("`{place}`: `{value}`: {reason}")]
    Malformed {
        /// The place in the description: `reads[2].labels`.
        place: String,
        /// The value at that place.
        value: String,
        /// The reason why the value is malformed.
        reason: String,
    },
    /// A cluster of which no declared read selects the Secret.
    #[error("`{place}`: {denied}")]
    OtherCluster {
        /// The place in the description.
        place: String,
        /// The missing read.
        denied: Denied,
    },
}

// === impl Grant ===

impl Grant {
    /// Parses the declarations of a description.
    pub fn new(description: &Description) -> Result<Self, Invalid> {
        let (reconcilers, reads, writes) = description.declared();
        let mut grant = Self::default();
        for (place, spec) in numbered("reconcilers", reconcilers) {
            if grant.reconcilers.iter().any(|known| known.spec.name == spec.name) {
                let reason = "another reconciler has this name";
                return Err(malformed(format!("{place}.name"), &spec.name, reason));
            }
            let reconciler = DeclaredReconciler::parse(&place, spec)?;
            if !spec.on_demand {
                grant.want(&spec.of.kind, reconciler.watch());
            }
            grant.reads.push(Arc::clone(&reconciler.readable));
            grant.reconcilers.push(Arc::new(reconciler));
        }
        for (place, of) in numbered("reads", reads) {
            let read = Readable::parse(&place, of)?;
            grant.want(&of.kind, (read.scope.clone(), read.wanted()));
            grant.reads.push(Arc::new(read));
        }
        for (place, rule) in numbered("writes", writes) {
            let rule = Rule::parse(&place, rule)?;
            grant.want(&rule.of.kind, (rule.scope.clone(), rule.wanted.clone()));
            grant.writes.push(Arc::new(rule));
        }
        grant.parse_outbound(description)?;
        grant.check_clusters(description)?;
        let mut wanted = std::mem::take(&mut grant.wanted);
        let mut indexed = HashMap::new();
        for (kind, _, wanted) in wanted.iter_mut().filter(|(.., of)| !of.matching.is_empty()) {
            let paths = indexed.entry(kind.clone()).or_insert_with(|| grant.indexed(kind));
            *wanted = wanted.clone().with_places(paths);
        }
        drop(indexed);
        grant.wanted = wanted;
        Ok(grant)
    }

    fn want(&mut self, kind: &Kind, (scope, wanted): (Scope, Wanted)) {
        if !kind.has_wildcard() {
            self.wanted.push((kind.clone(), scope, wanted));
        }
    }

    /// Returns whether objects of a kind are declared at all, to be read, reconciled or written.
    pub fn names(&self, kind: &Kind) -> bool {
        self.declared().any(|declared| declared.is_of(kind))
    }

    /// Returns all declared selections.
    fn declared(&self) -> impl Iterator<Item = &Declared> {
        self.reads.iter().map(|read| &read.of).chain(self.writes.iter().map(|rule| &rule.of))
    }
}

fn numbered<'a, T>(list: &'a str, items: &'a [T]) -> impl Iterator<Item = (String, &'a T)> {
    items.iter().enumerate().map(move |(index, item)| (format!("{list}[{index}]"), item))
}

fn malformed(place: String, value: &str, reason: &str) -> Invalid {
    Invalid::Malformed { place, value: value.to_owned(), reason: reason.to_owned() }
}
