//! A loaded processor, and the host's only code that uses wasmtime.
//!
//! [`Engine`] is shared by all processors. [`Processor::load`] checks, compiles and links a module;
//! after that a [`Processor::call`] costs some ten microseconds: each call instantiates the linked
//! component anew and drops the instance afterwards. A fault of the guest ends its call with an
//! [`Error`] and has no other effect.

mod bindings;
mod budget;
mod cache;
pub(crate) mod child;
mod child_permits;
mod compiler;
mod component;
mod config;
mod content;
mod convert;
mod engine;
mod error;
mod footprint;
mod hooks;
mod imports;
mod instances;
mod library;
mod limits;
mod log;
mod precompiled;
mod shares;
mod size;
mod state;
mod tenant;
mod turns;
mod wasi;

pub use compiler::{CompileError, CompileLimits, Compiler};
pub use component::{LoadError, Names};
pub use content::Content;
pub use engine::{Engine, EngineError, Options, compile};
pub use error::{Error, Next, Trace};
pub use hooks::Hooked;
pub use limits::Limits;
pub use mortise_core::{
    digest::ModuleDigest as Digest,
    reconcile::{Input, Line, Moment, Occasion, Outside, Source},
};
pub use shares::Waiting;
pub use tenant::Tenant;
pub(crate) use tenant::namespace_of;

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::{FutureExt as _, future::BoxFuture};
use mortise_core::{
    contract::{Description, Failure, Outcome, Request, bounds},
    error_chain,
    outbound::Sending,
    reads::record::Asked,
    reconcile,
};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::block_in_place,
};
use tokio_util::sync::CancellationToken;
use wasmtime::{CallHook, Store, StoreContextMut};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use self::{
    component::{Compiled, Found, Linked},
    engine::Size,
    imports::{CLOSED, Reading},
    library::{Caller, Library},
    shares::{Id, Slot},
    state::State,
    wasi::Chance,
};

/// Waits for a slot above this time are reported in the status of the Processor.
pub const LONG_WAIT: Duration = Duration::from_secs(1);

/// The bytes of a component, and the limits of its calls.
#[derive(Clone, Debug)]
pub struct Module {
    /// The component's name in messages.
    pub name: String,
    /// The component.
    pub content: Content,
    /// The limits of one call.
    pub limits: Limits,
}

/// A component that implements an interface which a processor's module imports.
#[derive(Clone, Debug)]
pub struct LibraryModule {
    /// The interface, such as `example:shouting/shout@1.0.0`.
    pub interface: String,
    /// The component.
    pub module: Module,
}

/// A component that reconciles. Cheap to clone.
#[derive(Clone)]
pub struct Processor {
    shared: Arc<ProcessorState>,
    tenant: Tenant,
}

struct ProcessorState {
    name: String,
    engine: Engine,
    linked: Linked,
    limits: Limits,
}

/// The result of one call.
pub struct Called {
    /// The outcome or failure that the processor returned, or the error that ended the call.
    pub outcome: Result<Result<Outcome, Failure>, Error>,
    /// The outside of the call, with the reads made from it; present however the call ended.
    pub outside: Outside,
    /// The lines that the guest logged.
    pub log: Vec<Line>,
    /// Number of log lines dropped at the limits.
    pub log_dropped: u32,
    /// Inputs used other than objects of the cluster, such as the clock and random bytes.
    pub asked: Asked,
    /// Bytes of memory of the instance at the end.
    pub memory: usize,
    /// Number of gets and of list pages.
    pub reads: u32,
    /// Bytes of the reads' arguments and answers.
    pub read_bytes: usize,
    /// The duration of the call, without the wait for a free slot.
    pub took: Duration,
    /// The time that the call waited for a free slot.
    pub waited: Duration,
}

// === impl Processor ===

impl Processor {
    /// Loads a module; `name` is its name in messages.
    ///
    /// Takes the code from the engine's cache, or has it compiled; never on a thread that runs
    /// calls. Dropping the future ends a child process that compiles.
    ///
    /// # Errors
    ///
    /// Fails if the module is not a component, does not implement this contract, imports an
    /// interface that is not granted, or exceeds the limits on compiling.
    pub async fn load(
        engine: &Engine,
        name: &str,
        module: Bytes,
        limits: Limits,
    ) -> Result<Self, LoadError> {
        let module = Module { name: name.to_owned(), content: module.into(), limits };
        Self::load_with(engine, None, module, Vec::new()).await
    }

    /// Loads a module with its libraries. The modules of one tenant are compiled one at a time: see
    /// [`ChildPermits`](child_permits::ChildPermits).
    ///
    /// # Errors
    ///
    /// Fails as [`Processor::load`] does, for a component that is no library, and for one whose
    /// functions have other types than the module imports.
    pub async fn load_with(
        engine: &Engine,
        tenant: Option<&str>,
        module: Module,
        libraries: Vec<LibraryModule>,
    ) -> Result<Self, LoadError> {
        let Module { name, content, limits } = module;
        let mut linked_libraries = Vec::new();
        for LibraryModule { interface, module: Module { name, content, limits } } in libraries {
            let compiled = compiled(engine, tenant, &name, content, Size::Big).await?;
            let of = (engine.clone(), name.clone());
            let library = move || {
                let (engine, name) = of;
                Library::new(&engine, &interface, &name, limits, compiled)
            };
            linked_libraries.push(Arc::new(elsewhere(&name, library).await?));
        }
        let size = Size::of_module(content.length());
        let compiled = compiled(engine, tenant, &name, content, size).await?;
        let of = (engine.clone(), name.clone());
        let link = move || component::link(&of.0, &of.1, compiled, linked_libraries);
        let linked = elsewhere(&name, link).await?;
        let tenant = engine.tenant(&name);
        let shared = ProcessorState { name, engine: engine.clone(), linked, limits };
        Ok(Self { shared: Arc::new(shared), tenant })
    }

    /// Returns the processor's name for messages.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Returns this component as a version of the processor `tenant`.
    #[must_use]
    pub fn of(self, tenant: Tenant) -> Self {
        Self { tenant, ..self }
    }

    /// Returns this component as the first version of a processor with this name.
    #[must_use]
    pub fn of_new(self, name: &Arc<str>) -> Self {
        let tenant = self.shared.engine.tenant(name);
        self.of(tenant)
    }

    /// Returns the tenant whose shares (slots, turns, memory) the calls use.
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// Returns the calls waiting for a slot, of all versions of the processor.
    pub fn waiting(&self) -> Waiting {
        self.shared.engine.waiting(&self.tenant)
    }

    /// Returns the digest of the module.
    pub fn digest(&self) -> Digest {
        self.shared.linked.digest
    }

    /// Returns the interface and the digest of each library, in the order of the load.
    pub fn libraries(&self) -> impl Iterator<Item = (&str, Digest)> {
        self.shared.linked.libraries.iter().map(|library| (library.interface(), library.digest()))
    }

    /// Returns the functions of each library with their types, in the order of the load.
    pub fn library_functions(&self) -> impl Iterator<Item = Vec<String>> {
        self.shared.linked.libraries.iter().map(|library| library.functions().collect())
    }

    /// Returns the names of the component's imports and exports.
    pub fn names(&self) -> &Names {
        &self.shared.linked.names
    }

    /// Returns the limits of one call.
    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// Asks the processor for its description under a configuration.
    ///
    /// # Errors
    ///
    /// Fails as any call can, if the processor refuses the configuration, or if the description
    /// exceeds the bounds.
    pub async fn describe(&self, config: &str) -> Result<Description, Error> {
        let ends = self.tenant.setup();
        let described = until(&ends, self.describe_in_slot(config)).await;
        described.unwrap_or_else(|| Err(self.cancelled()))
    }

    async fn describe_in_slot(&self, config: &str) -> Result<Description, Error> {
        let _slot = self.slot(self.tenant.setup_id()).await;
        let _ticks = self.shared.engine.tick();
        let mut store = self.setup_store();
        let processor = || self.name().to_owned();
        match self.ask_description(&mut store, config).await {
            Ok(Ok(description)) => match bounds::check_description(&description) {
                Ok(()) => Ok(description),
                Err(found) => Err(Error::DescriptionRefused { processor: processor(), found }),
            },
            Ok(Err(mut message)) => {
                bounds::text::cut(&mut message, bounds::FAILURE);
                Err(Error::ConfigRefused { processor: processor(), message })
            }
            Err(source) => Err(self.setup_error(&store, source)),
        }
    }

    /// Builds the store of a call whose only input is the configuration.
    fn setup_store(&self) -> Store<State> {
        let moment = Moment { now_ms: 0, seed: 0 };
        let caller = Caller {
            tenant: self.tenant.clone(),
            slot_of: self.tenant.setup_id(),
            turn_of: self.tenant.id(),
            ends: self.tenant.setup(),
        };
        let returned = bounds::DESCRIPTION_COPY;
        self.store(self.limits(), Err(CLOSED), moment, (Instant::now(), returned), caller)
    }

    fn setup_error(&self, store: &Store<State>, source: wasmtime::Error) -> Error {
        match self.error(self.limits(), store, source) {
            // After the guest has returned, only the description is copied.
            Error::OutcomeTooLarge { .. } => Error::DescriptionRefused {
                processor: self.name().to_owned(),
                found: format!(
                    "it has more than {} bytes, at most {} are accepted",
                    bounds::DESCRIPTION_COPY,
                    bounds::DESCRIPTION
                ),
            },
            error => error,
        }
    }

    /// Reconciles one object. Ends early, with [`Error::Cancelled`], when the [`Tenant`] cancels
    /// its calls.
    ///
    /// The trial of a version that is not active yet does not wait behind calls of the active
    /// version, and runs although the processor is suspended.
    ///
    /// The future must be awaited to its end, which the deadline bounds: dropping it aborts the
    /// guest in the middle of its work.
    ///
    /// # Panics
    ///
    /// Panics if the view of the call is gone, which is a bug of the host.
    pub async fn call(&self, input: Input<'_>) -> Called {
        let Input { outside, request, moment, occasion } = input;
        let (slot_of, ends) = match occasion {
            Occasion::Run | Occasion::FailedWrites => (self.tenant.id(), self.tenant.call()),
            Occasion::Trial => (self.tenant.setup_id(), self.tenant.setup()),
        };
        let asked = Instant::now();
        let slot = until(&ends, self.slot(slot_of)).await;
        let _ticks = self.shared.engine.tick();
        let start = Instant::now();
        let tenant = self.tenant.clone();
        let caller = Caller { turn_of: tenant.id(), tenant, slot_of, ends: ends.clone() };
        let (limits, returned) = (self.limits(), self.shared.limits.outcome_copy());
        let mut store = self.store(limits, Ok(outside), moment, (start, returned), caller);
        if self.shared.engine.is_repeatable() {
            store.data_mut().secure = Some(Chance::new(seed_of(request, moment)));
        }
        let answer = match &slot {
            Some(_) => until(&ends, self.ask_outcome(&mut store, request)).await,
            None => None,
        };
        let outcome = match answer {
            Some(Ok(mut returned)) => {
                let size = size::check(self.name(), &self.shared.limits, &returned);
                returned.as_mut().err().into_iter().for_each(bounds::shorten_failure);
                size.map(|()| returned)
            }
            Some(Err(source)) => Err(self.error(limits, &store, source)),
            None => Err(self.cancelled()),
        };
        let State { reading, sending, log, asked: asked_for, memory, .. } = store.into_data();
        let (log, log_dropped) = log.lock().finish();
        let (reads, read_bytes) = reading.used(&self.shared.limits);
        let view = reading.finish().expect("a call has a view");
        Called {
            outcome,
            outside: Outside { view, sending },
            log,
            log_dropped,
            asked: asked_for,
            memory,
            reads,
            read_bytes,
            took: start.elapsed(),
            waited: start.saturating_duration_since(asked),
        }
    }

    async fn ask_description(
        &self,
        store: &mut Store<State>,
        config: &str,
    ) -> wasmtime::Result<Result<Description, String>> {
        let instance = self.shared.linked.instances.instantiate(store).await?;
        let guest = self.shared.linked.exports.reconciliation.load(&mut *store, &instance)?;
        let described = guest.call_describe(store, config).await;
        Ok(described?.map(Into::into))
    }

    async fn ask_outcome(
        &self,
        store: &mut Store<State>,
        request: &Request,
    ) -> wasmtime::Result<Result<Outcome, Failure>> {
        let instance = self.shared.linked.instances.instantiate(store).await?;
        let guest = self.shared.linked.exports.reconciliation.load(&mut *store, &instance)?;
        let answer = guest.call_reconcile(store, &request.clone().into()).await;
        Ok(answer?.map(Into::into).map_err(Into::into))
    }

    /// Waits for a slot, and reports to the engine a wait of more than [`LONG_WAIT`].
    async fn slot(&self, of: Id) -> Slot<'_> {
        let engine = &self.shared.engine;
        let slots = &engine.lane(self.shared.linked.size).slots;
        shares::granted(slots.slot(of), || engine.delayed()).await
    }

    /// Builds the store of one call; `returned` is the maximum number of bytes copied from the
    /// result.
    fn store(
        &self,
        limits: &Limits,
        outside: Result<Outside, &'static str>,
        moment: Moment,
        (start, returned): (Instant, usize),
        caller: Caller,
    ) -> Store<State> {
        let ProcessorState { engine, linked, .. } = &*self.shared;
        let turn = engine.turns().begin(caller.turn_of, start);
        let charge = engine.budget().charge(&self.tenant);
        let (view, sending) = match outside {
            Ok(Outside { view, sending }) => (Ok(view), sending),
            Err(reason) => (Err(reason), Sending::default()),
        };
        let outside = (Reading::new(view, limits), sending);
        let state = State::new(outside, moment, limits, (start, turn, charge), caller);
        let mut store = Store::new(&engine.lane(linked.size).engine, state);
        store.limiter(|state| state);
        store.set_hostcall_fuel(returned);
        store.call_hook(copies(returned));
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|mut context| context.data_mut().on_tick());
        store
    }

    fn cancelled(&self) -> Error {
        Error::Cancelled { processor: self.name().to_owned() }
    }

    fn error(&self, limits: &Limits, store: &Store<State>, source: wasmtime::Error) -> Error {
        let log = store.data().log.lock();
        Error::of_call(self.name(), limits, &log, source)
    }
}

impl reconcile::Call for Processor {
    fn digest(&self) -> Digest {
        self.digest()
    }

    fn digests(&self) -> String {
        let libraries = self.libraries().map(|(of, digest)| format!(" {of} {digest}"));
        std::iter::once(self.digest().to_string()).chain(libraries).collect()
    }

    fn outcome_limit(&self) -> usize {
        self.limits().outcome
    }

    fn work(&self, work: &mut dyn FnMut()) {
        match Handle::current().runtime_flavor() {
            // Other tasks of this thread are taken over by another one.
            RuntimeFlavor::MultiThread => block_in_place(work),
            _ => work(),
        }
    }

    fn call<'a>(&'a self, input: Input<'a>) -> BoxFuture<'a, reconcile::Called> {
        self.call(input).map(Into::into).boxed()
    }
}

impl From<Called> for reconcile::Called {
    fn from(called: Called) -> Self {
        let Called { outcome, outside, log, log_dropped, asked, memory, waited, .. } = called;
        let outcome = outcome.map_err(|error| reconcile::CallError {
            fault: error.fault(),
            reason: error.reason(),
            message: error_chain::whole(&error),
            backtrace: error.backtrace().map(ToString::to_string),
        });
        let usage = reconcile::Usage { log, log_dropped, asked, memory, waited, calls: Vec::new() };
        Self { outcome, outside, usage }
    }
}

/// Limits the bytes copied out of the guest: arguments while the guest runs, and the result
/// (`returned`) after it has returned.
fn copies(
    returned: usize,
) -> impl FnMut(StoreContextMut<'_, State>, CallHook) -> wasmtime::Result<()> {
    // To return an answer, the host calls the guest again, to allocate memory for it.
    let mut depth = 0_usize;
    move |mut context, hook| {
        match hook {
            CallHook::CallingWasm => depth += 1,
            CallHook::ReturningFromWasm => depth = depth.saturating_sub(1),
            CallHook::CallingHost | CallHook::ReturningFromHost => return Ok(()),
        }
        let fuel = if depth == 0 { returned } else { bounds::IMPORT_COPY };
        context.set_hostcall_fuel(fuel);
        Ok(())
    }
}

/// Runs `work` until it is done or `ends` is cancelled. `ends` is not checked again for work that
/// is done at the first poll.
async fn until<T>(ends: &CancellationToken, work: impl Future<Output = T>) -> Option<T> {
    if ends.is_cancelled() {
        return None;
    }
    tokio::select! {
        biased;
        done = work => Some(done),
        () = ends.cancelled() => None,
    }
}

/// Returns the names of a component's imports and exports; it need not be a processor.
///
/// # Errors
///
/// Fails if it is no component, or cannot be compiled.
pub async fn names(engine: &Engine, name: &str, content: Content) -> Result<Names, LoadError> {
    let size = Size::of_module(content.length());
    let Compiled { placed, .. } = compiled(engine, None, name, content, size).await?;
    Ok(Names::of(engine.lane(placed.size), &placed.component))
}

/// Returns a module's machine code, cached or compiled now.
async fn compiled(
    engine: &Engine,
    tenant: Option<&str>,
    name: &str,
    content: Content,
    size: Size,
) -> Result<Compiled, LoadError> {
    let find = {
        let (engine, name, content) = (engine.clone(), name.to_owned(), content.clone());
        let namespace = tenant.map(str::to_owned);
        move || component::find(&engine, &name, &content, size, namespace.as_deref())
    };
    let missing = match elsewhere(name, find).await? {
        Found::Compiled(compiled) => return Ok(compiled),
        Found::Missing(missing) => missing,
    };
    let place = engine.compiling().take(tenant).await;
    let (_guard, cancelled) = child::canceller().map_err(|error| {
        let source = CompileError::NotRun(error);
        LoadError::CompileFailed { module: name.to_owned(), source }
    })?;
    let (engine, of) = (engine.clone(), name.to_owned());
    let make = move || {
        let _place = place;
        component::make(&engine, &of, missing, &content, &cancelled)
    };
    elsewhere(name, make).await
}

/// Runs blocking work on a thread of its own.
async fn elsewhere<T: Send + 'static>(
    module: &str,
    work: impl FnOnce() -> Result<T, LoadError> + Send + 'static,
) -> Result<T, LoadError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(source) => Err(LoadError::BrokenOff { module: module.to_owned(), source }),
    }
}

/// Derives a seed that differs between objects, in place of the system's random numbers.
fn seed_of(request: &Request, moment: Moment) -> u64 {
    let of = &request.ref_;
    let namespace = of.namespace.as_deref().unwrap_or_default();
    let object = [request.reconciler.as_str(), namespace, &of.name];
    xxh3_64_with_seed(object.join("/").as_bytes(), moment.seed)
}

impl fmt::Debug for Processor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Processor")
            .field("name", &self.name())
            .field("digest", &self.digest())
            .finish_non_exhaustive()
    }
}
