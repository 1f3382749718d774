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

/// Returns a workload with a spec of its pods.
fn workload(spec: &Value) -> Value {
    json!({"metadata": metadata(), "spec": {
        "serviceName": "s",
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": spec},
    }})
}

#[test]
fn a_stateful_set_mounts_its_claims() {
    let cases = [("data", vec![]), ("other", vec!["Not found: \"other\""])];
    for (mount, expected) in cases {
        let container = json!({"name": "c", "image": "x", "volumeMounts": [{"name": mount, "mountPath": "/d"}]});
        let spec = json!({"containers": [container], "hostname": "Not-Checked"});
        let mut object = workload(&spec);
        object["spec"]["volumeClaimTemplates"] =
            json!([{"metadata": {"name": "data"}, "spec": {}}]);
        let found = faults("api.apps.v1.StatefulSet", object);
        let place = "spec.template.spec.containers[0].volumeMounts[0].name";
        let expected: Vec<_> = expected.iter().map(|fault| format!("{place}: {fault}")).collect();
        assert_eq!(found, expected, "{mount}");
    }
}

#[test]
fn templates_are_validated_in_depth() {
    let from = |source: Value| json!({"containers": [{"name": "c", "image": "x", "env": [{"name": "A", "valueFrom": source}]}]});
    let with = |field: &str, value: Value| {
        let mut spec = json!({"containers": [{"name": "c", "image": "x"}]});
        spec[field] = value;
        spec
    };
    let id = "must be between 0 and 2147483647, inclusive";
    let cases = [
        (with("securityContext", json!({"fsGroup": -2})), format!("securityContext.fsGroup: Invalid value: -2: {id}")),
        (
            json!({"containers": [{"name": "c", "image": "x", "securityContext": {"runAsGroup": -1}}]}),
            format!("containers[0].securityContext.runAsGroup: Invalid value: -1: {id}"),
        ),
        (
            with("dnsPolicy", json!("None")),
            "dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None".to_owned(),
        ),
        (
            with("volumes", json!([{"name": "v", "configMap": {"name": "m", "items": [{"key": "k", "path": "p", "mode": 512}]}}])),
            "volumes[0].configMap.items[0].mode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive".to_owned(),
        ),
        (
            from(json!({"secretKeyRef": {"name": "s"}})),
            "containers[0].env[0].valueFrom.secretKeyRef.key: Required value".to_owned(),
        ),
        (
            from(json!({"fieldRef": {"fieldPath": "status.phase"}})),
            "containers[0].env[0].valueFrom.fieldRef.fieldPath: Unsupported value: \"status.phase\": supported values: \"metadata.name\", \"metadata.namespace\", \"metadata.uid\", \"spec.nodeName\", \"spec.serviceAccountName\", \"status.hostIP\", \"status.hostIPs\", \"status.podIP\", \"status.podIPs\"".to_owned(),
        ),
        (
            from(json!({"fieldRef": {"fieldPath": "metadata.name['a']"}})),
            "containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: \"metadata.name['a']\": error converting fieldPath: field label does not support subscript: metadata.name['a']".to_owned(),
        ),
    ];
    for (spec, expected) in cases {
        let found = faults("api.apps.v1.Deployment", workload(&spec));
        assert_eq!(found, [format!("spec.template.spec.{expected}")]);
    }
    let labels = json!({"fieldRef": {"fieldPath": "metadata.labels['app']"}});
    assert_eq!(faults("api.apps.v1.Deployment", workload(&from(labels))), [""; 0]);
}

#[test]
fn schedules_are_refused_in_the_words_of_the_parser() {
    let cases = [
        ("*/5 0-23/2 1,15 jan-DEC ?", ""),
        ("@hourly", ""),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("* * * 13 *", "end of range (13) above maximum (12): 13"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        ("* * * * x", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
        ("* * *", "expected exactly 5 fields, found 3: [* * *]"),
        ("@never", "unrecognized descriptor: @never"),
    ];
    for (schedule, fault) in cases {
        let found = super::schedule::parse(schedule).err().unwrap_or_default();
        assert_eq!(found, fault, "{schedule}");
    }
}

#[test]
fn blocks_of_network_policies_are_checked() {
    let cidr = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
    let subset = "must be a strict subset of `cidr`";
    let cases = [
        (json!({"cidr": "2001:db8::/32", "except": ["2001:db8:1::/48"]}), String::new()),
        (json!({"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"]}), String::new()),
        (json!({"cidr": "::/0", "except": ["fe80::/10"]}), String::new()),
        (json!({"cidr": ""}), "cidr: Required value".to_owned()),
        (json!({"cidr": "10.0.0.0/33"}), format!("cidr: Invalid value: \"10.0.0.0/33\": {cidr}")),
        (
            json!({"cidr": "10.0.0.0/8", "except": ["x"]}),
            format!("except[0]: Invalid value: \"x\": {cidr}"),
        ),
        (
            json!({"cidr": "10.0.0.0/8", "except": ["11.0.0.0/9"]}),
            format!("except[0]: Invalid value: \"11.0.0.0/9\": {subset}"),
        ),
        (
            json!({"cidr": "10.0.0.0/8", "except": ["10.0.0.0/8"]}),
            format!("except[0]: Invalid value: \"10.0.0.0/8\": {subset}"),
        ),
        (
            json!({"cidr": "10.0.0.0/8", "except": ["fe80::/64"]}),
            format!("except[0]: Invalid value: \"fe80::/64\": {subset}"),
        ),
    ];
    for (block, expected) in cases {
        let spec = json!({"podSelector": {}, "ingress": [{"from": [{"ipBlock": block}]}]});
        let found = faults(
            "api.networking.v1.NetworkPolicy",
            json!({"metadata": metadata(), "spec": spec}),
        );
        let expected = Some(expected).filter(|expected| !expected.is_empty());
        let expected: Vec<_> = expected
            .map(|fault| format!("spec.ingress[0].from[0].ipBlock.{fault}"))
            .into_iter()
            .collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn ends_of_ranges_of_ports_are_checked() {
    let cases = [
        (json!({"port": 80, "endPort": 90}), ""),
        (
            json!({"port": 80, "endPort": 79}),
            "Invalid value: 80: must be greater than or equal to `port`",
        ),
        (
            json!({"endPort": 79}),
            "Invalid value: 79: may not be specified when `port` is not specified",
        ),
        (
            json!({"port": "http", "endPort": 79}),
            "Invalid value: 79: may not be specified when `port` is non-numeric",
        ),
        (
            json!({"port": 80, "endPort": 70000}),
            "Invalid value: 70000: must be between 1 and 65535, inclusive",
        ),
    ];
    for (port, fault) in cases {
        let spec = json!({"podSelector": {}, "egress": [{"ports": [port]}]});
        let found = faults(
            "api.networking.v1.NetworkPolicy",
            json!({"metadata": metadata(), "spec": spec}),
        );
        let place = "spec.egress[0].ports[0].endPort";
        let expected = if fault.is_empty() { vec![] } else { vec![format!("{place}: {fault}")] };
        assert_eq!(found, expected);
    }
}

#[test]
fn configurations_of_webhooks_are_checked() {
    let cases = [
        ("name", json!("a.b.c"), ""),
        (
            "name",
            json!("a.B.c"),
            "name: Invalid value: \"a.B.c\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        ),
        (
            "sideEffects",
            json!("Some"),
            "sideEffects: Unsupported value: \"Some\": supported values: \"None\", \"NoneOnDryRun\"",
        ),
        (
            "failurePolicy",
            json!("Stop"),
            "failurePolicy: Unsupported value: \"Stop\": supported values: \"Fail\", \"Ignore\"",
        ),
        (
            "timeoutSeconds",
            json!(0),
            "timeoutSeconds: Invalid value: 0: the timeout value must be between 1 and 30 seconds",
        ),
        (
            "clientConfig",
            json!({}),
            "clientConfig: Required value: exactly one of url or service is required",
        ),
        (
            "admissionReviewVersions",
            json!([]),
            "admissionReviewVersions: Required value: must specify one of v1, v1beta1",
        ),
        (
            "rules",
            json!([{"operations": ["GET"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]),
            "rules[0].operations[0]: Unsupported value: \"GET\": supported values: \"*\", \"CONNECT\", \"CREATE\", \"DELETE\", \"UPDATE\"",
        ),
    ];
    for (field, value, fault) in cases {
        let mut hook = json!({
            "name": "a.b.c", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"name": "s", "namespace": "n"}},
        });
        hook[field] = value;
        let object = json!({"metadata": {"name": "w"}, "webhooks": [hook]});
        let found = super::super::decode::object(
            definition::find("api.admissionregistration.v1.MutatingWebhookConfiguration").unwrap(),
            object,
            &mut Vec::new(),
        );
        let mut object = found.unwrap();
        default::fill("api.admissionregistration.v1.MutatingWebhookConfiguration", &mut object);
        let errors = super::create(
            "api.admissionregistration.v1.MutatingWebhookConfiguration",
            false,
            &object,
        );
        let found: Vec<_> = errors.iter().map(ToString::to_string).collect();
        let expected = if fault.is_empty() { vec![] } else { vec![format!("webhooks[0].{fault}")] };
        assert_eq!(found, expected);
    }
}

#[test]
fn pods_change_only_in_a_few_ways() {
    let old = json!({
        "containers": [{"name": "c", "image": "x"}], "schedulingGates": [{"name": "a/b"}], "activeDeadlineSeconds": 5,
        "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute"}], "nodeSelector": {"a": "b"},
    });
    let cases = [
        ("nodeSelector", json!({"a": "b", "c": "d"}), ""),
        ("schedulingGates", json!([]), ""),
        ("activeDeadlineSeconds", json!(4), ""),
        (
            "schedulingGates",
            json!([{"name": "c/d"}]),
            "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'c/d'",
        ),
        (
            "nodeSelector",
            json!({"c": "d"}),
            "spec.nodeSelector: Invalid value: {\"c\":\"d\"}: only additions to spec.nodeSelector are allowed (no mutations or deletions)",
        ),
        (
            "activeDeadlineSeconds",
            json!(6),
            "spec.activeDeadlineSeconds: Invalid value: 6: must be less than or equal to previous value",
        ),
        (
            "tolerations",
            json!([]),
            "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds",
        ),
        (
            "containers",
            json!([]),
            "spec.containers: Forbidden: pod updates may not add or remove containers",
        ),
    ];
    for (field, value, fault) in cases {
        let mut new = old.clone();
        new[field] = value;
        let mut errors = Vec::new();
        super::pod::update(&new, &old, &mut errors);
        let found: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(found, if fault.is_empty() { vec![] } else { vec![fault] });
    }
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

#[test]
fn hosts_and_the_class_of_an_ingress_are_names() {
    let of = |host: &str| {
        json!({"metadata": metadata(), "spec": {
            "rules": [{"host": host}], "defaultBackend": {"resource": {"kind": "A", "name": "a"}},
        }})
    };
    let subdomain = "a lowercase RFC 1123 subdomain must consist of";
    let wildcard = "a wildcard DNS-1123 subdomain must start with '*.', followed by";
    let cases = [
        ("a.example.com", vec![]),
        ("*.example.com", vec![]),
        ("A.example.com", vec![subdomain]),
        ("*.*.example.com", vec![wildcard]),
        ("a*.example.com", vec![wildcard]),
        ("10.0.0.1", vec!["must be a DNS name, not an IP address"]),
        ("010.0.0.1", vec!["must be a DNS name, not an IP address"]),
        ("::1", vec!["must be a DNS name, not an IP address", subdomain]),
    ];
    for (host, expected) in cases {
        let found = faults("api.networking.v1.Ingress", of(host));
        let expected: Vec<_> = expected
            .iter()
            .map(|fault| format!("spec.rules[0].host: Invalid value: \"{host}\": {fault}"))
            .collect();
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(&expected), "{found}");
        }
    }
    let mut object = of("a");
    object["spec"]["ingressClassName"] = "A".into();
    object["spec"]["tls"] = json!([{"hosts": ["a*"]}]);
    let found = faults("api.networking.v1.Ingress", object);
    assert!(found[0].starts_with("spec.tls[0].hosts[0]: Invalid value: \"a*\": a wildcard"));
    assert!(found[1].starts_with("spec.ingressClassName: Invalid value: \"A\": a lowercase"));
}

#[test]
fn a_budget_knows_two_policies_for_evictions() {
    let of = |policy: &str| json!({"metadata": metadata(), "spec": {"unhealthyPodEvictionPolicy": policy}});
    let found = |policy| faults("api.policy.v1.PodDisruptionBudget", of(policy));
    assert_eq!(found("AlwaysAllow"), [""; 0]);
    let fault = "spec.unhealthyPodEvictionPolicy: Unsupported value: \"Never\": supported values: \"AlwaysAllow\", \"IfHealthyBudget\"";
    assert_eq!(found("Never"), [fault]);
}

#[test]
fn a_new_ingress_names_one_class() {
    let mut object = json!({
        "metadata": metadata(), "spec": {"defaultBackend": {"resource": {"kind": "A", "name": "a"}}},
    });
    object["metadata"]["annotations"] = json!({"kubernetes.io/ingress.class": "a"});
    assert_eq!(faults("api.networking.v1.Ingress", object.clone()), [""; 0]);
    object["spec"]["ingressClassName"] = "b".into();
    let fault = "annotations.kubernetes.io/ingress.class: Invalid value: \"a\": must match `ingressClassName` when both are specified";
    assert_eq!(faults("api.networking.v1.Ingress", object), [fault]);
}

#[test]
fn priority_classes_of_the_system_and_policies_are_known_ones() {
    let of = |name: &str, value: i64, policy: &str| {
        let metadata = json!({"name": name});
        let object = json!({"metadata": metadata, "value": value, "preemptionPolicy": policy});
        let errors = super::create("api.scheduling.v1.PriorityClass", false, &object);
        errors.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let reserved = "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: ";
    let cases = [
        (of("a", 1, "Never"), vec![]),
        (of("system-node-critical", 2_000_001_000, "Never"), vec![]),
        (
            of("system-node-critical", 1, "Never"),
            vec![format!("{reserved}value of system-node-critical PriorityClass must be 2000001000")],
        ),
        (
            of("system-x", 1, "Never"),
            vec![format!("{reserved}system-x is not a known system priority class")],
        ),
        (
            of("a", 1, "Sometimes"),
            vec!["preemptionPolicy: Unsupported value: \"Sometimes\": supported values: \"PreemptLowerPriority\", \"Never\"".to_owned()],
        ),
        (of("a", 1, ""), vec!["preemptionPolicy: Required value".to_owned()]),
    ];
    for (found, expected) in cases {
        assert_eq!(found, expected);
    }
}

#[test]
fn integers_fit_their_types() {
    let read = |value: Value| {
        let object = json!({"metadata": metadata(), "spec": {"replicas": value}});
        let definition = definition::find("api.apps.v1.Deployment").unwrap();
        decode::object(definition, object, &mut Vec::new()).map_err(|wrong| wrong.to_string())
    };
    assert!(read(json!(2_147_483_647)).is_ok());
    let refused = read(json!(3_000_000_000_u32)).unwrap_err();
    assert!(
        refused.contains("cannot unmarshal number 3000000000 into Go struct field"),
        "{refused}"
    );
    assert!(refused.ends_with("replicas of type int32"), "{refused}");
}
