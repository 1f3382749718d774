//! Plugins and their bindings.

use super::{
    Api, CONFIGURATION, CORE_ENTITY, Entity, IN_CONTROL_PLANE, Lookup, Matched, SAME, Special,
    reference::Reference,
    schema::{
        ADOPT, ADOPT_WHEN, ADOPT_WHERE, AGE, BOOLEAN, CONTROL_PLANE, CONTROL_PLANE_FIXED,
        CONTROL_PLANE_KEPT, Conditions, Definition, Field, How, PROGRAMMED, PROGRAMMED_OLD, Schema,
        TAGS, TEXT, TEXTS,
    },
};

/// The group of a target of a binding.
const TARGET_GROUP: Field = Field::new(
    "group",
    TEXT.with(&[(
        "enum",
        "|core|networking.k8s.io|gateway.networking.k8s.io|configur\
                                 ation.konghq.com",
    )]),
)
.required();
/// The kind of a target of a binding.
const TARGET_KIND: Field = Field::new(
    "kind",
    TEXT.with(&[("enum", "Service|Ingress|HTTPRoute|GRPCRoute|KongService|KongRoute")]),
)
.required();

/// A plugin with its configuration, which bindings attach to entities.
pub const PLUGIN: Entity = Entity {
    group: CONFIGURATION,
    version: "v1",
    kind: "KongPlugin",
    plural: "kongplugins",
    is_cluster_scoped: false,
    root: &[
        Field::new(
            "config",
            Schema::plain("object", "").with(&[("x-kubernetes-preserve-unknown-fields", "true")]),
        )
        .sent(How::OmitEmpty),
        Field::new(
            "configFrom",
            Schema::object(&[Field::new(
                "secretKeyRef",
                Schema::object(&[
                    Field::new("key", TEXT).required(),
                    Field::new("name", TEXT).required(),
                ]),
            )
            .required()]),
        ),
        Field::new(
            "configPatches",
            Schema::list(&Schema::object(&[
                Field::new("path", TEXT).required(),
                Field::new(
                    "valueFrom",
                    Schema::object(&[Field::new(
                        "secretKeyRef",
                        Schema::object(&[
                            Field::new("key", TEXT).required(),
                            Field::new("name", TEXT).required(),
                        ]),
                    )
                    .required()]),
                )
                .required(),
            ])),
        ),
        Field::new("consumerRef", TEXT),
        Field::new("disabled", BOOLEAN).sent_as("enabled", How::Not),
        Field::new("instance_name", TEXT).sent(How::OmitEmpty),
        Field::new(
            "ordering",
            Schema::object(&[
                Field::new("after", Schema::map(&TEXTS)),
                Field::new("before", Schema::map(&TEXTS)),
            ]),
        ),
        Field::new("plugin", TEXT).required().sent_as("name", How::Plain),
        Field::new(
            "protocols",
            Schema::list(&TEXT.with(&[("enum", "http|https|grpc|grpcs|tcp|tls|udp")])),
        )
        .sent(How::OmitEmpty),
        Field::new("run_on", TEXT.with(&[("enum", "first|second|all")])),
        Field::new("tags", TAGS),
    ],
    spec: &[],
    references: &[],
    api: None,
    definition: Definition {
        about: "A plugin with its configuration, which bindings attach to \
                entities.",
        short: &["kp"],
        columns: &[
            ("Plugin-Type", "string", ".plugin", 0),
            AGE,
            ("Disabled", "boolean", ".disabled", 1),
            ("Config", "string", ".config", 1),
            PROGRAMMED_OLD,
        ],
        rules: &[
            (
                "Using both config and configFrom fields is not allowed.",
                "!(has(self.config) && has(self.configFrom))",
            ),
            (
                "Using both configFrom and configPatches fields is not \
                 allowed.",
                "!(has(self.configFrom) && has(self.configPatches))",
            ),
            ("The plugin field is immutable", "self.plugin == oldSelf.plugin"),
        ],
        required: &["plugin"],
        conditions: Some(Conditions::OF_LIST),
        ..Definition::PLAIN
    }
    .kept(),
};

/// Attaches a plugin to a service, a route, a consumer, a group, or a whole control plane.
pub const BINDING: Entity = Entity {
    group: CONFIGURATION,
    version: "v1alpha1",
    kind: "KongPluginBinding",
    plural: "kongpluginbindings",
    is_cluster_scoped: false,
    root: &[],
    spec: &[
        Field::new("adopt", ADOPT),
        Field::new("controlPlaneRef", CONTROL_PLANE).required(),
        Field::new(
            "pluginRef",
            Schema::object(&[
                Field::new(
                    "kind",
                    TEXT.with(&[
                        ("default", r#""KongPlugin""#),
                        ("enum", "KongPlugin|KongClusterPlugin"),
                    ]),
                ),
                Field::new("name", TEXT).required(),
                Field::new("namespace", TEXT),
            ])
            .rules(&[
                ("pluginRef name must be set", "self.name != ''"),
                (
                    "Namespace can be set only when kind is 'KongPlugin'",
                    "self.kind == 'KongPlugin' || !has(self.__namespace__)",
                ),
            ]),
        )
        .required(),
        Field::new(
            "scope",
            TEXT.with(&[
                ("default", r#""OnlyTargets""#),
                ("enum", "OnlyTargets|GlobalInControlPlane"),
            ]),
        ),
        Field::new("tags", TAGS),
        Field::new(
            "targets",
            Schema::object(&[
                Field::new(
                    "consumerGroupRef",
                    Schema::object(&[Field::new("name", TEXT).required()]),
                ),
                Field::new("consumerRef", Schema::object(&[Field::new("name", TEXT).required()])),
                Field::new(
                    "routeRef",
                    Schema::object(&[
                        TARGET_GROUP,
                        TARGET_KIND,
                        Field::new("name", TEXT).required(),
                    ])
                    .rules(&[(
                        "group/kind not allowed for the routeRef",
                        "(self.kind == 'KongRoute' && self.group == \
                         'configuration.konghq.com') || (self.kind == 'Ingress' && \
                         self.group == 'networking.k8s.io') || (self.kind == \
                         'HTTPRoute' && self.group == 'gateway.networking.k8s.io') \
                         || (self.kind == 'GRPCRoute' && self.group == \
                         'gateway.networking.k8s.io')",
                    )]),
                ),
                Field::new(
                    "serviceRef",
                    Schema::object(&[
                        TARGET_GROUP,
                        TARGET_KIND,
                        Field::new("name", TEXT).required(),
                    ])
                    .rules(&[(
                        "group/kind not allowed for the serviceRef",
                        "(self.kind == 'KongService' && self.group == \
                         'configuration.konghq.com') || (self.kind == 'Service' && \
                         (self.group == '' || self.group == 'core'))",
                    )]),
                ),
            ])
            .rules(&[
                (
                    "Cannot set Consumer and ConsumerGroup at the same time",
                    "(has(self.consumerRef) ? !has(self.consumerGroupRef) : \
                     true)",
                ),
                (
                    "KongRoute can be used only when serviceRef is unset or set \
                     to KongService",
                    "(has(self.routeRef) && self.routeRef.kind == 'KongRoute') \
                     ? (!has(self.serviceRef) || self.serviceRef.kind == \
                     'KongService') : true",
                ),
                (
                    "KongService can be used only when routeRef is unset or set \
                     to KongRoute",
                    "(has(self.serviceRef) && self.serviceRef.kind == \
                     'KongService') ? (!has(self.routeRef) || \
                     self.routeRef.kind == 'KongRoute') : true",
                ),
            ]),
        )
        .sent(How::Ids(&[
            ("service", "serviceID"),
            ("route", "routeID"),
            ("consumer", "consumerID"),
            ("consumer_group", "consumerGroupID"),
        ])),
    ],
    references: &[
        IN_CONTROL_PLANE,
        Reference::new("KongPlugin", "spec.pluginRef", "PluginRefValid"),
        Reference::new("KongService", "spec.targets.serviceRef", "").needs("serviceID"),
        Reference::new("KongRoute", "spec.targets.routeRef", "").needs("routeID"),
        Reference::new("KongConsumer", "spec.targets.consumerRef", "").needs("consumerID"),
        Reference::new("KongConsumerGroup", "spec.targets.consumerGroupRef", "")
            .needs("consumerGroupID"),
    ],
    api: Some(Api {
        collection: "/v2/control-planes/{controlPlaneID}/core-entities/plugins",
        lookup: Lookup::Tags("/v2/control-planes/{controlPlaneID}/core-entities/plugins"),
        unique: &["name"],
        special: &[Special::Plugin],
        matched: &[
            ("name", SAME),
            ("enabled", Matched::Or("true")),
            ("instance_name", SAME),
            ("protocols", Matched::Unordered),
            ("config", SAME),
            ("service.id", SAME),
            ("route.id", SAME),
            ("consumer.id", SAME),
            ("consumer_group.id", SAME),
        ],
        ..CORE_ENTITY
    }),
    definition: Definition {
        about: "Attaches a plugin to a service, a route, a consumer, a \
                group, or a whole control plane.",
        columns: &[
            ("Plugin-kind", "string", ".spec.pluginRef.kind", 0),
            ("Plugin-name", "string", ".spec.pluginRef.name", 0),
            PROGRAMMED,
            AGE,
        ],
        spec_rules: &[
            (
                "At least one target reference must be set when scope is \
                 'OnlyTargets'",
                "self.scope == 'OnlyTargets' ? has(self.targets) && \
                 (has(self.targets.routeRef) || \
                 has(self.targets.serviceRef) || \
                 has(self.targets.consumerRef) || \
                 has(self.targets.consumerGroupRef)) : true",
            ),
            (
                "No targets must be set when scope is \
                 'GlobalInControlPlane'",
                "self.scope == 'GlobalInControlPlane' ? !has(self.targets) \
                 : true",
            ),
            ADOPT_WHERE,
            ADOPT_WHEN,
        ],
        rules: &[CONTROL_PLANE_KEPT, CONTROL_PLANE_FIXED],
        ..Definition::PLAIN
    }
    .kept(),
};
