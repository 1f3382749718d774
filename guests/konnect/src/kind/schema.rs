//! Fields: what they may hold, as the `CustomResourceDefinition`s say, and how they are sent.
//!
//! A component has no use for schemas, so its table holds none: [`Field::new`] and
//! [`Definition::kept`] drop them there.

/// A field of a kind.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// The name of the field.
    pub name: &'static str,
    /// The schema of its value.
    pub schema: Schema,
    /// True if an object must have the field.
    pub is_required: bool,
    /// The field of the body.
    pub to: &'static str,
    /// How the value becomes the value of that field.
    pub how: How,
}

/// How the value of a field becomes a part of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// It does not.
    Unsent,
    /// As it is; left out if absent.
    Plain,
    /// As it is; left out if absent, 0 or empty.
    OmitEmpty,
    /// As it is; this JSON if absent, 0 or empty.
    NonEmptyOr(&'static str),
    /// As it is; this JSON if absent.
    Or(&'static str),
    /// The opposite of a boolean; true if absent.
    Not,
    /// All members of the object, each under its own name.
    Spread,
    /// `{"id": …}` for each of these fields of the body, with these IDs.
    Ids(&'static [(&'static str, &'static str)]),
    /// A list of these IDs.
    IdList(&'static str),
    /// This ID, under this key of the object in the field of the body.
    IdWithin(&'static str, &'static str),
}

/// A message and a rule in CEL.
pub type Rule = (&'static str, &'static str);

/// The schema of a value.
#[derive(Debug, Clone, Copy)]
pub struct Schema {
    /// The type.
    pub of: Type,
    /// Keywords with their values: for `enum` texts separated by `|`, else JSON.
    pub keywords: &'static [(&'static str, &'static str)],
    /// The validations.
    pub rules: &'static [Rule],
}

/// The type of a value.
#[derive(Debug, Clone, Copy)]
pub enum Type {
    /// A value of any type.
    Any,
    /// A type without parts, with its format or "".
    Plain(&'static str, &'static str),
    /// An object with these fields.
    Object(&'static [Field]),
    /// A list.
    List(&'static Schema),
    /// An object with any keys.
    Map(&'static Schema),
}

/// The parts of a `CustomResourceDefinition` beside the fields.
#[derive(Debug, Clone, Copy)]
pub struct Definition {
    /// The description of the kind.
    pub about: &'static str,
    /// Short names for `kubectl`.
    pub short: &'static [&'static str],
    /// Categories for `kubectl`.
    pub categories: &'static [&'static str],
    /// The columns that `kubectl get` prints.
    pub columns: &'static [Column],
    /// Validations of `spec`.
    pub spec_rules: &'static [Rule],
    /// Validations of the whole object.
    pub rules: &'static [Rule],
    /// The required fields of the whole object.
    pub required: &'static [&'static str],
    /// The conditions in the status; `None` for a kind without status.
    pub conditions: Option<Conditions>,
    /// The fields of the status beside conditions and `konnect`.
    pub status: &'static [Field],
}

/// A column of `kubectl get`: heading, type, path, and priority (0: always shown).
pub type Column = (&'static str, &'static str, &'static str, u8);

/// How conditions are kept in a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conditions {
    /// The type of the condition that a new object has; "" for none.
    pub first: &'static str,
    /// True if that condition is the default of the whole status, not of the list.
    pub is_default_of_status: bool,
    /// True if the list may not be empty.
    pub is_nonempty: bool,
    /// True if a status must have the list.
    pub is_required: bool,
}

// === impl Field ===

impl Field {
    /// Creates an optional field that is not sent.
    pub const fn new(name: &'static str, schema: Schema) -> Self {
        let schema = if cfg!(target_family = "wasm") { ANY } else { schema };
        Self { name, schema, is_required: false, to: name, how: How::Unsent }
    }

    /// Requires the field.
    #[must_use]
    pub const fn required(self) -> Self {
        Self { is_required: true, ..self }
    }

    /// Sends the value under the name of the field.
    #[must_use]
    pub const fn sent(self, how: How) -> Self {
        Self { how, ..self }
    }

    /// Sends the value under another name.
    #[must_use]
    pub const fn sent_as(self, to: &'static str, how: How) -> Self {
        Self { to, how, ..self }
    }
}

// === impl Schema ===

impl Schema {
    /// Creates the schema of a type without parts.
    pub const fn plain(of: &'static str, format: &'static str) -> Self {
        Self::new(Type::Plain(of, format))
    }

    /// Creates the schema of an object with these fields.
    pub const fn object(fields: &'static [Field]) -> Self {
        Self::new(Type::Object(fields))
    }

    /// Creates the schema of a list.
    pub const fn list(of: &'static Self) -> Self {
        Self::new(Type::List(of))
    }

    /// Creates the schema of an object with any keys.
    pub const fn map(of: &'static Self) -> Self {
        Self::new(Type::Map(of))
    }

    const fn new(of: Type) -> Self {
        Self { of, keywords: &[], rules: &[] }
    }

    /// Adds keywords, with their values.
    #[must_use]
    pub const fn with(self, keywords: &'static [(&'static str, &'static str)]) -> Self {
        Self { keywords, ..self }
    }

    /// Adds validations.
    #[must_use]
    pub const fn rules(self, rules: &'static [Rule]) -> Self {
        Self { rules, ..self }
    }
}

// === impl Definition ===

impl Definition {
    /// The definition of a namespaced kind of Kong without anything of its own.
    pub const PLAIN: Self = Self {
        about: "",
        short: &[],
        categories: &["kong"],
        columns: &[PROGRAMMED, AGE],
        spec_rules: &[],
        rules: &[],
        required: &["spec"],
        conditions: Some(Conditions::OF_STATUS),
        status: &[],
    };

    const NONE: Self = Self { columns: &[], categories: &[], required: &[], ..Self::PLAIN };

    /// Returns the definition, or an empty one in a component.
    #[must_use]
    pub const fn kept(self) -> Self {
        if cfg!(target_family = "wasm") { Self::NONE } else { self }
    }
}

// === impl Conditions ===

impl Conditions {
    /// `Programmed`, as the default of the status.
    pub const OF_STATUS: Self = Self {
        first: "Programmed",
        is_default_of_status: true,
        is_nonempty: true,
        is_required: false,
    };
    /// As [`Conditions::OF_STATUS`], but the list may be empty.
    pub const MAYBE_EMPTY: Self = Self { is_nonempty: false, ..Self::OF_STATUS };
    /// `Programmed`, as the default of the list.
    pub const OF_LIST: Self = Self { is_default_of_status: false, ..Self::MAYBE_EMPTY };
}

// Schemas, rules and columns that several kinds share.

/// The status of the condition `Programmed`.
pub(super) const PROGRAMMED: Column =
    ("Programmed", "string", ".status.conditions[?(@.type=='Programmed')].status", 0);
/// The same, as the older kinds write it.
pub(super) const PROGRAMMED_OLD: Column =
    ("Programmed", "string", ".status.conditions[?(@.type==\"Programmed\")].status", 0);
/// The age of the object.
pub(super) const AGE: Column = ("Age", "date", ".metadata.creationTimestamp", 0);

/// A value of any type.
pub(super) const ANY: Schema = Schema::new(Type::Any);
/// A text.
pub(super) const TEXT: Schema = Schema::plain("string", "");
/// A text that is not empty.
pub(super) const NONEMPTY: Schema = TEXT.with(&[("minLength", "1")]);
/// An integer.
pub(super) const INTEGER: Schema = Schema::plain("integer", "int64");
/// A number.
pub(super) const NUMBER: Schema = Schema::plain("number", "");
/// A boolean.
pub(super) const BOOLEAN: Schema = Schema::plain("boolean", "");
/// A list of texts.
pub(super) const TEXTS: Schema = Schema::list(&TEXT);
/// A list of texts, each once.
pub(super) const SET: Schema = TEXTS.with(&[("x-kubernetes-list-type", r#""set""#)]);
/// The name of an object.
pub(super) const OBJECT_NAME: Schema = TEXT.with(&[("maxLength", "253"), ("minLength", "1")]);
/// A reference to an object, perhaps of another namespace.
pub(super) const NAMED: Schema = Schema::object(&[
    Field::new("name", OBJECT_NAME).required(),
    Field::new("namespace", TEXT.with(&[("maxLength", "253")])),
]);
/// A reference to an object of the same namespace.
pub(super) const LOCAL: Schema =
    Schema::object(&[Field::new("name", TEXT.with(&[("default", r#""""#)]))])
        .with(&[("x-kubernetes-map-type", r#""atomic""#)]);
/// A reference to a control plane.
pub(super) const CONTROL_PLANE: Schema = Schema::object(&[
    Field::new("konnectNamespacedRef", NAMED),
    Field::new("type", TEXT.with(&[("default", r#""kic""#), ("enum", "konnectNamespacedRef|kic")])),
])
.rules(&[
    ("'konnectID' type is not supported", "self.type != 'konnectID'"),
    (
        "when type is konnectNamespacedRef, konnectNamespacedRef must be set",
        "(has(self.type) && self.type == 'konnectNamespacedRef') ? \
         has(self.konnectNamespacedRef) : true",
    ),
    (
        "when type is kic, konnectNamespacedRef must not be set",
        "(has(self.type) && self.type == 'kic') ? !has(self.konnectNamespacedRef) : \
         true",
    ),
    (
        "when type is unset, konnectNamespacedRef must not be set",
        "!has(self.type) ? !has(self.konnectNamespacedRef) : true",
    ),
]);
/// The tags that a user gives.
pub(super) const TAGS: Schema = TEXTS.with(&[("maxItems", "20")]).rules(&[(
    "tags entries must not be longer than 128 characters",
    "self.all(tag, size(tag) >= 1 && size(tag) <= 128)",
)]);
/// The rules of the schemas of adoption.
const ADOPT_FROM: Rule = ("'from'(adopt source) is immutable", "self.from == oldSelf.from");
const ADOPT_ID: Rule = (
    "Must specify Konnect options when from='konnect'",
    "self.from == 'konnect' ? has(self.konnect) : true",
);
const ADOPT_FIXED: Rule = (
    "konnect.id is immutable",
    "has(self.konnect) ? (self.konnect.id == oldSelf.konnect.id) : true",
);
const ADOPT_FIELDS: Schema = Schema::object(&[
    Field::new("from", TEXT.with(&[("enum", "konnect")])).required(),
    Field::new(
        "konnect",
        Schema::object(&[
            Field::new("id", TEXT.with(&[("maxLength", "36"), ("minLength", "1")])).required()
        ]),
    ),
    Field::new("mode", TEXT.with(&[("enum", "match|override")])),
]);
/// How an object takes over an entity.
pub(super) const ADOPT: Schema = ADOPT_FIELDS.rules(&[ADOPT_FROM, ADOPT_ID, ADOPT_FIXED]);
/// The same, for entities that cannot be overwritten.
pub(super) const ADOPT_MATCH: Schema = ADOPT_FIELDS.rules(&[
    ("Only 'match' mode adoption is supported", "self.mode == 'match'"),
    ADOPT_FROM,
    ADOPT_ID,
    ADOPT_FIXED,
]);

/// The control plane stays named.
pub(super) const CONTROL_PLANE_KEPT: Rule = (
    "controlPlaneRef is required once set",
    "!has(oldSelf.spec.controlPlaneRef) || has(self.spec.controlPlaneRef)",
);
/// The control plane stays the same once the entity is there.
pub(super) const CONTROL_PLANE_FIXED: Rule = (
    "spec.controlPlaneRef is immutable when an entity is already Programmed",
    "(!self.status.conditions.exists(c, c.type == 'Programmed' && c.status == \
     'True')) ? true : oldSelf.spec.controlPlaneRef == self.spec.controlPlaneRef",
);
/// The control plane is one of Konnect.
pub(super) const KIC: Rule = (
    "KIC is not supported as control plane",
    "!has(self.controlPlaneRef) ? true : self.controlPlaneRef.type != 'kic'",
);
/// An entity is taken over in a control plane of Konnect only.
pub(super) const ADOPT_WHERE: Rule = (
    "spec.adopt is allowed only when controlPlaneRef is konnectNamespacedRef",
    "!has(self.adopt) ? true : (has(self.controlPlaneRef) && \
     self.controlPlaneRef.type == 'konnectNamespacedRef')",
);
/// An object takes over an entity from its start or never.
pub(super) const ADOPT_WHEN: Rule = (
    "Cannot set or unset spec.adopt in updates",
    "(has(oldSelf.adopt) && has(self.adopt)) || (!has(oldSelf.adopt) && \
     !has(self.adopt))",
);
/// The control plane stays named, in kinds whose `spec` may be absent.
pub(super) const CONTROL_PLANE_KEPT_LENIENT: Rule = (
    "controlPlaneRef is required once set",
    "(!has(oldSelf.spec) || !has(oldSelf.spec.controlPlaneRef)) || \
     has(self.spec.controlPlaneRef)",
);
/// The control plane stays the same once the entity is there, in kinds that may have none.
pub(super) const CONTROL_PLANE_FIXED_LENIENT: Rule = (
    "spec.controlPlaneRef is immutable when an entity is already Programmed",
    "(!has(self.spec) || !has(self.spec.controlPlaneRef)) ? true : \
     (!has(self.status) || !self.status.conditions.exists(c, c.type == 'Programmed' \
     && c.status == 'True')) ? true : oldSelf.spec.controlPlaneRef == \
     self.spec.controlPlaneRef",
);
/// The consumer stays the same once the entity is there.
pub(super) const CONSUMER_FIXED: Rule = (
    "spec.consumerRef is immutable when an entity is already Programmed",
    "(!self.status.conditions.exists(c, c.type == 'Programmed' && c.status == \
     'True')) ? true : oldSelf.spec.consumerRef == self.spec.consumerRef",
);
/// The ID of the entity stays the same.
pub(super) const ID_FIXED: Rule = (
    "spec.id is immutable",
    "(!has(self.spec.id) && !has(oldSelf.spec.id)) || (has(self.spec.id) && \
     has(oldSelf.spec.id) && self.spec.id == oldSelf.spec.id)",
);
