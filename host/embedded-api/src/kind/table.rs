//! The built-in resources of Kubernetes 1.34 that are served: data only.

/// A built-in resource.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) plural: &'static str,
    pub(super) singular: &'static str,
    pub(super) kind: &'static str,
    pub(super) short_names: &'static [&'static str],
    pub(super) categories: &'static [&'static str],
    pub(super) namespaced: bool,
    pub(super) verbs: &'static [&'static str],
    /// The subresources, sorted by name.
    pub(super) subresources: &'static [Sub],
    /// The type in the definitions, after `io.k8s.`.
    pub(super) definition: &'static str,
    /// The group and version under which objects are stored, if they differ.
    pub(super) stored: Option<(&'static str, &'static str)>,
}

/// A subresource: name, kind, group and version if they differ from those of the resource, and
/// verbs.
pub(super) struct Sub {
    pub(super) name: &'static str,
    /// The kind; empty for that of the resource.
    pub(super) kind: &'static str,
    pub(super) group_version: Option<(&'static str, &'static str)>,
    pub(super) verbs: &'static [&'static str],
}

/// The verbs of most resources.
pub(super) const ALL: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// The verbs of namespaces, which are deleted one by one.
const ONE_BY_ONE: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];
/// The verbs of resources that are only answered, not stored.
const CREATE: &[&str] = &["create"];
/// The verbs of a status or scale.
pub(super) const READ_AND_CHANGE: &[&str] = &["get", "patch", "update"];

const STATUS: Sub = Sub { name: "status", kind: "", group_version: None, verbs: READ_AND_CHANGE };
const SCALE: Sub = Sub {
    name: "scale",
    kind: "Scale",
    group_version: Some(("autoscaling", "v1")),
    verbs: READ_AND_CHANGE,
};
const EVICTION: Sub = Sub {
    name: "eviction",
    kind: "Eviction",
    group_version: Some(("policy", "v1")),
    verbs: CREATE,
};
const FINALIZE: Sub = Sub { name: "finalize", kind: "", group_version: None, verbs: &["update"] };
const TOKEN: Sub = Sub {
    name: "token",
    kind: "TokenRequest",
    group_version: Some(("authentication.k8s.io", "v1")),
    verbs: CREATE,
};

const NO_SUB: &[Sub] = &[];
const ONLY_STATUS: &[Sub] = &[STATUS];
const SCALE_AND_STATUS: &[Sub] = &[SCALE, STATUS];

const NONE: &[&str] = &[];
const IN_ALL: &[&str] = &["all"];
const IN_API_EXTENSIONS: &[&str] = &["api-extensions"];

const fn row(
    (group, version): (&'static str, &'static str),
    (plural, singular, kind): (&'static str, &'static str, &'static str),
    short_names: &'static [&'static str],
    subresources: &'static [Sub],
    definition: &'static str,
) -> Row {
    Row {
        group,
        version,
        plural,
        singular,
        kind,
        short_names,
        categories: NONE,
        namespaced: true,
        verbs: ALL,
        subresources,
        definition,
        stored: None,
    }
}

const fn cluster(row: Row) -> Row {
    Row { namespaced: false, ..row }
}

const fn in_category(row: Row, categories: &'static [&'static str]) -> Row {
    Row { categories, ..row }
}

const fn stored(row: Row, group_version: (&'static str, &'static str)) -> Row {
    Row { stored: Some(group_version), ..row }
}

const fn verbs(row: Row, verbs: &'static [&'static str]) -> Row {
    Row { verbs, ..row }
}

/// Returns the row of a resource that is only answered, not stored.
const fn review(
    group_version: (&'static str, &'static str),
    names: (&'static str, &'static str, &'static str),
    definition: &'static str,
) -> Row {
    verbs(cluster(row(group_version, names, NONE, NO_SUB, definition)), CREATE)
}

const CORE: (&str, &str) = ("", "v1");
const APPS: (&str, &str) = ("apps", "v1");
const EVENTS: (&str, &str) = ("events.k8s.io", "v1");
const AUTHENTICATION: (&str, &str) = ("authentication.k8s.io", "v1");
const AUTHORIZATION: (&str, &str) = ("authorization.k8s.io", "v1");
const AUTOSCALING: (&str, &str) = ("autoscaling", "v2");
const AUTOSCALING_1: (&str, &str) = ("autoscaling", "v1");
const BATCH: (&str, &str) = ("batch", "v1");
const NETWORKING: (&str, &str) = ("networking.k8s.io", "v1");
const POLICY: (&str, &str) = ("policy", "v1");
const RBAC: (&str, &str) = ("rbac.authorization.k8s.io", "v1");
const STORAGE: (&str, &str) = ("storage.k8s.io", "v1");
const ADMISSION: (&str, &str) = ("admissionregistration.k8s.io", "v1");
const EXTENSIONS: (&str, &str) = ("apiextensions.k8s.io", "v1");
const SCHEDULING: (&str, &str) = ("scheduling.k8s.io", "v1");
const COORDINATION: (&str, &str) = ("coordination.k8s.io", "v1");
const DISCOVERY: (&str, &str) = ("discovery.k8s.io", "v1");

/// The served resources: groups in the order of `/apis`, the resources of a group sorted by name.
pub(super) const ROWS: &[Row] = &[
    row(CORE, ("configmaps", "configmap", "ConfigMap"), &["cm"], NO_SUB, "api.core.v1.ConfigMap"),
    row(CORE, ("endpoints", "endpoints", "Endpoints"), &["ep"], NO_SUB, "api.core.v1.Endpoints"),
    row(CORE, ("events", "event", "Event"), &["ev"], NO_SUB, "api.core.v1.Event"),
    row(
        CORE,
        ("limitranges", "limitrange", "LimitRange"),
        &["limits"],
        NO_SUB,
        "api.core.v1.LimitRange",
    ),
    verbs(
        cluster(row(
            CORE,
            ("namespaces", "namespace", "Namespace"),
            &["ns"],
            &[FINALIZE, STATUS],
            "api.core.v1.Namespace",
        )),
        ONE_BY_ONE,
    ),
    cluster(row(CORE, ("nodes", "node", "Node"), &["no"], ONLY_STATUS, "api.core.v1.Node")),
    row(
        CORE,
        ("persistentvolumeclaims", "persistentvolumeclaim", "PersistentVolumeClaim"),
        &["pvc"],
        ONLY_STATUS,
        "api.core.v1.PersistentVolumeClaim",
    ),
    cluster(row(
        CORE,
        ("persistentvolumes", "persistentvolume", "PersistentVolume"),
        &["pv"],
        ONLY_STATUS,
        "api.core.v1.PersistentVolume",
    )),
    in_category(
        row(CORE, ("pods", "pod", "Pod"), &["po"], &[EVICTION, STATUS], "api.core.v1.Pod"),
        IN_ALL,
    ),
    in_category(
        row(
            CORE,
            ("replicationcontrollers", "replicationcontroller", "ReplicationController"),
            &["rc"],
            SCALE_AND_STATUS,
            "api.core.v1.ReplicationController",
        ),
        IN_ALL,
    ),
    row(
        CORE,
        ("resourcequotas", "resourcequota", "ResourceQuota"),
        &["quota"],
        ONLY_STATUS,
        "api.core.v1.ResourceQuota",
    ),
    row(CORE, ("secrets", "secret", "Secret"), NONE, NO_SUB, "api.core.v1.Secret"),
    row(
        CORE,
        ("serviceaccounts", "serviceaccount", "ServiceAccount"),
        &["sa"],
        &[TOKEN],
        "api.core.v1.ServiceAccount",
    ),
    in_category(
        row(CORE, ("services", "service", "Service"), &["svc"], ONLY_STATUS, "api.core.v1.Service"),
        IN_ALL,
    ),
    row(
        APPS,
        ("controllerrevisions", "controllerrevision", "ControllerRevision"),
        NONE,
        NO_SUB,
        "api.apps.v1.ControllerRevision",
    ),
    in_category(
        row(
            APPS,
            ("daemonsets", "daemonset", "DaemonSet"),
            &["ds"],
            ONLY_STATUS,
            "api.apps.v1.DaemonSet",
        ),
        IN_ALL,
    ),
    in_category(
        row(
            APPS,
            ("deployments", "deployment", "Deployment"),
            &["deploy"],
            SCALE_AND_STATUS,
            "api.apps.v1.Deployment",
        ),
        IN_ALL,
    ),
    in_category(
        row(
            APPS,
            ("replicasets", "replicaset", "ReplicaSet"),
            &["rs"],
            SCALE_AND_STATUS,
            "api.apps.v1.ReplicaSet",
        ),
        IN_ALL,
    ),
    in_category(
        row(
            APPS,
            ("statefulsets", "statefulset", "StatefulSet"),
            &["sts"],
            SCALE_AND_STATUS,
            "api.apps.v1.StatefulSet",
        ),
        IN_ALL,
    ),
    stored(row(EVENTS, ("events", "event", "Event"), &["ev"], NO_SUB, "api.events.v1.Event"), CORE),
    review(
        AUTHENTICATION,
        ("selfsubjectreviews", "selfsubjectreview", "SelfSubjectReview"),
        "api.authentication.v1.SelfSubjectReview",
    ),
    review(
        AUTHENTICATION,
        ("tokenreviews", "tokenreview", "TokenReview"),
        "api.authentication.v1.TokenReview",
    ),
    Row {
        namespaced: true,
        ..review(
            AUTHORIZATION,
            ("localsubjectaccessreviews", "localsubjectaccessreview", "LocalSubjectAccessReview"),
            "api.authorization.v1.LocalSubjectAccessReview",
        )
    },
    review(
        AUTHORIZATION,
        ("selfsubjectaccessreviews", "selfsubjectaccessreview", "SelfSubjectAccessReview"),
        "api.authorization.v1.SelfSubjectAccessReview",
    ),
    review(
        AUTHORIZATION,
        ("selfsubjectrulesreviews", "selfsubjectrulesreview", "SelfSubjectRulesReview"),
        "api.authorization.v1.SelfSubjectRulesReview",
    ),
    review(
        AUTHORIZATION,
        ("subjectaccessreviews", "subjectaccessreview", "SubjectAccessReview"),
        "api.authorization.v1.SubjectAccessReview",
    ),
    in_category(
        row(
            AUTOSCALING,
            ("horizontalpodautoscalers", "horizontalpodautoscaler", "HorizontalPodAutoscaler"),
            &["hpa"],
            ONLY_STATUS,
            "api.autoscaling.v2.HorizontalPodAutoscaler",
        ),
        IN_ALL,
    ),
    in_category(
        stored(
            row(
                AUTOSCALING_1,
                ("horizontalpodautoscalers", "horizontalpodautoscaler", "HorizontalPodAutoscaler"),
                &["hpa"],
                ONLY_STATUS,
                "api.autoscaling.v1.HorizontalPodAutoscaler",
            ),
            AUTOSCALING,
        ),
        IN_ALL,
    ),
    in_category(
        row(
            BATCH,
            ("cronjobs", "cronjob", "CronJob"),
            &["cj"],
            ONLY_STATUS,
            "api.batch.v1.CronJob",
        ),
        IN_ALL,
    ),
    in_category(row(BATCH, ("jobs", "job", "Job"), NONE, ONLY_STATUS, "api.batch.v1.Job"), IN_ALL),
    cluster(row(
        NETWORKING,
        ("ingressclasses", "ingressclass", "IngressClass"),
        NONE,
        NO_SUB,
        "api.networking.v1.IngressClass",
    )),
    row(
        NETWORKING,
        ("ingresses", "ingress", "Ingress"),
        &["ing"],
        ONLY_STATUS,
        "api.networking.v1.Ingress",
    ),
    row(
        NETWORKING,
        ("networkpolicies", "networkpolicy", "NetworkPolicy"),
        &["netpol"],
        NO_SUB,
        "api.networking.v1.NetworkPolicy",
    ),
    row(
        POLICY,
        ("poddisruptionbudgets", "poddisruptionbudget", "PodDisruptionBudget"),
        &["pdb"],
        ONLY_STATUS,
        "api.policy.v1.PodDisruptionBudget",
    ),
    cluster(row(
        RBAC,
        ("clusterrolebindings", "clusterrolebinding", "ClusterRoleBinding"),
        NONE,
        NO_SUB,
        "api.rbac.v1.ClusterRoleBinding",
    )),
    cluster(row(
        RBAC,
        ("clusterroles", "clusterrole", "ClusterRole"),
        NONE,
        NO_SUB,
        "api.rbac.v1.ClusterRole",
    )),
    row(
        RBAC,
        ("rolebindings", "rolebinding", "RoleBinding"),
        NONE,
        NO_SUB,
        "api.rbac.v1.RoleBinding",
    ),
    row(RBAC, ("roles", "role", "Role"), NONE, NO_SUB, "api.rbac.v1.Role"),
    cluster(row(
        STORAGE,
        ("storageclasses", "storageclass", "StorageClass"),
        &["sc"],
        NO_SUB,
        "api.storage.v1.StorageClass",
    )),
    in_category(
        cluster(row(
            ADMISSION,
            (
                "mutatingwebhookconfigurations",
                "mutatingwebhookconfiguration",
                "MutatingWebhookConfiguration",
            ),
            NONE,
            NO_SUB,
            "api.admissionregistration.v1.MutatingWebhookConfiguration",
        )),
        IN_API_EXTENSIONS,
    ),
    in_category(
        cluster(row(
            ADMISSION,
            (
                "validatingwebhookconfigurations",
                "validatingwebhookconfiguration",
                "ValidatingWebhookConfiguration",
            ),
            NONE,
            NO_SUB,
            "api.admissionregistration.v1.ValidatingWebhookConfiguration",
        )),
        IN_API_EXTENSIONS,
    ),
    in_category(
        cluster(row(
            EXTENSIONS,
            ("customresourcedefinitions", "customresourcedefinition", "CustomResourceDefinition"),
            &["crd", "crds"],
            ONLY_STATUS,
            "apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
        )),
        IN_API_EXTENSIONS,
    ),
    cluster(row(
        SCHEDULING,
        ("priorityclasses", "priorityclass", "PriorityClass"),
        &["pc"],
        NO_SUB,
        "api.scheduling.v1.PriorityClass",
    )),
    row(COORDINATION, ("leases", "lease", "Lease"), NONE, NO_SUB, "api.coordination.v1.Lease"),
    row(
        DISCOVERY,
        ("endpointslices", "endpointslice", "EndpointSlice"),
        NONE,
        NO_SUB,
        "api.discovery.v1.EndpointSlice",
    ),
];
