//! WASI 0.2 for guests: all interfaces, no access.
//!
//! There is no environment, no argument, no directory and no socket. Standard output and error
//! become log lines, clocks stand still at the call's time, waiting for a clock ends at once,
//! random bytes are the operating system's.

mod clocks;
mod random;
mod stdio;

pub(super) use random::Chance;

use wasmtime::component::{HasSelf, Linker};
use wasmtime_wasi::{
    WasiCtx,
    p2::bindings::{cli, clocks as wasi_clocks, random as wasi_random},
};

use super::state::State;

/// Links all WASI interfaces, with the host's own clocks, random numbers and standard streams.
pub(super) fn link(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    wasmtime_wasi::p2::add_to_linker_async(linker)?;
    linker.allow_shadowing(true);
    wasi_clocks::wall_clock::add_to_linker::<_, HasSelf<State>>(linker, |state| state)?;
    wasi_clocks::monotonic_clock::add_to_linker::<_, HasSelf<State>>(linker, |state| state)?;
    wasi_random::random::add_to_linker::<_, HasSelf<State>>(linker, |state| state)?;
    wasi_random::insecure::add_to_linker::<_, HasSelf<State>>(linker, |state| state)?;
    wasi_random::insecure_seed::add_to_linker::<_, HasSelf<State>>(linker, |state| state)?;
    cli::stdout::add_to_linker::<_, HasSelf<State>>(linker, |state| state)?;
    cli::stderr::add_to_linker::<_, HasSelf<State>>(linker, |state| state)?;
    linker.allow_shadowing(false);
    Ok(())
}

/// Returns the context of all other WASI interfaces, which grants nothing.
pub(super) fn empty() -> WasiCtx {
    WasiCtx::builder().allow_tcp(false).allow_udp(false).allow_ip_name_lookup(false).build()
}
