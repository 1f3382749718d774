//! Vaults.

use super::{
    Api, CONFIGURATION, CORE_ENTITY, Entity, IN_CONTROL_PLANE, Lookup, SAME,
    reference::Reference,
    schema::{
        ADOPT, ADOPT_WHEN, ADOPT_WHERE, AGE, ANY, CONTROL_PLANE, CONTROL_PLANE_KEPT, Conditions,
        Definition, Field, How, NONEMPTY, OBJECT_NAME, PROGRAMMED_OLD, Schema, TAGS, TEXT,
    },
};

/// A vault: where references to secret values are resolved.
pub(super) const VAULT: Entity = Entity {
    group: CONFIGURATION,
    version: "v1alpha1",
    kind: "KongVault",
    plural: "kongvaults",
    is_cluster_scoped: true,
    root: &[],
    spec: &[
        Field::new("adopt", ADOPT),
        Field::new("backend", NONEMPTY).required().sent_as("name", How::Plain),
        Field::new("config", ANY.with(&[("x-kubernetes-preserve-unknown-fields", "true")]))
            .sent(How::OmitEmpty),
        Field::new(
            "configStoreRef",
            Schema::object(&[
                Field::new(
                    "kind",
                    TEXT.with(&[
                        ("default", r#""KonnectConfigStore""#),
                        ("enum", "KonnectConfigStore"),
                    ]),
                ),
                Field::new("name", OBJECT_NAME).required(),
                Field::new("namespace", OBJECT_NAME).required(),
            ]),
        )
        .sent_as("config", How::IdWithin("config_store_id", "configStoreID")),
        Field::new("controlPlaneRef", CONTROL_PLANE),
        Field::new("description", TEXT).sent(How::OmitEmpty),
        Field::new("prefix", NONEMPTY).required().sent(How::Plain),
        Field::new("tags", TAGS),
    ],
    references: &[
        IN_CONTROL_PLANE,
        Reference::new("KonnectConfigStore", "spec.configStoreRef", "ConfigStoreRefValid")
            .needs("configStoreID"),
    ],
    api: Some(Api {
        collection: "/v2/control-planes/{controlPlaneID}/core-entities/vaults",
        lookup: Lookup::Tags("/v2/control-planes/{controlPlaneID}/core-entities/vaults"),
        unique: &["prefix"],
        matched: &[("name", SAME), ("prefix", SAME), ("description", SAME), ("config", SAME)],
        ..CORE_ENTITY
    }),
    definition: Definition {
        about: "A vault: where references to secret values are resolved.",
        short: &["kv"],
        columns: &[
            ("Backend Type", "string", ".spec.backend", 0),
            ("Prefix", "string", ".spec.prefix", 0),
            AGE,
            ("Description", "string", ".spec.description", 1),
            PROGRAMMED_OLD,
        ],
        spec_rules: &[
            ADOPT_WHERE,
            ADOPT_WHEN,
            (
                "spec.configStoreRef is only supported when spec.backend is \
                 'konnect'",
                "!has(self.configStoreRef) ? true : self.backend == \
                 'konnect'",
            ),
        ],
        rules: &[
            ("The spec.prefix field is immutable", "self.spec.prefix == oldSelf.spec.prefix"),
            CONTROL_PLANE_KEPT,
            (
                "spec.controlPlaneRef is immutable when an entity is \
                 already Programmed",
                "(!has(self.status) || !self.status.conditions.exists(c, \
                 c.type == 'Programmed' && c.status == 'True') || \
                 !has(self.spec.controlPlaneRef)) ? true : \
                 oldSelf.spec.controlPlaneRef == self.spec.controlPlaneRef",
            ),
        ],
        conditions: Some(Conditions {
            first: "Programmed",
            is_default_of_status: false,
            is_nonempty: false,
            is_required: true,
        }),
        ..Definition::PLAIN
    }
    .kept(),
};
