use serde_json::{Value, json};

use super::{
    super::{decode, definition},
    fill,
};

/// Decodes an object and fills in the defaults.
fn filled(definition: &str, object: Value) -> Value {
    let read = decode::object(definition::find(definition).unwrap(), object, &mut Vec::new());
    let mut object = read.unwrap();
    fill(definition, &mut object);
    object
}

#[test]
fn a_deployment_is_filled_in_as_recorded() {
    let object = json!({"spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "web:1"}]}},
    }});
    let spec = json!({
        "progressDeadlineSeconds": 600,
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "selector": {"matchLabels": {"app": "web"}},
        "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}, "type": "RollingUpdate"},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "containers": [{
                    "image": "web:1", "imagePullPolicy": "IfNotPresent", "name": "main", "resources": {},
                    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                }],
                "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
                "securityContext": {}, "terminationGracePeriodSeconds": 30,
            },
        },
    });
    assert_eq!(filled("api.apps.v1.Deployment", object)["spec"], spec);
}

#[test]
fn images_with_a_moving_tag_are_always_pulled() {
    let cases = [
        ("web", "Always"),
        ("web:latest", "Always"),
        ("registry:5000/web", "Always"),
        ("web:1", "IfNotPresent"),
        ("registry:5000/web:1", "IfNotPresent"),
        ("ko://example.com/cmd", "IfNotPresent"),
        ("${IMAGE}", "IfNotPresent"),
        ("Web", "IfNotPresent"),
        ("Web/app", "Always"),
        ("web: latest", "IfNotPresent"),
        ("web@sha256:0123", "IfNotPresent"),
    ];
    for (image, policy) in cases {
        let pod = filled(
            "api.core.v1.Pod",
            json!({"spec": {"containers": [{"name": "a", "image": image}]}}),
        );
        assert_eq!(pod["spec"]["containers"][0]["imagePullPolicy"], policy, "{image}");
    }
}

#[test]
fn the_texts_of_a_secret_become_data() {
    let secret = filled(
        "api.core.v1.Secret",
        json!({"data": {"a": "b2xk"}, "stringData": {"a": "new", "c": "c"}}),
    );
    assert_eq!(
        secret,
        json!({"metadata": {}, "data": {"a": "bmV3", "c": "Yw=="}, "type": "Opaque"})
    );
}

#[test]
fn the_ports_of_a_service_have_a_protocol_and_a_target() {
    let service = filled(
        "api.core.v1.Service",
        json!({"spec": {"ports": [{"port": 80}, {"port": 1, "targetPort": "x"}]}}),
    );
    let ports = json!([
        {"port": 80, "protocol": "TCP", "targetPort": 80},
        {"port": 1, "protocol": "TCP", "targetPort": "x"},
    ]);
    assert_eq!(service["spec"]["ports"], ports);
    assert_eq!(service["status"], json!({"loadBalancer": {}}));
}

#[test]
fn ports_of_the_host_are_filled_in_for_pods_only() {
    let spec = json!({"hostNetwork": true, "containers": [{"name": "c", "image": "x", "ports": [{"containerPort": 80}]}]});
    let pod = filled("api.core.v1.Pod", json!({"spec": spec}));
    assert_eq!(pod["spec"]["containers"][0]["ports"][0]["hostPort"], 80);
    for kind in ["api.apps.v1.Deployment", "api.batch.v1.Job", "api.apps.v1.DaemonSet"] {
        let object = filled(kind, json!({"spec": {"template": {"spec": spec}}}));
        let port = &object["spec"]["template"]["spec"]["containers"][0]["ports"][0];
        assert_eq!(port.get("hostPort"), None, "{kind}");
    }
}

#[test]
fn sources_of_persistent_volumes_are_filled_in() {
    let volume =
        filled("api.core.v1.PersistentVolume", json!({"spec": {"hostPath": {"path": "/x"}}}));
    assert_eq!(volume["spec"]["hostPath"]["type"], "");
}
