//! The last record of each key, and what of it is not written down yet for the next start. No I/O: [`crate::kept`] does that.

use std::sync::Arc;

use bytes::Bytes;
use foldhash::{HashMap, HashSet};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Record;
use crate::{kept, queue::Key};

/// The last record of each key.
#[derive(Debug, Default)]
pub struct Records {
    state: Mutex<State>,
    /// Something is to be written down.
    work: Notify,
}

#[derive(Debug, Default)]
struct State {
    last: HashMap<Key, Last>,
    /// Records of a former start in their written form, of keys that have not run or been looked at in this one.
    former: HashMap<Key, Bytes>,
    /// None: nothing is written down.
    down: Option<Down>,
}

/// The last run of a key that has run or been looked at in this start: what it read is watched for it.
#[derive(Clone, Debug)]
pub(crate) enum Last {
    /// It was in this start.
    Ran(Arc<Record>),
    /// It was in a former one: its record stays in its written form, a part of what was read, until somebody asks for it.
    Adopted(Bytes),
}

/// What is on disk.
#[derive(Debug, Default)]
struct Down {
    /// Of these keys a record is.
    written: HashSet<Key>,
    /// What is there of these is not what it is to be.
    unwritten: HashSet<Key>,
}

/// What is known of a key's last run.
#[derive(Debug)]
pub(crate) enum Held {
    /// It ran or was looked at in this start.
    Known(Last),
    /// It ran in a former one.
    Former(Bytes),
}

/// What is to be written down of a key.
#[derive(Debug)]
pub(crate) enum Unwritten {
    /// This.
    Record(Key, Arc<Record>),
    /// This, as it was read.
    Former(Key, Bytes),
    /// That nothing is known.
    Nothing(Key),
}

// === impl Records ===

impl Records {
    /// Keeps the record of a key's newest run, in the place of the one before.
    pub fn keep(&self, record: &Arc<Record>) {
        let mut state = self.state.lock();
        state.former.remove(&record.key);
        state.last.insert(record.key.clone(), Last::Ran(Arc::clone(record)));
        state.changed(&record.key, record.outlives_its_start());
        drop(state);
        self.work.notify_one();
    }

    /// Takes over what a former start knew of a key. What is written down of it holds on.
    pub(crate) fn adopt(&self, key: &Key) {
        let mut state = self.state.lock();
        if let Some(record) = state.former.remove(key) {
            state.last.insert(key.clone(), Last::Adopted(record));
        }
    }

    /// The record of a key's last run, if the key has run or been looked at in this start of the host.
    pub fn get(&self, key: &Key) -> Option<Arc<Record>> {
        let last = self.state.lock().last.get(key).cloned();
        last?.record(key)
    }

    /// What is known of a key's last run.
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

/// For who writes them down.
impl Records {
    /// Begins with what a former start has written down; from now on, what changes is to be.
    pub(crate) fn begin_with(&self, former: HashMap<Key, Bytes>) {
        let mut state = self.state.lock();
        let written = former.keys().cloned().collect();
        state.former = former;
        state.down = Some(Down { written, unwritten: HashSet::default() });
    }

    /// Waits until something is to be written down.
    pub(crate) async fn changed(&self) {
        while self.state.lock().down.as_ref().is_none_or(|down| down.unwritten.is_empty()) {
            self.work.notified().await;
        }
    }

    /// What is to be written down since it has changed, so much at most. It counts as written from now on.
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

    /// All that is to be on disk, to be written anew: it counts as written from now on.
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

    /// Nothing of what counts as written may be so: it was not, or in vain.
    pub(crate) fn written_in_vain(&self, keys: impl IntoIterator<Item = Key>) {
        if let Some(down) = &mut self.state.lock().down {
            down.unwritten.extend(keys);
        }
    }

    /// Forgets what a former start knew of keys at which nobody has looked. Says whether there was any.
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
    /// What is known of a key is another; whether the next start may know it too.
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
    /// The record; none where it was read and is none.
    pub(crate) fn record(self, key: &Key) -> Option<Arc<Record>> {
        match self {
            Self::Ran(record) => Some(record),
            Self::Adopted(written) => kept::record(key, &written).map(Arc::new),
        }
    }

    /// What is to be on disk of it; none where the next start may not know it.
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
    /// Of whom.
    pub(crate) fn key(&self) -> &Key {
        match self {
            Self::Record(key, _) | Self::Former(key, _) | Self::Nothing(key) => key,
        }
    }
}
