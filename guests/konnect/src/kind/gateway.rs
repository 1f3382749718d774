//! Services and routes.

use super::{
    Api, CONFIGURATION, CORE_ENTITY, Create, Entity, IN_CONTROL_PLANE, Lookup, Matched, SAME,
    Special,
    reference::{Reference, Shape},
    schema::{
        ADOPT, ADOPT_WHEN, ADOPT_WHERE, AGE, BOOLEAN, CONTROL_PLANE, CONTROL_PLANE_FIXED_LENIENT,
        CONTROL_PLANE_KEPT, Definition, Field, How, ID_FIXED, INTEGER, KIC, NAMED, PROGRAMMED,
        Schema, TAGS, TEXT, TEXTS,
    },
};

/// A service: an upstream API that Kong forwards requests to.
pub(super) const SERVICE: Entity = Entity {
    group: CONFIGURATION,
    version: "v1alpha1",
    kind: "KongService",
    plural: "kongservices",
    is_cluster_scoped: false,
    root: &[],
    spec: &[
        Field::new("adopt", ADOPT),
        Field::new(
            "caCertificateRefs",
            Schema::list(&NAMED).with(&[("x-kubernetes-list-type", r#""atomic""#)]),
        )
        .sent_as("ca_certificates", How::IdList("caCertificateIDs")),
        Field::new("clientCertificateRef", NAMED)
            .sent(How::Ids(&[("client_certificate", "certificateID")])),
        Field::new("connect_timeout", INTEGER).sent(How::Or("60000")),
        Field::new("controlPlaneRef", CONTROL_PLANE).required(),
        Field::new("enabled", BOOLEAN).sent(How::Or("true")),
        Field::new("host", TEXT).required().sent(How::Plain),
        Field::new("id", TEXT).sent(How::Plain),
        Field::new("name", TEXT).sent(How::Plain),
        Field::new("path", TEXT).sent(How::Plain),
        Field::new("port", INTEGER).sent(How::NonEmptyOr("80")),
        Field::new("protocol", TEXT).sent(How::NonEmptyOr(r#""http""#)),
        Field::new("read_timeout", INTEGER).sent(How::Or("60000")),
        Field::new("retries", INTEGER).sent(How::Or("5")),
        Field::new("tags", TAGS),
        Field::new("tls_verify", BOOLEAN).sent(How::Plain),
        Field::new("tls_verify_depth", INTEGER).sent(How::Plain),
        Field::new("url", TEXT).sent(How::Plain),
        Field::new("write_timeout", INTEGER).sent(How::Or("60000")),
    ],
    references: &[
        IN_CONTROL_PLANE,
        Reference::new("KongCertificate", "spec.clientCertificateRef", "KongCertificateRefValid")
            .id("certificateID"),
        Reference::new("KongCACertificate", "spec.caCertificateRefs", "KongCACertificateRefsValid")
            .shape(Shape::Objects)
            .id("caCertificateIDs"),
    ],
    api: Some(Api {
        collection: "/v2/control-planes/{controlPlaneID}/core-entities/services",
        lookup: Lookup::Tags("/v2/control-planes/{controlPlaneID}/core-entities/services"),
        unique: &["name"],
        create: Create::PostOrPutAtUid,
        matched: &[
            ("name", SAME),
            ("host", SAME),
            ("port", Matched::Or("80")),
            ("protocol", Matched::Or(r#""http""#)),
            ("path", Matched::Or(r#""/""#)),
        ],
        ..CORE_ENTITY
    }),
    definition: Definition {
        about: "A service: an upstream API that Kong forwards requests to.",
        columns: &[
            ("Host", "string", ".spec.host", 0),
            ("Protocol", "string", ".spec.protocol", 0),
            PROGRAMMED,
            AGE,
        ],
        spec_rules: &[KIC, ADOPT_WHERE, ADOPT_WHEN],
        rules: &[
            CONTROL_PLANE_KEPT,
            (
                "spec.controlPlaneRef is immutable when an entity is \
                 already Programmed",
                "(!has(self.spec.controlPlaneRef)) ? true : \
                 (!has(self.status) || !self.status.conditions.exists(c, \
                 c.type == 'Programmed' && c.status == 'True')) ? true : \
                 oldSelf.spec.controlPlaneRef == self.spec.controlPlaneRef",
            ),
            ID_FIXED,
        ],
        ..Definition::PLAIN
    }
    .kept(),
};

/// A route: the requests that go to a service.
pub(super) const ROUTE: Entity = Entity {
    group: CONFIGURATION,
    version: "v1alpha1",
    kind: "KongRoute",
    plural: "kongroutes",
    is_cluster_scoped: false,
    root: &[],
    spec: &[
        Field::new("adopt", ADOPT),
        Field::new("controlPlaneRef", CONTROL_PLANE),
        Field::new(
            "destinations",
            Schema::list(&Schema::object(&[Field::new("ip", TEXT), Field::new("port", INTEGER)])),
        )
        .sent(How::Plain),
        Field::new("headers", Schema::map(&TEXTS)).sent(How::Plain),
        Field::new("hosts", TEXTS).sent(How::Plain),
        Field::new("https_redirect_status_code", INTEGER).sent(How::Or("426")),
        Field::new("id", TEXT).sent(How::Plain),
        Field::new("methods", TEXTS).sent(How::Plain),
        Field::new("name", TEXT).sent(How::Plain),
        Field::new("path_handling", TEXT).sent(How::Or(r#""v0""#)),
        Field::new("paths", TEXTS).sent(How::Plain),
        Field::new("preserve_host", BOOLEAN).sent(How::Or("false")),
        Field::new("protocols", TEXTS).sent(How::Plain),
        Field::new("regex_priority", INTEGER).sent(How::Or("0")),
        Field::new("request_buffering", BOOLEAN).sent(How::Or("true")),
        Field::new("response_buffering", BOOLEAN).sent(How::Or("true")),
        Field::new(
            "serviceRef",
            Schema::object(&[
                Field::new("namespacedRef", NAMED),
                Field::new("type", TEXT.with(&[("enum", "namespacedRef")])),
            ])
            .rules(&[(
                "when type is namespacedRef, namespacedRef must be set",
                "self.type == 'namespacedRef' ? has(self.namespacedRef) : \
                 true",
            )]),
        )
        .sent(How::Ids(&[("service", "serviceID")])),
        Field::new("snis", TEXTS).sent(How::Plain),
        Field::new(
            "sources",
            Schema::list(&Schema::object(&[Field::new("ip", TEXT), Field::new("port", INTEGER)])),
        )
        .sent(How::Plain),
        Field::new("strip_path", BOOLEAN).sent(How::Plain),
        Field::new("tags", TAGS),
    ],
    references: &[
        IN_CONTROL_PLANE,
        Reference::new("KongService", "spec.serviceRef.namespacedRef", "KongServiceRefValid")
            .id("serviceID")
            .parent(),
    ],
    api: Some(Api {
        collection: "/v2/control-planes/{controlPlaneID}/core-entities/routes",
        lookup: Lookup::Tags("/v2/control-planes/{controlPlaneID}/core-entities/routes"),
        unique: &["name"],
        create: Create::PostOrPutAtUid,
        special: &[Special::SameService],
        matched: &[
            ("name", SAME),
            ("hosts", Matched::Unordered),
            ("paths", Matched::Unordered),
            ("methods", Matched::Unordered),
            ("headers", Matched::Unordered),
            ("regex_priority", Matched::Or("0")),
            ("https_redirect_status_code", Matched::Or("426")),
            ("snis", Matched::Unordered),
            ("path_handling", Matched::Or(r#""v0""#)),
            ("sources", Matched::Unordered),
            ("destinations", Matched::Unordered),
        ],
        ..CORE_ENTITY
    }),
    definition: Definition {
        about: "A route: the requests that go to a service.",
        spec_rules: &[
            KIC,
            (
                "spec.adopt is allowed only when serviceRef exists or \
                 controlPlaneRef is konnectNamespacedRef",
                "!has(self.adopt) ? true : (has(self.serviceRef) || \
                 (has(self.controlPlaneRef) && self.controlPlaneRef.type == \
                 'konnectNamespacedRef'))",
            ),
            ADOPT_WHEN,
        ],
        rules: &[
            (
                "If protocols has 'http', at least one of 'hosts', \
                 'methods', 'paths' or 'headers' must be set",
                "has(self.spec.protocols) && self.spec.protocols.exists(p, \
                 p == 'http') ? (has(self.spec.hosts) || \
                 has(self.spec.methods) || has(self.spec.paths) || \
                 has(self.spec.paths) || has(self.spec.paths) || \
                 has(self.spec.headers) ) : true",
            ),
            CONTROL_PLANE_KEPT,
            CONTROL_PLANE_FIXED_LENIENT,
            ID_FIXED,
        ],
        ..Definition::PLAIN
    }
    .kept(),
};
