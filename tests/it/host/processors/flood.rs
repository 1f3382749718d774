//! Floods of objects that the host watches for itself, which anybody with a namespace can make.

use super::*;

/// Bytes of an annotation, as many as the API server accepts.
const ANNOTATION_BYTES: usize = 240_000;
/// Number of objects of a kind: more bytes than the host reads at once.
const OBJECTS: usize = 80;
/// Number of Processors with a large configuration, and its bytes: more than the host reads at
/// once.
const LARGE: usize = 15;
const CONFIG_BYTES: usize = 1_200_000;

#[tokio::test(start_paused = true)]
async fn a_host_starts_beside_a_flood_of_each_kind_that_it_watches() {
    let mut place = Place::new().await;
    place.puppet("rules", &puppet(), &json!({})).await;
    place.reason("rules", "Ready", "Runs").await;
    let annotations = json!({"a": "x".repeat(ANNOTATION_BYTES)});
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"});
    let rbac = "rbac.authorization.k8s.io/v1";
    let kinds = [
        ("v1", "ServiceAccount", json!({})),
        (rbac, "Role", json!({"rules": []})),
        (rbac, "RoleBinding", json!({"roleRef": role})),
    ];
    for (version, kind, fields) in kinds {
        for number in 0..OBJECTS {
            let mut object = fields.clone();
            let metadata = json!({"name": format!("a-{number}"), "namespace": NAMESPACE, "annotations": annotations});
            merge(&mut object, &json!({"apiVersion": version, "kind": kind, "metadata": metadata}));
            place.api.load(object, true).unwrap();
        }
    }
    let config = json!({"a": "x".repeat(CONFIG_BYTES)});
    let spec =
        json!({"module": {"path": "none.wasm"}, "serviceAccountName": "a", "config": config});
    for number in 0..LARGE {
        let metadata = json!({"name": format!("large-{number}"), "namespace": NAMESPACE});
        place.api.load(json!({"apiVersion": "mortise.dev/v1alpha1", "kind": "Processor", "metadata": metadata, "spec": spec}), true).unwrap();
    }

    place.restart().await;
    place.apply(&[scripted("a", &applies(&[made("b", &json!({"from": "a"}))]))]).await;
    place.until_object(CONFIG_MAP, "b", "the others run", |found| found.is_some()).await;
    for number in 0..LARGE {
        let (status, message) =
            place.reason(&format!("large-{number}"), "Loaded", "ConfigInvalid").await;
        assert_eq!(status, "False");
        let figures =
            "spec.config has 1200008 bytes and 1 entries: at most 65536 bytes are accepted";
        assert!(message.contains(figures), "{message}");
    }
    // The accounts of the flood are known: one of them may consent.
    place.account("a-7", &json!({"labels": {"mortise.dev/processor": "rules"}})).await;
    place.edit("rules", json!({"serviceAccountName": "a-7"})).await;
    place.reason("rules", "Ready", "Runs").await;
}
