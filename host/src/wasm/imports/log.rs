//! The `log` import.

use crate::wasm::{
    bindings::mortise::host::log::{Host, Level},
    state::State,
};

impl Host for State {
    fn write(
        &mut self,
        level: Level,
        message: String,
        fields: Vec<(String, String)>,
    ) -> wasmtime::Result<()> {
        self.log.lock().write(level.into(), message, fields);
        Ok(())
    }
}
