//! The one place where the host trusts machine code that it did not compile in this run. See
//! host/decisions/0001-code-cache.md.

use wasmtime::component::Component;

use super::cache::Verified;

/// Takes compiled code as it is.
#[expect(
    unsafe_code,
    reason = "wasmtime cannot check machine code; only what this program wrote comes here"
)]
pub(super) fn component(
    engine: &wasmtime::Engine,
    code: &Verified<'_>,
) -> wasmtime::Result<Component> {
    // SAFETY: the bytes are what `Component::serialize` gave to this program: they lie in a directory that only it may write,
    // and carry their digest, so they were not damaged either. wasmtime checks by itself that they were made by the same
    // version with the same settings.
    unsafe { Component::deserialize(engine, code.bytes()) }
}
