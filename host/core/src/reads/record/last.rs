//! The last run record of each key.

use std::sync::Arc;

use foldhash::HashMap;
use parking_lot::Mutex;

use super::Record;
use crate::{key::ReconcilerId, queue::Key};

/// The record of the last run of each key since the host started. Its dependencies are registered
/// with the triggers.
#[derive(Debug, Default)]
pub struct Records(Mutex<HashMap<Key, Arc<Record>>>);

// === impl Records ===

impl Records {
    /// Stores the record of a key's newest run, replacing the former one.
    pub fn keep(&self, record: &Arc<Record>) {
        self.0.lock().insert(record.key.clone(), Arc::clone(record));
    }

    /// Returns the record of a key's last run.
    pub fn get(&self, key: &Key) -> Option<Arc<Record>> {
        self.0.lock().get(key).cloned()
    }

    /// Forgets a key whose object is gone.
    pub fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }

    pub fn forget_reconciler(&self, processor: &str, reconciler: &ReconcilerId) {
        let is_its = |key: &Key| &**key.processor() == processor && key.reconciler() == reconciler;
        self.0.lock().retain(|key, _| !is_its(key));
    }

    pub fn forget_processor(&self, processor: &str) {
        self.0.lock().retain(|key, _| &**key.processor() != processor);
    }
}
