//! The comparison of a change with dependencies.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    path::{Extent, Fields},
    queue::Key,
    reads::{Dependency, DependsOn},
    store::{Change, Entry, Query, Source, lay_over},
};

/// A change that is compared with many dependencies. Intermediate results are cached.
pub(super) struct Compare<'a> {
    pub(super) change: &'a Change,
    new: Option<Value>,
    /// The object before the change, with the manifest of the key's run merged into it.
    expected: Option<Value>,
    /// The answers of [`Compare::differ`], by fields and extent.
    known: Vec<(*const Fields, Extent, bool)>,
}

// === impl Compare ===

impl<'a> Compare<'a> {
    pub(super) fn new(change: &'a Change) -> Self {
        Self { change, new: None, expected: None, known: Vec::new() }
    }

    /// Returns whether the change is newer than the run's snapshot of the store that it has read.
    pub(super) fn is_open(&self, of: &Dependency) -> bool {
        of.store.is_none_or(|held| held == self.change.store)
            && of.sequence.is_none_or(|seen| seen < self.change.sequence)
    }

    /// Returns whether the change may affect a dependency. [`Index`](super::index::Index) finds
    /// those of all keys.
    pub(super) fn is_about(&self, of: &Dependency) -> bool {
        let selects = |entry: &Arc<Entry>| of.depends_on.query().matches(entry);
        of.kind == self.change.kind
            && self.is_open(of)
            && self.change.old.iter().chain(&self.change.new).any(selects)
    }

    /// Returns whether the change affects a dependency of a key's run. `all` are the dependencies
    /// of the run.
    pub(super) fn affects(&mut self, of: &Dependency, all: &[Dependency], key: &Key) -> bool {
        let is_pruned = matches!(of.depends_on, DependsOn::Pruned { .. });
        !(is_pruned && self.is_written(all)) && self.hits(&of.depends_on, key)
    }

    /// Returns whether the run itself has written the object, which is then not to be pruned.
    fn is_written(&self, all: &[Dependency]) -> bool {
        self.change.new.as_ref().is_some_and(|new| {
            all.iter().filter(|of| of.kind == self.change.kind).any(|of| match &of.depends_on {
                DependsOn::Written { query, .. } => query.matches(new),
                _ => false,
            })
        })
    }

    fn hits(&mut self, depends_on: &DependsOn, key: &Key) -> bool {
        let sent = match &self.change.source {
            Source::Write { by, sent } if by == key => Some(sent.as_ref()),
            _ => None,
        };
        match (depends_on, sent) {
            (DependsOn::Read { query, fields }, Some(sent)) => {
                self.surprises(query, fields, Extent::Counted, sent.map(|sent| &**sent))
            }
            (DependsOn::Reconciled { query, fields, extent }, Some(sent)) => {
                self.change.new.is_none()
                    || self.surprises(query, fields, *extent, sent.map(|sent| &**sent))
            }
            (DependsOn::Read { query, fields }, None) => self.reads(query, fields),
            (DependsOn::Reconciled { query, fields, extent }, None) => {
                let change = self.change;
                let is_it = |entry: &Option<Arc<Entry>>| {
                    entry.as_ref().is_some_and(|entry| query.matches(entry))
                };
                (is_it(&change.old) || is_it(&change.new)) && self.differ(fields, *extent)
            }
            (DependsOn::Written { .. } | DependsOn::Pruned { .. }, Some(_)) => false,
            (DependsOn::Written { query, manager, own }, None) => match &self.change.new {
                None => self.change.old.as_ref().is_some_and(|old| query.matches(old)),
                Some(new) => {
                    let is_other = own.is_some() && new.own().get(manager, "") != *own;
                    query.matches(new) && (is_other || new.breaks_absence_of(manager))
                }
            },
            (DependsOn::Pruned { query, manager }, None) => {
                let is_ours =
                    |entry: &Arc<Entry>| query.matches(entry) && entry.own().holds(manager);
                self.change.new.as_ref().is_some_and(is_ours)
                    && !self.change.old.as_ref().is_some_and(is_ours)
            }
        }
    }

    /// Returns whether the result of reading a selection differs: other objects are selected, or
    /// they hold other values.
    fn reads(&mut self, query: &Query, fields: &Arc<Fields>) -> bool {
        let sees = |entry: &Arc<Entry>| query.matches(entry);
        let saw = self.change.old.as_ref().is_some_and(sees);
        let sees = self.change.new.as_ref().is_some_and(sees);
        saw != sees || (sees && self.differ(fields, Extent::Counted))
    }

    /// Returns whether the object differs in these fields. Creation and deletion are differences.
    pub(super) fn differ(&mut self, fields: &Arc<Fields>, extent: Extent) -> bool {
        let (Some(old), Some(new)) = (&self.change.old, &self.change.new) else { return true };
        let pointer = Arc::as_ptr(fields);
        if let Some((_, _, differ)) =
            self.known.iter().find(|(held, of, _)| *held == pointer && *of == extent)
        {
            return *differ;
        }
        let differ = old.rendered().counted(extent) != new.rendered().counted(extent) && {
            fields.differ(Some(&fields.read(old.json())), Some(&fields.read(new.json())), extent)
        };
        self.known.push((pointer, extent, differ));
        differ
    }

    /// Returns whether the answer to the key's own write differs from the expected object: the
    /// object before the write, with the sent manifest merged into it.
    fn surprises(
        &mut self,
        query: &Query,
        fields: &Fields,
        extent: Extent,
        sent: Option<&Value>,
    ) -> bool {
        let Some(sent) = sent else {
            // The run deleted the object, and expects it to be gone.
            return self.change.new.is_some();
        };
        let old = self.change.old.as_ref();
        let expected = query.would_match(old.map(|old| &**old), sent);
        let matches = self.change.new.as_ref().is_some_and(|new| query.matches(new));
        if expected != matches || !matches {
            return expected != matches;
        }
        let Some(new) = &self.change.new else { return true };
        let laid = || lay_over(old.map(|old| old.value()).as_ref(), sent);
        let laid = self.expected.get_or_insert_with(laid);
        let new = self.new.get_or_insert_with(|| new.value());
        fields.surprise(laid, new, extent)
    }
}
