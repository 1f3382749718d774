//! The columns of built-in kinds: name, type, priority.

/// A column: name, type, priority. Columns of a priority above zero are shown in wide output only.
pub(super) type Definition = (&'static str, &'static str, i64);

const NAME: Definition = ("Name", "string", 0);
const AGE: Definition = ("Age", "string", 0);
const CONTAINERS: Definition = ("Containers", "string", 1);
const IMAGES: Definition = ("Images", "string", 1);
const SELECTOR: Definition = ("Selector", "string", 1);

/// The columns of a kind without columns of its own.
const PLAIN: &[Definition] = &[NAME, ("Created At", "date", 0)];

/// Returns the columns of a kind.
pub(super) fn of(kind: &str) -> &'static [Definition] {
    COLUMNS.iter().find(|(known, _)| *known == kind).map_or(PLAIN, |(_, columns)| columns)
}

const COLUMNS: &[(&str, &[Definition])] = &[
    ("ConfigMap", &[NAME, ("Data", "string", 0), AGE]),
    ("ControllerRevision", &[NAME, ("Controller", "string", 0), ("Revision", "string", 0), AGE]),
    (
        "CronJob",
        &[
            NAME,
            ("Schedule", "string", 0),
            ("Timezone", "string", 0),
            ("Suspend", "boolean", 0),
            ("Active", "integer", 0),
            ("Last Schedule", "string", 0),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
    ),
    (
        "DaemonSet",
        &[
            NAME,
            ("Desired", "integer", 0),
            ("Current", "integer", 0),
            ("Ready", "integer", 0),
            ("Up-to-date", "integer", 0),
            ("Available", "integer", 0),
            ("Node Selector", "string", 0),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
    ),
    (
        "Deployment",
        &[
            NAME,
            ("Ready", "string", 0),
            ("Up-to-date", "string", 0),
            ("Available", "string", 0),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
    ),
    ("Endpoints", &[NAME, ("Endpoints", "string", 0), AGE]),
    (
        "EndpointSlice",
        &[
            NAME,
            ("AddressType", "string", 0),
            ("Ports", "string", 0),
            ("Endpoints", "string", 0),
            AGE,
        ],
    ),
    ("Event", EVENT),
    (
        "HorizontalPodAutoscaler",
        &[
            NAME,
            ("Reference", "string", 0),
            ("Targets", "string", 0),
            ("MinPods", "string", 0),
            ("MaxPods", "string", 0),
            ("Replicas", "string", 0),
            AGE,
        ],
    ),
    (
        "Ingress",
        &[
            NAME,
            ("Class", "string", 0),
            ("Hosts", "string", 0),
            ("Address", "string", 0),
            ("Ports", "string", 0),
            AGE,
        ],
    ),
    ("IngressClass", &[NAME, ("Controller", "string", 0), ("Parameters", "string", 0), AGE]),
    (
        "Job",
        &[
            NAME,
            ("Status", "string", 0),
            ("Completions", "string", 0),
            ("Duration", "string", 0),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
    ),
    ("Lease", &[NAME, ("Holder", "string", 0), AGE]),
    ("Namespace", &[NAME, ("Status", "string", 0), AGE]),
    ("NetworkPolicy", &[NAME, ("Pod-Selector", "string", 0), AGE]),
    ("Node", NODE),
    ("PersistentVolume", VOLUME),
    ("PersistentVolumeClaim", CLAIM),
    ("Pod", POD),
    (
        "PodDisruptionBudget",
        &[
            NAME,
            ("Min Available", "string", 0),
            ("Max Unavailable", "string", 0),
            ("Allowed Disruptions", "integer", 0),
            AGE,
        ],
    ),
    (
        "PriorityClass",
        &[
            NAME,
            ("Value", "integer", 0),
            ("Global-Default", "boolean", 0),
            AGE,
            ("PreemptionPolicy", "string", 0),
        ],
    ),
    ("ReplicaSet", REPLICAS),
    ("ReplicationController", REPLICAS),
    ("ResourceQuota", &[NAME, ("Request", "string", 0), ("Limit", "string", 0), AGE]),
    (
        "RoleBinding",
        &[
            NAME,
            ("Role", "string", 0),
            AGE,
            ("Users", "string", 1),
            ("Groups", "string", 1),
            ("ServiceAccounts", "string", 1),
        ],
    ),
    (
        "ClusterRoleBinding",
        &[
            NAME,
            ("Role", "string", 0),
            AGE,
            ("Users", "string", 1),
            ("Groups", "string", 1),
            ("ServiceAccounts", "string", 1),
        ],
    ),
    ("Secret", &[NAME, ("Type", "string", 0), ("Data", "string", 0), AGE]),
    ("Scale", &[NAME, ("Desired", "integer", 0), ("Available", "integer", 0), AGE]),
    (
        "Service",
        &[
            NAME,
            ("Type", "string", 0),
            ("Cluster-IP", "string", 0),
            ("External-IP", "string", 0),
            ("Port(s)", "string", 0),
            AGE,
            SELECTOR,
        ],
    ),
    ("ServiceAccount", &[NAME, ("Secrets", "string", 0), AGE]),
    ("StatefulSet", &[NAME, ("Ready", "string", 0), AGE, CONTAINERS, IMAGES]),
    (
        "StorageClass",
        &[
            NAME,
            ("Provisioner", "string", 0),
            ("ReclaimPolicy", "string", 0),
            ("VolumeBindingMode", "string", 0),
            ("AllowVolumeExpansion", "string", 0),
            AGE,
        ],
    ),
    ("MutatingWebhookConfiguration", &[NAME, ("Webhooks", "integer", 0), AGE]),
    ("ValidatingWebhookConfiguration", &[NAME, ("Webhooks", "integer", 0), AGE]),
];

const REPLICAS: &[Definition] = &[
    NAME,
    ("Desired", "integer", 0),
    ("Current", "integer", 0),
    ("Ready", "integer", 0),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

const VOLUME: &[Definition] = &[
    NAME,
    ("Capacity", "string", 0),
    ("Access Modes", "string", 0),
    ("Reclaim Policy", "string", 0),
    ("Status", "string", 0),
    ("Claim", "string", 0),
    ("StorageClass", "string", 0),
    ("VolumeAttributesClass", "string", 0),
    ("Reason", "string", 0),
    AGE,
    ("VolumeMode", "string", 1),
];

const EVENT: &[Definition] = &[
    ("Last Seen", "string", 0),
    ("Type", "string", 0),
    ("Reason", "string", 0),
    ("Object", "string", 0),
    ("Subobject", "string", 1),
    ("Source", "string", 1),
    ("Message", "string", 0),
    ("First Seen", "string", 1),
    ("Count", "string", 1),
    ("Name", "string", 1),
];

const NODE: &[Definition] = &[
    NAME,
    ("Status", "string", 0),
    ("Roles", "string", 0),
    AGE,
    ("Version", "string", 0),
    ("Internal-IP", "string", 1),
    ("External-IP", "string", 1),
    ("OS-Image", "string", 1),
    ("Kernel-Version", "string", 1),
    ("Container-Runtime", "string", 1),
];

const CLAIM: &[Definition] = &[
    NAME,
    ("Status", "string", 0),
    ("Volume", "string", 0),
    ("Capacity", "string", 0),
    ("Access Modes", "string", 0),
    ("StorageClass", "string", 0),
    ("VolumeAttributesClass", "string", 0),
    AGE,
    ("VolumeMode", "string", 1),
];

const POD: &[Definition] = &[
    NAME,
    ("Ready", "string", 0),
    ("Status", "string", 0),
    ("Restarts", "string", 0),
    AGE,
    ("IP", "string", 1),
    ("Node", "string", 1),
    ("Nominated Node", "string", 1),
    ("Readiness Gates", "string", 1),
];
