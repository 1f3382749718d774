//! The SDK for writing mortise processors.
//!
//! A processor is a function of the objects that it reads: the host hands it one object, it reads
//! other objects through [`Host`], and it returns an [`Outcome`]. A processor holds no connection
//! and no state; every call runs in a new instance. The README of the project shows the smallest
//! useful processor.
//!
//! Built with `cargo build --release --target wasm32-wasip2` as a `cdylib`, a processor runs under
//! `mortise dev`. Natively, the same functions are tested against `testing::Stub`, which answers
//! reads from objects in memory. Functions that another component implements are declared with
//! [`library!`].
//!
//! | module | holds |
//! | --- | --- |
//! | [`bindings`] | the contract's records, generated from `wit/`; builders are methods of them |
//! | [`object`] | the trait and the metadata that make a Rust type a Kubernetes object |
//! | [`kubernetes`] | the built-in kinds that processors use most |
//! | [`outbound`] | calls to systems outside of the cluster, whose credentials the processor never sees |
//! | [`status`] | statuses and conditions whose times change only when the rest of them does |
//! | [`time`], [`duration`] | times in RFC 3339, durations such as `1m30s`, as in Kubernetes |
//! | `crd` | `CustomResourceDefinition`s made from Rust types (not in a component) |
//! | `testing` | the host's contract in memory, for native tests and cases (not in a component) |

#![warn(missing_docs)]

#[allow(
    missing_docs,
    unsafe_code,
    unreachable_pub,
    clippy::pedantic,
    clippy::indexing_slicing,
    reason = "generated from wit/"
)]
pub mod bindings;
mod cluster;
#[cfg(not(target_family = "wasm"))]
pub mod crd;
mod description;
pub mod duration;
mod error;
mod flags;
mod hooks;
mod host;
pub mod kubernetes;
mod library;
mod name;
pub mod object;
pub mod outbound;
mod outcome;
mod processor;
mod reconcilers;
mod request;
mod selection;
mod shape;
pub mod status;
#[cfg(not(target_family = "wasm"))]
pub mod testing;
pub mod time;

pub use bindings::admitter::exports::mortise::host::admission::{
    Answer, Denial, Hook, Operation, Otherwise, Review, Verdict,
};
pub use bindings::converter::exports::mortise::host::conversion::{
    Converted, Request as Conversion,
};
pub use bindings::exports::mortise::host::reconciliation::{
    Action, Deletion, Description, Event, EventType, Failure, GrantedRule, Manifest, Methods, Mode,
    OutboundRule, Outcome, Propagation, Reconciler, Request, Requeue, Retry, Start, Verbs,
    WriteFailure, WriteRule,
};
pub use bindings::mortise::host::log::Level;
pub use bindings::mortise::host::types::{Kind, ObjectRef, Selection};
pub use cluster::ClusterName;
pub use error::Error;
pub use hooks::{Admits, Converts};
#[doc(hidden)]
pub use hooks::{admit, conversions, convert, hooks};
pub use host::{Host, Objects};
pub use name::derived_name;
pub use object::Object;
pub use processor::{NoConfig, Processor};
#[doc(hidden)]
pub use processor::{describe, reconcile};
pub use reconcilers::{Reconcile, Reconcilers};
#[doc(hidden)]
pub use wit_bindgen;

/// Runs the example of the README as a doc test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Runs the programs of the guide as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Guide;
