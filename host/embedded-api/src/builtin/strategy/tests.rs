use serde_json::{Value, json};

use super::{CRD, prepare_create, prepare_update};
use crate::builtin::{address::Addresses, default};

fn created(definition: &str, mut object: Value) -> Value {
    default::fill(definition, &mut object);
    prepare_create(definition, &mut object, Some(&Addresses::new())).unwrap();
    object
}

fn updated(definition: &str, mut new: Value, old: &Value, subresource: Option<&str>) -> Value {
    default::fill(definition, &mut new);
    prepare_update(definition, &mut new, old, subresource, &Addresses::new()).unwrap();
    new
}

#[test]
fn the_generation_counts_changes_of_the_spec() {
    let old = json!({"metadata": {"generation": 3}, "spec": {"x": 1}, "status": {"y": 1}});
    let cases = [
        ("spec", json!({"spec": {"x": 2}}), None, 4),
        ("labels", json!({"metadata": {"labels": {"a": "b"}}, "spec": {"x": 1}}), None, 3),
        ("status through the object", json!({"spec": {"x": 1}, "status": {}}), None, 3),
        ("spec through the status", json!({"spec": {"x": 2}}), Some("status"), 3),
        (
            "a generation that was sent",
            json!({"metadata": {"generation": 9}, "spec": {"x": 1}}),
            None,
            3,
        ),
    ];
    for (case, new, subresource, generation) in cases {
        let new = updated("api.policy.v1.PodDisruptionBudget", new, &old, subresource);
        assert_eq!(new["metadata"]["generation"], generation, "{case}");
    }
}

#[test]
fn an_update_keeps_the_address_of_a_service() {
    let service = created(
        "api.core.v1.Service",
        json!({"spec": {"ports": [{"name": "a", "port": 80}], "type": "NodePort"}}),
    );
    assert_eq!(service["spec"]["clusterIPs"], json!([service["spec"]["clusterIP"]]));
    let ports = json!([{"name": "a", "port": 80}, {"name": "b", "port": 81, "nodePort": 30_007}]);
    let new = json!({"spec": {"ports": ports, "type": "NodePort"}});
    let new = updated("api.core.v1.Service", new, &service, None);
    for pointer in
        ["/spec/clusterIP", "/spec/clusterIPs", "/spec/ports/0/nodePort", "/spec/ipFamilies"]
    {
        assert!(new.pointer(pointer).is_some(), "{pointer}");
        assert_eq!(new.pointer(pointer), service.pointer(pointer), "{pointer}");
    }
    assert_eq!(new["spec"]["ports"][1]["nodePort"], 30_007);
    let external =
        updated("api.core.v1.Service", json!({"spec": {"type": "ExternalName"}}), &new, None);
    assert_eq!(external["spec"].get("clusterIP"), None);
}

#[test]
fn a_version_that_objects_are_stored_in_is_remembered() {
    let version = |name: &str, storage: bool| json!({"name": name, "storage": storage});
    let crd = created(CRD, json!({"spec": {"versions": [version("v1", true)]}}));
    assert_eq!(crd["status"]["storedVersions"], json!(["v1"]));
    let new = json!({"spec": {"versions": [version("v1", false), version("v2", true)]}});
    let new = updated(CRD, new, &crd, None);
    assert_eq!(new["status"]["storedVersions"], json!(["v1", "v2"]));
}

#[test]
fn the_pods_of_a_job_carry_its_uid() {
    let job = json!({"metadata": {"name": "j", "uid": "u"}, "spec": {"template": {"spec": {"containers": []}}}});
    let job = created("api.batch.v1.Job", job);
    let labels = json!({
        "batch.kubernetes.io/controller-uid": "u", "batch.kubernetes.io/job-name": "j",
        "controller-uid": "u", "job-name": "j",
    });
    assert_eq!(job["metadata"]["labels"], labels);
    assert_eq!(job["spec"]["template"]["metadata"]["labels"], labels);
    assert_eq!(
        job["spec"]["selector"],
        json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}})
    );
}
