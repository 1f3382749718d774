//! The engine's account of one processor, shared by all of its versions: the resources of its
//! calls, and their cancellation.

use std::{
    fmt,
    hash::{BuildHasher as _, RandomState},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::{budget::Budget, library::answers::Answers, shares::Id};

/// A processor whose versions share slots, turns and memory. Cheap to clone.
#[derive(Clone)]
pub struct Tenant(Arc<TenantState>);

struct TenantState {
    name: Arc<str>,
    id: Id,
    setup_id: Id,
    hook_id: Id,
    /// The engine's token, cancelled when all calls have to end.
    over: CancellationToken,
    /// The token that cancels calls that begin now.
    calls: Mutex<CancellationToken>,
    /// Bytes of memory of all its calls.
    memory: AtomicUsize,
    /// Bytes of memory of its namespace.
    namespace_memory: Arc<AtomicUsize>,
    /// The time at which a call was last refused memory though its own limit allowed it.
    short_of_memory: Mutex<Option<Instant>>,
    /// The cached answers of all libraries, its own among them.
    answers: Arc<Answers>,
}

/// The last id given to a processor; ids are never reused.
static LAST_ID: AtomicU64 = AtomicU64::new(0);
/// Hashes namespaces to ids. Seeded per process, so that collisions cannot be searched for.
static NAMESPACES: LazyLock<RandomState> = LazyLock::new(RandomState::new);
/// The bit that marks ids of namespaces.
const OF_NAMESPACE: Id = 1 << 63;

// === impl Tenant ===

impl Tenant {
    /// Creates an empty account. `over` is cancelled when all calls have to end.
    pub(super) fn new(
        name: &str,
        over: &CancellationToken,
        answers: &Arc<Answers>,
        budget: &Budget,
    ) -> Self {
        Self(Arc::new(TenantState {
            name: name.into(),
            id: LAST_ID.fetch_add(1, Relaxed) + 1,
            setup_id: NAMESPACES.hash_one(namespace_of(name)) | OF_NAMESPACE,
            hook_id: LAST_ID.fetch_add(1, Relaxed) + 1,
            over: over.clone(),
            calls: Mutex::new(over.child_token()),
            memory: AtomicUsize::new(0),
            namespace_memory: budget.namespace(namespace_of(name)),
            short_of_memory: Mutex::new(None),
            answers: Arc::clone(answers),
        }))
    }

    /// Returns the name of the processor.
    pub fn name(&self) -> &Arc<str> {
        &self.0.name
    }

    /// Cancels the calls that run or wait for a slot; new calls may begin.
    pub fn cancel_calls(&self) {
        let next = self.0.over.child_token();
        std::mem::replace(&mut *self.0.calls.lock(), next).cancel();
    }

    /// Cancels the calls that run or wait for a slot, and all that begin before [`Tenant::open`].
    pub fn close(&self) {
        self.0.calls.lock().cancel();
    }

    /// Allows calls to begin again.
    pub fn open(&self) {
        let mut calls = self.0.calls.lock();
        if calls.is_cancelled() {
            *calls = self.0.over.child_token();
        }
    }

    /// Returns the time since a call was last refused memory though its own limit allowed it, if
    /// that ever happened.
    pub fn short_of_memory(&self) -> Option<Duration> {
        self.0.short_of_memory.lock().map(|at| at.elapsed())
    }

    pub(super) fn id(&self) -> Id {
        self.0.id
    }

    /// Returns the holder of slots for descriptions and trials: all processors of a namespace share
    /// one. A namespace can have any number of processors, and a description or a trial does not
    /// need a running one.
    pub(super) fn setup_id(&self) -> Id {
        self.0.setup_id
    }

    /// Returns the holder of slots and turns for calls of hooks: the API server waits for them,
    /// even while all calls of the processor wait for the API server.
    pub(super) fn hook_id(&self) -> Id {
        self.0.hook_id
    }

    /// Returns the cancellation token of a call that begins now.
    pub(super) fn call(&self) -> CancellationToken {
        self.0.calls.lock().clone()
    }

    /// Returns the cancellation token of descriptions and trials; [`Tenant::close`] does not cancel
    /// it.
    pub(super) fn setup(&self) -> CancellationToken {
        self.0.over.clone()
    }

    pub(super) fn memory(&self) -> &AtomicUsize {
        &self.0.memory
    }

    pub(super) fn namespace_memory(&self) -> &Arc<AtomicUsize> {
        &self.0.namespace_memory
    }

    /// Returns the bytes of memory of all its calls.
    pub fn memory_used(&self) -> usize {
        self.0.memory.load(Relaxed)
    }

    pub(super) fn is_short_of_memory(&self) {
        *self.0.short_of_memory.lock() = Some(Instant::now());
    }
}

impl fmt::Debug for Tenant {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_tuple("Tenant").field(&self.0.name).finish()
    }
}

// === impl TenantState ===

impl Drop for TenantState {
    fn drop(&mut self) {
        self.answers.forget(self.id);
    }
}

/// Returns the namespace of a processor named `namespace/name`, or the whole name where it has no
/// namespace (developer commands).
pub(crate) fn namespace_of(name: &str) -> &str {
    name.split_once('/').map_or(name, |(namespace, _)| namespace)
}

#[cfg(test)]
mod tests {
    use super::{
        super::budget::{Budget, Short},
        *,
    };

    fn tenant(name: &str, over: &CancellationToken) -> Tenant {
        tenant_in(name, over, &Budget::new(0))
    }

    fn tenant_in(name: &str, over: &CancellationToken, budget: &Budget) -> Tenant {
        Tenant::new(name, over, &Arc::new(Answers::new(0)), budget)
    }

    #[test]
    fn calls_are_cancelled_until_it_is_open_again() {
        let over = CancellationToken::new();
        let tenant = tenant("a/p", &over);
        let call = tenant.call();
        tenant.cancel_calls();
        assert!(call.is_cancelled() && !tenant.call().is_cancelled());
        let call = tenant.call();
        tenant.close();
        assert!(call.is_cancelled() && tenant.call().is_cancelled());
        assert!(!tenant.setup().is_cancelled());
        tenant.open();
        assert!(call.is_cancelled() && !tenant.call().is_cancelled());
        over.cancel();
        tenant.open();
        assert!(tenant.call().is_cancelled() && tenant.setup().is_cancelled());
    }

    #[test]
    fn processors_of_a_namespace_are_set_up_as_one() {
        let over = CancellationToken::new();
        let [one, other, third] = ["a/one", "a/other", "b/one"].map(|of| tenant(of, &over));
        assert_eq!(one.setup_id(), other.setup_id());
        assert_ne!(one.setup_id(), third.setup_id());
        assert_ne!(one.id(), other.id());
    }

    #[test]
    fn a_processor_gets_at_most_half_of_the_memory_not_used_by_others() {
        let (over, budget) = (CancellationToken::new(), Arc::new(Budget::new(1200)));
        let [greedy, second, small] =
            ["a/greedy", "a/second", "b/small"].map(|of| tenant_in(of, &over, &budget));
        let mut calls = [budget.charge(&greedy), budget.charge(&greedy)];
        assert_eq!(calls[0].grow(500), Ok(()));
        assert_eq!(calls[1].grow(101), Err(Short { asked: 601, limit: 1200 }));
        assert_eq!(calls[1].grow(100), Ok(()), "half of all for one that is alone");
        assert!(greedy.short_of_memory().is_some() && small.short_of_memory().is_none());
        let mut other = budget.charge(&second);
        assert_eq!(other.grow(300), Ok(()));
        assert_eq!(other.grow(1), Err(Short { asked: 301, limit: 1200 }));
        assert_eq!(budget.charge(&small).grow(150), Ok(()), "there is always something left");
        drop((calls, other));
        assert_eq!(greedy.memory_used() + second.memory_used() + small.memory_used(), 0);
        assert_eq!(budget.charge(&small).grow(600), Ok(()), "all is given back");
    }

    #[test]
    fn a_namespace_gets_at_most_three_quarters_with_any_number_of_processors_and_modules() {
        let (over, budget) = (CancellationToken::new(), Arc::new(Budget::new(1200)));
        let mut modules = [(); 8].map(|()| budget.charge_namespace("a"));
        let taken = modules.iter_mut().filter_map(|module| module.grow(150).ok()).count();
        assert_eq!(taken, 6, "of 1200 bytes 900");
        let asked = modules[7].grow(1);
        assert_eq!(asked, Err(Short { asked: 901, limit: 1200 }));
        let [same, other] = ["a/one", "b/one"].map(|of| tenant_in(of, &over, &budget));
        assert_eq!(budget.charge(&same).grow(1), Err(Short { asked: 901, limit: 1200 }));
        assert!(same.short_of_memory().is_some());
        assert_eq!(budget.charge(&other).grow(150), Ok(()), "half of what is left");
        drop(modules);
        assert_eq!(budget.charge(&same).grow(600), Ok(()), "all is given back");
    }
}
