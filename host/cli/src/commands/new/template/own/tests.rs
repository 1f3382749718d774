use serde_json::{Value, json};
use mortise_sdk::{crd, testing::{Stub, request_for}};

use super::*;

#[test]
fn the_text_is_kept_in_a_config_map() {
    let object = json!({
        "apiVersion": "{{api-version}}", "kind": "{{kind}}",
        "metadata": {"name": "example", "namespace": "default", "uid": "1"},
        "spec": {"text": "Hello"},
    });
    let host = Stub::new().host();
    let outcome = {{processor}}::reconcile(&request_for(&object), &NoConfig {}, &host).unwrap();
    let map: Value = serde_json::from_str(&outcome.apply[0].object).unwrap();
    assert_eq!(map["data"]["text"], "Hello");
    assert_eq!(map["metadata"]["ownerReferences"][0]["name"], "example");
}

/// After a change of the type: `MORTISE_UPDATE=1 cargo test`.
#[test]
fn the_definition_file_matches_the_type() {
    let definition = crd::definition::<{{type}}>("{{plural}}", &[]);
    crd::check(concat!(env!("CARGO_MANIFEST_DIR"), "/crds"), &[definition]);
}

// Each folder in `cases/`: objects in, objects expected.
mortise_sdk::testing::cases!({{processor}}, "cases");
