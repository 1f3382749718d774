//! A Kubernetes API in memory, for people at their desk and for tests.
#![expect(dead_code, reason = "modules land one by one")]

mod field_error;
mod kind;
mod name;
mod status;
mod structural;

pub use status::{Cause, Failure};
