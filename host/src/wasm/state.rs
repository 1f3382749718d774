//! The host's state of one call: the data behind its imports, and the use of its limits.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use mortise_core::{
    contract::bounds::{COMPONENT_INSTANCES, RESOURCES, TABLE_ELEMENTS},
    outbound::Sending,
    reads::record::Asked,
};
use parking_lot::Mutex;
use wasmtime::{ResourceLimiter, UpdateDeadline, component::ResourceTable};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

use super::{
    Line, Moment,
    budget::{Charge, Short},
    imports::Reading,
    library::Caller,
    limits::Limits,
    log::Log,
    turns::{self, Turn},
    wasi::Chance,
};

/// A limit that the call exceeded. Raised as a trap; `error.rs` tells the limits apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Exceeded {
    #[error("ran past its deadline")]
    Deadline,
    #[error("asked for {asked} bytes of memory")]
    Memory { asked: usize },
    #[error("asked for more memory than is left for all calls")]
    HostMemory(Short),
    #[error("asked for {asked} elements of tables")]
    Tables { asked: usize },
    #[error("made too many reads")]
    Reads,
    #[error("read too many bytes")]
    ReadBytes,
    #[error("asked with too many bytes")]
    Arguments,
    #[error("made too many calls to the outside")]
    Calls,
    #[error("is a trial, which ends at its first call to the outside")]
    Trial,
    #[error("asked for {asked} random bytes at once, over the limit of {limit}")]
    RandomBytes { asked: u64, limit: usize },
}

/// The data of a call's store.
pub(super) struct State {
    pub(super) reading: Reading,
    pub(super) sending: Sending,
    pub(super) log: Arc<Mutex<Log>>,
    pub(super) now: Duration,
    pub(super) asked: Asked,
    pub(super) chance: Chance,
    /// The source of secure random bytes in a simulation; `None`: the operating system.
    pub(super) secure: Option<Chance>,
    pub(super) table: ResourceTable,
    /// Created when the guest first uses a WASI function that needs it; most guests never do.
    wasi: Option<WasiCtx>,
    pub(super) deadline: Instant,
    /// The call, as the caller of libraries.
    pub(super) caller: Caller,
    /// The call's turn to compute, needed after its first millisecond.
    pub(super) turn: Turn,
    memory_limit: usize,
    pub(super) memory: usize,
    charge: Charge,
    table_elements: usize,
}

// === impl State ===

impl State {
    pub(super) fn new(
        (reading, sending): (Reading, Sending),
        moment: Moment,
        limits: &Limits,
        (start, turn, charge): (Instant, Turn, Charge),
        caller: Caller,
    ) -> Self {
        let mut table = ResourceTable::new();
        table.set_max_capacity(RESOURCES);
        Self {
            reading,
            sending,
            log: Arc::new(Mutex::new(Log::new(limits.log_lines, limits.log_bytes))),
            now: Duration::from_millis(moment.now_ms),
            asked: Asked::default(),
            chance: Chance::new(moment.seed),
            secure: None,
            table,
            wasi: None,
            deadline: start + limits.deadline,
            caller,
            turn,
            memory_limit: limits.memory,
            memory: 0,
            charge,
            table_elements: 0,
        }
    }

    /// The state of a single call with the default limits.
    #[cfg(test)]
    pub(super) fn alone(view: mortise_core::reads::View) -> Self {
        use super::{budget::Budget, library::answers::Answers, tenant::Tenant, turns::Turns};
        let (limits, now) = (Limits::default(), Instant::now());
        let ends = tokio_util::sync::CancellationToken::new();
        let budget = Arc::new(Budget::new(usize::MAX));
        let tenant = Tenant::new("a/p", &ends, &Arc::new(Answers::new(0)), &budget);
        let charge = budget.charge(&tenant);
        let turn = Arc::new(Turns::new(1)).begin(tenant.id(), now);
        let outside = (Reading::new(Ok(view), &limits), Sending::default());
        let (slot_of, turn_of) = (tenant.id(), tenant.id());
        let caller = Caller { tenant, slot_of, turn_of, ends };
        Self::new(outside, Moment { now_ms: 0, seed: 0 }, &limits, (now, turn, charge), caller)
    }

    /// Returns the time left until the call's deadline.
    pub(super) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Charges memory to the call: linear memory, or what an instance takes beside it.
    pub(super) fn take_memory(&mut self, bytes: usize) -> Result<(), Exceeded> {
        let asked = self.memory.saturating_add(bytes);
        if asked > self.memory_limit {
            return Err(Exceeded::Memory { asked });
        }
        self.charge.grow(bytes).map_err(Exceeded::HostMemory)?;
        self.memory = asked;
        Ok(())
    }

    /// Adds a library's log lines to the log of its caller.
    pub(super) fn log_of_library(&self, interface: &str, lines: &[Line]) {
        let mut log = self.log.lock();
        for Line { level, message, fields, .. } in lines {
            let library = ("library".to_owned(), interface.to_owned());
            let fields = std::iter::once(library).chain(fields.iter().cloned()).collect();
            log.write(*level, message.clone(), fields);
        }
    }

    /// Runs at each tick of the epoch: the guest yields, or ends at its deadline.
    pub(super) fn on_tick(&mut self) -> wasmtime::Result<UpdateDeadline> {
        if self.left().is_zero() {
            return Err(Exceeded::Deadline.into());
        }
        let Some(granted) = self.turn.next() else { return Ok(UpdateDeadline::Yield(1)) };
        // After the deadline the guest continues to the next tick, which ends it.
        let turn = turns::wait(Some(granted), self.deadline);
        Ok(UpdateDeadline::YieldCustom(1, Box::pin(turn)))
    }
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let ctx = self.wasi.get_or_insert_with(super::wasi::empty);
        WasiCtxView { ctx, table: &mut self.table }
    }
}

impl ResourceLimiter for State {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        self.take_memory(desired.saturating_sub(current))?;
        Ok(true)
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let asked = self.table_elements.saturating_add(desired.saturating_sub(current));
        if asked > TABLE_ELEMENTS {
            return Err(Exceeded::Tables { asked }.into());
        }
        self.table_elements = asked;
        Ok(true)
    }

    fn instances(&self) -> usize {
        COMPONENT_INSTANCES
    }

    fn memories(&self) -> usize {
        COMPONENT_INSTANCES
    }

    fn tables(&self) -> usize {
        COMPONENT_INSTANCES
    }
}
