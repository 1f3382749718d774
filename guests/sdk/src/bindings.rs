//! The Rust form of the contract, generated from `wit/`. This module holds no handwritten code.

pub mod admitter;
pub mod converter;

wit_bindgen::generate!({
    path: "../../wit",
    world: "processor",
    pub_export_macro: true,
    export_macro_name: "export_component",
    default_bindings_module: "mortise_sdk::bindings",
    additional_derives: [PartialEq, serde::Serialize, serde::Deserialize],
    additional_derives_ignore: ["verbs", "methods"],
});
