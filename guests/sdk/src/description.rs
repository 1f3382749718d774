//! Builders for what `describe` returns.

use std::time::Duration;

use crate::{Description, Reconciler, Selection, Verbs, WriteRule, outcome::milliseconds};

impl Description {
    /// A processor that does nothing yet.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            version: version.into(),
            reconcilers: Vec::new(),
            reads: Vec::new(),
            writes: Vec::new(),
            config_schema: None,
        }
    }

    /// Adds objects that are reconciled.
    #[must_use]
    pub fn reconciles(mut self, reconciler: Reconciler) -> Self {
        self.reconcilers.push(reconciler);
        self
    }

    /// Adds objects that may be read.
    #[must_use]
    pub fn reads(mut self, selection: Selection) -> Self {
        self.reads.push(selection);
        self
    }

    /// Adds objects that may be written.
    #[must_use]
    pub fn writes(mut self, selection: Selection, verbs: Verbs) -> Self {
        self.writes.push(WriteRule { of: selection, verbs, fields: Vec::new() });
        self
    }

    /// Adds objects in which only these paths may be applied or patched.
    #[must_use]
    pub fn writes_fields<S: Into<String>>(
        mut self,
        selection: Selection,
        verbs: Verbs,
        fields: impl IntoIterator<Item = S>,
    ) -> Self {
        self.writes.push(WriteRule {
            of: selection,
            verbs,
            fields: fields.into_iter().map(Into::into).collect(),
        });
        self
    }
}

impl Reconciler {
    /// Reconciles the objects of a selection: without finalizers, without a resync, not on changes of their status.
    pub fn new(name: impl Into<String>, of: Selection) -> Self {
        Self {
            name: name.into(),
            of,
            finalizers: Vec::new(),
            resync: 0,
            triggered_by_status: false,
            min_interval: 0,
        }
    }

    /// Adds a finalizer that it may hold.
    #[must_use]
    pub fn finalizer(mut self, finalizer: impl Into<String>) -> Self {
        self.finalizers.push(finalizer.into());
        self
    }

    /// Runs an object again after this time though nothing changed.
    #[must_use]
    pub fn resync(mut self, every: Duration) -> Self {
        self.resync = milliseconds(every);
        self
    }

    /// Takes changes within this time after a run together.
    #[must_use]
    pub fn min_interval(mut self, interval: Duration) -> Self {
        self.min_interval = milliseconds(interval);
        self
    }

    /// Lets a change of nothing but the status trigger.
    #[must_use]
    pub fn triggered_by_status(mut self) -> Self {
        self.triggered_by_status = true;
        self
    }
}
