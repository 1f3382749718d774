//! Keys and sets of keys.

use super::{
    Api, CONFIGURATION, CORE_ENTITY, Entity, IN_CONTROL_PLANE, Lookup, Matched, SAME,
    reference::Reference,
    schema::{
        ADOPT, ADOPT_WHEN, ADOPT_WHERE, CONTROL_PLANE, CONTROL_PLANE_FIXED, CONTROL_PLANE_KEPT,
        Definition, Field, How, KIC, NONEMPTY, OBJECT_NAME, Schema, TAGS, TEXT,
    },
};

/// A set of keys.
pub(super) const KEY_SET: Entity = Entity {
    group: CONFIGURATION,
    version: "v1alpha1",
    kind: "KongKeySet",
    plural: "kongkeysets",
    is_cluster_scoped: false,
    root: &[],
    spec: &[
        Field::new("adopt", ADOPT),
        Field::new("controlPlaneRef", CONTROL_PLANE).required(),
        Field::new("name", NONEMPTY).required().sent(How::Plain),
        Field::new("tags", TAGS),
    ],
    references: &[IN_CONTROL_PLANE],
    api: Some(Api {
        collection: "/v2/control-planes/{controlPlaneID}/core-entities/key-sets",
        lookup: Lookup::Tags("/v2/control-planes/{controlPlaneID}/core-entities/key-sets"),
        unique: &["name"],
        matched: &[("name", SAME)],
        ..CORE_ENTITY
    }),
    definition: Definition {
        about: "A set of keys.",
        spec_rules: &[KIC, ADOPT_WHERE, ADOPT_WHEN],
        rules: &[CONTROL_PLANE_FIXED],
        ..Definition::PLAIN
    }
    .kept(),
};

/// A key.
pub(super) const KEY: Entity = Entity {
    group: CONFIGURATION,
    version: "v1alpha1",
    kind: "KongKey",
    plural: "kongkeys",
    is_cluster_scoped: false,
    root: &[],
    spec: &[
        Field::new("adopt", ADOPT),
        Field::new("controlPlaneRef", CONTROL_PLANE),
        Field::new("jwk", TEXT).sent(How::Plain),
        Field::new(
            "keySetRef",
            Schema::object(&[
                Field::new("konnectID", TEXT),
                Field::new(
                    "namespacedRef",
                    Schema::object(&[Field::new("name", OBJECT_NAME).required()]),
                ),
                Field::new("type", TEXT.with(&[("enum", "konnectID|namespacedRef")])).required(),
            ])
            .rules(&[
                (
                    "when type is namespacedRef, namespacedRef must be set",
                    "self.type == 'namespacedRef' ? has(self.namespacedRef) : \
                     true",
                ),
                (
                    "when type is konnectID, konnectID must be set",
                    "self.type == 'konnectID' ? has(self.konnectID) : true",
                ),
            ]),
        )
        .sent(How::Ids(&[("set", "keySetID")])),
        Field::new("kid", NONEMPTY).required().sent(How::Plain),
        Field::new("name", TEXT).sent(How::Plain),
        Field::new(
            "pem",
            Schema::object(&[
                Field::new("private_key", NONEMPTY).required(),
                Field::new("public_key", NONEMPTY).required(),
            ]),
        )
        .sent(How::Plain),
        Field::new("tags", TAGS),
    ],
    references: &[
        IN_CONTROL_PLANE,
        Reference::new("KongKeySet", "spec.keySetRef.namespacedRef", "KeySetRefValid")
            .id("keySetID"),
    ],
    api: Some(Api {
        collection: "/v2/control-planes/{controlPlaneID}/core-entities/keys",
        lookup: Lookup::Tags("/v2/control-planes/{controlPlaneID}/core-entities/keys"),
        unique: &["kid", "name"],
        matched: &[
            ("kid", SAME),
            ("name", SAME),
            ("jwk", SAME),
            ("pem.public_key", Matched::Given),
            ("pem.private_key", Matched::Shared),
            ("set.id", SAME),
        ],
        ..CORE_ENTITY
    }),
    definition: Definition {
        about: "A key.",
        spec_rules: &[
            KIC,
            ADOPT_WHERE,
            ADOPT_WHEN,
            ("Either 'jwk' or 'pem' must be set", "has(self.jwk) || has(self.pem)"),
        ],
        rules: &[CONTROL_PLANE_KEPT, CONTROL_PLANE_FIXED],
        ..Definition::PLAIN
    }
    .kept(),
};
