//! The equal parts of dependencies, which are kept once.

use std::{hash::Hash, sync::Arc};

use foldhash::HashSet;

use crate::{path::Fields, reads::Dependency, store::Query};

/// The number of parts below which unused ones are not looked for.
const MIN_SWEPT: usize = 1024;

/// The queries and fields of the dependencies of a processor, each once. Queries for all objects of
/// one name are not among them: few are equal, and they are compared faster than found.
#[derive(Debug, Default)]
pub(super) struct Shared {
    queries: Parts<Query>,
    fields: Parts<Fields>,
}

#[derive(Debug)]
struct Parts<T> {
    parts: HashSet<Arc<T>>,
    /// The number of parts at which unused ones are removed.
    sweep_at: usize,
}

// === impl Shared ===

impl Shared {
    /// Replaces the parts of dependencies by equal ones of earlier dependencies.
    pub(super) fn share(&mut self, dependencies: &mut [Dependency]) {
        for dependency in dependencies {
            let (query, fields) = dependency.depends_on.parts_mut();
            if !query.is_by_name() {
                self.queries.share(query);
            }
            if let Some(fields) = fields {
                self.fields.share(fields);
            }
        }
    }
}

// === impl Parts ===

impl<T> Default for Parts<T> {
    fn default() -> Self {
        Self { parts: HashSet::default(), sweep_at: MIN_SWEPT }
    }
}

impl<T: Eq + Hash> Parts<T> {
    fn share(&mut self, part: &mut Arc<T>) {
        if let Some(same) = self.parts.get(&**part) {
            *part = Arc::clone(same);
            return;
        }
        if self.parts.len() >= self.sweep_at {
            self.parts.retain(|part| Arc::strong_count(part) > 1);
            self.sweep_at = MIN_SWEPT.max(2 * self.parts.len());
        }
        self.parts.insert(Arc::clone(part));
    }
}
