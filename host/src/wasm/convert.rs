//! Conversions between the types that wasmtime's generator makes from wit/ and those of
//! [`mortise_core::contract`].

use super::bindings::{
    exports::mortise::host::{admission, conversion, reconciliation as guest},
    mortise::host::{cluster, log, types},
};

mortise_core::contract_conversions!();
mortise_core::hook_conversions!();
