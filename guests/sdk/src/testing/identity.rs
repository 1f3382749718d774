//! The identity of an object, which is the same in every version of its kind, and patterns of
//! identities.

use std::fmt;

use serde_json::{Map, Value, json};

use crate::{Kind, ObjectRef};

/// The group, kind, namespace and name of an object.
///
/// As text: `KIND/NAMESPACE/NAME`, or `KIND.GROUP/NAMESPACE/NAME` where the group must be given.
/// The namespace is empty for kinds without namespaces.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// The kind.
    pub kind: String,
    /// The namespace; empty for kinds without namespaces.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The group; empty for the core group.
    pub group: String,
}

/// A pattern of identities, as a case writes it: an [`Identity`] whose group may be left out, and
/// whose other parts may be `*`, which matches anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// The kind, or `*`.
    pub kind: String,
    /// The group, if it was given; `None` matches every group.
    pub group: Option<String>,
    /// The namespace, or `*`; empty for kinds without namespaces.
    pub namespace: String,
    /// The name, or `*`.
    pub name: String,
}

// === impl Identity ===

impl Identity {
    /// Returns the identity of an object.
    pub fn of(object: &Value) -> Self {
        let kind = kind_of(object);
        Self {
            kind: kind.kind,
            namespace: text(object, "/metadata/namespace").to_owned(),
            name: text(object, "/metadata/name").to_owned(),
            group: kind.group,
        }
    }

    /// Returns the identity that a reference names.
    pub fn of_ref(of: &ObjectRef) -> Self {
        Self {
            kind: of.kind.kind.clone(),
            namespace: of.namespace.clone().unwrap_or_default(),
            name: of.name.clone(),
            group: of.kind.group.clone(),
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.kind, self.namespace, self.name)
    }
}

// === impl Pattern ===

impl Pattern {
    /// Parses `KIND/NAMESPACE/NAME`.
    ///
    /// # Errors
    ///
    /// The text has another number of parts, or an empty kind or name.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split('/').collect();
        let [kind, namespace, name] = parts.as_slice() else {
            return Err(format!(
                "`{text}`: KIND/NAMESPACE/NAME is expected (KIND//NAME for kinds without namespaces)"
            ));
        };
        if kind.is_empty() || name.is_empty() {
            return Err(format!("`{text}`: KIND and NAME must be there"));
        }
        let (kind, group) = match kind.split_once('.') {
            Some((kind, group)) => (kind, Some(group.to_owned())),
            None => (*kind, None),
        };
        Ok(Self {
            kind: kind.to_owned(),
            group,
            namespace: (*namespace).to_owned(),
            name: (*name).to_owned(),
        })
    }

    /// Returns whether the pattern matches the identity of an object.
    pub fn matches(&self, object: &Identity) -> bool {
        let is = |wanted: &str, held: &str| wanted == "*" || wanted == held;
        is(&self.kind, &object.kind)
            && self.group.as_ref().is_none_or(|group| *group == object.group)
            && is(&self.namespace, &object.namespace)
            && is(&self.name, &object.name)
    }
}

// === the identity in an object's fields ===

/// Returns the text at a JSON pointer, or "" if there is none.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the kind of an object, from its apiVersion and kind.
pub fn kind_of(object: &Value) -> Kind {
    let api_version = text(object, "/apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Kind::new(group, version, text(object, "/kind"))
}

/// Returns the reference to an object.
pub(super) fn reference_of(object: &Value) -> ObjectRef {
    let namespace = Some(text(object, "/metadata/namespace")).filter(|text| !text.is_empty());
    ObjectRef::new(kind_of(object), namespace, text(object, "/metadata/name"))
}

/// Returns an object that holds only what names it: apiVersion, kind, name, namespace and uid.
pub(super) fn named(of: &ObjectRef, uid: Option<&str>) -> Value {
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), Value::from(of.name.as_str()));
    let more = [("namespace", of.namespace.as_deref()), ("uid", uid)];
    metadata.extend(
        more.into_iter().filter_map(|(key, text)| Some((key.to_owned(), Value::from(text?)))),
    );
    json!({"apiVersion": of.kind.api_version(), "kind": of.kind.kind, "metadata": metadata})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_means_what_it_says() {
        let object = Identity::of(&json!({
            "apiVersion": "networking.istio.io/v1", "kind": "Gateway", "metadata": {"name": "a", "namespace": "b"},
        }));
        assert_eq!(object.to_string(), "Gateway/b/a");
        let cases = [
            ("Gateway/b/a", true),
            ("Gateway.networking.istio.io/b/a", true),
            ("Gateway.gateway.networking.k8s.io/b/a", false),
            ("*/*/*", true),
            ("Gateway//a", false),
            ("Service/b/a", false),
        ];
        for (text, expected) in cases {
            assert_eq!(Pattern::parse(text).unwrap().matches(&object), expected, "{text}");
        }
        for text in ["Gateway", "Gateway/a", "a/b/c/d", "/b/a", "Gateway/b/"] {
            let error = Pattern::parse(text).unwrap_err();
            assert!(error.starts_with(&format!("`{text}`: ")), "{error}");
        }
    }
}
