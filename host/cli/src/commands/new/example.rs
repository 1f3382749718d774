//! The example object of a new guest.

use super::subject::{Origin, Subject};

/// The required fields of built-in kinds besides the metadata. A test checks that no kind lacks a
/// required field.
const REST: &[(&str, &str)] = &[
    (
        "CronJob",
        "spec:\n  schedule: \"*/5 * * * *\"\n  jobTemplate:\n    spec:\n      template:\n        spec:\n          \
         restartPolicy: Never\n          containers:\n          - name: main\n            image: example.com/main:1\n",
    ),
    ("DaemonSet", WORKLOAD),
    ("Deployment", WORKLOAD),
    (
        "HorizontalPodAutoscaler",
        "spec:\n  maxReplicas: 2\n  scaleTargetRef:\n    apiVersion: apps/v1\n    kind: Deployment\n    name: example\n",
    ),
    (
        "Ingress",
        "spec:\n  defaultBackend:\n    service:\n      name: example\n      port:\n        number: 80\n",
    ),
    ("IngressClass", "spec:\n  controller: example.com/ingress\n"),
    (
        "Job",
        "spec:\n  template:\n    spec:\n      restartPolicy: Never\n      containers:\n      - name: main\n        \
         image: example.com/main:1\n",
    ),
    (
        "PersistentVolume",
        "spec:\n  accessModes: [ReadWriteOnce]\n  capacity:\n    storage: 1Gi\n  hostPath:\n    path: /tmp/example\n",
    ),
    (
        "PersistentVolumeClaim",
        "spec:\n  accessModes: [ReadWriteOnce]\n  resources:\n    requests:\n      storage: 1Gi\n",
    ),
    ("Pod", "spec:\n  containers:\n  - name: main\n    image: example.com/main:1\n"),
    ("ReplicaSet", WORKLOAD),
    (
        "ReplicationController",
        "spec:\n  selector:\n    app: example\n  template:\n    metadata:\n      labels:\n        app: example\n    spec:\n      \
         containers:\n      - name: main\n        image: example.com/main:1\n",
    ),
    ("ClusterRoleBinding", ROLE),
    ("RoleBinding", ROLE),
    ("Service", "spec:\n  selector:\n    app: example\n  ports:\n  - port: 80\n"),
    ("StatefulSet", WORKLOAD),
    ("StorageClass", "provisioner: example.com/storage\n"),
];

const ROLE: &str =
    "roleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: ClusterRole\n  name: view\n";

const WORKLOAD: &str = "spec:\n  selector:\n    matchLabels:\n      app: example\n  template:\n    metadata:\n      labels:\n        \
                        app: example\n    spec:\n      containers:\n      - name: main\n        image: example.com/main:1\n";

/// Returns the YAML of an object named `example`. An object of a built-in kind has the label by
/// which the guest selects it.
pub(super) fn yaml(subject: &Subject, name: &str) -> String {
    let (api_version, kind) = (subject.api_version(), &subject.kind.kind);
    let namespaced = match subject.origin {
        Origin::Own => return OWN.to_owned(),
        Origin::BuiltIn { namespaced } => namespaced,
    };
    let namespace = if namespaced { "  namespace: default\n" } else { "" };
    let rest = REST.iter().find(|(of, _)| of == kind).map_or("", |(_, rest)| rest);
    format!(
        "apiVersion: {api_version}\nkind: {kind}\nmetadata:\n  name: example\n{namespace}  labels:\n    {name}: \"yes\"\n{rest}"
    )
}

/// Returns whether the kind has an example: a CRD's name is not free, and users do not create
/// events.
pub(super) fn has(kind: &str) -> bool {
    !matches!(kind, "CustomResourceDefinition" | "Event")
}

const OWN: &str = include_str!("template/own/example.yaml");

#[cfg(test)]
mod tests;
