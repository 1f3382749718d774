//! The functions that the host offers to a processor, one file per interface of the contract.

mod clock;
mod cluster;
mod log;
mod outbound;
#[cfg(test)]
mod tests;

pub(super) use cluster::{CLOSED, Reading};

use wasmtime::component::{HasSelf, Linker};

use super::{
    bindings::{self, mortise::host::types},
    state::State,
};

/// Links the functions of all interfaces.
pub(super) fn link(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    bindings::ProcessorWithHooks::add_to_linker::<_, HasSelf<State>>(linker, |state| state)
}

impl types::Host for State {}
