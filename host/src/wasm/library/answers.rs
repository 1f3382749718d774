//! The cached answers of libraries, and the calls in progress.
//!
//! *Guarantees.* All cached answers together never exceed a fixed number of bytes. Above it, the
//! processor with the largest share loses its least recently used ones. No processor sees answers
//! of another. A failed call is not cached.

use std::{collections::HashMap, sync::Arc};

use futures::future::{BoxFuture, Shared};
use lru::LruCache;
use parking_lot::Mutex;
use wasmtime::component::Val;

use super::{Finished, value};
use crate::wasm::shares::Id;

/// The limit on all answers, in bytes: forty renderings of a large application.
pub(in crate::wasm) const MAX_ANSWERS_BYTES: usize = 64 << 20;
/// The size of an entry besides its answer, in bytes.
const ENTRY_OVERHEAD_BYTES: usize = 256;

/// The digest of a library, a function and its arguments.
pub(super) type Key = [u8; 32];
/// The result of a call in progress; `None` if its task was aborted.
pub(super) type Flight = Shared<BoxFuture<'static, Option<Finished>>>;

/// The answers of all processors' libraries.
pub(in crate::wasm) struct Answers {
    limit: usize,
    core: Mutex<Core>,
}

/// The results of a function.
#[derive(Clone)]
pub(super) struct Answer(Arc<[Val]>);

/// The source of a call's answer.
pub(super) enum Begun {
    /// The cached answer of an earlier call.
    Remembered(Answer),
    /// The same call, in progress for another caller.
    ByOther(Flight),
    /// A new call, made by this caller.
    Now(Landing),
}

/// Ends a call in progress, at the latest when dropped.
pub(super) struct Landing {
    answers: Arc<Answers>,
    of: Id,
    key: Key,
}

#[derive(Default)]
struct Core {
    processors: HashMap<Id, OfProcessor>,
    bytes: usize,
}

struct OfProcessor {
    remembered: LruCache<Key, Entry>,
    under_way: HashMap<Key, Flight>,
    bytes: usize,
}

struct Entry {
    answer: Answer,
    bytes: usize,
}

// === impl Answers ===

impl Answers {
    pub(in crate::wasm) fn new(limit: usize) -> Self {
        Self { limit, core: Mutex::default() }
    }

    pub(super) fn get(&self, of: Id, key: &Key) -> Option<Answer> {
        self.core.lock().get(of, key)
    }

    pub(super) fn under_way(&self, of: Id, key: &Key) -> Option<Flight> {
        self.core.lock().processors.get(&of)?.under_way.get(key).cloned()
    }

    /// Begins a call with the result `flight`, unless it is in progress or its answer is cached.
    pub(super) fn begin(self: &Arc<Self>, of: Id, key: &Key, flight: &Flight) -> Begun {
        let mut core = self.core.lock();
        if let Some(answer) = core.get(of, key) {
            return Begun::Remembered(answer);
        }
        let under_way = &mut core.processors.entry(of).or_default().under_way;
        if let Some(other) = under_way.get(key) {
            return Begun::ByOther(other.clone());
        }
        under_way.insert(*key, flight.clone());
        Begun::Now(Landing { answers: Arc::clone(self), of, key: *key })
    }

    /// Drops the answers of a deleted processor.
    pub(in crate::wasm) fn forget(&self, of: Id) {
        let mut core = self.core.lock();
        if let Some(gone) = core.processors.remove(&of) {
            core.bytes -= gone.bytes;
        }
    }

    pub(in crate::wasm) fn bytes(&self) -> usize {
        self.core.lock().bytes
    }
}

// === impl Landing ===

impl Landing {
    /// Caches the answer, if there is one, before the call counts as ended.
    pub(super) fn land(self, answer: Option<&Answer>) {
        if let Some(answer) = answer {
            self.answers.core.lock().put(self.of, self.key, answer, self.answers.limit);
        }
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        if let Some(of) = self.answers.core.lock().processors.get_mut(&self.of) {
            of.under_way.remove(&self.key);
        }
    }
}

// === impl Core ===

impl Core {
    fn get(&mut self, of: Id, key: &Key) -> Option<Answer> {
        Some(self.processors.get_mut(&of)?.remembered.get(key)?.answer.clone())
    }

    fn put(&mut self, of: Id, key: Key, answer: &Answer, limit: usize) {
        let bytes = ENTRY_OVERHEAD_BYTES + answer.0.iter().map(value::size).sum::<usize>();
        // The processor may have been deleted meanwhile.
        let Some(holder) = self.processors.get_mut(&of).filter(|_| bytes <= limit) else { return };
        let former = holder.remembered.put(key, Entry { answer: answer.clone(), bytes });
        let former = former.map_or(0, |former| former.bytes);
        holder.bytes = holder.bytes + bytes - former;
        self.bytes = self.bytes + bytes - former;
        while self.bytes > limit && self.drop_one() {}
    }

    /// Drops the least recently used answer of the processor that has the most bytes.
    fn drop_one(&mut self) -> bool {
        let Some(most) = self.processors.values_mut().max_by_key(|of| of.bytes) else {
            return false;
        };
        let Some((_, dropped)) = most.remembered.pop_lru() else { return false };
        most.bytes -= dropped.bytes;
        self.bytes -= dropped.bytes;
        true
    }
}

// === impl OfProcessor ===

impl Default for OfProcessor {
    fn default() -> Self {
        Self { remembered: LruCache::unbounded(), under_way: HashMap::new(), bytes: 0 }
    }
}

// === impl Answer ===

impl Answer {
    pub(super) fn new(values: Vec<Val>) -> Self {
        Self(values.into())
    }

    /// Copies the values to the caller's results.
    pub(super) fn write_to(&self, results: &mut [Val]) {
        for (to, value) in results.iter_mut().zip(self.0.iter()) {
            to.clone_from(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn answer(bytes: usize) -> Answer {
        Answer::new(vec![Val::String("x".repeat(bytes))])
    }

    fn landing(answers: &Arc<Answers>, of: Id, key: u8) -> Landing {
        let flight = futures::future::ready(None).boxed().shared();
        match answers.begin(of, &[key; 32], &flight) {
            Begun::Now(landing) => landing,
            Begun::ByOther(_) | Begun::Remembered(_) => panic!("it is new"),
        }
    }

    #[test]
    fn the_answer_cache_is_bounded_and_evicts_the_largest_holder_first() {
        let answers = Arc::new(Answers::new(100_000));
        landing(&answers, 1, 0).land(Some(&answer(10_000)));
        for key in 0..200 {
            landing(&answers, 2, key).land(Some(&answer(10_000)));
            assert!(answers.bytes() <= 100_000, "{key}");
        }
        assert!(answers.get(1, &[0; 32]).is_some(), "the modest one keeps its own");
        assert!(answers.get(2, &[0; 32]).is_none() && answers.get(2, &[199; 32]).is_some());
        landing(&answers, 3, 0).land(Some(&answer(100_001)));
        assert!(answers.get(3, &[0; 32]).is_none(), "it is larger than all may be");
        answers.forget(2);
        answers.forget(1);
        assert_eq!(answers.bytes(), 0);
    }

    #[test]
    fn a_failed_call_is_not_remembered_and_may_begin_again() {
        let answers = Arc::new(Answers::new(100_000));
        let first = landing(&answers, 1, 7);
        assert!(answers.under_way(1, &[7; 32]).is_some());
        assert!(answers.under_way(2, &[7; 32]).is_none(), "another processor sees nothing of it");
        first.land(None);
        assert!(answers.under_way(1, &[7; 32]).is_none());
        drop(landing(&answers, 1, 7));
        landing(&answers, 1, 7).land(Some(&answer(1)));
        assert!(answers.get(1, &[7; 32]).is_some() && answers.get(2, &[7; 32]).is_none());
    }
}
