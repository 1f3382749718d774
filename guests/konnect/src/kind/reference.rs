//! References from one object to others.

use serde_json::Value;

/// A reference from an object to others, as a column of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reference {
    /// The kind of the referenced objects.
    pub to: &'static str,
    /// The path of the reference in the object.
    pub at: &'static str,
    /// The form of the value at the path.
    pub shape: Shape,
    /// The type of the condition that says if the reference is valid; "" if there is none.
    pub condition: &'static str,
    /// The field for the ID of the referenced entity; "" if no ID is needed.
    pub id: &'static str,
    /// True if the status of the object keeps the ID.
    pub is_stored: bool,
    /// True if control plane and token are found through the reference.
    pub is_parent: bool,
    /// The keys of a referenced Secret, each with the field of the body that takes its value.
    pub keys: &'static [(&'static str, &'static str)],
}

/// The form of a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// An object with `name` and perhaps `namespace`.
    Object,
    /// A list of such objects.
    Objects,
    /// A list of names, in the namespace of the object.
    Names,
}

/// A name that an object refers to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// The namespace; "" if neither reference nor object has one.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// True if the namespace is another one than that of the object.
    pub is_foreign: bool,
}

// === impl Reference ===

impl Reference {
    /// Creates a reference of the shape [`Shape::Object`] whose ID is not needed.
    pub const fn new(to: &'static str, at: &'static str, condition: &'static str) -> Self {
        Self {
            to,
            at,
            shape: Shape::Object,
            condition,
            id: "",
            is_stored: false,
            is_parent: false,
            keys: &[],
        }
    }

    /// Sets the shape.
    #[must_use]
    pub const fn shape(self, shape: Shape) -> Self {
        Self { shape, ..self }
    }

    /// Keeps the ID of the referenced entity in this field of the status.
    #[must_use]
    pub const fn id(self, id: &'static str) -> Self {
        Self { id, is_stored: true, ..self }
    }

    /// Needs the ID of the referenced entity, under this name, without keeping it.
    #[must_use]
    pub const fn needs(self, id: &'static str) -> Self {
        Self { id, ..self }
    }

    /// Finds control plane and token through the reference.
    #[must_use]
    pub const fn parent(self) -> Self {
        Self { is_parent: true, ..self }
    }

    /// Takes fields of the body from keys of a Secret.
    #[must_use]
    pub const fn keys(self, keys: &'static [(&'static str, &'static str)]) -> Self {
        Self { keys, ..self }
    }

    /// Returns the path of the names, for `Selection::matching`.
    pub fn name_path(&self) -> String {
        match self.shape {
            Shape::Object => format!("{}.name", self.at),
            Shape::Objects => format!("{}[].name", self.at),
            Shape::Names => format!("{}[]", self.at),
        }
    }

    /// Returns the names that an object refers to, in its order; entries without a name are left
    /// out.
    pub fn names(&self, object: &Value) -> Vec<Name> {
        let own = text(object, "metadata.namespace").unwrap_or_default();
        let Some(value) = at(object, self.at) else { return Vec::new() };
        let list = match self.shape {
            Shape::Object => std::slice::from_ref(value),
            Shape::Objects | Shape::Names => {
                value.as_array().map(Vec::as_slice).unwrap_or_default()
            }
        };
        list.iter().filter_map(|value| name(value, own)).collect()
    }
}

fn name(value: &Value, own: &str) -> Option<Name> {
    let field = |field| value.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
    let name = value.as_str().filter(|name| !name.is_empty()).or_else(|| field("name"))?;
    let namespace = field("namespace").unwrap_or(own);
    let is_foreign = namespace != own;
    Some(Name { namespace: namespace.to_owned(), name: name.to_owned(), is_foreign })
}

/// Returns the value at a path of fields, which are separated by dots.
pub fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(object, |value, field| value.get(field))
}

/// Returns the text at a path of fields.
pub fn text<'a>(object: &'a Value, path: &str) -> Option<&'a str> {
    at(object, path)?.as_str()
}
