//! The builder of Oathkeeper's Deployment.

use api_gateway_module::{MODULE_LABEL, MODULE_NAMESPACE};
use istio::cluster::Size;
use serde_json::{Value, json};

use super::{ACCOUNT, CONFIGURATION, KEYS, NAME, object::selector};
use crate::config::Images;

const SETTINGS_VOLUME: &str = "oathkeeper-config-volume";
const RULES_VOLUME: &str = "oathkeeper-rules-volume";
const KEYS_VOLUME: &str = "oathkeeper-secrets-volume";
const RULES: &str = "/etc/rules";
const MAKE_RULES: &str =
    "touch /etc/rules/access-rules.json\nchmod 666 /etc/rules/access-rules.json\n";

/// CPU and memory: the most, and what is sure.
type Claims = [(&'static str, &'static str); 2];

/// Returns the Deployment for a cluster of this size.
pub(super) fn build(size: Size, images: &Images) -> Value {
    let (replicas, of_oathkeeper, of_maester): (u8, Claims, Claims) = match size {
        Size::Evaluation => {
            (1, [("100m", "128Mi"), ("10m", "64Mi")], [("100m", "50Mi"), ("10m", "20Mi")])
        }
        Size::Production => {
            (3, [("10", "512Mi"), ("100m", "64Mi")], [("400m", "1Gi"), ("10m", "32Mi")])
        }
    };
    let mut pod = pod(&[
        oathkeeper(&images.oathkeeper, of_oathkeeper),
        maester(&images.oathkeeper_maester, of_maester),
    ]);
    if let Some(pod) = pod.as_object_mut() {
        pod.insert("initContainers".to_owned(), json!([init(&images.busybox)]));
        if size == Size::Production {
            pod.insert("affinity".to_owned(), affinity());
        }
    }
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": NAME, "namespace": MODULE_NAMESPACE,
            "labels": {
                "app": "oathkeeper",
                "app.kubernetes.io/instance": "ory",
                "app.kubernetes.io/name": "oathkeeper",
                "mode": "sidecar",
            },
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": selector()},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
            },
            "template": {"metadata": pod_metadata(), "spec": pod},
        },
    })
}

fn pod_metadata() -> Value {
    let mut labels = selector();
    let (module, of_module) = MODULE_LABEL;
    if let Some(labels) = labels.as_object_mut() {
        labels.insert(module.to_owned(), of_module.into());
        labels.insert("sidecar.istio.io/inject".to_owned(), "true".into());
    }
    json!({
        "labels": labels,
        "annotations": {"readiness.status.sidecar.istio.io/initialDelaySeconds": "10"},
    })
}

fn pod(containers: &[Value]) -> Value {
    json!({
        "containers": containers,
        "dnsPolicy": "ClusterFirst",
        "priorityClassName": "api-gateway-priority-class",
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "serviceAccount": ACCOUNT,
        "serviceAccountName": ACCOUNT,
        "volumes": [
            {"name": SETTINGS_VOLUME, "configMap": {"name": CONFIGURATION}},
            {"name": RULES_VOLUME, "emptyDir": {}},
            {"name": KEYS_VOLUME, "secret": {"secretName": KEYS}},
        ],
    })
}

/// Returns the preference for Pods on different Nodes and in different zones.
fn affinity() -> Value {
    let apart = |topology: &str| {
        json!({
            "weight": 100,
            "podAffinityTerm": {
                "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "oathkeeper"}},
                "topologyKey": topology,
            },
        })
    };
    let apart = [apart("kubernetes.io/hostname"), apart("topology.kubernetes.io/zone")];
    json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": apart}})
}

/// Returns a container that may do nothing but run as this user, with more fields.
fn container(name: &str, image: &str, (user, group): (u32, u32), more: Value) -> Value {
    let mut container = json!({
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "privileged": false,
            "runAsGroup": group,
            "runAsNonRoot": true,
            "runAsUser": user,
        },
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    });
    if let (Some(container), Value::Object(more)) = (container.as_object_mut(), more) {
        container.extend(more);
    }
    container
}

fn resources([limits, requests]: Claims) -> Value {
    let claims = |(cpu, memory)| json!({"cpu": cpu, "memory": memory});
    json!({"limits": claims(limits), "requests": claims(requests)})
}

fn probe(path: &str, failures: u8, delay: Option<u8>) -> Value {
    let mut probe = json!({
        "httpGet": {"path": path, "port": "http-api", "scheme": "HTTP"},
        "failureThreshold": failures,
        "periodSeconds": 10,
        "successThreshold": 1,
        "timeoutSeconds": 1,
    });
    if let (Some(probe), Some(delay)) = (probe.as_object_mut(), delay) {
        probe.insert("initialDelaySeconds".to_owned(), delay.into());
    }
    probe
}

fn oathkeeper(image: &str, claims: Claims) -> Value {
    let port =
        |name: &str, port: u16| json!({"name": name, "containerPort": port, "protocol": "TCP"});
    let read = |name: &str, path: &str| json!({"name": name, "mountPath": path, "readOnly": true});
    container(
        "oathkeeper",
        image,
        (10000, 10001),
        json!({
            "command": ["oathkeeper", "serve", "--config", "/etc/config/config.yaml"],
            "env": [{
                "name": "MUTATORS_ID_TOKEN_CONFIG_JWKS_URL", "value": "file:///etc/secrets/jwks.json",
            }],
            "ports": [port("http-api", 4456), port("http-proxy", 4455)],
            "livenessProbe": probe("/health/alive", 10, None),
            "readinessProbe": probe("/health/ready", 40, Some(45)),
            "startupProbe": probe("/health/alive", 30, Some(45)),
            "resources": resources(claims),
            "volumeMounts": [
                read(SETTINGS_VOLUME, "/etc/config"),
                read(RULES_VOLUME, RULES),
                read(KEYS_VOLUME, "/etc/secrets"),
            ],
        }),
    )
}

fn maester(image: &str, claims: Claims) -> Value {
    container(
        "oathkeeper-maester",
        image,
        (10010, 10011),
        json!({
            "command": ["/manager"],
            "args": [
                "--metrics-addr=0.0.0.0:8080",
                "sidecar",
                "--rulesFilePath=/etc/rules/access-rules.json",
            ],
            "env": [{"name": "mutatorsAvailable", "value": "noop,id_token,header,cookie,hydrator"}],
            "ports": [{"name": "metrics", "containerPort": 8080, "protocol": "TCP"}],
            "resources": resources(claims),
            "volumeMounts": [{"name": RULES_VOLUME, "mountPath": RULES}],
        }),
    )
}

/// Returns the container that makes the file of rules, which both others share.
fn init(image: &str) -> Value {
    container(
        "init",
        image,
        (65534, 65534),
        json!({
            "command": ["sh", "-c", MAKE_RULES],
            "resources": {},
            "volumeMounts": [{"name": RULES_VOLUME, "mountPath": RULES}],
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_cluster_has_three_pods_apart_with_more_resources() {
        let images = Images::default();
        let of = |size| {
            let deployment = build(size, &images);
            let pod = deployment["spec"]["template"]["spec"].clone();
            let resources = |index: usize| pod["containers"][index]["resources"].clone();
            let affinity = pod["affinity"]["podAntiAffinity"].as_object().map(|of| {
                of["preferredDuringSchedulingIgnoredDuringExecution"].as_array().unwrap().len()
            });
            (deployment["spec"]["replicas"].clone(), affinity, resources(0), resources(1))
        };
        let claims = |cpu: &str, memory: &str| json!({"cpu": cpu, "memory": memory});
        let small = (
            json!(1),
            None,
            json!({"limits": claims("100m", "128Mi"), "requests": claims("10m", "64Mi")}),
            json!({"limits": claims("100m", "50Mi"), "requests": claims("10m", "20Mi")}),
        );
        let large = (
            json!(3),
            Some(2),
            json!({"limits": claims("10", "512Mi"), "requests": claims("100m", "64Mi")}),
            json!({"limits": claims("400m", "1Gi"), "requests": claims("10m", "32Mi")}),
        );
        assert_eq!(of(Size::Evaluation), small);
        assert_eq!(of(Size::Production), large);
    }
}
