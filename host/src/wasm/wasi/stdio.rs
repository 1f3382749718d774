//! Standard output and standard error: lines of the call's log.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use wasmtime::component::Resource;
use wasmtime_wasi::p2::{
    DynOutputStream, OutputStream, Pollable, StreamResult,
    bindings::cli::{stderr, stdout},
};

use crate::wasm::{Source, bounds::STREAM_WRITE, log::Log, state::State};

/// A stream into the log, always ready.
struct Stream {
    source: Source,
    log: Arc<Mutex<Log>>,
}

#[wasmtime_wasi::async_trait]
impl Pollable for Stream {
    async fn ready(&mut self) {}
}

#[wasmtime_wasi::async_trait]
impl OutputStream for Stream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.log.lock().stream(self.source, &bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(STREAM_WRITE)
    }
}

impl State {
    fn stream(&mut self, source: Source) -> wasmtime::Result<Resource<DynOutputStream>> {
        let stream: DynOutputStream = Box::new(Stream { source, log: Arc::clone(&self.log) });
        Ok(self.table.push(stream)?)
    }
}

impl stdout::Host for State {
    fn get_stdout(&mut self) -> wasmtime::Result<Resource<DynOutputStream>> {
        self.stream(Source::Output)
    }
}

impl stderr::Host for State {
    fn get_stderr(&mut self) -> wasmtime::Result<Resource<DynOutputStream>> {
        self.stream(Source::Error)
    }
}
