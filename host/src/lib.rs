//! A Kubernetes operator host: it owns watches, caching and writes, and calls reconciliation logic that comes as
//! WebAssembly components.

pub mod contract;
pub mod processor;
