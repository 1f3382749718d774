use serde_json::{Value, json};

use super::{check, fill};

const POD: &str = "api.core.v1.Pod";

fn range(limits: &Value) -> Value {
    json!({"spec": {"limits": [limits]}})
}

fn pod(containers: &Value, init_containers: &Value) -> Value {
    json!({"metadata": {}, "spec": {"containers": containers, "initContainers": init_containers}})
}

fn container(requests: &Value, limits: &Value) -> Value {
    json!({"name": "c", "resources": {"requests": requests, "limits": limits}})
}

#[test]
fn absent_amounts_of_containers_are_filled_in_and_named() {
    let defaults = range(&json!({
        "type": "Container",
        "default": {"cpu": "500m", "memory": "1Gi"},
        "defaultRequest": {"cpu": "100m"},
    }));
    let own = container(&json!({"cpu": "2"}), &json!({"cpu": "2"}));
    let mut object = pod(&json!([{"name": "a"}, own]), &json!([{"name": "i"}]));
    fill(&mut object, &defaults);
    let filled = json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "500m", "memory": "1Gi"}});
    assert_eq!(object["spec"]["containers"][0]["resources"], filled);
    assert_eq!(object["spec"]["initContainers"][0]["resources"], filled);
    let kept = json!({"requests": {"cpu": "2"}, "limits": {"cpu": "2", "memory": "1Gi"}});
    assert_eq!(object["spec"]["containers"][1]["resources"], kept);
    assert_eq!(
        object["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu request for container a; cpu, memory limit for container a; \
         memory limit for container c; cpu request for init container i; \
         cpu, memory limit for init container i"
    );
    let before = object.clone();
    fill(&mut object, &defaults);
    assert_eq!(object, before);
}

#[test]
fn a_pod_without_defaults_gets_no_annotation() {
    let mut object = pod(&json!([{"name": "a"}]), &json!([]));
    fill(&mut object, &range(&json!({"type": "Pod", "max": {"cpu": "1"}})));
    assert_eq!(object["spec"]["containers"], json!([{"name": "a"}]));
    assert_eq!(object["metadata"].get("annotations"), None);
}

#[test]
fn amounts_of_containers_are_within_their_bounds() {
    let cases = [
        (json!({"max": {"cpu": "1"}}), json!({}), json!({"cpu": "1000m"}), None),
        (
            json!({"max": {"cpu": "1"}}),
            json!({}),
            json!({"cpu": "2"}),
            Some("maximum cpu usage per Container is 1, but limit is 2"),
        ),
        (
            json!({"max": {"cpu": "1"}}),
            json!({"cpu": "2"}),
            json!({}),
            Some("maximum cpu usage per Container is 1.  No limit is specified"),
        ),
        (
            json!({"min": {"memory": "1Gi"}}),
            json!({}),
            json!({"memory": "2Gi"}),
            Some("minimum memory usage per Container is 1Gi.  No request is specified"),
        ),
        (
            json!({"min": {"memory": "1Gi"}}),
            json!({"memory": "1Gi"}),
            json!({"memory": "512Mi"}),
            Some("minimum memory usage per Container is 1Gi, but limit is 512Mi"),
        ),
        (
            json!({"maxLimitRequestRatio": {"cpu": "2"}}),
            json!({"cpu": "1"}),
            json!({"cpu": "2500m"}),
            Some(
                "cpu max limit to request ratio per Container is 2, but provided ratio is 2.500000",
            ),
        ),
        (
            json!({"maxLimitRequestRatio": {"cpu": "2"}}),
            json!({"cpu": "0"}),
            json!({"cpu": "1"}),
            Some(
                "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
            ),
        ),
        (
            json!({"min": {"cpu": "1"}, "max": {"memory": "1Mi"}}),
            json!({"cpu": "100m"}),
            json!({"memory": "1Gi"}),
            Some(
                "[minimum cpu usage per Container is 1, but request is 100m, maximum memory usage per Container is 1Mi, but limit is 1Gi]",
            ),
        ),
    ];
    for (mut limit, requests, limits, expected) in cases {
        limit["type"] = "Container".into();
        let object = pod(&json!([container(&requests, &limits)]), &json!([]));
        assert_eq!(check(POD, &object, &range(&limit)).as_deref(), expected);
        let object = pod(&json!([]), &json!([container(&requests, &limits)]));
        assert_eq!(check(POD, &object, &range(&limit)).as_deref(), expected);
    }
}

#[test]
fn a_pod_asks_for_what_runs_at_once() {
    let asks = |cpu: &str| container(&json!({"cpu": cpu}), &json!({"cpu": cpu}));
    let restartable = |cpu: &str| {
        let mut container = asks(cpu);
        container["restartPolicy"] = "Always".into();
        container
    };
    let cases = [
        (json!([asks("1"), asks("500m")]), json!([]), "1500m"),
        (json!([asks("1")]), json!([asks("3")]), "3"),
        (json!([asks("1")]), json!([restartable("2"), asks("1500m")]), "3500m"),
        (json!([asks("1")]), json!([asks("1500m"), restartable("2")]), "3"),
    ];
    let bound = range(&json!({"type": "Pod", "max": {"cpu": "100m"}}));
    for (containers, init_containers, sum) in cases {
        let expected = format!("maximum cpu usage per Pod is 100m, but limit is {sum}");
        let found = check(POD, &pod(&containers, &init_containers), &bound);
        assert_eq!(found, Some(expected));
    }
    let mut own = pod(&json!([asks("1")]), &json!([]));
    own["spec"]["resources"] = json!({"requests": {"cpu": "50m"}, "limits": {"cpu": "50m"}});
    assert_eq!(check(POD, &own, &bound), None);
    let mut pages = pod(&json!([]), &json!([]));
    pages["spec"]["resources"] = json!({"limits": {"hugepages-2Mi": "2Mi"}});
    let bound = range(&json!({"type": "Pod", "max": {"hugepages-2Mi": "4Mi"}}));
    let absent = "maximum hugepages-2Mi usage per Pod is 4Mi.  No limit is specified";
    assert_eq!(check(POD, &pages, &bound).as_deref(), Some(absent));
}

#[test]
fn faults_are_named_in_the_order_of_the_limits() {
    let limits =
        json!([{"type": "Pod", "max": {"cpu": "1"}}, {"type": "Container", "max": {"cpu": "1"}}]);
    let asks = container(&json!({}), &json!({"cpu": "2"}));
    let found = check(POD, &pod(&json!([asks]), &json!([])), &json!({"spec": {"limits": limits}}));
    let expected = "[maximum cpu usage per Pod is 1, but limit is 2, maximum cpu usage per Container is 1, but limit is 2]";
    assert_eq!(found.as_deref(), Some(expected));
}

#[test]
fn a_claim_asks_for_storage_within_its_bounds() {
    let bounds = json!({"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}, "maxLimitRequestRatio": {"storage": "2"}});
    let cases = [
        (json!({"storage": "2Gi"}), None),
        (
            json!({"storage": "3Gi"}),
            Some("maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"),
        ),
        (
            json!({"storage": "1Mi"}),
            Some("minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi"),
        ),
    ];
    for (requests, expected) in cases {
        let claim = json!({"spec": {"resources": {"requests": requests}}});
        let found = check("api.core.v1.PersistentVolumeClaim", &claim, &range(&bounds));
        assert_eq!(found.as_deref(), expected);
    }
}
