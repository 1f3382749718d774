//! A Kubernetes operator host: owns watches, caching and writes, and calls reconciliation logic
//! that comes as WebAssembly components. ARCHITECTURE.md beside this crate is the map of the
//! design; this is the index of the modules.
//!
//! | module | holds |
//! | --- | --- |
//! | [`args`], [`cli`], [`log`] | the command line; logs, the async runtime, the exit code |
//! | [`new`], [`dev`], [`test`](mod@test), [`simulate`], [`bench`] | developer commands |
//! | [`inspect`], [`completion`] | a processor's declarations and Roles; shell completion |
//! | [`desk`], [`guest`], [`files`], [`print`] | parts that the developer commands share |
//! | [`run`] | builds every part of a host and owns its tasks |
//! | [`watch`] → [`store`] → [`triggers`] → [`queue`] | from a change to the keys that must run |
//! | [`reconciler`] | one reconcile: read, call, check, write, requeue |
//! | [`view`] | the reads of one call |
//! | [`record`] | run records: what a run read and its result, as plain data |
//! | [`kept`] | run records in the cache directory, for the next start |
//! | [`processor`] | loaded components, and everything that names wasmtime |
//! | [`contract`] | the contract's types, without wasmtime |
//! | [`rbac`] | the Roles that a processor needs |
//! | [`access`] | the rights of the processors' accounts |
//! | [`grant`] → [`outcome`] → [`write`] | what may be written, the plan, how it is written |
//! | [`api`] | the kinds that the host owns, as Kubernetes objects |
//! | [`supervisor`], [`status`] | runs what Processor resources ask for; their conditions |
//! | [`admin`], [`metrics`] | liveness, readiness and metrics for operators |
//! | [`serve`] | the command that runs a host in a cluster |
//! | [`lease`] | which of several hosts writes |
//! | [`compile`] | the command that compiles components for `serve` |
//! | [`cache_dir`] | the directory of what would cost time to make again |
//! | [`cluster`] | the kinds that a cluster serves |
//! | [`own_fields`] | digests of the fields in an object that the host owns |
//! | [`path`], [`labels`] | places in objects; label selectors |
//! | [`json`] | objects as JSON, as they come |

pub mod access;
pub mod admin;
pub mod api;
pub mod args;
pub mod bench;
mod burst;
pub mod cache_dir;
mod chain;
mod check_config;
mod child;
pub mod cli;
pub mod cluster;
pub mod compile;
pub mod completion;
pub mod contract;
pub mod desk;
pub mod dev;
pub mod files;
#[cfg(test)]
mod fixture;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod grant;
pub mod guest;
pub mod inspect;
pub mod json;
pub mod kept;
pub mod labels;
pub mod lease;
pub mod log;
mod mask;
pub mod metrics;
pub mod new;
pub mod outcome;
pub mod own_fields;
pub mod path;
pub mod print;
pub mod processor;
pub mod queue;
pub mod rbac;
pub mod reconciler;
pub mod record;
pub mod run;
pub mod serve;
pub mod simulate;
pub mod status;
pub mod store;
pub mod supervisor;
pub mod test;
pub mod triggers;
pub mod view;
pub mod watch;
pub mod write;
