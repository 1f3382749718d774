use serde_json::{Value, json};

use super::{Stored, admit, check};

fn pod(spec: &Value) -> Value {
    json!({"metadata": {"name": "r", "namespace": "ns"}, "spec": spec})
}

/// A cluster with the account `app`, the priority class `high` and these default classes.
struct Cluster(Vec<Value>);

impl Stored for Cluster {
    fn get(&self, _: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        match (plural, namespace, name) {
            ("serviceaccounts", "ns", "app") => {
                Some(json!({"imagePullSecrets": [{"name": "pull"}]}))
            }
            ("priorityclasses", "", "high") => {
                Some(json!({"metadata": {"name": "high"}, "value": 7, "preemptionPolicy": "Never"}))
            }
            _ => None,
        }
    }

    fn list(&self, _: &str, plural: &str, _: &str) -> Vec<Value> {
        if plural == "priorityclasses" { self.0.clone() } else { Vec::new() }
    }
}

fn admitted(pod: Value) -> Result<Value, String> {
    admitted_in(&Cluster(Vec::new()), pod)
}

fn admitted_in(cluster: &Cluster, mut pod: Value) -> Result<Value, String> {
    admit("api.core.v1.Pod", &mut pod, cluster).map_err(|failure| failure.to_string())?;
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

fn default_class(name: &str, value: i64) -> Value {
    json!({"metadata": {"name": name}, "globalDefault": true, "value": value, "preemptionPolicy": "Never"})
}

#[test]
fn a_pod_without_a_class_gets_the_lowest_default() {
    let spec = |cluster: Vec<Value>| {
        admitted_in(&Cluster(cluster), pod(&json!({}))).unwrap()["spec"].clone()
    };
    let none = spec(Vec::new());
    assert_eq!((&none["priority"], none.get("priorityClassName")), (&json!(0), None));
    assert_eq!(none["preemptionPolicy"], "PreemptLowerPriority");
    let low = spec(vec![default_class("usual", 9), default_class("low", 3)]);
    assert_eq!((&low["priority"], &low["priorityClassName"]), (&json!(3), &json!("low")));
    assert_eq!(low["preemptionPolicy"], "Never");
}

#[test]
fn a_pod_asks_for_no_other_priority_than_that_of_its_class() {
    let refused = |spec| admitted(pod(&spec)).unwrap_err();
    let text = refused(json!({"priorityClassName": "high", "priority": 8}));
    assert!(text.contains("priority (8) must not be provided in pod spec"), "{text}");
    let text = refused(json!({"preemptionPolicy": "Never"}));
    assert!(text.contains("computed PreemptLowerPriority from the given"), "{text}");
}

#[test]
fn there_is_one_default_priority_class() {
    let cluster = Cluster(vec![default_class("usual", 9)]);
    let checked = |new: &Value, old: Option<&Value>| {
        let checked = check("api.scheduling.v1.PriorityClass", new, old, &cluster);
        checked.map_err(|failure| failure.to_string())
    };
    let text = "priorityclasses.scheduling.k8s.io \"other\" is forbidden: PriorityClass usual is already marked as default. Only one default can exist";
    let other = default_class("other", 1);
    assert_eq!(checked(&other, None), Err(text.to_owned()));
    assert_eq!(checked(&other, Some(&other)), Err(text.to_owned()));
    let usual = default_class("usual", 9);
    assert_eq!(checked(&usual, Some(&usual)), Ok(()));
    assert_eq!(checked(&json!({"metadata": {"name": "other"}}), None), Ok(()));
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
