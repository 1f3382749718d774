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
fn cells_match_the_columns_that_kubectl_prints() {
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

#[test]
fn volumes_and_classes_are_shown_as_kubectl_prints_them() {
    let made = json!({"name": "a", "creationTimestamp": "2024-01-01T00:00:00Z"});
    let volume = json!({"metadata": made, "status": {"phase": "Bound"}, "spec": {
        "capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteOnce", "ReadOnlyMany"], "storageClassName": "fast",
        "persistentVolumeReclaimPolicy": "Retain", "claimRef": {"namespace": "n", "name": "data"}, "volumeMode": "Filesystem",
    }});
    let row = json!([
        "a",
        "5Gi",
        "RWO,ROX",
        "Retain",
        "Bound",
        "n/data",
        "fast",
        "<unset>",
        "",
        "60s",
        "Filesystem"
    ]);
    assert_eq!(cells("", "persistentvolumes", volume), row);
    let mut class = json!({"metadata": made, "provisioner": "p", "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"});
    class["metadata"]["annotations"] =
        json!({"storageclass.kubernetes.io/is-default-class": "true"});
    let row = json!(["a (default)", "p", "Delete", "Immediate", false, "60s"]);
    assert_eq!(cells("storage.k8s.io", "storageclasses", class), row);
    let class = json!({"metadata": made, "spec": {"controller": "example.dev/c", "parameters": {"apiGroup": "example.dev", "kind": "K", "name": "x"}}});
    let row = json!(["a", "example.dev/c", "K.example.dev/x", "60s"]);
    assert_eq!(cells("networking.k8s.io", "ingressclasses", class), row);
}

#[test]
fn the_cells_of_a_pod_show_readiness_status_and_restarts() {
    let running = json!({"ready": true, "state": {"running": {}}});
    let done =
        json!({"ready": false, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}});
    let sidecar = json!({"name": "s", "ready": true, "started": true, "restartCount": 3, "state": {"running": {}}});
    let waiting = json!({"name": "i", "restartCount": 1, "state": {"waiting": {"reason": "PodInitializing"}}});
    let cases = [
        (
            "a sidecar counts",
            json!({"phase": "Running", "initContainerStatuses": [sidecar], "containerStatuses": [running]}),
            json!(["2/2", "Running", "3"]),
        ),
        (
            "still starting",
            json!({"phase": "Pending", "initContainerStatuses": [sidecar, waiting]}),
            json!(["1/2", "Init:1/2", "4"]),
        ),
        (
            "done, but for one that is not ready",
            json!({"phase": "Running", "containerStatuses": [done, running]}),
            json!(["1/2", "NotReady", "0"]),
        ),
        (
            "done, but for one that is",
            json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [done, running]}),
            json!(["1/2", "Running", "0"]),
        ),
    ];
    for (case, status, expected) in cases {
        let spec = json!({"containers": [{}], "initContainers": [{"name": "s", "restartPolicy": "Always"}, {"name": "i"}]});
        let row =
            cells("", "pods", json!({"metadata": {"name": "a"}, "spec": spec, "status": status}));
        assert_eq!(json!([row[1], row[2], row[3]]), expected, "{case}");
    }
    let ended = json!({"metadata": {"name": "a", "deletionTimestamp": "2024-01-01T00:00:00Z"}, "status": {"phase": "Succeeded"}});
    assert_eq!(cells("", "pods", ended)[2], "Succeeded");
}
