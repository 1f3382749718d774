//! Conversions between the types that are generated from wit/ and those of the host.

use crate::bindings::{
    exports::mortise::host::reconciliation as guest,
    mortise::host::{cluster, log, types},
};

mortise_core::contract_conversions!();
