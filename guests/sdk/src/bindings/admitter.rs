//! The export of processors that review objects before they are stored.

wit_bindgen::generate!({
    path: "../../wit",
    world: "admitter",
    with: {"mortise:host/types@0.1.0": crate::bindings::mortise::host::types},
    pub_export_macro: true,
    export_macro_name: "export_admitter",
    default_bindings_module: "mortise_sdk::bindings::admitter",
    additional_derives: [PartialEq, serde::Serialize, serde::Deserialize],
});
