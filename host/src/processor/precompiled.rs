//! The one place where the host trusts machine code that it did not compile in this run. See
//! host/decisions/0001-code-cache.md.

use std::path::PathBuf;

use cap_std::fs::File;
use wasmtime::component::Component;

use super::cache::Verified;

/// Takes compiled code as it is: mapped from its file where the system allows it, so that of an idle processor only the pages
/// that were used take memory.
#[expect(
    unsafe_code,
    reason = "wasmtime cannot check machine code; only what this program wrote comes here"
)]
pub(super) fn component(engine: &wasmtime::Engine, code: Verified) -> wasmtime::Result<Component> {
    let Verified { file, bytes } = code;
    if let Some(path) = path(&file) {
        drop(bytes);
        // SAFETY: as below; and the file does not change while it is mapped: the cache only ever replaces files as a whole.
        return unsafe { Component::deserialize_file(engine, path) };
    }
    // SAFETY: the bytes are what `Component::serialize` gave to this program: they lie in a directory that only it may write,
    // and carry their digest, so they were not damaged either. wasmtime checks by itself that they were made by the same
    // version with the same settings.
    unsafe { Component::deserialize(engine, bytes) }
}

/// A path to an open file: wasmtime maps by path, the cache has handles.
#[cfg(target_os = "linux")]
fn path(file: &File) -> Option<PathBuf> {
    use std::os::fd::AsRawFd as _;
    Some(format!("/proc/self/fd/{}", file.as_raw_fd()).into())
}

#[cfg(not(target_os = "linux"))]
fn path(_file: &File) -> Option<PathBuf> {
    None
}
