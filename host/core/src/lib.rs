//! The logic of a Kubernetes operator host: state, triggers, checks and decisions.
//!
//! Knows no client of Kubernetes, no HTTP, no WebAssembly and no async runtime. ARCHITECTURE.md
//! beside this package is the map of the design; this is the index of the modules, from the bottom.
//!
//! | module | holds |
//! | --- | --- |
//! | [`contract`] | plain types of wit/, limits on guest output, rules of hooks |
//! | [`digest`] | the digest of a module |
//! | [`key`] | the unit that is queued and run |
//! | [`path`], [`labels`] | field paths in objects; label selectors |
//! | [`error_chain`] | an error and its causes, on one line |
//! | [`applied_fields`] | digests of the fields that we own; names of field managers |
//! | [`api`] | requests to the API server and their answers, as values; the trait that sends them |
//! | [`resource`] | how a kind is served, and its paths |
//! | [`grant`] | what a processor may read and write: declarations, Roles, rights of its account |
//! | [`outcome`] | outcomes, checked against the grant: plans |
//! | [`store`] | watched objects: immutable snapshots with indexes |
//! | [`reads`] | the reads of one call, and run records |
//! | [`triggers`] | the keys that a change queues |
//! | [`queue`] | the keys that wait |
//! | [`dispatch`] | stores, triggers and queue, and their handshake with a run |
//! | [`write`](mod@write) | plans carried out: server-side apply, patch, delete, prune, events |
//! | [`reconcile`] | one reconcile: read, call, check, write, requeue |

pub mod api;
pub mod applied_fields;
pub mod contract;
pub mod digest;
pub mod dispatch;
pub mod error_chain;
#[doc(hidden)]
pub mod fixture;
pub mod grant;
pub mod key;
pub mod labels;
pub mod outbound;
pub mod outcome;
pub mod path;
pub mod queue;
pub mod reads;
pub mod reconcile;
pub mod resource;
pub mod store;
pub mod triggers;
pub mod write;
