//! Certificates, those of authorities and of data planes, and SNIs.

use super::{
    Adopt, Api, CONFIGURATION, CORE_ENTITY, Entity, IN_CONTROL_PLANE, Lookup, Marks, SAME, Special,
    Update,
    reference::Reference,
    schema::{
        ADOPT, ADOPT_MATCH, ADOPT_WHEN, ADOPT_WHERE, CONTROL_PLANE, CONTROL_PLANE_FIXED,
        CONTROL_PLANE_KEPT, Definition, Field, How, KIC, NAMED, NONEMPTY, TAGS, TEXT,
    },
};

/// Material that is no vault reference, or a valid one.
const MATERIAL: &str = "!self.startsWith('{vault:') || \
                 self.matches('^[{]vault://[a-zA-Z0-9._-]+/[^{}]+[}][[:spac\
                 e:]]*$')";

/// A certificate with its key.
pub(super) const CERTIFICATE: Entity = Entity {
    group: CONFIGURATION,
    version: "v1alpha1",
    kind: "KongCertificate",
    plural: "kongcertificates",
    is_cluster_scoped: false,
    root: &[],
    spec: &[
        Field::new("adopt", ADOPT),
        Field::new(
            "cert",
            TEXT.rules(&[(
                "cert must contain certificate material or a valid Kong \
                 vault reference, e.g. '{vault://my-vault/my-secret}'",
                MATERIAL,
            )]),
        )
        .sent(How::Plain),
        Field::new(
            "cert_alt",
            TEXT.rules(&[(
                "cert_alt must contain certificate material or a valid Kong \
                 vault reference, e.g. '{vault://my-vault/my-secret}'",
                MATERIAL,
            )]),
        )
        .sent(How::Plain),
        Field::new("controlPlaneRef", CONTROL_PLANE).required(),
        Field::new(
            "key",
            TEXT.rules(&[(
                "key must contain private key material or a valid Kong \
                 vault reference, e.g. '{vault://my-vault/my-secret}'",
                MATERIAL,
            )]),
        )
        .sent(How::Plain),
        Field::new(
            "key_alt",
            TEXT.rules(&[(
                "key_alt must contain private key material or a valid Kong \
                 vault reference, e.g. '{vault://my-vault/my-secret}'",
                MATERIAL,
            )]),
        )
        .sent(How::Plain),
        Field::new("secretRef", NAMED),
        Field::new("secretRefAlt", NAMED),
        Field::new("tags", TAGS),
        Field::new("type", TEXT.with(&[("default", r#""inline""#), ("enum", "inline|secretRef")])),
    ],
    references: &[
        IN_CONTROL_PLANE,
        Reference::new("Secret", "spec.secretRef", "SecretRefValid")
            .keys(&[("tls.crt", "cert"), ("tls.key", "key")]),
        Reference::new("Secret", "spec.secretRefAlt", "SecretRefValid")
            .keys(&[("tls.crt", "cert_alt"), ("tls.key", "key_alt")]),
    ],
    api: Some(Api {
        collection: "/v2/control-planes/{controlPlaneID}/core-entities/certificates",
        lookup: Lookup::AllTags("/v2/control-planes/{controlPlaneID}/core-entities/certificates"),
        unique: &[],
        matched: &[("cert", SAME), ("key", SAME), ("cert_alt", SAME), ("key_alt", SAME)],
        ..CORE_ENTITY
    }),
    definition: Definition {
        about: "A certificate with its key.",
        spec_rules: &[
            KIC,
            ADOPT_WHERE,
            ADOPT_WHEN,
            (
                "spec.cert is required when type is 'inline'",
                "self.type != 'inline' || (has(self.cert) && \
                 self.cert.size() != 0)",
            ),
            (
                "spec.key is required when type is 'inline'",
                "self.type != 'inline' || (has(self.key) && self.key.size() \
                 != 0)",
            ),
            (
                "spec.secretRef is required when type is 'secretRef'",
                "self.type != 'secretRef' ||  has(self.secretRef)",
            ),
            (
                "cert/key and secretRef/secretRefAlt cannot be set at the \
                 same time",
                "!((has(self.cert) || has(self.key)) && \
                 (has(self.secretRef) || has(self.secretRefAlt)))",
            ),
            (
                "cert_alt/key_alt and secretRef/secretRefAlt cannot be set \
                 at the same time",
                "!((has(self.cert_alt) || has(self.key_alt)) && \
                 (has(self.secretRef) || has(self.secretRefAlt)))",
            ),
        ],
        rules: &[CONTROL_PLANE_KEPT, CONTROL_PLANE_FIXED],
        ..Definition::PLAIN
    }
    .kept(),
};

/// A certificate of an authority.
pub(super) const CA_CERTIFICATE: Entity = Entity {
    group: CONFIGURATION,
    version: "v1alpha1",
    kind: "KongCACertificate",
    plural: "kongcacertificates",
    is_cluster_scoped: false,
    root: &[],
    spec: &[
        Field::new("adopt", ADOPT),
        Field::new("cert", TEXT).sent(How::Plain),
        Field::new("controlPlaneRef", CONTROL_PLANE).required(),
        Field::new("secretRef", NAMED),
        Field::new("tags", TAGS),
        Field::new("type", TEXT.with(&[("default", r#""inline""#), ("enum", "inline|secretRef")])),
    ],
    references: &[
        IN_CONTROL_PLANE,
        Reference::new("Secret", "spec.secretRef", "SecretRefValid").keys(&[("ca.crt", "cert")]),
    ],
    api: Some(Api {
        collection: "/v2/control-planes/{controlPlaneID}/core-entities/ca_certificates",
        lookup: Lookup::Tags("/v2/control-planes/{controlPlaneID}/core-entities/ca_certificates"),
        unique: &[],
        matched: &[("cert", SAME)],
        ..CORE_ENTITY
    }),
    definition: Definition {
        about: "A certificate of an authority.",
        spec_rules: &[
            KIC,
            ADOPT_WHERE,
            ADOPT_WHEN,
            (
                "spec.cert is required when type is 'inline'",
                "self.type != 'inline' || (has(self.cert) && \
                 self.cert.size() != 0)",
            ),
            (
                "spec.secretRef is required when type is 'secretRef'",
                "self.type != 'secretRef' || has(self.secretRef)",
            ),
            (
                "cert and secretRef cannot be set at the same time",
                "!(has(self.cert) && has(self.secretRef))",
            ),
        ],
        rules: &[CONTROL_PLANE_KEPT, CONTROL_PLANE_FIXED],
        ..Definition::PLAIN
    }
    .kept(),
};

/// A host name for which a certificate is served.
pub(super) const SNI: Entity = Entity {
    group: CONFIGURATION,
    version: "v1alpha1",
    kind: "KongSNI",
    plural: "kongsnis",
    is_cluster_scoped: false,
    root: &[],
    spec: &[
        Field::new("adopt", ADOPT),
        Field::new("certificateRef", NAMED).required(),
        Field::new("name", NONEMPTY).required().sent(How::Plain),
        Field::new("tags", TAGS),
    ],
    references: &[Reference::new(
        "KongCertificate",
        "spec.certificateRef",
        "KongCertificateRefValid",
    )
    .id("certificateID")
    .parent()],
    api: Some(Api {
        collection: "/v2/control-planes/{controlPlaneID}/core-entities/certificates/{certificateID}/snis",
        lookup: Lookup::Tags("/v2/control-planes/{controlPlaneID}/core-entities/snis"),
        unique: &["name"],
        matched: &[("name", SAME)],
        ..CORE_ENTITY
    }),
    definition: Definition {
        about: "A host name for which a certificate is served.",
        spec_rules: &[ADOPT_WHEN],
        rules: &[(
            "spec.certificateRef is immutable when programmed",
            "(!self.status.conditions.exists(c, c.type == 'Programmed' \
             && c.status == 'True')) ? true : \
             oldSelf.spec.certificateRef == self.spec.certificateRef",
        )],
        ..Definition::PLAIN
    }
    .kept(),
};

/// A certificate with which data planes may connect to a control plane.
pub(super) const CLIENT_CERTIFICATE: Entity = Entity {
    group: CONFIGURATION,
    version: "v1alpha1",
    kind: "KongDataPlaneClientCertificate",
    plural: "kongdataplaneclientcertificates",
    is_cluster_scoped: false,
    root: &[],
    spec: &[
        Field::new("adopt", ADOPT_MATCH),
        Field::new("cert", NONEMPTY).required().sent(How::Plain),
        Field::new("controlPlaneRef", CONTROL_PLANE).required(),
    ],
    references: &[IN_CONTROL_PLANE],
    api: Some(Api {
        collection: "/v2/control-planes/{controlPlaneID}/dp-client-certificates",
        lookup: Lookup::Content("cert"),
        unique: &[],
        update: Update::Never,
        marks: Marks::None,
        item: "item",
        items: "items",
        adopt: &[Adopt::Match],
        special: &[Special::AttachesToGroups],
        matched: &[("cert", SAME)],
        ..CORE_ENTITY
    }),
    definition: Definition {
        about: "A certificate with which data planes may connect to a \
                control plane.",
        spec_rules: &[KIC],
        rules: &[
            CONTROL_PLANE_KEPT,
            (
                "spec.controlPlaneRef is immutable when an entity is \
                 already Programmed",
                "!has(self.spec.controlPlaneRef) ? true : \
                 (!self.status.conditions.exists(c, c.type == 'Programmed' \
                 && c.status == 'True')) ? true : \
                 oldSelf.spec.controlPlaneRef == self.spec.controlPlaneRef",
            ),
            (
                "spec.cert is immutable when an entity is already \
                 Programmed",
                "(!self.status.conditions.exists(c, c.type == 'Programmed' \
                 && c.status == 'True')) ? true : oldSelf.spec.cert == \
                 self.spec.cert",
            ),
        ],
        ..Definition::PLAIN
    }
    .kept(),
};
