//! Consumers, groups of them, and credentials.

use super::{
    Api, CONFIGURATION, CORE_ENTITY, Entity, IN_CONTROL_PLANE, Lookup, Matched, OF_CONSUMER, SAME,
    Special,
    reference::{Reference, Shape},
    schema::{
        ADOPT, ADOPT_WHEN, ADOPT_WHERE, AGE, CONSUMER_FIXED, CONTROL_PLANE,
        CONTROL_PLANE_FIXED_LENIENT, CONTROL_PLANE_KEPT_LENIENT, Conditions, Definition, Field,
        How, LOCAL, PROGRAMMED_OLD, SET, TAGS, TEXT,
    },
};

/// A consumer: a user of services.
pub const CONSUMER: Entity = Entity {
    group: CONFIGURATION,
    version: "v1",
    kind: "KongConsumer",
    plural: "kongconsumers",
    is_cluster_scoped: false,
    root: &[
        Field::new("consumerGroups", SET),
        Field::new("credentials", SET),
        Field::new(
            "custom_id",
            TEXT.with(&[
                ("maxLength", "128"),
                (
                    "pattern",
                    "\"^[0-9a-zA-Z.\\\\-_~\\\\(\\\\)#%@|+\\\\[\\\\]]*(?: \
                     [0-9a-zA-Z.\\\\-_~\\\\(\\\\)#%@|+\\\\[\\\\]]+)*$\"",
                ),
            ]),
        )
        .sent(How::Or(r#""""#)),
        Field::new(
            "username",
            TEXT.with(&[
                ("maxLength", "128"),
                (
                    "pattern",
                    "\"^[\\\\p{L}\\\\p{N}.\\\\-_~+@/\\\\[\\\\]]*(?: \
                     [\\\\p{L}\\\\p{N}.\\\\-_~+@/\\\\[\\\\]]+)*$\"",
                ),
            ]),
        )
        .sent(How::Or(r#""""#)),
    ],
    spec: &[
        Field::new("adopt", ADOPT),
        Field::new("controlPlaneRef", CONTROL_PLANE),
        Field::new("tags", TAGS),
    ],
    references: &[
        IN_CONTROL_PLANE,
        Reference::new("Secret", "credentials", "CredentialSecretRefsValid").shape(Shape::Names),
    ],
    api: Some(Api {
        collection: "/v2/control-planes/{controlPlaneID}/core-entities/consumers",
        lookup: Lookup::Tags("/v2/control-planes/{controlPlaneID}/core-entities/consumers"),
        unique: &["username", "custom_id"],
        special: &[Special::ConsumerGroups],
        matched: &[("username", SAME), ("custom_id", SAME)],
        ..CORE_ENTITY
    }),
    definition: Definition {
        about: "A consumer: a user of services.",
        short: &["kc"],
        columns: &[("Username", "string", ".username", 0), AGE, PROGRAMMED_OLD],
        spec_rules: &[ADOPT_WHERE, ADOPT_WHEN],
        rules: &[
            (
                "Need to provide either username or custom_id",
                "has(self.username) || has(self.custom_id)",
            ),
            CONTROL_PLANE_KEPT_LENIENT,
            CONTROL_PLANE_FIXED_LENIENT,
        ],
        required: &[],
        conditions: Some(Conditions::MAYBE_EMPTY),
        ..Definition::PLAIN
    }
    .kept(),
};

/// A group of consumers.
pub(super) const GROUP: Entity = Entity {
    group: CONFIGURATION,
    version: "v1beta1",
    kind: "KongConsumerGroup",
    plural: "kongconsumergroups",
    is_cluster_scoped: false,
    root: &[],
    spec: &[
        Field::new("adopt", ADOPT),
        Field::new("controlPlaneRef", CONTROL_PLANE),
        Field::new(
            "name",
            TEXT.with(&[("maxLength", "128"), ("pattern", r#""^[\\p{N}\\p{L}.\\-_~]*$""#)]),
        )
        .sent(How::Or(r#""""#)),
        Field::new("tags", TAGS),
    ],
    references: &[IN_CONTROL_PLANE],
    api: Some(Api {
        collection: "/v2/control-planes/{controlPlaneID}/core-entities/consumer_groups",
        lookup: Lookup::Tags("/v2/control-planes/{controlPlaneID}/core-entities/consumer_groups"),
        unique: &["name"],
        matched: &[("name", SAME)],
        ..CORE_ENTITY
    }),
    definition: Definition {
        about: "A group of consumers.",
        short: &["kcg"],
        columns: &[AGE, PROGRAMMED_OLD],
        spec_rules: &[ADOPT_WHERE, ADOPT_WHEN],
        rules: &[
            CONTROL_PLANE_KEPT_LENIENT,
            (
                "spec.controlPlaneRef is immutable when an entity is \
                 already Programmed",
                "(!has(oldSelf.spec) || !has(oldSelf.spec.controlPlaneRef)) \
                 ? true : (!has(self.status) || \
                 !self.status.conditions.exists(c, c.type == 'Programmed' \
                 && c.status == 'True')) ? true : \
                 oldSelf.spec.controlPlaneRef == self.spec.controlPlaneRef",
            ),
        ],
        required: &[],
        conditions: Some(Conditions::MAYBE_EMPTY),
        ..Definition::PLAIN
    }
    .kept(),
};

/// The membership of a consumer in a group of the ACL plugin.
pub(super) const ACL: Entity = Entity {
    group: CONFIGURATION,
    version: "v1alpha1",
    kind: "KongCredentialACL",
    plural: "kongcredentialacls",
    is_cluster_scoped: false,
    root: &[],
    spec: &[
        Field::new("adopt", ADOPT),
        Field::new("consumerRef", LOCAL).required(),
        Field::new("group", TEXT).required().sent(How::Plain),
        Field::new("tags", TAGS),
    ],
    references: &[OF_CONSUMER],
    api: Some(Api {
        collection: "/v2/control-planes/{controlPlaneID}/core-entities/consumers/{consumerID}/acls",
        lookup: Lookup::Tags("/v2/control-planes/{controlPlaneID}/core-entities/acls"),
        unique: &[],
        matched: &[("group", SAME)],
        ..CORE_ENTITY
    }),
    definition: Definition {
        about: "The membership of a consumer in a group of the ACL plugin.",
        spec_rules: &[ADOPT_WHEN],
        rules: &[CONSUMER_FIXED],
        ..Definition::PLAIN
    }
    .kept(),
};

/// An API key of a consumer.
pub(super) const API_KEY: Entity = Entity {
    group: CONFIGURATION,
    version: "v1alpha1",
    kind: "KongCredentialAPIKey",
    plural: "kongcredentialapikeys",
    is_cluster_scoped: false,
    root: &[],
    spec: &[
        Field::new("adopt", ADOPT),
        Field::new("consumerRef", LOCAL).required(),
        Field::new("key", TEXT).required().sent(How::Plain),
        Field::new("tags", TAGS),
    ],
    references: &[OF_CONSUMER],
    api: Some(Api {
        collection: "/v2/control-planes/{controlPlaneID}/core-entities/consumers/{consumerID}/key-auth",
        lookup: Lookup::Tags("/v2/control-planes/{controlPlaneID}/core-entities/key-auths"),
        unique: &["key"],
        matched: &[("key", SAME)],
        ..CORE_ENTITY
    }),
    definition: Definition {
        about: "An API key of a consumer.",
        spec_rules: &[ADOPT_WHEN],
        rules: &[CONSUMER_FIXED],
        ..Definition::PLAIN
    }
    .kept(),
};

/// A user name and a password of a consumer.
pub(super) const BASIC_AUTH: Entity = Entity {
    group: CONFIGURATION,
    version: "v1alpha1",
    kind: "KongCredentialBasicAuth",
    plural: "kongcredentialbasicauths",
    is_cluster_scoped: false,
    root: &[],
    spec: &[
        Field::new("adopt", ADOPT),
        Field::new("consumerRef", LOCAL).required(),
        Field::new("password", TEXT).required().sent(How::Plain),
        Field::new("tags", TAGS),
        Field::new("username", TEXT).required().sent(How::Plain),
    ],
    references: &[OF_CONSUMER],
    api: Some(Api {
        collection: "/v2/control-planes/{controlPlaneID}/core-entities/consumers/{consumerID}/basic-auth",
        lookup: Lookup::Tags("/v2/control-planes/{controlPlaneID}/core-entities/basic-auths"),
        unique: &["username"],
        matched: &[("username", SAME)],
        ..CORE_ENTITY
    }),
    definition: Definition {
        about: "A user name and a password of a consumer.",
        spec_rules: &[ADOPT_WHEN],
        rules: &[CONSUMER_FIXED],
        ..Definition::PLAIN
    }
    .kept(),
};

/// An HMAC credential of a consumer.
pub(super) const HMAC: Entity = Entity {
    group: CONFIGURATION,
    version: "v1alpha1",
    kind: "KongCredentialHMAC",
    plural: "kongcredentialhmacs",
    is_cluster_scoped: false,
    root: &[],
    spec: &[
        Field::new("adopt", ADOPT),
        Field::new("consumerRef", LOCAL).required(),
        Field::new("id", TEXT),
        Field::new("secret", TEXT).sent(How::Plain),
        Field::new("tags", TAGS),
        Field::new("username", TEXT).required().sent(How::Plain),
    ],
    references: &[OF_CONSUMER],
    api: Some(Api {
        collection: "/v2/control-planes/{controlPlaneID}/core-entities/consumers/{consumerID}/hmac-auth",
        lookup: Lookup::Tags("/v2/control-planes/{controlPlaneID}/core-entities/hmac-auths"),
        unique: &["username"],
        matched: &[("username", SAME), ("secret", Matched::Given)],
        ..CORE_ENTITY
    }),
    definition: Definition {
        about: "An HMAC credential of a consumer.",
        spec_rules: &[ADOPT_WHEN],
        rules: &[CONSUMER_FIXED],
        ..Definition::PLAIN
    }
    .kept(),
};

/// A JWT credential of a consumer.
pub(super) const JWT: Entity = Entity {
    group: CONFIGURATION,
    version: "v1alpha1",
    kind: "KongCredentialJWT",
    plural: "kongcredentialjwts",
    is_cluster_scoped: false,
    root: &[],
    spec: &[
        Field::new("adopt", ADOPT),
        Field::new(
            "algorithm",
            TEXT.with(&[
                ("default", r#""HS256""#),
                (
                    "enum",
                    "HS256|HS384|HS512|RS256|RS384|RS512|ES256|ES384|ES512|PS25\
                     6|PS384|PS512|EdDSA",
                ),
            ]),
        )
        .sent(How::Or(r#""HS256""#)),
        Field::new("consumerRef", LOCAL).required(),
        Field::new("id", TEXT),
        Field::new("key", TEXT).sent(How::Plain),
        Field::new("rsa_public_key", TEXT).sent(How::Plain),
        Field::new("secret", TEXT).sent(How::Plain),
        Field::new("tags", TAGS),
    ],
    references: &[OF_CONSUMER],
    api: Some(Api {
        collection: "/v2/control-planes/{controlPlaneID}/core-entities/consumers/{consumerID}/jwt",
        lookup: Lookup::Tags("/v2/control-planes/{controlPlaneID}/core-entities/jwts"),
        unique: &["key"],
        matched: &[
            ("algorithm", Matched::Or(r#""HS256""#)),
            ("key", Matched::Given),
            ("secret", Matched::Given),
            ("rsa_public_key", Matched::Given),
        ],
        ..CORE_ENTITY
    }),
    definition: Definition {
        about: "A JWT credential of a consumer.",
        spec_rules: &[ADOPT_WHEN],
        rules: &[
            CONSUMER_FIXED,
            (
                "spec.rsa_public_key is required when algorithm is RS*, \
                 ES*, PS* or EdDSA*",
                "self.spec.algorithm in [ \
                 'RS256','RS384','RS512','ES256','ES384','ES512','PS256','P\
                 S384','PS512','EdDSA', ] ? has(self.spec.rsa_public_key) : \
                 true",
            ),
        ],
        ..Definition::PLAIN
    }
    .kept(),
};
