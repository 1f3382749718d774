//! The parts that all processors share: wasmtime's settings, the linked imports, and the ticker
//! that makes calls yield and end.
//!
//! There are two lanes. The small lane keeps a pool of instances' memory mapped, which makes a call
//! cheap. The big lane allocates for each call; it is for modules that would not fit into the pool
//! or would occupy too much of it.

mod ticker;

use std::{io, num::NonZeroUsize, sync::Arc};

use tokio::{runtime::Handle, sync::watch as latest};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use wasmtime::{
    Config, Enabled, InstanceAllocationStrategy, PoolingAllocationConfig, component::Linker,
};

use self::ticker::Ticker;
use super::{
    budget::Budget,
    cache::Cache,
    child_permits::ChildPermits,
    compiler::{CompileError, Compiler},
    config::ValidConfigs,
    hooks::HookSlots,
    imports,
    library::answers::{Answers, MAX_ANSWERS_BYTES},
    shares::{self, Bounds, Id, OwnedSlot, Shares, Waiting},
    state::State,
    tenant::Tenant,
    turns::Turns,
    wasi,
};
use crate::{
    cache_dir::{self, CacheDir},
    metrics::Metrics,
};

/// The reason why an engine could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The settings do not fit this machine, or its address space is too small for the pool.
    #[error("cannot set up the WebAssembly engine for {lane} modules")]
    Settings {
        /// The lane: `small` or `big`.
        lane: &'static str,
        source: wasmtime::Error,
    },

    /// The cache directory of compiled code cannot be trusted.
    #[error(transparent)]
    Cache(cache_dir::Error),

    /// The thread that interrupts calls could not be started.
    #[error("cannot start the thread that interrupts calls")]
    Ticker(#[source] std::io::Error),
}

/// The settings of an engine.
#[derive(Debug, Default)]
pub struct Options {
    /// The directory that keeps compiled code between starts; its files are executed as machine
    /// code (host/decisions/0028-what-lies-in-the-cache.md). `None`: each start compiles.
    pub cache: Option<CacheDir>,
    pub compiler: Compiler,
    /// The metrics that count cache look-ups and compilations.
    pub metrics: Metrics,
    /// True if all random bytes are derived from the call's seed and object, so that a call can be
    /// repeated. For simulations only: such bytes are predictable.
    pub repeatable: bool,
    /// The limit on the memories of all calls and loaded modules together, in bytes; `None`: no
    /// limit.
    pub call_memory: Option<usize>,
}

/// Compiles and runs processors. Cheap to clone; the last clone ends the ticker's thread.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<EngineState>,
}

struct EngineState {
    small: Lane,
    big: Lane,
    cache: Option<Cache>,
    compiler: Compiler,
    /// Permits for compiling modules.
    compiling: ChildPermits,
    /// Permits for checking configurations. Separate from `compiling`, so that a module that takes
    /// long to compile delays no check.
    checking: ChildPermits,
    valid_configs: ValidConfigs,
    metrics: Metrics,
    repeatable: bool,
    ticker: Ticker,
    /// Cancelled when all calls have to end.
    over: CancellationToken,
    turns: Arc<Turns>,
    budget: Arc<Budget>,
    /// The cached answers of libraries.
    answers: Arc<Answers>,
    /// Slots for calls of libraries. Separate from the lanes: a call that holds a lane's slot must
    /// not wait for another slot of that lane.
    library_slots: Arc<Shares>,
    hook_slots: HookSlots,
    /// The calls of libraries: they outlive their caller. Each ends at its deadline, or when calls
    /// are cancelled.
    library_calls: TaskTracker,
    /// Changes when a call has waited for a slot for [`LONG_WAIT`](super::LONG_WAIT).
    delays: latest::Sender<u64>,
}

/// The engine of a lane, with every import of the contract and of WASI linked.
pub(super) struct Lane {
    pub(super) engine: wasmtime::Engine,
    pub(super) linker: Linker<State>,
    /// Slots for concurrent calls. Calls queue here because the pool refuses calls over its limit.
    pub(super) slots: Shares,
}

/// The lane that a component runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    Small,
    Big,
}

/// The size of a module in bytes above which it runs in the big lane. Rust guests have 0.2 to 2
/// MiB, Go guests 10 MiB and more.
const MAX_SMALL_MODULE_BYTES: u64 = 8 << 20;
/// Concurrent calls in the small lane: far more than cores, since calls only compute. One processor
/// gets 56 at most, and 16 are reserved for processors that run no call, and for descriptions and
/// trials; see [`Bounds::of_total`].
const MAX_SMALL_CALLS: u32 = 128;
/// Concurrent calls in the big lane, each of which may take its memory limit: one processor gets 7
/// at most, 2 are reserved.
const MAX_BIG_CALLS: u32 = 16;
/// Concurrent calls of hooks, in both lanes together: one namespace gets 7 at most, of which one
/// processor gets 6; 2 are reserved. Separate from all others: a write of a call may wait for a
/// hook.
const MAX_HOOK_CALLS: u32 = 16;
/// Instances in the pool.
const POOL_SIZE: u32 = MAX_SMALL_CALLS + MAX_HOOK_CALLS;
/// Concurrent calls of libraries, each of which may take its memory limit: one processor gets 7 at
/// most, 2 are reserved.
const MAX_LIBRARY_CALLS: usize = 16;
/// Modules that are compiled concurrently, each of which may take the compiler's memory limit. More
/// than one, so that a module that takes as long as its limit allows does not delay all others.
const MAX_COMPILATIONS: usize = 2;
/// Configurations that are checked concurrently.
const MAX_CONFIG_CHECKS: usize = 2;
/// Core instances, memories and tables that one component may consist of. A guest built for
/// wasm32-wasip2 has 3 to 5, 1 and 2.
const MAX_COMPONENT_PARTS: u32 = 16;
const MAX_MODULE_MEMORIES: u32 = 2;
/// Bytes of the context of one instance in the pool, which reserves as many; a larger one runs in the
/// big lane.
const MAX_CONTEXT_BYTES: usize = 1 << 20;
/// Bytes of a slot's memory that are reset by copying instead of by system calls (design, section
/// 10).
const KEPT_MEMORY_BYTES: usize = 2 << 20;
const KEPT_STACK_BYTES: usize = 64 << 10;
/// Unused slots that stay warm: the memory cost of idle processors.
const MAX_WARM_SLOTS: u32 = 16;
/// Innermost functions that an error shows. Without a bound, collecting the backtrace of an endless
/// recursion would take longer than the recursion did.
const MAX_BACKTRACE_FRAMES: usize = 64;
/// Stack of the guest's nested calls; the rest of `STACK_BYTES` is for host functions.
const GUEST_STACK_BYTES: usize = 512 << 10;
const STACK_BYTES: usize = 2 << 20;

// === impl Engine ===

impl Engine {
    /// Sets up both lanes and starts the ticker.
    ///
    /// # Errors
    ///
    /// Fails if the machine cannot provide what the settings need.
    pub fn new(options: Options) -> Result<Self, EngineError> {
        let small = Lane::new("small", &pooling(), MAX_SMALL_CALLS)?;
        let big = Lane::new("big", &InstanceAllocationStrategy::OnDemand, MAX_BIG_CALLS)?;
        let engines = vec![small.engine.clone(), big.engine.clone()];
        let ticker = Ticker::start(engines).map_err(EngineError::Ticker)?;
        let Options { cache, compiler, metrics, repeatable, call_memory } = options;
        let cache = cache.map(|dir| Cache::open(&dir, &big.engine)).transpose();
        let cache = cache.map_err(EngineError::Cache)?.flatten();
        let (compiling, checking) =
            (ChildPermits::new(MAX_COMPILATIONS), ChildPermits::new(MAX_CONFIG_CHECKS));
        let shared = EngineState {
            small,
            big,
            cache,
            compiler,
            compiling,
            checking,
            valid_configs: ValidConfigs::default(),
            metrics,
            repeatable,
            ticker,
            over: CancellationToken::new(),
            turns: Arc::new(Turns::new(threads())),
            budget: Arc::new(Budget::new(call_memory.unwrap_or(usize::MAX))),
            answers: Arc::new(Answers::new(MAX_ANSWERS_BYTES)),
            library_slots: Arc::new(Shares::new(Bounds::of_total(MAX_LIBRARY_CALLS))),
            hook_slots: HookSlots::new(MAX_HOOK_CALLS as usize),
            library_calls: TaskTracker::new(),
            delays: latest::Sender::new(0),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns a new processor that holds no slot and no memory yet.
    pub(super) fn tenant(&self, name: &str) -> Tenant {
        Tenant::new(name, &self.shared.over, &self.shared.answers, &self.shared.budget)
    }

    /// Cancels all current and later calls, when the host shuts down.
    pub fn cancel_calls(&self) {
        self.shared.over.cancel();
    }

    /// Returns a counter that changes when a call has waited for a slot for
    /// [`LONG_WAIT`](super::LONG_WAIT).
    pub fn delays(&self) -> latest::Receiver<u64> {
        self.shared.delays.subscribe()
    }

    /// Returns the calls of this processor that wait for a slot, in both lanes.
    pub(super) fn waiting(&self, of: &Tenant) -> Waiting {
        let [small, big] =
            [&self.shared.small, &self.shared.big].map(|lane| lane.slots.waiting(of.id()));
        Waiting { calls: small.calls + big.calls, longest: small.longest.max(big.longest) }
    }

    pub(super) fn delayed(&self) {
        self.shared.delays.send_modify(|count| *count += 1);
    }

    pub(super) fn answers(&self) -> &Arc<Answers> {
        &self.shared.answers
    }

    /// Returns the size of the cached answers of libraries, in bytes.
    pub fn answer_bytes(&self) -> usize {
        self.shared.answers.bytes()
    }

    /// Waits for a slot for the call of a library.
    pub(super) async fn library_slot(&self, of: Id) -> OwnedSlot {
        shares::granted(self.shared.library_slots.owned_slot(of), || ()).await
    }

    pub(super) fn hook_slots(&self) -> &HookSlots {
        &self.shared.hook_slots
    }

    /// Runs the call of a library to its end, even if no caller waits for it.
    pub(super) fn spawn(&self, call: impl Future<Output = ()> + Send + 'static) {
        drop(self.shared.library_calls.spawn(call));
    }

    pub(super) fn turns(&self) -> &Arc<Turns> {
        &self.shared.turns
    }

    pub(super) fn budget(&self) -> &Arc<Budget> {
        &self.shared.budget
    }

    pub(super) fn lane(&self, size: Size) -> &Lane {
        match size {
            Size::Small => &self.shared.small,
            Size::Big => &self.shared.big,
        }
    }

    pub(super) fn cache(&self) -> Option<&Cache> {
        self.shared.cache.as_ref()
    }

    pub(super) fn compiler(&self) -> &Compiler {
        &self.shared.compiler
    }

    pub(super) fn compiling(&self) -> &ChildPermits {
        &self.shared.compiling
    }

    pub(super) fn checking(&self) -> &ChildPermits {
        &self.shared.checking
    }

    pub(super) fn valid_configs(&self) -> &ValidConfigs {
        &self.shared.valid_configs
    }

    pub(super) fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// Returns whether all random bytes are derived from the call's seed.
    pub(super) fn is_repeatable(&self) -> bool {
        self.shared.repeatable
    }

    /// Moves the epoch until the returned guard is dropped.
    pub(super) fn tick(&self) -> ticker::Running<'_> {
        self.shared.ticker.run()
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Engine").finish_non_exhaustive()
    }
}

// === impl Lane ===

impl Lane {
    fn new(
        name: &'static str,
        allocation: &InstanceAllocationStrategy,
        calls: u32,
    ) -> Result<Self, EngineError> {
        let failed = |source| EngineError::Settings { lane: name, source };
        let engine = wasmtime::Engine::new(&config(allocation)).map_err(failed)?;
        let mut linker = Linker::new(&engine);
        wasi::link(&mut linker).map_err(failed)?;
        imports::link(&mut linker).map_err(failed)?;
        Ok(Self { engine, linker, slots: Shares::new(Bounds::of_total(calls as usize)) })
    }
}

// === impl Size ===

impl Size {
    pub(super) fn of_module(bytes: u64) -> Self {
        if bytes > MAX_SMALL_MODULE_BYTES { Self::Big } else { Self::Small }
    }
}

/// Returns the number of threads that run calls.
fn threads() -> usize {
    match Handle::try_current() {
        Ok(runtime) => runtime.metrics().num_workers(),
        Err(_) => std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
    }
}

/// Compiles a component to machine code for both lanes: the code does not depend on where the
/// memory of instances comes from.
///
/// # Errors
///
/// Fails if the module is not a component that [`Engine`] could run.
pub fn compile(module: &[u8]) -> Result<Vec<u8>, CompileError> {
    let engine = wasmtime::Engine::new(&config(&InstanceAllocationStrategy::OnDemand));
    let engine = engine.map_err(|error| CompileError::NotRun(io::Error::other(error)))?;
    engine.precompile_component(module).map_err(|error| CompileError::Refused(format!("{error:#}")))
}

fn config(allocation: &InstanceAllocationStrategy) -> Config {
    let mut config = Config::new();
    config
        .wasm_component_model(true)
        // Concurrency support makes a call cost a quarter more (design, section 10).
        .concurrency_support(false)
        .epoch_interruption(true)
        // Only native debuggers use the unwind information, and it costs memory and time for each
        // component.
        .native_unwind_info(false)
        .wasm_backtrace_max_frames(NonZeroUsize::new(MAX_BACKTRACE_FRAMES))
        .max_wasm_stack(GUEST_STACK_BYTES)
        .async_stack_size(STACK_BYTES)
        .allocation_strategy(allocation.clone());
    config
}

fn pooling() -> InstanceAllocationStrategy {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(POOL_SIZE)
        .total_stacks(POOL_SIZE)
        .total_core_instances(POOL_SIZE * MAX_COMPONENT_PARTS)
        .total_memories(POOL_SIZE * MAX_MODULE_MEMORIES)
        .total_tables(POOL_SIZE * MAX_COMPONENT_PARTS)
        .max_core_instances_per_component(MAX_COMPONENT_PARTS)
        .max_memories_per_component(MAX_MODULE_MEMORIES)
        .max_tables_per_component(MAX_COMPONENT_PARTS)
        .max_core_instance_size(MAX_CONTEXT_BYTES)
        .max_component_instance_size(MAX_CONTEXT_BYTES)
        .max_unused_warm_slots(MAX_WARM_SLOTS)
        .linear_memory_keep_resident(KEPT_MEMORY_BYTES)
        .async_stack_keep_resident(KEPT_STACK_BYTES)
        .pagemap_scan(Enabled::Auto);
    InstanceAllocationStrategy::Pooling(pool)
}

#[cfg(test)]
mod tests {
    use std::hash::{Hash as _, Hasher as _};

    use xxhash_rust::xxh3::Xxh3;

    use super::*;

    #[test]
    fn an_engine_can_be_made_and_ended() {
        let engine = Engine::new(Options::default()).unwrap();
        let other = engine.clone();
        drop(engine);
        drop(other);
    }

    #[test]
    fn code_is_the_same_for_both_lanes() {
        let engine = Engine::new(Options::default()).unwrap();
        let hash = |size| {
            let mut hasher = Xxh3::new();
            engine.lane(size).engine.precompile_compatibility_hash().hash(&mut hasher);
            hasher.finish()
        };
        assert_eq!(hash(Size::Small), hash(Size::Big));
    }

    #[test]
    fn only_large_modules_run_in_the_big_lane() {
        let cases = [(0, Size::Small), (8 << 20, Size::Small), ((8 << 20) + 1, Size::Big)];
        for (bytes, size) in cases {
            assert_eq!(Size::of_module(bytes), size, "{bytes}");
        }
    }
}
