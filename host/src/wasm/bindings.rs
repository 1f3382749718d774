//! Generated from wit/: the contract's types and functions.
#![allow(
    missing_docs,
    clippy::pedantic,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "generated from wit/"
)]

wasmtime::component::bindgen!({
    path: "../wit",
    world: "processor-with-hooks",
    additional_derives: [PartialEq, Eq],
    imports: {
        "mortise:host/cluster.get": async | trappable,
        "mortise:host/cluster.list": async | trappable,
        "mortise:host/outbound.send": async | trappable,
        default: trappable,
    },
    exports: { default: async },
});
