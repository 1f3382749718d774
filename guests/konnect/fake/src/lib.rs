//! A fake of the Konnect API, for tests, benchmarks and demonstrations.
//!
//! The core, [`Konnect`], does no I/O and takes the time as an argument: a request comes in, a
//! reply goes out. [`server`] puts TLS and HTTP around it.
//!
//! | module | holds |
//! | --- | --- |
//! | [`message`] | requests and replies |
//! | [`konnect`] | one Konnect: what is stored, and the order of steps of an answer |
//! | [`tenant`] | tokens and organizations |
//! | [`fault`] | faults: answers, dropped connections and delays in place of the usual answer |
//! | [`change`] | changes of stored data behind the caller's back |
//! | [`log`] | the requests received |
//! | [`id`] | identifiers that the API chooses |
//! | [`server`] | the server with TLS, and its control paths |

mod answer;
mod api;
pub mod change;
mod control_plane;
mod entity;
mod error;
pub mod fault;
pub mod id;
mod kind;
pub mod konnect;
mod list;
pub mod log;
mod membership;
pub mod message;
mod path;
mod plane;
pub mod server;
mod table;
pub mod tenant;
mod time;

pub use change::Change;
pub use fault::Fault;
pub use konnect::{Config, Konnect, Limits};
pub use message::{Answer, End, Reply, Request};
pub use server::Server;
pub use tenant::Tokens;
