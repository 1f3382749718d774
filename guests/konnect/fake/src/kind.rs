//! The kinds of entities of a control plane, as data.

use serde_json::{Map, Value};

/// An entity as the API shows it.
pub(crate) type Entity = Map<String, Value>;

/// A kind of entities.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// The segment of the path.
    pub(crate) segment: &'static str,
    pub(crate) family: Family,
    /// The reference to the entity under whose path this kind is found.
    pub(crate) parent: Option<&'static str>,
    /// The segment under which the entities of all parents are listed.
    pub(crate) flat: Option<&'static str>,
    /// Fields that must be there, each with its alternatives.
    pub(crate) required: &'static [&'static [&'static str]],
    pub(crate) unique: &'static [Unique],
    pub(crate) references: &'static [Reference],
    /// Values of fields that are left out, as a JSON object.
    pub(crate) defaults: &'static str,
}

/// The paths and shapes of a kind's answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// Entities of the gateway, under `core-entities`.
    Core,
    /// Client certificates of data planes.
    DataPlane,
    /// Config stores.
    Config,
}

/// The field that an error names, and the fields whose values occur once in a control plane.
/// Entities without a value of the first one are free.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unique(pub(crate) &'static str, pub(crate) &'static [&'static str]);

/// A field that names other entities: an object with `id`, a text, or a list of either.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    /// The field; a dot separates it from an inner one.
    pub(crate) field: &'static str,
    /// The segment of the kind that is named.
    pub(crate) to: &'static str,
    /// The effect of a deletion of the named entity.
    pub(crate) deletion: Deletion,
}

/// The effect of a deletion on an entity that names the deleted one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deletion {
    /// The deletion is refused.
    Refused,
    /// The entity is deleted too.
    Cascades,
    /// The entity stays as it is.
    Ignored,
}

const NONE: Kind = Kind {
    segment: "",
    family: Family::Core,
    parent: None,
    flat: None,
    required: &[],
    unique: &[],
    references: &[],
    defaults: "{}",
};

const NAME: Unique = Unique("name", &["name"]);
const CONSUMER: Reference =
    Reference { field: "consumer", to: "consumers", deletion: Deletion::Cascades };

/// The table of kinds.
pub(crate) static KINDS: &[Kind] = &[
    Kind {
        segment: "services",
        required: &[&["host", "url"]],
        unique: &[NAME],
        references: &[
            reference("client_certificate", "certificates", Deletion::Ignored),
            reference("ca_certificates", "ca_certificates", Deletion::Ignored),
        ],
        defaults: r#"{"port": 80, "protocol": "http", "retries": 5, "connect_timeout": 60000,
            "read_timeout": 60000, "write_timeout": 60000, "enabled": true}"#,
        ..NONE
    },
    Kind {
        segment: "routes",
        required: &[&["paths", "hosts", "methods", "headers", "snis", "sources", "destinations"]],
        unique: &[NAME],
        references: &[reference("service", "services", Deletion::Refused)],
        defaults: r#"{"protocols": ["http", "https"], "https_redirect_status_code": 426,
            "path_handling": "v0", "preserve_host": false, "strip_path": true,
            "regex_priority": 0, "request_buffering": true, "response_buffering": true}"#,
        ..NONE
    },
    Kind {
        segment: "consumers",
        required: &[&["username", "custom_id"]],
        unique: &[Unique("username", &["username"]), Unique("custom_id", &["custom_id"])],
        ..NONE
    },
    Kind { segment: "consumer_groups", unique: &[NAME], ..NONE },
    Kind {
        segment: "plugins",
        required: &[&["name"]],
        unique: &[Unique("", &["name", "service", "route", "consumer", "consumer_group"])],
        references: &[
            reference("service", "services", Deletion::Cascades),
            reference("route", "routes", Deletion::Cascades),
            CONSUMER,
            reference("consumer_group", "consumer_groups", Deletion::Cascades),
        ],
        defaults: r#"{"enabled": true, "config": {},
            "protocols": ["grpc", "grpcs", "http", "https"]}"#,
        ..NONE
    },
    Kind {
        segment: "upstreams",
        unique: &[NAME],
        references: &[reference("client_certificate", "certificates", Deletion::Ignored)],
        defaults: r#"{"algorithm": "round-robin", "slots": 10000, "hash_on": "none",
            "hash_fallback": "none", "hash_on_cookie_path": "/", "use_srv_name": false}"#,
        ..NONE
    },
    Kind {
        segment: "targets",
        parent: Some("upstream"),
        required: &[&["target"]],
        unique: &[Unique("target", &["target", "upstream"])],
        references: &[reference("upstream", "upstreams", Deletion::Cascades)],
        defaults: r#"{"weight": 100}"#,
        ..NONE
    },
    Kind { segment: "certificates", required: &[&["cert"], &["key"]], ..NONE },
    Kind { segment: "ca_certificates", required: &[&["cert"]], ..NONE },
    Kind {
        segment: "snis",
        parent: Some("certificate"),
        flat: Some("snis"),
        required: &[&["name"]],
        unique: &[NAME],
        references: &[reference("certificate", "certificates", Deletion::Cascades)],
        ..NONE
    },
    Kind {
        segment: "keys",
        required: &[&["kid"], &["jwk", "pem"]],
        unique: &[NAME, Unique("kid", &["kid", "set"])],
        references: &[reference("set", "key-sets", Deletion::Cascades)],
        ..NONE
    },
    Kind { segment: "key-sets", unique: &[NAME], ..NONE },
    Kind {
        segment: "vaults",
        required: &[&["name"], &["prefix"]],
        unique: &[Unique("prefix", &["prefix"])],
        references: &[reference("config.config_store_id", "config-stores", Deletion::Ignored)],
        ..NONE
    },
    Kind {
        segment: "basic-auth",
        flat: Some("basic-auths"),
        required: &[&["username"], &["password"]],
        unique: &[Unique("username", &["username"])],
        ..CREDENTIAL
    },
    Kind {
        segment: "key-auth",
        flat: Some("key-auths"),
        unique: &[Unique("key", &["key"])],
        ..CREDENTIAL
    },
    Kind { segment: "acls", flat: Some("acls"), required: &[&["group"]], ..CREDENTIAL },
    Kind {
        segment: "jwt",
        flat: Some("jwts"),
        unique: &[Unique("key", &["key"])],
        defaults: r#"{"algorithm": "HS256"}"#,
        ..CREDENTIAL
    },
    Kind {
        segment: "hmac-auth",
        flat: Some("hmac-auths"),
        required: &[&["username"]],
        unique: &[Unique("username", &["username"])],
        ..CREDENTIAL
    },
    Kind {
        segment: "dp-client-certificates",
        family: Family::DataPlane,
        required: &[&["cert"]],
        ..NONE
    },
    Kind { segment: "config-stores", family: Family::Config, ..NONE },
];

const CREDENTIAL: Kind = Kind { parent: Some("consumer"), references: &[CONSUMER], ..NONE };

const fn reference(field: &'static str, to: &'static str, deletion: Deletion) -> Reference {
    Reference { field, to, deletion }
}

// === impl Kind ===

impl Kind {
    /// Returns the kind of this segment.
    pub(crate) fn find(segment: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.segment == segment)
    }

    /// Returns the kind whose entities of all parents are listed under this segment.
    pub(crate) fn find_flat(segment: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.flat == Some(segment))
    }

    /// Returns the name of one entity, in messages.
    pub(crate) fn singular(&self) -> &'static str {
        self.segment.strip_suffix('s').unwrap_or(self.segment)
    }

    /// Returns the reference to the parent.
    pub(crate) fn parent_reference(&self) -> Option<&'static Reference> {
        self.references.iter().find(|reference| Some(reference.field) == self.parent)
    }

    /// Returns the required field that an entity lacks.
    pub(crate) fn missing(&self, entity: &Entity) -> Option<&'static str> {
        let has = |field: &&str| entity.get(*field).is_some_and(is_set);
        let missing = self.required.iter().find(|alternatives| !alternatives.iter().any(has))?;
        missing.first().copied()
    }

    /// Fills in the defaults of fields that are left out.
    pub(crate) fn fill(&self, entity: &mut Entity) {
        // The text is checked by a test.
        let defaults: Entity = serde_json::from_str(self.defaults).unwrap_or_default();
        for (field, value) in defaults {
            entity.entry(field).or_insert(value);
        }
    }

    /// Returns the keys by which an entity is found: those of its unique fields, tags and
    /// references.
    pub(crate) fn index_keys(&self, entity: &Entity) -> Vec<String> {
        let unique = self.unique.iter().filter_map(|unique| unique.key(entity));
        let tags = entity.get("tags").and_then(Value::as_array).into_iter().flatten();
        let tags = tags.filter_map(Value::as_str).map(tag_key);
        let references = self
            .references
            .iter()
            .flat_map(|reference| reference.ids(entity).into_iter().map(|id| reference.key(&id)));
        unique.chain(tags).chain(references).collect()
    }
}

// === impl Unique ===

impl Unique {
    /// Returns the key under which entities with the same values are found; nothing if the first
    /// field has no value.
    pub(crate) fn key(&self, entity: &Entity) -> Option<String> {
        entity.get(*self.1.first()?).filter(|value| is_set(value))?;
        let values: Vec<Value> = self.1.iter().map(|field| of_field(entity, field)).collect();
        Some(format!("unique {} {}", self.1.join(" "), Value::from(values)))
    }
}

/// Returns a field's value; of an object only its `id`.
fn of_field(entity: &Entity, field: &str) -> Value {
    let value = entity.get(field).unwrap_or(&Value::Null);
    value.get("id").unwrap_or(value).clone()
}

// === impl Reference ===

impl Reference {
    /// Returns the identifiers that an entity names.
    pub(crate) fn ids(&self, entity: &Entity) -> Vec<String> {
        let mut fields = self.field.split('.');
        let first = fields.next().and_then(|field| entity.get(field));
        let value = fields.fold(first, |value, field| value?.get(field));
        match value {
            Some(Value::Array(values)) => values.iter().filter_map(id).collect(),
            Some(value) => id(value).into_iter().collect(),
            None => Vec::new(),
        }
    }

    /// Returns the key under which entities that name this one are found.
    pub(crate) fn key(&self, id: &str) -> String {
        format!("reference {} {id}", self.field)
    }
}

fn id(value: &Value) -> Option<String> {
    value.get("id").unwrap_or(value).as_str().map(str::to_owned)
}

/// Returns the key under which entities with this tag are found.
pub(crate) fn tag_key(tag: &str) -> String {
    format!("tag {tag}")
}

/// Returns whether a value counts as given: an empty text does not.
fn is_set(value: &Value) -> bool {
    !value.is_null() && value.as_str() != Some("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_consistent() {
        for kind in KINDS {
            serde_json::from_str::<Entity>(kind.defaults).expect(kind.segment);
            assert_eq!(kind.parent.is_some(), kind.parent_reference().is_some(), "{kind:?}");
            for reference in kind.references {
                assert!(Kind::find(reference.to).is_some(), "{reference:?}");
            }
            assert_eq!(Kind::find(kind.segment), Some(kind), "the segment is taken twice");
        }
    }
}
