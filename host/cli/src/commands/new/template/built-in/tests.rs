use serde_json::{Value, json};
use mortise_sdk::testing::{Stub, request_for};

use super::*;

#[test]
fn a_config_map_is_kept_beside_it() {
    let object = json!({
        "apiVersion": "{{api-version}}", "kind": "{{kind}}",
        "metadata": {"name": "example", "uid": "1", "labels": {"{{package}}": "yes"}},
    });
    let host = Stub::new().host();
    let outcome = {{processor}}::reconcile(&request_for(&object), &NoConfig {}, &host).unwrap();
    let map: Value = serde_json::from_str(&outcome.apply[0].object).unwrap();
    assert_eq!(map["data"]["text"], "This is example");
    assert_eq!(map["metadata"]["ownerReferences"][0]["name"], "example");
}

// Each folder in `cases/`: objects in, objects expected.
mortise_sdk::testing::cases!({{processor}}, "cases");
