//! The last run record of each key. No I/O: the host reads and writes the record
//! file.

use std::sync::Arc;

use foldhash::HashMap;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Record;
use crate::queue::Key;

/// The last run record of each key.
#[derive(Debug, Default)]
pub struct Records {
    state: Mutex<State>,
    /// Notified when a record has changed.
    work: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Records of keys that have run or been verified in this start: their dependencies are
    /// watched.
    last: HashMap<Key, Arc<Record>>,
    /// Records of a former start, of keys that have not run or been verified in this start.
    former: HashMap<Key, Arc<Record>>,
    /// The number of changes of records that the next start can use.
    changes: u64,
    /// The number of changes that are in the record file.
    written: u64,
}

/// The record of a key's last run.
#[derive(Clone, Debug)]
pub struct Held {
    pub record: Arc<Record>,
    /// True if the key ran in a former start, and was not verified in this one.
    pub is_former: bool,
}

// === impl Records ===

impl Records {
    /// Stores the record of a key's newest run, replacing the former one.
    pub fn keep(&self, record: &Arc<Record>) {
        let mut state = self.state.lock();
        let former = state.former.remove(&record.key);
        let last = state.last.insert(record.key.clone(), Arc::clone(record));
        let mut concerned = former.iter().chain(&last).chain([record]);
        state.changes += u64::from(concerned.any(|record| record.outlives_its_start()));
        drop(state);
        self.work.notify_one();
    }

    /// Marks a key's record of a former start as verified. The record file stays up to date.
    pub fn adopt(&self, key: &Key) {
        let mut state = self.state.lock();
        if let Some(record) = state.former.remove(key) {
            state.last.insert(key.clone(), record);
        }
    }

    /// Returns the record of a key's last run, if the key has run or been verified in this start of
    /// the host.
    pub fn get(&self, key: &Key) -> Option<Arc<Record>> {
        self.state.lock().last.get(key).cloned()
    }

    /// Returns the record of a key's last run, also from a former start.
    pub fn held(&self, key: &Key) -> Option<Held> {
        let state = self.state.lock();
        let is_former = !state.last.contains_key(key);
        let record = state.last.get(key).or_else(|| state.former.get(key)).cloned()?;
        Some(Held { record, is_former })
    }

    /// Forgets a key whose object is gone.
    pub fn forget(&self, key: &Key) {
        let mut state = self.state.lock();
        let is_gone = state.last.remove(key).is_some() | state.former.remove(key).is_some();
        state.changes += u64::from(is_gone);
        drop(state);
        self.work.notify_one();
    }

    pub fn forget_reconciler(&self, processor: &str, reconciler: &str) {
        self.forget_all(|key| &**key.processor() == processor && &**key.reconciler() == reconciler);
    }

    pub fn forget_processor(&self, processor: &str) {
        self.forget_all(|key| &**key.processor() == processor);
    }

    fn forget_all(&self, which: impl Fn(&Key) -> bool) {
        let mut state = self.state.lock();
        state.last.retain(|key, _| !which(key));
        state.former.retain(|key, _| !which(key));
        state.changes += 1;
        drop(state);
        self.work.notify_one();
    }
}

/// The functions for the writer of the record file.
impl Records {
    /// Loads the records of a former start.
    pub fn begin_with(&self, former: HashMap<Key, Arc<Record>>) {
        self.state.lock().former = former;
    }

    /// Waits until the record file is out of date.
    pub async fn changed(&self) {
        while self.state.lock().is_written() {
            self.work.notified().await;
        }
    }

    /// Returns all records and the number of their changes, if the record file is out of date.
    /// [`Records::written`] must follow when they are in the file.
    pub fn unwritten(&self) -> Option<(u64, Vec<Arc<Record>>)> {
        let state = self.state.lock();
        let all = || state.last.values().chain(state.former.values()).cloned().collect();
        (!state.is_written()).then(|| (state.changes, all()))
    }

    /// Marks the record file as up to date with these changes.
    pub fn written(&self, changes: u64) {
        self.state.lock().written = changes;
    }

    /// Forgets the records of a former start whose keys were not verified.
    pub fn forget_former(&self) {
        let mut state = self.state.lock();
        let former = std::mem::take(&mut state.former);
        state.changes += u64::from(!former.is_empty());
        drop(state);
        self.work.notify_one();
    }
}

// === impl State ===

impl State {
    fn is_written(&self) -> bool {
        self.written == self.changes
    }
}
