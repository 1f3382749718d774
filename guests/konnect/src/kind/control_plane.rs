//! Authentication, control planes, config stores and grants.

use super::{
    Api, CONFIGURATION, CORE_ENTITY, Entity, KONNECT, Lookup, Marks, Special, Update,
    reference::Reference,
    schema::{
        AGE, BOOLEAN, Conditions, Definition, Field, How, INTEGER, LOCAL, NAMED, NONEMPTY,
        OBJECT_NAME, PROGRAMMED, Schema, TEXT,
    },
};

/// A token for the Konnect API, and where that API is.
pub const AUTH: Entity = Entity {
    group: KONNECT,
    version: "v1alpha1",
    kind: "KonnectAPIAuthConfiguration",
    plural: "konnectapiauthconfigurations",
    is_cluster_scoped: false,
    root: &[],
    spec: &[
        Field::new(
            "secretRef",
            Schema::object(&[Field::new("name", TEXT), Field::new("namespace", TEXT)])
                .with(&[("x-kubernetes-map-type", r#""atomic""#)]),
        ),
        Field::new(
            "serverURL",
            TEXT.rules(&[
                ("Server URL is required", "size(self) > 0"),
                ("Server URL is immutable", "self == oldSelf"),
                (
                    "Server URL must use HTTPs if specifying scheme",
                    "isURL(self) ? url(self).getScheme() == 'https' : true",
                ),
                (
                    "Server URL must satisfy hostname (RFC 1123) regex if not a \
                     valid absolute URL",
                    "size(self) > 0 && !isURL(self) ? \
                     self.matches('^(([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA\
                     -Z0-9]).)*([A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9-]*[A-Za-z0-9]\
                     )$') : true",
                ),
            ]),
        )
        .required(),
        Field::new("token", TEXT),
        Field::new("type", TEXT.with(&[("enum", "token|secretRef")])).required(),
    ],
    references: &[Reference::new("Secret", "spec.secretRef", "")],
    api: None,
    definition: Definition {
        about: "A token for the Konnect API, and where that API is.",
        categories: &["kong", "konnect"],
        columns: &[
            ("Valid", "string", ".status.conditions[?(@.type=='APIAuthValid')].status", 0),
            ("OrgID", "string", ".status.organizationID", 0),
            ("ServerURL", "string", ".status.serverURL", 0),
            AGE,
        ],
        spec_rules: &[
            (
                "spec.token is required if auth type is set to token",
                "self.type == 'token' ? size(self.token) > 0 : true",
            ),
            (
                "spec.secretRef is required if auth type is set to \
                 secretRef",
                "self.type == 'secretRef' ? has(self.secretRef) : true",
            ),
            (
                "spec.token and spec.secretRef cannot be set at the same \
                 time",
                "!(has(self.token) && has(self.secretRef))",
            ),
        ],
        rules: &[
            (
                "Konnect tokens have to start with spat_ or kpat_",
                "self.spec.type != 'token' || \
                 (self.spec.token.startsWith('spat_') || \
                 self.spec.token.startsWith('kpat_'))",
            ),
            (
                "Token is required once set",
                "self.spec.type != 'token' || (!has(oldSelf.spec.token) || \
                 has(self.spec.token))",
            ),
        ],
        conditions: Some(Conditions {
            first: "Valid",
            is_default_of_status: false,
            is_nonempty: true,
            is_required: false,
        }),
        status: &[Field::new("organizationID", TEXT), Field::new("serverURL", TEXT)],
        ..Definition::PLAIN
    }
    .kept(),
};

/// A control plane, a group of them, or a mirror of one that is managed elsewhere.
pub const CONTROL_PLANE: Entity = Entity {
    group: KONNECT,
    version: "v1alpha2",
    kind: "KonnectGatewayControlPlane",
    plural: "konnectgatewaycontrolplanes",
    is_cluster_scoped: false,
    root: &[],
    spec: &[
        Field::new(
            "createControlPlaneRequest",
            Schema::object(&[
                Field::new("auth_type", TEXT),
                Field::new("cloud_gateway", BOOLEAN),
                Field::new("cluster_type", TEXT),
                Field::new("description", TEXT),
                Field::new("labels", Schema::map(&TEXT)),
                Field::new("name", TEXT).required(),
                Field::new(
                    "proxy_urls",
                    Schema::list(&Schema::object(&[
                        Field::new("host", TEXT).required(),
                        Field::new("port", INTEGER).required(),
                        Field::new("protocol", TEXT).required(),
                    ])),
                ),
            ]),
        )
        .sent(How::Spread),
        Field::new(
            "konnect",
            Schema::object(&[Field::new(
                "authRef",
                Schema::object(&[
                    Field::new("name", OBJECT_NAME).required(),
                    Field::new("namespace", OBJECT_NAME),
                ]),
            )
            .required()]),
        ),
        Field::new("members", Schema::list(&LOCAL)),
        Field::new(
            "mirror",
            Schema::object(&[Field::new(
                "konnect",
                Schema::object(&[Field::new(
                    "id",
                    TEXT.with(&[
                        ("maxLength", "36"),
                        ("pattern", r#""^[0-9a-f]{8}(?:\\-[0-9a-f]{4}){3}-[0-9a-f]{12}$""#),
                    ]),
                )
                .required()]),
            )
            .required()]),
        ),
        Field::new("source", TEXT.with(&[("default", r#""Origin""#), ("enum", "Origin|Mirror")])),
    ],
    references: &[Reference::new(
        "KonnectAPIAuthConfiguration",
        "spec.konnect.authRef",
        "APIAuthResolvedRef",
    )
    .parent()],
    api: Some(Api {
        collection: "/v2/control-planes",
        lookup: Lookup::Labels,
        unique: &["name"],
        update: Update::Patch(&["name", "description", "auth_type", "proxy_urls", "labels"]),
        marks: Marks::Labels,
        adopt: &[],
        special: &[Special::Mirror, Special::Members, Special::Endpoints],
        ..CORE_ENTITY
    }),
    definition: Definition {
        about: "A control plane, a group of them, or a mirror of one that \
                is managed elsewhere.",
        categories: &["kong", "konnect"],
        columns: &[
            PROGRAMMED,
            ("ID", "string", ".status.id", 0),
            ("OrgID", "string", ".status.organizationID", 0),
            AGE,
        ],
        spec_rules: &[
            (
                "spec.createControlPlaneRequest.labels must not have more \
                 than 40 entries",
                "has(self.createControlPlaneRequest) && \
                 has(self.createControlPlaneRequest.labels) ? \
                 size(self.createControlPlaneRequest.labels) <= 40 : true",
            ),
            (
                "spec.createControlPlaneRequest.labels keys must be of \
                 length 1-63 characters",
                "has(self.createControlPlaneRequest) && \
                 has(self.createControlPlaneRequest.labels) ? \
                 self.createControlPlaneRequest.labels.all(key, size(key) \
                 >= 1 && size(key) <= 63) : true",
            ),
            (
                "spec.createControlPlaneRequest.labels values must be of \
                 length 1-63 characters",
                "has(self.createControlPlaneRequest) && \
                 has(self.createControlPlaneRequest.labels) ? \
                 self.createControlPlaneRequest.labels.all(key, \
                 size(self.createControlPlaneRequest.labels[key]) >= 1 && \
                 size(self.createControlPlaneRequest.labels[key]) <= 63) : \
                 true",
            ),
            (
                "spec.createControlPlaneRequest.labels keys must not start \
                 with 'k8s', 'kong', 'konnect', 'mesh', 'kic', 'insomnia' \
                 or '_'",
                "has(self.createControlPlaneRequest) && \
                 has(self.createControlPlaneRequest.labels) ? \
                 self.createControlPlaneRequest.labels.all(key, \
                 !key.startsWith('k8s') && !key.startsWith('kong') && \
                 !key.startsWith('konnect') && !key.startsWith('mesh') && \
                 !key.startsWith('kic') && !key.startsWith('_') && \
                 !key.startsWith('insomnia')) : true",
            ),
            (
                "spec.createControlPlaneRequest.labels keys must satisfy \
                 the '^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$' \
                 pattern",
                "has(self.createControlPlaneRequest) && \
                 has(self.createControlPlaneRequest.labels) ? \
                 self.createControlPlaneRequest.labels.all(key, \
                 key.matches('^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$\
                 ')) : true",
            ),
            (
                "spec.members is only applicable for ControlPlanes that are \
                 created as groups",
                "(has(self.createControlPlaneRequest) && \
                 has(self.createControlPlaneRequest.cluster_type) && \
                 self.createControlPlaneRequest.cluster_type != \
                 'CLUSTER_TYPE_CONTROL_PLANE_GROUP') ? !has(self.members) : \
                 true",
            ),
            (
                "when specified, \
                 spec.createControlPlaneRequest.cluster_type must be one of \
                 'CLUSTER_TYPE_CONTROL_PLANE_GROUP', \
                 'CLUSTER_TYPE_CONTROL_PLANE' or \
                 'CLUSTER_TYPE_K8S_INGRESS_CONTROLLER'",
                "!has(self.createControlPlaneRequest) || \
                 !has(self.createControlPlaneRequest.cluster_type) ? true : \
                 ['CLUSTER_TYPE_CONTROL_PLANE_GROUP', \
                 'CLUSTER_TYPE_CONTROL_PLANE', \
                 'CLUSTER_TYPE_K8S_INGRESS_CONTROLLER'].exists(ct, ct == \
                 self.createControlPlaneRequest.cluster_type)",
            ),
            (
                "spec.createControlPlaneRequest.cluster_type is immutable",
                "!has(self.createControlPlaneRequest) && \
                 !has(oldSelf.createControlPlaneRequest) ? true : \
                 (has(self.createControlPlaneRequest) && \
                 has(oldSelf.createControlPlaneRequest) && \
                 (!has(self.createControlPlaneRequest.cluster_type) ? \
                 !has(oldSelf.createControlPlaneRequest.cluster_type) : \
                 self.createControlPlaneRequest.cluster_type == \
                 oldSelf.createControlPlaneRequest.cluster_type))",
            ),
            (
                "spec.createControlPlaneRequest.cloud_gateway cannot be set \
                 for spec.createControlPlaneRequest.cluster_type \
                 'CLUSTER_TYPE_K8S_INGRESS_CONTROLLER'",
                "has(self.createControlPlaneRequest) && \
                 has(self.createControlPlaneRequest.cluster_type) && \
                 self.createControlPlaneRequest.cluster_type == \
                 'CLUSTER_TYPE_K8S_INGRESS_CONTROLLER' ? \
                 !has(self.createControlPlaneRequest.cloud_gateway) : true",
            ),
            (
                "createControlPlaneRequest fields cannot be set for type \
                 Mirror",
                "has(self.source) && self.source == 'Mirror' ? \
                 !has(self.createControlPlaneRequest) : true",
            ),
            (
                "spec.source is immutable",
                "!has(self.source) && !has(oldSelf.source) ? true : \
                 self.source == oldSelf.source",
            ),
            (
                "mirror field must be set for type Mirror",
                "self.source == 'Mirror' ? has(self.mirror) : true",
            ),
            (
                "mirror field cannot be set for type Origin",
                "self.source == 'Origin' ? !has(self.mirror) : true",
            ),
            (
                "spec.createControlPlaneRequest must be set for type Origin",
                "self.source == 'Origin' ? \
                 has(self.createControlPlaneRequest) && \
                 has(self.createControlPlaneRequest.name) : true",
            ),
        ],
        rules: &[
            (
                "spec.konnect.authRef is immutable when an entity is \
                 already Programmed",
                "(!has(self.status) || !has(self.status.conditions) || \
                 !self.status.conditions.exists(c, c.type == 'Programmed' \
                 && c.status == 'True')) ? true : self.spec.konnect.authRef \
                 == oldSelf.spec.konnect.authRef",
            ),
            (
                "spec.konnect.authRef is immutable when an entity refers to \
                 a Valid API Auth Configuration",
                "(!has(self.status) || !has(self.status.conditions) || \
                 !self.status.conditions.exists(c, c.type == 'APIAuthValid' \
                 && c.status == 'True')) ? true : self.spec.konnect.authRef \
                 == oldSelf.spec.konnect.authRef",
            ),
        ],
        conditions: Some(Conditions::OF_LIST),
        status: &[
            Field::new("clusterType", TEXT),
            Field::new("id", TEXT.with(&[("maxLength", "256")])),
            Field::new(
                "konnectEndpoints",
                Schema::object(&[
                    Field::new("controlPlane", NONEMPTY).required(),
                    Field::new("telemetry", NONEMPTY).required(),
                ]),
            ),
            Field::new("organizationID", TEXT.with(&[("maxLength", "256")])),
            Field::new("serverURL", TEXT.with(&[("maxLength", "512")])),
        ],
        ..Definition::PLAIN
    }
    .kept(),
};

/// A store for the values of a vault.
pub(super) const CONFIG_STORE: Entity = Entity {
    group: KONNECT,
    version: "v1alpha1",
    kind: "KonnectConfigStore",
    plural: "konnectconfigstores",
    is_cluster_scoped: false,
    root: &[],
    spec: &[
        Field::new(
            "apiSpec",
            Schema::object(&[Field::new(
                "name",
                TEXT.with(&[("maxLength", "100"), ("minLength", "1")]),
            )]),
        )
        .sent(How::Spread),
        Field::new(
            "controlPlaneRef",
            Schema::object(&[
                Field::new("konnectID", TEXT.with(&[("maxLength", "36")])),
                Field::new("namespacedRef", NAMED),
                Field::new("type", TEXT.with(&[("enum", "konnectID|namespacedRef")])).required(),
            ])
            .rules(&[
                (
                    "when type is namespacedRef, namespacedRef must be set",
                    "self.type == 'namespacedRef' ? has(self.namespacedRef) : \
                     true",
                ),
                (
                    "when type is namespacedRef, konnectID must not be set",
                    "self.type == 'namespacedRef' ? !has(self.konnectID) : true",
                ),
                (
                    "when type is konnectID, konnectID must be set",
                    "self.type == 'konnectID' ? has(self.konnectID) : true",
                ),
                (
                    "when type is konnectID, namespacedRef must not be set",
                    "self.type == 'konnectID' ? !has(self.namespacedRef) : true",
                ),
            ]),
        )
        .required(),
    ],
    references: &[Reference::new(
        "KonnectGatewayControlPlane",
        "spec.controlPlaneRef.namespacedRef",
        "ControlPlaneRefValid",
    )
    .id("controlPlaneID")
    .parent()],
    api: Some(Api {
        collection: "/v2/control-planes/{controlPlaneID}/config-stores",
        lookup: Lookup::Name("name"),
        // The API may accept a second one: nothing is known of that.
        unique: &[],
        update: Update::PutExisting,
        delete: "force=true",
        marks: Marks::None,
        adopt: &[],
        ..CORE_ENTITY
    }),
    definition: Definition {
        about: "A store for the values of a vault.",
        categories: &["konnect", "kong"],
        columns: &[
            ("ID", "string", ".status.id", 0),
            PROGRAMMED,
            ("OrgID", "string", ".status.organizationID", 0),
            AGE,
        ],
        rules: &[(
            "spec.controlPlaneRef is immutable when an entity is \
             already Programmed",
            "!has(self.spec.controlPlaneRef) || \
             !has(self.status.conditions) || \
             !self.status.conditions.exists(c, c.type == 'Programmed' \
             && c.status == 'True') || oldSelf.spec.controlPlaneRef == \
             self.spec.controlPlaneRef",
        )],
        required: &["metadata"],
        conditions: Some(Conditions {
            first: "",
            is_default_of_status: false,
            is_nonempty: false,
            is_required: false,
        }),
        status: &[
            Field::new(
                "controlPlaneID",
                Schema::object(&[Field::new("id", TEXT.with(&[("maxLength", "256")]))]),
            ),
            Field::new("id", TEXT.with(&[("maxLength", "256")])),
            Field::new("observedGeneration", INTEGER),
            Field::new("organizationID", TEXT.with(&[("maxLength", "256")])),
            Field::new("serverURL", TEXT.with(&[("maxLength", "512")])),
        ],
        ..Definition::PLAIN
    }
    .kept(),
};

/// The group of objects that a grant is about.
const GROUP: Field = Field::new(
    "group",
    TEXT.with(&[
        ("maxLength", "253"),
        ("minLength", "1"),
        (
            "pattern",
            "\"^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\\\.[a-z0-9]([-a-z0-9\
                                 ]*[a-z0-9])?)*$\"",
        ),
    ]),
)
.required();
/// The kind of objects that a grant is about.
const KIND: Field = Field::new(
    "kind",
    TEXT.with(&[
        ("allOf", r#"[{"minLength": 1}, {"minLength": 1}]"#),
        ("maxLength", "63"),
        ("pattern", r#""^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$""#),
    ]),
)
.required();

/// Permits references from other namespaces to objects of its namespace.
pub const GRANT: Entity = Entity {
    group: CONFIGURATION,
    version: "v1alpha1",
    kind: "KongReferenceGrant",
    plural: "kongreferencegrants",
    is_cluster_scoped: false,
    root: &[],
    spec: &[
        Field::new(
            "from",
            Schema::list(
                &Schema::object(&[
                    GROUP,
                    KIND,
                    Field::new(
                        "namespace",
                        TEXT.with(&[
                            ("maxLength", "63"),
                            ("pattern", r#""^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?$""#),
                        ]),
                    )
                    .required(),
                ])
                .rules(&[
                    (
                        "Only KongConsumer, KongConsumerGroup, KongRoute, \
                         KongCertificate, KongCACertificate, \
                         KongDataPlaneClientCertificate, KongService, KongUpstream, \
                         KongTarget, KongKey, KongKeySet, KongVault, \
                         KongPluginBinding and KongSNI kinds are supported for \
                         'configuration.konghq.com' group",
                        "self.group != 'configuration.konghq.com' || self.kind in [ \
                         'KongConsumer', 'KongConsumerGroup', 'KongRoute', \
                         'KongService', 'KongCertificate', 'KongCACertificate', \
                         'KongDataPlaneClientCertificate', 'KongUpstream', \
                         'KongTarget', 'KongKey', 'KongKeySet', 'KongVault', \
                         'KongPluginBinding', 'KongSNI']",
                    ),
                    (
                        "Only GatewayConfiguration kind is supported for \
                         'gateway-operator.konghq.com' group",
                        "self.group != 'gateway-operator.konghq.com' || self.kind \
                         in [ 'GatewayConfiguration' ]",
                    ),
                    (
                        "namespace must be empty for KongVault and non-empty for \
                         other kinds",
                        "self.kind == 'KongVault' ? self.__namespace__ == \"\" : \
                         self.__namespace__ != \"\"",
                    ),
                ]),
            )
            .with(&[
                ("maxItems", "16"),
                ("minItems", "1"),
                ("x-kubernetes-list-type", r#""atomic""#),
            ]),
        )
        .required(),
        Field::new(
            "to",
            Schema::list(&Schema::object(&[GROUP, KIND, Field::new("name", OBJECT_NAME)]).rules(
                &[
                    (
                        "Only 'Secret' kind is supported for 'core' group",
                        ".self.group != 'core' || .self.kind == 'Secret'",
                    ),
                    (
                        "Only 'KonnectGatewayControlPlane', \
                         'KonnectAPIAuthConfiguration', 'Portal', \
                         'KonnectEventGateway', 'EventGatewayBackendCluster', \
                         'EventGatewayListener', 'EventGatewayVirtualCluster', \
                         'KonnectConfigStore', 'KonnectAIGateway', and \
                         'AIGatewayConsumerGroup' kinds are supported for \
                         'konnect.konghq.com' group",
                        ".self.group != 'konnect.konghq.com' || .self.kind in \
                         ['KonnectGatewayControlPlane', \
                         'KonnectAPIAuthConfiguration', 'Portal', \
                         'KonnectEventGateway', 'EventGatewayBackendCluster', \
                         'EventGatewayListener', 'EventGatewayVirtualCluster', \
                         'KonnectConfigStore', 'KonnectAIGateway', \
                         'AIGatewayConsumerGroup']",
                    ),
                    (
                        "Only 'KongPlugin', 'KongService', 'KongCertificate', \
                         'KongCACertificate' and 'KongUpstream' kinds are supported \
                         for 'configuration.konghq.com' group",
                        ".self.group != 'configuration.konghq.com' || .self.kind in \
                         ['KongPlugin', 'KongService', 'KongCertificate', \
                         'KongCACertificate', 'KongUpstream']",
                    ),
                ],
            ))
            .with(&[
                ("maxItems", "16"),
                ("minItems", "1"),
                ("x-kubernetes-list-type", r#""atomic""#),
            ]),
        )
        .required(),
    ],
    references: &[],
    api: None,
    definition: Definition {
        about: "Permits references from other namespaces to objects of its \
                namespace.",
        columns: &[AGE],
        required: &[],
        conditions: None,
        ..Definition::PLAIN
    }
    .kept(),
};
