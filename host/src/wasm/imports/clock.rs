//! The `clock` import: the time of the call.

use crate::wasm::{bindings::mortise::host::clock::Host, state::State};

impl Host for State {
    fn now(&mut self) -> wasmtime::Result<u64> {
        self.asked.clock = true;
        Ok(u64::try_from(self.now.as_millis())?)
    }
}
