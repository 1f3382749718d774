//! Upstreams and targets.

use super::{
    Api, CONFIGURATION, CORE_ENTITY, Entity, IN_CONTROL_PLANE, Lookup, Matched, SAME,
    reference::Reference,
    schema::{
        ADOPT, ADOPT_WHEN, ADOPT_WHERE, AGE, BOOLEAN, CONTROL_PLANE, CONTROL_PLANE_FIXED,
        CONTROL_PLANE_KEPT, Definition, Field, How, INTEGER, KIC, NAMED, NUMBER, PROGRAMMED,
        Schema, TAGS, TEXT, TEXTS,
    },
};

/// An upstream: a host name behind which targets share the load.
pub(super) const UPSTREAM: Entity = Entity {
    group: CONFIGURATION,
    version: "v1alpha1",
    kind: "KongUpstream",
    plural: "kongupstreams",
    is_cluster_scoped: false,
    root: &[],
    spec: &[
        Field::new("adopt", ADOPT),
        Field::new("algorithm", TEXT).sent(How::Or(r#""round-robin""#)),
        Field::new("client_certificate", Schema::object(&[Field::new("id", TEXT)]))
            .sent(How::Plain),
        Field::new("clientCertificateRef", NAMED)
            .sent(How::Ids(&[("client_certificate", "certificateID")])),
        Field::new("controlPlaneRef", CONTROL_PLANE).required(),
        Field::new("hash_fallback", TEXT).sent(How::Or(r#""none""#)),
        Field::new("hash_fallback_header", TEXT).sent(How::Plain),
        Field::new("hash_fallback_query_arg", TEXT).sent(How::Plain),
        Field::new("hash_fallback_uri_capture", TEXT).sent(How::Plain),
        Field::new("hash_on", TEXT).sent(How::Or(r#""none""#)),
        Field::new("hash_on_cookie", TEXT).sent(How::Plain),
        Field::new("hash_on_cookie_path", TEXT).sent(How::Or(r#""/""#)),
        Field::new("hash_on_header", TEXT).sent(How::Plain),
        Field::new("hash_on_query_arg", TEXT).sent(How::Plain),
        Field::new("hash_on_uri_capture", TEXT).sent(How::Plain),
        Field::new(
            "healthchecks",
            Schema::object(&[
                Field::new(
                    "active",
                    Schema::object(&[
                        Field::new("concurrency", INTEGER).required(),
                        Field::new("headers", Schema::map(&TEXTS)),
                        Field::new(
                            "healthy",
                            Schema::object(&[
                                Field::new("http_statuses", Schema::list(&INTEGER)),
                                Field::new("interval", NUMBER).required(),
                                Field::new("successes", INTEGER).required(),
                            ]),
                        ),
                        Field::new("http_path", TEXT).required(),
                        Field::new("https_sni", TEXT),
                        Field::new("https_verify_certificate", BOOLEAN).required(),
                        Field::new("timeout", NUMBER).required(),
                        Field::new("type", TEXT).required(),
                        Field::new(
                            "unhealthy",
                            Schema::object(&[
                                Field::new("http_failures", INTEGER).required(),
                                Field::new("http_statuses", Schema::list(&INTEGER)),
                                Field::new("interval", NUMBER).required(),
                                Field::new("tcp_failures", INTEGER).required(),
                                Field::new("timeouts", INTEGER).required(),
                            ]),
                        ),
                    ]),
                ),
                Field::new(
                    "passive",
                    Schema::object(&[
                        Field::new(
                            "healthy",
                            Schema::object(&[
                                Field::new("http_statuses", Schema::list(&INTEGER)),
                                Field::new("successes", INTEGER).required(),
                            ]),
                        ),
                        Field::new("type", TEXT).required(),
                        Field::new(
                            "unhealthy",
                            Schema::object(&[
                                Field::new("http_failures", INTEGER).required(),
                                Field::new("http_statuses", Schema::list(&INTEGER)),
                                Field::new("tcp_failures", INTEGER).required(),
                                Field::new("timeouts", INTEGER).required(),
                            ]),
                        ),
                    ]),
                ),
                Field::new("threshold", NUMBER).required(),
            ])
            .rules(&[(
                "healthcheck threshold must be between 0 and 100",
                "self.threshold >= 0 && self.threshold <= 100",
            )]),
        )
        .sent(How::Plain),
        Field::new("host_header", TEXT).sent(How::Plain),
        Field::new("name", TEXT).sent(How::Or(r#""""#)),
        Field::new("slots", INTEGER.with(&[("maximum", "65536"), ("minimum", "10")]))
            .sent(How::Or("10000")),
        Field::new("sticky_sessions_cookie", TEXT).sent(How::Plain),
        Field::new("sticky_sessions_cookie_path", TEXT).sent(How::Or(r#""/""#)),
        Field::new("tags", TAGS),
        Field::new("use_srv_name", BOOLEAN).sent(How::Or("false")),
    ],
    references: &[
        IN_CONTROL_PLANE,
        Reference::new("KongCertificate", "spec.clientCertificateRef", "KongCertificateRefValid")
            .id("certificateID"),
    ],
    api: Some(Api {
        collection: "/v2/control-planes/{controlPlaneID}/core-entities/upstreams",
        lookup: Lookup::Tags("/v2/control-planes/{controlPlaneID}/core-entities/upstreams"),
        unique: &["name"],
        matched: &[
            ("algorithm", Matched::Or(r#""round-robin""#)),
            ("hash_fallback", Matched::Or(r#""none""#)),
            ("hash_fallback_header", SAME),
            ("hash_fallback_query_arg", SAME),
            ("hash_fallback_uri_capture", SAME),
            ("hash_on", Matched::Or(r#""none""#)),
            ("hash_on_cookie", SAME),
            ("hash_on_cookie_path", Matched::Or(r#""/""#)),
            ("hash_on_header", SAME),
            ("hash_on_query_arg", SAME),
            ("hash_on_uri_capture", SAME),
            ("healthchecks", SAME),
            ("host_header", SAME),
            ("name", SAME),
            ("slots", Matched::Or("10000")),
        ],
        ..CORE_ENTITY
    }),
    definition: Definition {
        about: "An upstream: a host name behind which targets share the \
                load.",
        spec_rules: &[
            KIC,
            (
                "hash_fallback_header is required when `hash_fallback` is \
                 set to `header`.",
                "!has(self.hash_fallback) || (self.hash_fallback != \
                 'header' || has(self.hash_fallback_header))",
            ),
            (
                "hash_fallback_query_arg is required when `hash_fallback` \
                 is set to `query_arg`.",
                "!has(self.hash_fallback) || (self.hash_fallback != \
                 'query_arg' || has(self.hash_fallback_query_arg))",
            ),
            (
                "hash_fallback_uri_capture is required when `hash_fallback` \
                 is set to `uri_capture`.",
                "!has(self.hash_fallback) || (self.hash_fallback != \
                 'uri_capture' || has(self.hash_fallback_uri_capture))",
            ),
            (
                "hash_on_cookie is required when hash_fallback is set to \
                 `cookie`.",
                "!has(self.hash_fallback) || (self.hash_fallback != \
                 'cookie' || has(self.hash_on_cookie))",
            ),
            (
                "hash_on_cookie is required when hash_on is set to \
                 `cookie`.",
                "!has(self.hash_on) || (self.hash_on != 'cookie' || \
                 has(self.hash_on_cookie))",
            ),
            (
                "hash_on_cookie_path is required when hash_fallback is set \
                 to `cookie`.",
                "!has(self.hash_fallback) || (self.hash_fallback != \
                 'cookie' || has(self.hash_on_cookie_path))",
            ),
            (
                "hash_on_cookie_path is required when hash_on is set to \
                 `cookie`.",
                "!has(self.hash_on) || (self.hash_on != 'cookie' || \
                 has(self.hash_on_cookie_path))",
            ),
            (
                "hash_on_header is required when hash_on is set to \
                 `header`.",
                "!has(self.hash_on) || (self.hash_on != 'header' || \
                 has(self.hash_on_header))",
            ),
            (
                "hash_on_query_arg is required when `hash_on` is set to \
                 `query_arg`.",
                "!has(self.hash_on) || (self.hash_on != 'query_arg' || \
                 has(self.hash_on_query_arg))",
            ),
            (
                "hash_on_uri_capture is required when `hash_on` is set to \
                 `uri_capture`.",
                "!has(self.hash_on) || (self.hash_on != 'uri_capture' || \
                 has(self.hash_on_uri_capture))",
            ),
            (
                "sticky_sessions_cookie is required when algorithm is set \
                 to `sticky-sessions`.",
                "!has(self.algorithm) || (self.algorithm != \
                 'sticky-sessions' || has(self.sticky_sessions_cookie))",
            ),
            ADOPT_WHERE,
            ADOPT_WHEN,
            (
                "client_certificate and clientCertificateRef are mutually \
                 exclusive",
                "!(has(self.client_certificate) && \
                 has(self.clientCertificateRef))",
            ),
        ],
        rules: &[CONTROL_PLANE_KEPT, CONTROL_PLANE_FIXED],
        ..Definition::PLAIN
    }
    .kept(),
};

/// A target: an address with a port behind an upstream.
pub(super) const TARGET: Entity = Entity {
    group: CONFIGURATION,
    version: "v1alpha1",
    kind: "KongTarget",
    plural: "kongtargets",
    is_cluster_scoped: false,
    root: &[],
    spec: &[
        Field::new("adopt", ADOPT),
        Field::new("tags", TAGS),
        Field::new("target", TEXT).required().sent(How::Plain),
        Field::new("upstreamRef", NAMED).required(),
        Field::new(
            "weight",
            Schema::plain("integer", "").with(&[
                ("default", "100"),
                ("maximum", "65535"),
                ("minimum", "0"),
            ]),
        )
        .required()
        .sent(How::Plain),
    ],
    references: &[Reference::new("KongUpstream", "spec.upstreamRef", "KongUpstreamRefValid")
        .id("upstreamID")
        .parent()],
    api: Some(Api {
        collection: "/v2/control-planes/{controlPlaneID}/core-entities/upstreams/{upstreamID}/targets",
        lookup: Lookup::Tags(
            "/v2/control-planes/{controlPlaneID}/core-entities/upstreams/{upstreamID}/targets",
        ),
        unique: &["target"],
        constants: &[("failover", "false")],
        matched: &[("target", SAME), ("weight", Matched::Or("100"))],
        ..CORE_ENTITY
    }),
    definition: Definition {
        about: "A target: an address with a port behind an upstream.",
        columns: &[
            ("Upstream", "string", ".spec.upstreamRef.name", 0),
            ("Target", "string", ".spec.target", 0),
            PROGRAMMED,
            AGE,
        ],
        spec_rules: &[ADOPT_WHEN],
        rules: &[(
            "spec.upstreamRef is immutable",
            "oldSelf.spec.upstreamRef == self.spec.upstreamRef",
        )],
        ..Definition::PLAIN
    }
    .kept(),
};
