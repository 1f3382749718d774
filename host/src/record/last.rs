//! The last run record of each key, and the keys whose record on disk is out of date. No I/O:
//! [`crate::kept`] reads and writes the record file.

use std::sync::Arc;

use bytes::Bytes;
use foldhash::{HashMap, HashSet};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Record;
use crate::{kept, queue::Key};

/// The last run record of each key.
#[derive(Debug, Default)]
pub struct Records {
    state: Mutex<State>,
    /// Notified when there is something to be written to disk.
    work: Notify,
}

#[derive(Debug, Default)]
struct State {
    last: HashMap<Key, Last>,
    /// Records of a former start, as they are on disk, of keys that have not run or been verified
    /// in this start.
    former: HashMap<Key, Bytes>,
    /// The state of the record file; `None` if records are not written to disk.
    down: Option<Down>,
}

/// The last run of a key that has run or been verified in this start: its dependencies are watched.
#[derive(Clone, Debug)]
pub(crate) enum Last {
    /// The last run was in this start.
    Ran(Arc<Record>),
    /// The last run was in a former start. Its record stays as it is on disk, as a slice of the
    /// file that was read, until it is asked for.
    Adopted(Bytes),
}

/// The state of the record file.
#[derive(Debug, Default)]
struct Down {
    /// Keys that have a record on disk.
    written: HashSet<Key>,
    /// Keys whose record on disk is out of date.
    unwritten: HashSet<Key>,
}

/// The record of a key's last run.
#[derive(Debug)]
pub(crate) enum Held {
    /// The key ran or was verified in this start.
    Known(Last),
    /// The key ran in a former start, and was not verified in this one.
    Former(Bytes),
}

/// A change to be written to the record file.
#[derive(Debug)]
pub(crate) enum Unwritten {
    /// The record of a key's newest run.
    Record(Key, Arc<Record>),
    /// The record of a key from a former start, as it was read.
    Former(Key, Bytes),
    /// The removal of a key's record.
    Nothing(Key),
}

// === impl Records ===

impl Records {
    /// Keeps the record of a key's newest run in the place of the one before.
    pub fn keep(&self, record: &Arc<Record>) {
        let mut state = self.state.lock();
        state.former.remove(&record.key);
        state.last.insert(record.key.clone(), Last::Ran(Arc::clone(record)));
        state.changed(&record.key, record.outlives_its_start());
        drop(state);
        self.work.notify_one();
    }

    /// Takes over the record that a former start left of a key. It stays valid on disk.
    pub(crate) fn adopt(&self, key: &Key) {
        let mut state = self.state.lock();
        if let Some(record) = state.former.remove(key) {
            state.last.insert(key.clone(), Last::Adopted(record));
        }
    }

    /// Returns the record of a key's last run, if the key has run or been verified in this start of
    /// the host.
    pub fn get(&self, key: &Key) -> Option<Arc<Record>> {
        let last = self.state.lock().last.get(key).cloned();
        last?.record(key)
    }

    /// Returns the record of a key's last run, also from a former start.
    pub(crate) fn held(&self, key: &Key) -> Option<Held> {
        let state = self.state.lock();
        let known = state.last.get(key).cloned().map(Held::Known);
        known.or_else(|| state.former.get(key).map(|bytes| Held::Former(bytes.clone())))
    }

    /// Forgets a key whose object is gone.
    pub fn forget(&self, key: &Key) {
        let mut state = self.state.lock();
        state.last.remove(key);
        state.former.remove(key);
        state.changed(key, false);
        drop(state);
        self.work.notify_one();
    }

    /// Forgets all keys of a reconciler.
    pub fn forget_reconciler(&self, processor: &str, reconciler: &str) {
        self.forget_all(|key| &**key.processor() == processor && &**key.reconciler() == reconciler);
    }

    /// Forgets all keys of a processor.
    pub fn forget_processor(&self, processor: &str) {
        self.forget_all(|key| &**key.processor() == processor);
    }

    fn forget_all(&self, which: impl Fn(&Key) -> bool) {
        let mut state = self.state.lock();
        state.last.retain(|key, _| !which(key));
        state.former.retain(|key, _| !which(key));
        if let Some(down) = &mut state.down {
            down.unwritten.retain(|key| !which(key));
            down.unwritten.extend(down.written.iter().filter(|key| which(key)).cloned());
        }
        drop(state);
        self.work.notify_one();
    }
}

/// The functions for the writer of the record file.
impl Records {
    /// Begins with the records of a former start. From now on, changes are to be written to disk.
    pub(crate) fn begin_with(&self, former: HashMap<Key, Bytes>) {
        let mut state = self.state.lock();
        let written = former.keys().cloned().collect();
        state.former = former;
        state.down = Some(Down { written, unwritten: HashSet::default() });
    }

    /// Waits until a record on disk is out of date.
    pub(crate) async fn changed(&self) {
        while self.state.lock().down.as_ref().is_none_or(|down| down.unwritten.is_empty()) {
            self.work.notified().await;
        }
    }

    /// Returns the changes to be written to disk, of at most `most` keys. From now on they count as
    /// written.
    pub(crate) fn take_unwritten(&self, most: usize) -> Vec<Unwritten> {
        let mut state = self.state.lock();
        let State { last, down: Some(down), .. } = &mut *state else { return Vec::new() };
        let keys: Vec<Key> = down.unwritten.iter().take(most).cloned().collect();
        let mut taken = Vec::with_capacity(keys.len());
        for key in keys {
            down.unwritten.remove(&key);
            match last.get(&key).and_then(|last| last.unwritten(&key)) {
                Some(unwritten) => {
                    down.written.insert(key);
                    taken.push(unwritten);
                }
                None if down.written.remove(&key) => taken.push(Unwritten::Nothing(key)),
                None => {}
            }
        }
        taken
    }

    /// Returns all records that are to be on disk, to write the file anew. From now on they count
    /// as written.
    pub(crate) fn take_all(&self) -> Vec<Unwritten> {
        let mut state = self.state.lock();
        let State { last, former, down: Some(down) } = &mut *state else { return Vec::new() };
        let records = last.iter().filter_map(|(key, last)| last.unwritten(key));
        let former =
            former.iter().map(|(key, bytes)| Unwritten::Former(key.clone(), bytes.clone()));
        let all: Vec<Unwritten> = records.chain(former).collect();
        down.written = all.iter().map(Unwritten::key).cloned().collect();
        down.unwritten.clear();
        all
    }

    /// Marks keys whose record was not written, or in vain, as out of date on disk.
    pub(crate) fn written_in_vain(&self, keys: impl IntoIterator<Item = Key>) {
        if let Some(down) = &mut self.state.lock().down {
            down.unwritten.extend(keys);
        }
    }

    /// Forgets the records of a former start whose keys were not verified. Returns whether there
    /// were any.
    pub(crate) fn forget_former(&self) -> bool {
        let mut state = self.state.lock();
        let former = std::mem::take(&mut state.former);
        if let Some(down) = &mut state.down {
            down.unwritten.extend(former.keys().cloned());
        }
        !former.is_empty()
    }
}

// === impl State ===

impl State {
    /// Marks a key's record on disk as out of date; `outlives` says whether the next start may use
    /// the new one.
    fn changed(&mut self, key: &Key, outlives: bool) {
        if let Some(down) = &mut self.down
            && (outlives || down.written.contains(key))
        {
            down.unwritten.insert(key.clone());
        }
    }
}

// === impl Last ===

impl Last {
    /// Returns the record; `None` if the bytes on disk are no record.
    pub(crate) fn record(self, key: &Key) -> Option<Arc<Record>> {
        match self {
            Self::Ran(record) => Some(record),
            Self::Adopted(written) => kept::record(key, &written).map(Arc::new),
        }
    }

    /// Returns the record as it is to be on disk; `None` if the next start may not use it.
    fn unwritten(&self, key: &Key) -> Option<Unwritten> {
        match self {
            Self::Ran(record) if record.outlives_its_start() => {
                Some(Unwritten::Record(key.clone(), Arc::clone(record)))
            }
            Self::Ran(_) => None,
            Self::Adopted(record) => Some(Unwritten::Former(key.clone(), record.clone())),
        }
    }
}

// === impl Unwritten ===

impl Unwritten {
    pub(crate) fn key(&self) -> &Key {
        match self {
            Self::Record(key, _) | Self::Former(key, _) | Self::Nothing(key) => key,
        }
    }
}
