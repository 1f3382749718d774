//! The selections that the on-demand reconcilers of one processor run for: the union of those that
//! the last outcomes of all keys ask for. Pure.
//!
//! *Guarantee.* Whatever the order in which keys ask, the selections that run are exactly those
//! that some key asks for now. A selection that no key asks for any more ends: it is kept until
//! the last runs of its objects are done.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use crate::{
    contract::bounds::{ENTRY, STARTED, STARTED_BYTES},
    grant::{Selected, Selections},
    queue::{Key, ReconcilerId},
};

/// The started selections of one processor.
#[derive(Debug, Default)]
pub struct Started {
    /// The token of the version whose outcomes are taken over.
    version: Token,
    /// The selections that the last successful outcome of each key asks for.
    asked: HashMap<Key, Box<[Arc<Selected>]>>,
    of: HashMap<ReconcilerId, OfReconciler>,
    /// The reconcilers that may run though they need a permit, until they have ended.
    permitted: HashSet<ReconcilerId>,
    /// The number of selections that are asked for, and of those that end.
    running: usize,
    ending: usize,
    bytes: usize,
}

/// The identity of a loaded version: clones are equal, all others differ.
#[derive(Clone, Debug, Default)]
pub struct Token(Arc<()>);

type OfReconciler = HashMap<Arc<Selected>, State>;

/// The state of a selection.
#[derive(Debug, Default)]
struct State {
    /// The number of keys that ask for it.
    askers: usize,
    /// The keys whose last runs are not done, if nobody asks for it any more.
    left: HashSet<Key>,
}

/// The reconcilers whose selections have changed; true for those that lost one.
pub type Changed = BTreeMap<ReconcilerId, bool>;

/// The error that too much would run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exceeded {
    /// The number of selections.
    #[error(
        "the outcomes of the processor start {0} different selections together, with those that end; at most {STARTED} may run"
    )]
    Selections(usize),
    /// The bytes of the selections, and of the entries of the keys that ask for them.
    #[error(
        "the selections that the outcomes of the processor start take {0} bytes together, {ENTRY} more for each object that asks for one; at most {STARTED_BYTES} may be taken"
    )]
    Bytes(usize),
}

// === impl Started ===

impl Started {
    /// Returns whether the outcomes of a version are taken over.
    pub fn is_of(&self, version: &Token) -> bool {
        Arc::ptr_eq(&self.version.0, &version.0)
    }

    /// Takes over the outcomes of another version from now on. Selections that `may_start` refuses
    /// end; those of reconcilers that `is_declared` refuses are dropped.
    pub fn adopt(
        &mut self,
        version: &Token,
        is_declared: impl Fn(&ReconcilerId) -> bool,
        may_start: impl Fn(&Selected) -> bool,
    ) -> Changed {
        self.version = version.clone();
        let mut changed = Changed::new();
        let may = |of: &Arc<Selected>| may_start(of);
        for (key, asked) in std::mem::take(&mut self.asked) {
            let (kept, dropped): (Vec<_>, Vec<_>) = asked.into_iter().partition(may);
            for of in dropped {
                self.end(&of, &mut changed);
            }
            self.asked.insert(key, kept.into());
        }
        self.of.retain(|id, of| {
            let stays = is_declared(id);
            if !stays {
                self.permitted.remove(id);
                self.ending -= of.len();
                let bytes = of.keys().map(|of| of.bytes()).sum::<usize>();
                self.bytes -= bytes;
                changed.remove(id);
            }
            stays
        });
        changed
    }

    /// Replaces the selections that a key asks for. Fails, and changes nothing, if too much would
    /// run.
    pub fn ask(&mut self, key: &Key, wanted: &[Arc<Selected>]) -> Result<Changed, Exceeded> {
        let former = self.asked.get(key).map_or(&[][..], |asked| asked);
        if self.asked.contains_key(key) && *former == *wanted {
            return Ok(Changed::new());
        }
        self.check(former, wanted)?;
        let mut changed = Changed::new();
        let wanted = wanted.iter().map(|of| self.begin(of, &mut changed)).collect();
        let former = self.asked.insert(key.clone(), wanted);
        for of in former.iter().flatten() {
            self.end(of, &mut changed);
        }
        Ok(changed)
    }

    /// Forgets a key that is gone, and what it asks for.
    pub fn forget(&mut self, key: &Key) -> Changed {
        let mut changed = Changed::new();
        for of in self.asked.remove(key).iter().flatten() {
            self.end(of, &mut changed);
        }
        changed
    }

    /// Forgets the keys of a reconciler that is removed, and what they ask for.
    pub fn forget_reconciler(&mut self, reconciler: &ReconcilerId) -> Changed {
        let of = self.asked.keys().filter(|key| key.reconciler() == reconciler);
        let keys: Vec<Key> = of.cloned().collect();
        keys.iter().flat_map(|key| self.forget(key)).collect()
    }

    fn check(&self, former: &[Arc<Selected>], wanted: &[Arc<Selected>]) -> Result<(), Exceeded> {
        let state = |of: &Arc<Selected>| self.of.get(&of.by).and_then(|all| all.get(of));
        let (mut running, mut all) = (self.running, self.running + self.ending);
        let mut bytes = self.bytes;
        for of in wanted {
            let state = state(of);
            running += usize::from(state.is_none_or(|state| state.askers == 0));
            all += usize::from(state.is_none());
            bytes += ENTRY + if state.is_none() { of.bytes() } else { 0 };
        }
        let kept: HashSet<&Arc<Selected>> = wanted.iter().collect();
        for of in former {
            let is_last = state(of).is_some_and(|state| state.askers == 1);
            running -= usize::from(is_last && !kept.contains(of));
            bytes -= ENTRY;
        }
        // Those that end are bounded, too: objects may hold finalizers for as long as they like.
        if running > STARTED || all > 2 * STARTED {
            return Err(Exceeded::Selections(running.max(all.saturating_sub(STARTED))));
        }
        if bytes > STARTED_BYTES { Err(Exceeded::Bytes(bytes)) } else { Ok(()) }
    }

    /// Counts one more key that asks for a selection. Returns the kept one of equal selections.
    fn begin(&mut self, of: &Arc<Selected>, changed: &mut Changed) -> Arc<Selected> {
        self.bytes += ENTRY;
        let of_reconciler = self.of.entry(of.by.clone()).or_default();
        let kept = of_reconciler.get_key_value(of).map(|(kept, _)| Arc::clone(kept));
        let kept = kept.unwrap_or_else(|| {
            self.bytes += of.bytes();
            self.ending += 1;
            Arc::clone(of)
        });
        let state = of_reconciler.entry(Arc::clone(&kept)).or_default();
        if state.askers == 0 {
            state.left.clear();
            self.ending -= 1;
            self.running += 1;
            changed.entry(of.by.clone()).or_default();
        }
        state.askers += 1;
        kept
    }

    fn end(&mut self, of: &Arc<Selected>, changed: &mut Changed) {
        self.bytes -= ENTRY;
        let state = self.of.get_mut(&of.by).and_then(|all| all.get_mut(of));
        let Some(state) = state else { return };
        state.askers -= 1;
        if state.askers == 0 {
            self.running -= 1;
            self.ending += 1;
            changed.insert(of.by.clone(), true);
        }
    }

    /// Sets the keys of a reconciler that its selections have lost. Returns whether a selection is
    /// dropped, since it has no such key.
    pub fn set_left(&mut self, reconciler: &ReconcilerId, left: &[Key]) -> bool {
        let Some(of) = self.of.get_mut(reconciler) else { return false };
        for (selected, state) in of.iter_mut().filter(|(_, state)| state.askers == 0) {
            let own = left.iter().filter(|key| selected.is_at(key.namespace(), key.name()));
            state.left = own.cloned().collect();
        }
        self.drop_done(reconciler)
    }

    /// Records that the last run of a key of an on-demand reconciler is done. Returns whether this
    /// drops a selection.
    pub fn done(&mut self, key: &Key) -> bool {
        let Some(of) = self.of.get_mut(key.reconciler()) else { return false };
        let mut was_left = false;
        for state in of.values_mut() {
            was_left |= state.left.remove(key);
        }
        was_left && self.drop_done(key.reconciler())
    }

    fn drop_done(&mut self, reconciler: &ReconcilerId) -> bool {
        let Some(of) = self.of.get_mut(reconciler) else { return false };
        let before = of.len();
        of.retain(|selected, state| {
            let stays = state.askers > 0 || !state.left.is_empty();
            self.bytes -= if stays { 0 } else { selected.bytes() };
            stays
        });
        let dropped = before - of.len();
        self.ending -= dropped;
        if of.is_empty() {
            self.permitted.remove(reconciler);
            self.of.remove(reconciler);
        }
        dropped > 0
    }

    /// Permits a reconciler to run. Returns whether that is new.
    pub fn permit(&mut self, reconciler: &ReconcilerId) -> bool {
        self.of.contains_key(reconciler) && self.permitted.insert(reconciler.clone())
    }

    pub fn is_permitted(&self, reconciler: &ReconcilerId) -> bool {
        self.permitted.contains(reconciler)
    }

    /// Returns the selections of a reconciler that run, and those that end.
    pub fn selections(&self, reconciler: &ReconcilerId) -> (Selections, Selections) {
        let all = || self.of.get(reconciler).into_iter().flatten();
        let of = |runs: bool| {
            let of = all().filter(|(_, state)| (state.askers > 0) == runs);
            of.map(|(of, _)| Arc::clone(of)).collect()
        };
        (of(true), of(false))
    }

    /// Returns the reconcilers that run or end, in any order.
    pub fn reconcilers(&self) -> impl Iterator<Item = &ReconcilerId> {
        self.of.keys()
    }

    /// Returns the keys whose last successful outcomes are known, each with the selections that it
    /// asks for, in any order.
    pub fn asked(&self) -> impl Iterator<Item = (&Key, &[Arc<Selected>])> {
        self.asked.iter().map(|(key, asked)| (key, &**asked))
    }

    /// Returns whether the last successful outcome of a key is known.
    pub fn has_asked(&self, key: &Key) -> bool {
        self.asked.contains_key(key)
    }
}
