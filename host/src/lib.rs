//! A Kubernetes operator host: it owns watches, caching and writes, and calls reconciliation logic that comes as WebAssembly
//! components. ARCHITECTURE.md beside this crate is the map; this is its index.
//!
//! | module | holds |
//! | --- | --- |
//! | [`args`], [`cli`], [`log`] | the command line; logs, the async runtime, the exit code |
//! | [`new`], [`dev`], [`simulate`], [`test`](mod@test), [`inspect`], [`bench`], [`completion`], [`desk`], [`guest`], [`files`], [`print`] | the commands for people at their desk |
//! | [`run`] | builds every part of a host and owns its tasks |
//! | [`watch`] → [`store`] → [`triggers`] → [`queue`] | what is known, and who must run because it changed |
//! | [`reconciler`] | one reconcile: read, call, check, write, requeue |
//! | [`view`] | the reads of one call |
//! | [`record`], [`kept`] | what a run read and what came of it, as plain data; for the next start, in the cache directory |
//! | [`processor`], [`contract`] | loaded components, and all that names wasmtime; the contract's types without it |
//! | [`rbac`] | the Roles that a processor needs |
//! | [`access`] | what the accounts of processors may do |
//! | [`grant`] → [`outcome`] → [`write`] | what may be written, what is wanted, and how it gets there |
//! | [`api`] | the kinds that the host owns, as Kubernetes objects |
//! | [`admin`], [`metrics`] | what those who run the host are told |
//! | [`serve`], [`lease`], [`compile`] | the command that runs a host in a cluster; which of several hosts writes; the command that compiles for it |
//! | [`cache_dir`] | the directory of what would cost time to make again |
//! | [`cluster`], [`own_fields`], [`path`], [`labels`], [`json`] | what a cluster serves; what is ours in an object; places in objects; selectors; objects as they come |

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
