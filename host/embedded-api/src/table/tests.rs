use jiff::Timestamp;
use serde_json::{Value, json};

use super::table;
use crate::kind::Registry;

fn now() -> Timestamp {
    "2024-01-01T00:01:00Z".parse().unwrap()
}

fn cells(group: &str, plural: &str, object: Value) -> Value {
    let registry = Registry::new();
    let version = if plural == "horizontalpodautoscalers" { "v2" } else { "v1" };
    let resource = registry.find(group, version, plural).unwrap();
    let table = table(resource, &[object], json!({}), "None", true, now()).unwrap();
    let row = table["rows"][0]["cells"].clone();
    let columns = table["columnDefinitions"].as_array().unwrap().len();
    assert_eq!(columns, row.as_array().unwrap().len(), "{plural}: a cell for each column");
    row
}

#[test]
fn every_built_in_kind_has_a_cell_for_each_column() {
    let registry = Registry::new();
    for resource in registry.all() {
        let object =
            json!({"metadata": {"name": "a", "creationTimestamp": "2024-01-01T00:00:00Z"}});
        let table = table(resource, &[object], json!({}), "", true, now()).unwrap();
        let columns = table["columnDefinitions"].as_array().unwrap().len();
        assert_eq!(
            table["rows"][0]["cells"].as_array().unwrap().len(),
            columns,
            "{}",
            resource.kind
        );
    }
}

#[test]
fn cells_say_what_kubectl_prints() {
    let made = json!({"name": "a", "creationTimestamp": "2024-01-01T00:00:00Z"});
    let service = json!({"metadata": made, "spec": {
        "type": "NodePort", "clusterIP": "10.0.0.2", "ports": [{"port": 80, "nodePort": 30000, "protocol": "TCP"}],
    }});
    let row = json!(["a", "NodePort", "10.0.0.2", "<none>", "80:30000/TCP", "60s", "<none>"]);
    assert_eq!(cells("", "services", service), row);
    let pod = json!({"metadata": made, "spec": {"containers": [{}, {}], "nodeName": "n"}, "status": {
        "phase": "Running",
        "containerStatuses": [
            {"ready": true, "restartCount": 2, "state": {"running": {}}, "lastState": {"terminated": {"finishedAt": "2024-01-01T00:00:50Z"}}},
            {"ready": false, "restartCount": 0, "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
        ],
    }});
    let row = json!([
        "a",
        "1/2",
        "CrashLoopBackOff",
        "2 (10s ago)",
        "60s",
        "<none>",
        "n",
        "<none>",
        "<none>"
    ]);
    assert_eq!(cells("", "pods", pod), row);
    let role = json!({"metadata": made});
    assert_eq!(
        cells("rbac.authorization.k8s.io", "roles", role),
        json!(["a", "2024-01-01T00:00:00Z"])
    );
}

#[test]
fn the_scale_of_an_object_has_columns_of_its_own() {
    let scale = json!({"kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": 3}, "status": {"replicas": 1}});
    let registry = Registry::new();
    let resource = registry.find("apps", "v1", "deployments").unwrap();
    let table = table(resource, &[scale], json!({}), "None", true, now()).unwrap();
    assert_eq!(table["rows"][0]["cells"], json!(["a", 3, 1, "<unknown>"]));
    assert_eq!(table["columnDefinitions"][1]["name"], "Desired");
}

#[test]
fn only_some_values_of_include_object_are_known() {
    let registry = Registry::new();
    let resource = registry.find("", "v1", "configmaps").unwrap();
    let refused = table(resource, &[], json!({}), "Bogus", true, now()).unwrap_err().to_string();
    assert!(refused.ends_with("must be 'Metadata', 'Object', 'None', or empty"), "{refused}");
}
