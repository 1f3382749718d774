//! What a mortise processor is written with.
//!
//! A processor is a function of what it reads: it is given one object, reads what else it needs through [`Host`], and
//! returns an [`Outcome`]. It holds no connection and no state; a new instance serves every call. The README of the
//! project shows the smallest useful one.
//!
//! Built with `cargo build --release --target wasm32-wasip2` as a `cdylib`, it runs under `mortise dev`. Natively the same
//! functions are tested against `testing::Stub`, which answers reads from objects in memory.
//!
//! | module | holds |
//! | --- | --- |
//! | [`bindings`] | the contract's records, generated from `wit/`; the builders here are methods on them |
//! | [`object`], [`kubernetes`] | what makes a Rust type a Kubernetes object; the few built-in kinds that processors meet |
//! | [`status`] | conditions and statuses whose times change only with what they say |
//! | [`time`] | RFC 3339, as Kubernetes writes it |
//! | `testing` | the host's contract in memory, for native tests, and cases (not in a component) |

#[allow(
    missing_docs,
    unsafe_code,
    unreachable_pub,
    clippy::pedantic,
    clippy::indexing_slicing,
    reason = "generated from wit/"
)]
pub mod bindings;
#[cfg(not(target_family = "wasm"))]
pub mod crd;
mod description;
mod error;
mod host;
pub mod kubernetes;
mod name;
pub mod object;
mod outcome;
mod processor;
mod request;
mod selection;
mod shape;
pub mod status;
#[cfg(not(target_family = "wasm"))]
pub mod testing;
pub mod time;
mod verbs;

pub use bindings::exports::mortise::host::reconciliation::{
    Action, Child, Deletion, Description, Event, EventType, Failure, Manifest, Mode, Outcome,
    Propagation, Reconciler, Request, Requeue, Retry, Verbs, WriteFailure, WriteRule,
};
pub use bindings::mortise::host::log::Level;
pub use bindings::mortise::host::types::{Kind, ObjectRef, Selection};
pub use error::Error;
pub use host::{Host, Objects};
pub use name::derived_name;
pub use object::Object;
pub use processor::{NoConfig, Processor};
#[doc(hidden)]
pub use processor::{describe, reconcile};

/// The example in the README is a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
