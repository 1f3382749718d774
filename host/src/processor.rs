//! A loaded processor, and all that names wasmtime.

pub mod bindings;
