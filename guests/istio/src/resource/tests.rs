use super::*;

fn names(objects: &[Value]) -> Vec<&str> {
    objects.iter().map(|object| object["metadata"]["name"].as_str().unwrap()).collect()
}

fn plan(istio: Value, change: impl Fn(&mut Input)) -> Plan {
    let istio: Istio = serde_json::from_value(istio).unwrap();
    let mut input = Input {
        istio: &istio,
        needs_proxy_protocol: false,
        control_plane_autoscalers: false,
        has_autoscaler_crd: false,
        api_server: None,
        version: "dev",
    };
    change(&mut input);
    Plan::of(&input)
}

#[test]
fn objects_that_are_not_wanted_are_deleted() {
    let plan =
        plan(json!({"metadata": {"name": "default"}}), |input| input.has_autoscaler_crd = true);
    assert_eq!(names(&plan.apply), ["default", "istio-operator-vpa"]);
    assert_eq!(plan.delete.len(), 7 + 4 + 1);
}

#[test]
fn without_their_crd_there_is_nothing_to_do_about_autoscalers() {
    let plan = plan(json!({}), |input| input.control_plane_autoscalers = true);
    let all: Vec<&Value> = plan.apply.iter().chain(&plan.delete).collect();
    assert!(all.iter().all(|object| object["kind"] != "VerticalPodAutoscaler"));
}

#[test]
fn a_deleted_resource_leaves_only_what_goes_with_istio() {
    let istio = json!({
        "metadata": {"name": "default", "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"networkPoliciesEnabled": true},
    });
    let plan = plan(istio, |input| {
        input.has_autoscaler_crd = true;
        input.control_plane_autoscalers = true;
        input.needs_proxy_protocol = true;
    });
    assert_eq!(names(&plan.apply), [""; 0]);
    assert_eq!(plan.delete.len(), 7 + 1 + 4);
}

#[test]
fn the_port_of_the_api_server_is_a_number() {
    let service = |ports: Value| -> Service {
        serde_json::from_value(json!({"spec": {"ports": ports}})).unwrap()
    };
    let cases = [
        (json!([{"name": "https", "targetPort": 6443}]), 6443),
        (json!([{"name": "http", "targetPort": 80}, {"name": "https", "targetPort": 8443}]), 8443),
        (json!([{"name": "https", "targetPort": "api"}]), 443),
        (json!([{"name": "https"}]), 443),
        (json!([{"name": "https", "targetPort": 0}]), 443),
        (json!([]), 443),
    ];
    for (ports, expected) in cases {
        assert_eq!(api_port(Some(&service(ports.clone()))), expected, "{ports}");
    }
    assert_eq!(api_port(None), 443);
}
