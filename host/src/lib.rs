//! The operator host that runs in a cluster. The rules are in `mortise_core`; the commands for the
//! authors of processors are in the package `mortise`. ARCHITECTURE.md beside this crate describes
//! the design; this is the index of the modules, from the bottom.
//!
//! | module | holds |
//! | --- | --- |
//! | `blocking`, `share` | threads for work on large texts; shares of bounded resources |
//! | [`cache_dir`], [`debounce`] | the cache directory; bursts of file events as one |
//! | [`reason`] | the reasons of conditions, and what to do about each |
//! | [`metrics`], [`telemetry`] | metrics; the program's own log |
//! | `http` | connections within a limit; requests to checked addresses |
//! | [`cluster`] | kube's client as core's `Api`, watches, the Lease, the rights of accounts |
//! | [`oci`] | registries: requests, artifacts on disk, signatures |
//! | [`outbound`] | calls to systems outside of the cluster, with pauses and rates |
//! | [`wasm`] | loaded components, and everything that names wasmtime |
//! | [`host`] | builds every part of a host and owns its tasks |
//! | [`webhooks`] | the port that the API server asks for conversions and admissions |
//! | [`operator`] | Processor resources: types, controllers, conditions, endpoints |
//! | [`args`], [`serve`], [`program`] | the command line; `run`; the async runtime and exit code |

pub mod args;
mod blocking;
pub mod cache_dir;
pub mod cluster;
pub mod debounce;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod host;
pub mod http;
pub mod metrics;
pub mod oci;
pub mod operator;
pub mod outbound;
pub mod program;
pub mod reason;
pub mod serve;
mod share;
pub mod telemetry;
pub mod wasm;
pub mod webhooks;
