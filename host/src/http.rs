//! HTTP below the parts that use it: serving connections within a limit.

pub(crate) mod server;
