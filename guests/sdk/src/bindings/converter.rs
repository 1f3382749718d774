//! The export of processors that convert objects.

wit_bindgen::generate!({
    path: "../../wit",
    world: "converter",
    with: {"mortise:host/types@0.1.0": crate::bindings::mortise::host::types},
    pub_export_macro: true,
    export_macro_name: "export_converter",
    default_bindings_module: "mortise_sdk::bindings::converter",
    additional_derives: [PartialEq, serde::Serialize, serde::Deserialize],
});
