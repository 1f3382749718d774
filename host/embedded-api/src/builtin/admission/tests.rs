use std::sync::Arc;

use serde_json::{Value, json};

use super::admit;

fn pod(spec: &Value) -> Value {
    json!({"metadata": {"name": "r", "namespace": "ns"}, "spec": spec})
}

/// Admits a pod in a cluster with the account `app` and the priority class `high`.
fn admitted(mut pod: Value) -> Result<Value, String> {
    let find = |_: &str, plural: &str, namespace: &str, name: &str| {
        let found = match (plural, namespace, name) {
            ("serviceaccounts", "ns", "app") => json!({"imagePullSecrets": [{"name": "pull"}]}),
            ("priorityclasses", "", "high") => json!({"value": 7, "preemptionPolicy": "Never"}),
            _ => return None,
        };
        Some(Arc::new(found))
    };
    admit("api.core.v1.Pod", &mut pod, &find).map_err(|failure| failure.to_string())?;
    Ok(pod)
}

#[test]
fn a_pod_needs_its_account_and_its_priority_class() {
    let refused = admitted(pod(&json!({"serviceAccountName": "none"})));
    let text = "pods \"r\" is forbidden: error looking up service account ns/none: serviceaccount \"none\" not found";
    assert_eq!(refused, Err(text.to_owned()));
    let refused = admitted(pod(&json!({"priorityClassName": "none"})));
    assert_eq!(
        refused,
        Err("pods \"r\" is forbidden: no PriorityClass with name none was found".to_owned())
    );
    let admitted =
        admitted(pod(&json!({"serviceAccountName": "app", "priorityClassName": "high"}))).unwrap();
    assert_eq!(admitted["spec"]["priority"], 7);
    assert_eq!(admitted["spec"]["preemptionPolicy"], "Never");
    assert_eq!(admitted["spec"]["imagePullSecrets"], json!([{"name": "pull"}]));
}

#[test]
fn the_token_is_mounted_unless_it_is_declined() {
    let container = json!({"name": "a", "image": "b"});
    let mounted = admitted(pod(&json!({"containers": [container]}))).unwrap();
    let volume = &mounted["spec"]["volumes"][0]["name"];
    assert_eq!(mounted["spec"]["containers"][0]["volumeMounts"][0]["name"], *volume);
    let declined = json!({"containers": [container], "automountServiceAccountToken": false});
    assert_eq!(admitted(pod(&declined)).unwrap()["spec"].get("volumes"), None);
}

#[test]
fn tolerations_are_added_where_there_are_none_of_that_kind() {
    let all = admitted(pod(&json!({}))).unwrap();
    assert_eq!(all["spec"]["tolerations"].as_array().unwrap().len(), 2);
    let some = json!({"tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}]});
    assert_eq!(admitted(pod(&some)).unwrap()["spec"]["tolerations"].as_array().unwrap().len(), 2);
    let any = json!({"tolerations": [{"operator": "Exists"}]});
    assert_eq!(admitted(pod(&any)).unwrap()["spec"]["tolerations"].as_array().unwrap().len(), 1);
}
