//! Generated from wit/, with serde's traits. Nothing else is in here.

wit_bindgen::generate!({
    path: "../../../wit",
    world: "processor",
    pub_export_macro: true,
    additional_derives: [serde::Serialize, serde::Deserialize],
    additional_derives_ignore: ["verbs"],
});
