//! Conversions between the types that are generated from wit/ and those of the host.

use crate::bindings::{
    admitter::exports::mortise::host::admission,
    converter::exports::mortise::host::conversion,
    exports::mortise::host::reconciliation as guest,
    mortise::host::{cluster, log, types},
};

mortise_core::contract_conversions!();
mortise_core::hook_conversions!();
