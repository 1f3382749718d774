//! Clocks that stand still at the call's time.
//!
//! Reading the wall clock marks the run, because the clock shows another time in the next run. The
//! monotonic clock can only be compared with itself, so it is the same in every call and marks no
//! run; language runtimes read it whenever they start.

use wasmtime::component::Resource;
use wasmtime_wasi::p2::{
    DynPollable, Pollable,
    bindings::clocks::{monotonic_clock, wall_clock},
    subscribe,
};

use crate::wasm::state::State;

/// Resolution of the contract's clock.
const MILLISECOND_NS: u32 = 1_000_000;
/// The value of the monotonic clock. Not zero, which Go's runtime considers a broken clock.
const MONOTONIC_NS: u64 = 1_000_000_000;

/// A pollable that is ready at once: time does not pass during a call, so waiting for it would
/// never end.
struct Ready;

#[wasmtime_wasi::async_trait]
impl Pollable for Ready {
    async fn ready(&mut self) {}
}

impl wall_clock::Host for State {
    fn now(&mut self) -> wasmtime::Result<wall_clock::Datetime> {
        self.asked.clock = true;
        let now = self.now;
        Ok(wall_clock::Datetime { seconds: now.as_secs(), nanoseconds: now.subsec_nanos() })
    }

    fn resolution(&mut self) -> wasmtime::Result<wall_clock::Datetime> {
        Ok(wall_clock::Datetime { seconds: 0, nanoseconds: MILLISECOND_NS })
    }
}

impl monotonic_clock::Host for State {
    fn now(&mut self) -> wasmtime::Result<monotonic_clock::Instant> {
        Ok(MONOTONIC_NS)
    }

    fn resolution(&mut self) -> wasmtime::Result<monotonic_clock::Duration> {
        Ok(MILLISECOND_NS.into())
    }

    fn subscribe_instant(
        &mut self,
        _when: monotonic_clock::Instant,
    ) -> wasmtime::Result<Resource<DynPollable>> {
        let ready = self.table.push(Ready)?;
        subscribe(&mut self.table, ready)
    }

    fn subscribe_duration(
        &mut self,
        _span: monotonic_clock::Duration,
    ) -> wasmtime::Result<Resource<DynPollable>> {
        let ready = self.table.push(Ready)?;
        subscribe(&mut self.table, ready)
    }
}
