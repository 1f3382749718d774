//! Libraries: pure components that implement interfaces which a processor's module imports.
//!
//! A library imports nothing but the contract's log, so its answers follow from its arguments. Each
//! call has its own instance in the big lane and its own limits; answers are cached ([`answers`]).
//!
//! *Guarantees.* A caller waits no longer than its own deadline; the library's call continues after
//! that, so that a later caller with the same arguments gets the answer. Callers with equal
//! arguments share one call. The memory and the CPU time of a library's call are charged to the
//! processor that caused it.

pub(super) mod answers;
mod describe;
mod value;

use std::{collections::BTreeSet, sync::Arc, time::Instant};

use futures::FutureExt as _;
use mortise_core::{contract::bounds::LIBRARY_ANSWER, outbound::Sending, reconcile::Fault};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use wasmtime::{
    Store, StoreContextMut,
    component::{
        Component, ComponentExportIndex, Linker, Val,
        types::{ComponentFunc, ComponentInstance, ComponentItem},
    },
};

use self::answers::{Answer, Begun, Key, Landing};
use super::{
    Digest, Line, Moment,
    component::{Compiled, LoadError, package, quoted, split},
    copies,
    engine::{Engine, Size},
    error::{Error, Trace},
    imports::Reading,
    instances::Instances,
    limits::Limits,
    shares::{Id, OwnedSlot},
    state::State,
    tenant::Tenant,
    until,
};

/// The only import that a library may have.
const LOG: &str = "mortise:host/log";
const LINKED: &str = "what is linked is a function of the library";
/// The packages whose interfaces no library may implement.
const RESERVED: [&str; 2] = ["mortise", "wasi"];

/// A component that implements one interface.
pub(super) struct Library {
    interface: Arc<str>,
    digest: Digest,
    limits: Limits,
    instances: Instances,
    functions: Vec<Function>,
}

/// A function of the interface.
struct Function {
    name: Arc<str>,
    index: ComponentExportIndex,
    ty: ComponentFunc,
}

/// The caller of a library.
#[derive(Clone)]
pub(super) struct Caller {
    pub(super) tenant: Tenant,
    /// The holder of the slot that the library's call uses.
    pub(super) slot_of: Id,
    /// The holder of the turns to compute.
    pub(super) turn_of: Id,
    /// Cancels the library's call.
    pub(super) ends: CancellationToken,
}

/// A library's call that ended without an answer. Raised in the caller as a trap.
#[derive(Clone, Debug, thiserror::Error)]
#[error("`{function}` of library `{interface}` {cause}")]
pub(super) struct Failed {
    pub(super) interface: Arc<str>,
    pub(super) function: Arc<str>,
    pub(super) cause: String,
    pub(super) fault: Fault,
    pub(super) backtrace: Trace,
}

/// A call of a library's function; `at` is the function's index.
struct Question<'a> {
    engine: &'a Engine,
    caller: &'a Caller,
    library: &'a Arc<Library>,
    at: usize,
    key: Key,
    arguments: &'a [Val],
}

/// The result of a library's call.
#[derive(Clone)]
pub(super) struct Finished {
    answer: Result<Answer, Failed>,
    log: Arc<[Line]>,
}

// === impl Library ===

impl Library {
    /// Checks a component and creates a library from it. Blocks.
    pub(super) fn new(
        engine: &Engine,
        interface: &str,
        module: &str,
        limits: Limits,
        Compiled { digest, charge, placed }: Compiled,
    ) -> Result<Self, LoadError> {
        let invalid = |found: String| LoadError::LibraryInvalid {
            module: module.to_owned(),
            interface: interface.to_owned(),
            found,
        };
        let component = &placed.component;
        let lane = engine.lane(Size::Big);
        check_name(interface).map_err(invalid)?;
        check_imports(&lane.engine, component).map_err(invalid)?;
        let functions = functions_of(&lane.engine, component, interface).map_err(invalid)?;
        let unfit = |source: wasmtime::Error| invalid(format!("it cannot be linked: {source:#}"));
        let pre = lane.linker.instantiate_pre(component).map_err(unfit)?;
        component.initialize_copy_on_write_image().map_err(unfit)?;
        let instances = Instances::new(pre, charge);
        Ok(Self { interface: interface.into(), digest, limits, instances, functions })
    }

    pub(super) fn interface(&self) -> &str {
        &self.interface
    }

    pub(super) fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns the functions with their types, as WIT writes them.
    pub(super) fn functions(&self) -> impl Iterator<Item = String> {
        let functions = self.functions.iter();
        functions.map(|function| format!("{}: {}", function.name, describe::function(&function.ty)))
    }

    fn key(&self, function: &Function, arguments: &[Val]) -> Key {
        let digest = self.digest.to_string();
        value::key([&digest, &self.interface, &function.name], arguments)
    }

    /// Calls a function in a fresh instance.
    async fn run(
        &self,
        engine: &Engine,
        caller: &Caller,
        function: &Function,
        arguments: &[Val],
    ) -> Finished {
        let _ticks = engine.tick();
        let start = Instant::now();
        let turn = engine.turns().begin(caller.turn_of, start);
        let charge = engine.budget().charge(&caller.tenant);
        let limits = &self.limits;
        // Constant, so that answers depend on the arguments only.
        let moment = Moment { now_ms: 0, seed: 0 };
        let closed = "a library depends on its arguments only; its caller reads and hands over";
        let outside = (Reading::new(Err(closed), limits), Sending::closed(closed));
        let state = State::new(outside, moment, limits, (start, turn, charge), caller.clone());
        let mut store = Store::new(&engine.lane(Size::Big).engine, state);
        store.limiter(|state| state);
        store.set_hostcall_fuel(LIBRARY_ANSWER);
        store.call_hook(copies(LIBRARY_ANSWER));
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|mut context| context.data_mut().on_tick());
        let mut values = vec![Val::Bool(false); function.ty.results().len()];
        let run = async {
            let instance = self.instances.instantiate(&mut store).await?;
            let export = instance.get_func(&mut store, function.index);
            let export = export.ok_or_else(|| wasmtime::Error::msg("the function is not there"))?;
            export.call_async(&mut store, arguments, &mut values).await
        };
        let answer = match until(&caller.ends, run).await {
            Some(Ok(())) => Ok(Answer::new(values)),
            Some(Err(source)) => Err(self.failed(function, &store, source)),
            None => Err(self.broken_off(function)),
        };
        let (log, _) = store.into_data().log.lock().finish();
        Finished { answer, log: log.into() }
    }

    fn failed(&self, function: &Function, store: &Store<State>, source: wasmtime::Error) -> Failed {
        let log = store.data().log.lock();
        let error = Error::of_call(&self.interface, &self.limits, &log, source);
        let fault = error.fault();
        let backtrace = error.backtrace().cloned().unwrap_or_default();
        Failed { fault, backtrace, ..self.failure(function, error.of_library()) }
    }

    fn failure(&self, function: &Function, cause: String) -> Failed {
        Failed {
            interface: Arc::clone(&self.interface),
            function: Arc::clone(&function.name),
            cause,
            fault: Fault::Processor,
            backtrace: Trace::default(),
        }
    }

    fn broken_off(&self, function: &Function) -> Failed {
        let cause = "was broken off: the processor is gone or suspended, or the host ends";
        Failed { fault: Fault::Cancelled, ..self.failure(function, cause.to_owned()) }
    }
}

/// Links the functions of a library that a module imports. Fails if their types differ from the
/// imported ones.
pub(super) fn link(
    engine: &Engine,
    linker: &mut Linker<State>,
    (module, component): (&str, &Component),
    library: &Arc<Library>,
) -> Result<(), LoadError> {
    let types = component.component_type();
    let imported = types.get_import(component.engine(), &library.interface);
    let Some(ComponentItem::ComponentInstance(wanted)) = imported.map(|item| item.ty) else {
        return Ok(());
    };
    let unfit = |source| LoadError::OtherTypes {
        module: module.to_owned(),
        contract: "the interface of its library",
        source,
    };
    let mut instance = linker.instance(&library.interface).map_err(unfit)?;
    for (name, item) in wanted.exports(component.engine()) {
        let ComponentItem::ComponentFunc(wanted) = item.ty else { continue };
        let found = library.functions.iter().position(|function| &*function.name == name);
        let Some(at) = found.filter(|at| {
            library.functions.get(*at).is_some_and(|function| equal(&function.ty, &wanted))
        }) else {
            return Err(library.other_types(module, name, &wanted));
        };
        let (engine, library) = (engine.clone(), Arc::clone(library));
        instance
            .func_new_async(name, move |store, _, arguments, results| {
                let (engine, library) = (engine.clone(), Arc::clone(&library));
                Box::new(call(store, engine, library, at, arguments, results))
            })
            .map_err(unfit)?;
    }
    Ok(())
}

/// Answers a call from the cache, or calls the library.
async fn call(
    mut store: StoreContextMut<'_, State>,
    engine: Engine,
    library: Arc<Library>,
    at: usize,
    arguments: &[Val],
    results: &mut [Val],
) -> wasmtime::Result<()> {
    let function = library.functions.get(at).expect(LINKED);
    let key = library.key(function, arguments);
    let caller = store.data().caller.clone();
    let remembered = engine.answers().get(caller.tenant.id(), &key);
    let (answer, result) = if let Some(answer) = remembered {
        (Ok(answer), "memo")
    } else {
        let left = store.data().left();
        store.data_mut().turn.give_back();
        let (engine, caller, library) = (&engine, &caller, &library);
        let question = Question { engine, caller, library, at, key, arguments };
        let answered = tokio::time::timeout(left, question.finished()).await;
        let (Finished { answer, log }, is_own) = answered.unwrap_or_else(|_| {
            let cause = "had not answered when the call was at its deadline; it is called on, and its answer is kept for the next attempt";
            let late = library.failure(function, cause.to_owned());
            (Finished { answer: Err(late), log: Arc::default() }, true)
        });
        store.data().log_of_library(&library.interface, &log);
        let result = match (&answer, is_own) {
            (Err(_), _) => "trap",
            (Ok(_), true) => "call",
            (Ok(_), false) => "shared",
        };
        (answer, result)
    };
    // Descriptions and trials are not counted: they may be of a processor that never runs.
    if caller.slot_of == caller.tenant.id() {
        engine.metrics().called_library(caller.tenant.name(), result);
    }
    answer?.write_to(results);
    Ok(())
}

// === impl Question ===

impl Question<'_> {
    /// Returns the result of a call with these arguments, which is either in progress or new; and
    /// whether it is new.
    async fn finished(&self) -> (Finished, bool) {
        loop {
            match self.flight().await {
                // The other caller was cancelled, but not this one.
                (Some(Finished { answer: Err(Failed { fault: Fault::Cancelled, .. }), .. }), _)
                    if !self.caller.ends.is_cancelled() => {}
                (Some(finished), is_own) => return (finished, is_own),
                (None, is_own) => {
                    let cause = "was broken off by an error of the host".to_owned();
                    let failed = self.library.failure(self.function(), cause);
                    let failed = Failed { fault: Fault::Host, ..failed };
                    return (Finished { answer: Err(failed), log: Arc::default() }, is_own);
                }
            }
        }
    }

    async fn flight(&self) -> (Option<Finished>, bool) {
        let Self { engine, caller, .. } = self;
        let (answers, of) = (engine.answers(), caller.tenant.id());
        if let Some(flight) = answers.under_way(of, &self.key) {
            return (flight.await, false);
        }
        // Taken before the call begins: so there are never more calls than slots.
        let slot = engine.library_slot(caller.slot_of).await;
        let (land, landed) = oneshot::channel();
        let flight = landed.map(Result::ok).boxed().shared();
        match answers.begin(of, &self.key, &flight) {
            Begun::Remembered(answer) => {
                (Some(Finished { answer: Ok(answer), log: Arc::default() }), false)
            }
            Begun::ByOther(flight) => {
                drop(slot);
                (flight.await, false)
            }
            Begun::Now(landing) => {
                engine.spawn(self.call(slot, landing, land));
                (flight.await, true)
            }
        }
    }

    /// Returns the library's call as a future that does not borrow from its caller.
    fn call(
        &self,
        slot: OwnedSlot,
        landing: Landing,
        land: oneshot::Sender<Finished>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (engine, library, at) = (self.engine.clone(), Arc::clone(self.library), self.at);
        let (caller, arguments) = (self.caller.clone(), self.arguments.to_vec());
        async move {
            let _slot = slot;
            let function = library.functions.get(at).expect(LINKED);
            let finished = library.run(&engine, &caller, function, &arguments).await;
            landing.land(finished.answer.as_ref().ok());
            // The receiver is dropped if no caller waits any more.
            let _ = land.send(finished);
        }
    }

    fn function(&self) -> &Function {
        self.library.functions.get(self.at).expect(LINKED)
    }
}

/// Fails if no library may implement this interface.
fn check_name(interface: &str) -> Result<(), String> {
    let (path, _) = split(interface);
    let namespace = package(path).split_once(':').map(|(namespace, _)| namespace);
    match namespace {
        None => Err(format!(
            "`{interface}` is no name of an interface, such as `example:shouting/shout@1.0.0`"
        )),
        Some(namespace) if RESERVED.contains(&namespace) => {
            Err(format!("the host itself answers the interfaces of `{}`", package(path)))
        }
        Some(_) => Ok(()),
    }
}

/// Fails if a component imports a function other than the log's.
fn check_imports(engine: &wasmtime::Engine, component: &Component) -> Result<(), String> {
    let types = component.component_type();
    let imports = types.imports(engine).filter(|(name, item)| {
        let (path, version) = split(name);
        let is_log = path == LOG && version.starts_with("0.1.");
        !is_log && !is_of_types(engine, &item.ty)
    });
    let refused: Vec<&str> = imports.map(|(name, _)| name).collect();
    if refused.is_empty() {
        return Ok(());
    }
    let refused = quoted(&refused);
    Err(format!("it imports {refused}; a library may import `{LOG}@0.1.0` and nothing else"))
}

/// Returns the functions of an interface that a component exports.
fn functions_of(
    engine: &wasmtime::Engine,
    component: &Component,
    interface: &str,
) -> Result<Vec<Function>, String> {
    let types = component.component_type();
    let Some(ComponentItem::ComponentInstance(exported)) =
        types.get_export(engine, interface).map(|item| item.ty)
    else {
        let found: Vec<&str> = types.exports(engine).map(|(name, _)| name).collect();
        let found = if found.is_empty() { "nothing".to_owned() } else { quoted(&found) };
        return Err(format!("it does not export it; it exports {found}"));
    };
    let of = component.get_export_index(None, interface);
    let mut functions = Vec::new();
    for (name, item) in exported.exports(engine) {
        match item.ty {
            ComponentItem::Type(_) => {}
            ComponentItem::ComponentFunc(ty) if describe::is_plain(&ty) => {
                let index = component.get_export_index(of.as_ref(), name);
                let index = index.ok_or_else(|| format!("its function `{name}` is not there"))?;
                functions.push(Function { name: name.into(), index, ty });
            }
            _ => {
                return Err(format!(
                    "its export `{name}` is no function of plain values: a library has no resources, futures, streams or async functions"
                ));
            }
        }
    }
    Ok(functions)
}

/// Returns the names of the imported instances that consist of types only, which need no
/// implementation.
pub(super) fn instances_of_types(
    engine: &wasmtime::Engine,
    component: &Component,
) -> BTreeSet<String> {
    let types = component.component_type();
    let imports = types.imports(engine).filter(|(_, item)| is_of_types(engine, &item.ty));
    imports.map(|(name, _)| name.to_owned()).collect()
}

fn is_of_types(engine: &wasmtime::Engine, item: &ComponentItem) -> bool {
    let is_type = |item: &ComponentItem| matches!(item, ComponentItem::Type(_));
    // Tools do not generate empty instances.
    let of_instance = |instance: &ComponentInstance| {
        let mut items = instance.exports(engine);
        items.len() > 0 && items.all(|(_, item)| is_type(&item.ty))
    };
    matches!(item, ComponentItem::ComponentInstance(instance) if of_instance(instance))
}

/// Returns whether two functions have the same parameters and results.
fn equal(one: &ComponentFunc, other: &ComponentFunc) -> bool {
    one.async_() == other.async_()
        && one.params().eq(other.params())
        && one.results().eq(other.results())
}

impl Library {
    fn other_types(&self, module: &str, function: &str, wanted: &ComponentFunc) -> LoadError {
        let found = self.functions.iter().find(|found| &*found.name == function);
        let found = found.map(|found| format!("it as `{}`", describe::function(&found.ty)));
        let found = found.unwrap_or_else(|| {
            let names: Vec<&str> = self.functions.iter().map(|found| &*found.name).collect();
            if names.is_empty() { "no function".to_owned() } else { quoted(&names) }
        });
        let (interface, wanted) = (&self.interface, describe::function(wanted));
        LoadError::LibraryOtherTypes {
            module: module.to_owned(),
            imported: format!("`{function}` of `{interface}` as `{wanted}`"),
            exported: format!("`{}` exports {found}", self.digest),
        }
    }
}
