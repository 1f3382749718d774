//! A Kubernetes operator host: it owns watches, caching and writes, and calls reconciliation logic that comes as
//! WebAssembly components.

pub mod args;
pub mod cluster;
pub mod contract;
pub mod files;
#[cfg(test)]
mod fixture;
pub mod grant;
pub mod guest;
pub mod labels;
pub mod outcome;
pub mod own_fields;
pub mod path;
pub mod processor;
pub mod queue;
pub mod store;
pub mod triggers;
pub mod view;
pub mod write;
