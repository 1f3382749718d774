//! Loads machine code without compiling it. The only place where the host trusts code that it did
//! not compile in this run: see host/decisions/0028-what-lies-in-the-cache.md.

use wasmtime::component::Component;

use super::cache::Verified;

/// Maps compiled code from its file, so that an idle processor's code takes memory only for the
/// pages used.
///
/// wasmtime maps by path, and the cache has handles: hence the handle's path in `/proc`.
#[cfg(target_os = "linux")]
#[expect(
    unsafe_code,
    reason = "wasmtime cannot check machine code; only what this program wrote comes here"
)]
pub(super) fn component(engine: &wasmtime::Engine, code: &Verified) -> wasmtime::Result<Component> {
    use std::os::fd::AsRawFd as _;
    let path = format!("/proc/self/fd/{}", code.file.as_raw_fd());
    // SAFETY: the file holds the output of a compiler of ours. If it comes from the cache, the file
    // and its directory are owned by this user and not writable by others, and the file carries its
    // digest, so it is not damaged either; else it has no name and nobody else has it open. It does
    // not change while it is mapped: the cache only ever replaces files as a whole. wasmtime itself
    // checks that the code was made by the same version with the same settings.
    unsafe { Component::deserialize_file(engine, path) }
}

/// Reads compiled code into memory.
#[cfg(not(target_os = "linux"))]
#[expect(
    unsafe_code,
    reason = "wasmtime cannot check machine code; only what this program wrote comes here"
)]
pub(super) fn component(engine: &wasmtime::Engine, code: &Verified) -> wasmtime::Result<Component> {
    use std::io::{Read as _, Seek as _};
    let mut file = &code.file;
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    // SAFETY: the bytes are the output of a compiler of ours, as above.
    unsafe { Component::deserialize(engine, bytes) }
}
