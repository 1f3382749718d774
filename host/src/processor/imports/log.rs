//! The `log` import.

use crate::processor::bindings::mortise::host::log::{Host, Level};
use crate::processor::state::State;

impl Host for State {
    fn write(
        &mut self,
        level: Level,
        message: String,
        fields: Vec<(String, String)>,
    ) -> wasmtime::Result<()> {
        self.log.lock().write(level, message, fields);
        Ok(())
    }
}
