//! Conversions between wasmtime's generated types of wit/ and those of [`mortise_core::contract`].

use super::bindings::{
    exports::mortise::host::{admission, conversion, reconciliation as guest},
    mortise::host::{cluster, log, types},
};

mortise_core::contract_conversions!();
mortise_core::hook_conversions!();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_of_the_contract_is_converted() {
        let converted = VERBS.iter().fold(guest::Verbs::empty(), |all, (verb, _)| all | *verb);
        assert_eq!(converted, guest::Verbs::all());
    }
}
