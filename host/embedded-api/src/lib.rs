//! A Kubernetes API in memory, for people at their desk and for tests.
#![expect(dead_code, reason = "modules land one by one")]

mod builtin;
mod discovery;
mod field_error;
mod fields;
mod go;
mod kind;
mod managed_fields;
mod name;
mod openapi;
mod patch;
mod schema;
mod status;
mod structural;
mod table;
mod typed;

pub use status::{Cause, Failure};
