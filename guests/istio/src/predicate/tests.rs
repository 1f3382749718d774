use serde_json::json;

use super::*;

const IMAGE: &str = "registry/istio/proxyv2:1.30.2";

fn pod(change: impl Fn(&mut Value)) -> Pod {
    let mut pod = json!({
        "metadata": {"name": "a", "namespace": "shop", "labels": {}, "annotations": {INJECTED: ""}},
        "spec": {"initContainers": [], "containers": [{"name": SIDECAR, "image": IMAGE, "resources": {
            "limits": {"cpu": "250m", "memory": "254Mi"}, "requests": {"cpu": "10m", "memory": "32Mi"},
        }}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    change(&mut pod);
    serde_json::from_value(pod).unwrap()
}

fn expected(spec: Value) -> Expected {
    let spec = serde_json::from_value(spec).unwrap();
    let istio = Istio { spec, ..Istio::default() };
    let features = Features::default();
    let input = Input { istio: &istio, size: Size::Evaluation, features, image: IMAGE, mesh: None };
    Expected::of(&input).unwrap()
}

#[test]
fn a_native_sidecar_is_a_sidecar() {
    let native = |image: &'static str| {
        pod(move |pod| {
            let mut sidecar = pod["spec"]["containers"][0].take();
            sidecar["image"] = image.into();
            pod["spec"]["containers"] = json!([]);
            pod["spec"]["initContainers"] = json!([sidecar]);
        })
    };
    let expected = expected(json!({}));
    assert!(!expected.image_or_resources_differ(&native(IMAGE)));
    assert!(expected.image_or_resources_differ(&native("other")));
    assert!(is_left_behind(&native(IMAGE)));
}

#[test]
fn annotations_of_a_pod_replace_all_resources() {
    let cases = [
        (json!({"proxyCPU": "10m"}), json!({"requests": {"cpu": "10m"}}), false),
        (
            json!({"proxyCPULimit": "10m"}),
            json!({"requests": {"cpu": "10m"}, "limits": {"cpu": "10m"}}),
            false,
        ),
        (
            json!({"proxyCPULimit": "2", "proxyCPU": "1"}),
            json!({"requests": {"cpu": 1}, "limits": {"cpu": "2000m"}}),
            false,
        ),
        (json!({"proxyMemory": "10Mi"}), json!({"requests": {"cpu": "10m"}}), true),
        (json!({"proxyMemory": ""}), json!({}), false),
        (json!({"proxyMemory": "much"}), json!({}), false),
        (json!({"other": "1"}), json!({}), true),
    ];
    for (annotations, resources, differs) in cases {
        let pod = pod(|pod| {
            for (key, value) in annotations.as_object().unwrap() {
                pod["metadata"]["annotations"][format!("sidecar.istio.io/{key}")] = value.clone();
            }
            pod["spec"]["containers"][0]["resources"] = resources.clone();
        });
        let actual = expected(json!({})).image_or_resources_differ(&pod);
        assert_eq!(actual, differs, "{annotations} {resources}");
    }
}

#[test]
fn an_own_image_switches_off_only_the_check_of_image_and_resources() {
    let pod = pod(|pod| {
        pod["metadata"]["annotations"][OWN_IMAGE] = "".into();
        pod["spec"]["containers"][0]["image"] = "own".into();
    });
    assert!(!expected(json!({})).selects(&pod, Phase::Customer));
    let dns = expected(json!({"config": {"enableDNSProxying": false}}));
    assert!(dns.selects(&pod, Phase::Customer) && !dns.selects(&pod, Phase::Kyma));
}

#[test]
fn a_pod_in_trouble_is_no_candidate() {
    type Change = fn(&mut Value);
    let cases: [(&str, Change, bool); 6] = [
        ("as it should be", |_| {}, true),
        (
            "deleted",
            |pod| pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into(),
            false,
        ),
        ("pending", |pod| pod["status"]["phase"] = "Pending".into(), false),
        (
            "readiness gate",
            |pod| {
                pod["status"]["conditions"][0]["status"] = "False".into();
            },
            false,
        ),
        ("no conditions", |pod| pod["status"]["conditions"] = json!([]), true),
        ("no sidecar", |pod| pod["metadata"]["annotations"] = json!({}), false),
    ];
    for (case, change, expected) in cases {
        assert_eq!(is_candidate(&pod(change)), expected, "{case}");
    }
}

#[test]
fn modules_are_told_by_namespace_or_label() {
    let cases = [
        ("shop", json!({}), Phase::Customer),
        ("shop", json!({MODULE_LABEL: ""}), Phase::Customer),
        ("shop", json!({MODULE_LABEL: "api-gateway"}), Phase::Kyma),
        ("kyma-system", json!({}), Phase::Kyma),
    ];
    for (namespace, labels, expected) in cases {
        let pod = pod(|pod| {
            pod["metadata"]["namespace"] = namespace.into();
            pod["metadata"]["labels"] = labels.clone();
        });
        assert_eq!(Phase::of(&pod), expected, "{namespace} {labels}");
    }
}

#[test]
fn the_status_port_is_the_default_on_any_problem() {
    let cases = [
        (None, 15020),
        (Some(""), 15020),
        (Some("defaultConfig: {}"), 15020),
        (Some("defaultConfig: {statusPort: 15999}"), 15999),
        (Some("defaultConfig: {statusPort: \"15999\"}"), 15020),
        (Some("{"), 15020),
    ];
    for (mesh, expected) in cases {
        assert_eq!(status_port(mesh), expected, "{mesh:?}");
    }
}

#[test]
fn gateways_are_not_left_behind() {
    for (label, expected) in [("ingressgateway", false), ("egressgateway", false), ("other", true)]
    {
        let pod = pod(|pod| pod["metadata"]["labels"]["istio"] = label.into());
        assert_eq!(is_left_behind(&pod), expected, "{label}");
    }
}
