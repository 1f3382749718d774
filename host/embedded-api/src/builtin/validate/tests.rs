use serde_json::{Value, json};

use super::super::{address::Addresses, decode, default, definition, strategy};

/// Returns the errors of a new object, after defaults.
fn faults(definition: &str, object: Value) -> Vec<String> {
    let addresses = Addresses::new();
    let read = decode::object(definition::find(definition).unwrap(), object, &mut Vec::new());
    let mut object = read.unwrap();
    default::fill(definition, &mut object);
    if let Err(failure) = strategy::prepare_create(definition, &mut object, Some(&addresses)) {
        return vec![failure.message().to_owned()];
    }
    let errors = super::create(definition, true, &object);
    errors.iter().map(ToString::to_string).collect()
}

fn metadata() -> Value {
    json!({"name": "a", "namespace": "ns"})
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn new_objects_are_refused_in_the_words_of_kubernetes() {
    let cases = [
        (
            "api.apps.v1.Deployment",
            json!({"metadata": metadata(), "spec": {}}),
            vec![
                "spec.selector: Required value",
                "spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`",
                "spec.template.spec.containers: Required value",
            ],
        ),
        (
            "api.core.v1.Service",
            json!({"metadata": metadata(), "spec": {"ports": [{"port": 80}, {"name": "x", "port": 0}]}}),
            vec![
                "spec.ports[0].name: Required value",
                "spec.ports[1].port: Invalid value: 0: must be between 1 and 65535, inclusive",
                "spec.ports[1].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive",
            ],
        ),
        (
            "api.core.v1.Service",
            json!({"metadata": metadata(), "spec": {"clusterIP": "1.2.3.4", "ports": [{"port": 80}]}}),
            vec![
                "Service \"a\" is invalid: spec.clusterIPs: Invalid value: [\"1.2.3.4\"]: failed to allocate IP 1.2.3.4: the provided IP (1.2.3.4) is not in the valid range. The range of valid IPs is 10.0.0.0/16",
            ],
        ),
        (
            "api.core.v1.Secret",
            json!({"metadata": metadata(), "type": "kubernetes.io/tls", "data": {"tls.crt": ""}}),
            vec!["data[tls.key]: Required value"],
        ),
        (
            "api.core.v1.ConfigMap",
            json!({"metadata": metadata(), "data": {"a": "", "b/c": ""}, "binaryData": {"a": ""}}),
            vec![
                "data[a]: Invalid value: \"a\": duplicate of key present in binaryData",
                "data[b/c]: Invalid value: \"b/c\": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
            ],
        ),
        (
            "api.networking.v1.Ingress",
            json!({"metadata": metadata(), "spec": {"rules": [{"http": {"paths": [{"path": "/", "backend": {"service": {"name": "s", "port": {"number": 80}}}}]}}]}}),
            vec![
                "spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified",
            ],
        ),
        (
            "api.rbac.v1.Role",
            json!({"metadata": metadata(), "rules": [{"apiGroups": [""], "resources": ["pods"]}]}),
            vec!["rules[0].verbs: Required value: verbs must contain at least one value"],
        ),
        (
            "api.core.v1.Event",
            json!({"metadata": metadata(), "involvedObject": {"namespace": "other"}}),
            vec![
                "involvedObject.namespace: Invalid value: \"other\": does not match event.namespace",
            ],
        ),
        (
            "api.core.v1.Pod",
            json!({"metadata": metadata(), "spec": {"containers": [{"name": "A", "volumeMounts": [{"name": "v", "mountPath": "/"}]}]}}),
            vec![
                "spec.containers[0].name: Invalid value: \"A\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
                "spec.containers[0].image: Required value",
                "spec.containers[0].volumeMounts[0].name: Not found: \"v\"",
            ],
        ),
        (
            "api.batch.v1.Job",
            json!({"metadata": metadata(), "spec": {"template": {"spec": {"containers": [{"name": "a", "image": "b"}]}}}}),
            vec![
                "spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"",
            ],
        ),
    ];
    for (definition, object, expected) in cases {
        assert_eq!(faults(definition, object.clone()), expected, "{object}");
    }
}

#[test]
fn events_of_the_newer_group_are_checked_strictly() {
    let event = json!({
        "metadata": metadata(), "regarding": {"namespace": "ns"}, "reason": "R", "type": "Bogus",
        "deprecatedCount": 1, "series": {"count": 1},
    });
    let expected = [
        "series.count: Invalid value: \"\": should be at least 2",
        "series.lastObservedTime: Required value",
        "eventTime: Required value",
        "type: Invalid value: \"\": has invalid value: Bogus",
        "count: Invalid value: \"\": needs to be unset",
    ];
    assert_eq!(faults("api.events.v1.Event", event), expected);
    let event = json!({"metadata": metadata(), "involvedObject": {"namespace": "ns"}, "eventTime": "2024-01-01T00:00:00.000000Z"});
    let faults = faults("api.core.v1.Event", event);
    assert!(faults.contains(&"action: Required value".to_owned()), "{faults:?}");
}

#[test]
fn updates_of_some_kinds_are_checked_like_new_objects() {
    let object = json!({"metadata": {"name": "a", "namespace": "ns", "labels": {"a b": ""}}});
    for (definition, faults) in [("api.core.v1.ConfigMap", 1), ("api.coordination.v1.Lease", 0)] {
        let errors = super::update(definition, true, (&object, &object), None);
        assert_eq!(errors.len(), faults, "{definition}");
    }
}

#[test]
fn changes_of_immutable_fields_are_refused() {
    let role = |name: &str| json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}});
    let template = json!({"metadata": {"labels": {"a": "x"}}, "spec": {"containers": [{"name": "a", "image": "b"}]}});
    let set = |selector: &str| json!({"spec": {"selector": {"matchLabels": {"a": selector}}, "template": template}});
    let cases = [
        (
            "api.core.v1.Secret",
            json!({"type": "b"}),
            json!({"type": "a"}),
            "type: Invalid value: \"b\": field is immutable",
        ),
        (
            "api.core.v1.ConfigMap",
            json!({"data": {}}),
            json!({"immutable": true}),
            "immutable: Forbidden: field is immutable when `immutable` is set",
        ),
        (
            "api.rbac.v1.RoleBinding",
            role("b"),
            role("a"),
            "roleRef: Invalid value: {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"Role\",\"Name\":\"b\"}: cannot change roleRef",
        ),
        (
            "api.apps.v1.ReplicaSet",
            set("x"),
            set("y"),
            "spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"x\"}}: field is immutable",
        ),
    ];
    for (definition, mut new, mut old, expected) in cases {
        default::fill(definition, &mut new);
        default::fill(definition, &mut old);
        let errors = super::update(definition, true, (&new, &old), None);
        let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert!(texts.iter().any(|text| text == expected), "{texts:?}");
    }
}
