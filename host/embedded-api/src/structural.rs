//! The compiled schema of one version of a custom resource: pruning, defaults and validation.
//!
//! [`CustomSchema`] is compiled from `openAPIV3Schema` of a CRD version and is used for every write
//! to and every read of its objects. The order in which a server applies it is
//! [`CustomSchema::default`], [`CustomSchema::prune`], [`CustomSchema::drop_nulls`], and, after the
//! strategy of the resource, [`CustomSchema::validate`].

mod check;
mod convert;
mod embedded;
mod evaluate;
mod fill;
mod format;
mod function;
mod infer;
mod limit;
mod list;
mod node;
mod prune;
mod re2;
mod rule;
#[cfg(test)]
mod tests;
mod validate;

pub(crate) use check::check;
pub(crate) use format::unrecognized_formats;
pub(crate) use prune::integral_floats;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::field_error::{FieldError, FieldPath, Kind, Shown};

#[cfg(test)]
use re2::compile as compile_pattern;

/// A compiled schema.
#[derive(Debug)]
pub(crate) struct CustomSchema {
    root: Node,
}

/// A write to validate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Write<'a> {
    /// The object to be stored.
    pub(crate) object: &'a Value,
    /// The stored object; `None` on create.
    pub(crate) old: Option<&'a Value>,
    /// True if the write goes to the status subresource: of the values, only those below `status`
    /// are validated.
    pub(crate) status: bool,
}

/// The schema of one value.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "schemas have that many")]
struct Node {
    kind: Option<Type>,
    nullable: bool,
    int_or_string: bool,
    preserve_unknown: bool,
    embedded: bool,
    list: List,
    /// True if the map is a single value: `x-kubernetes-map-type: atomic`.
    atomic_map: bool,
    default: Option<Value>,
    properties: BTreeMap<String, Node>,
    additional: Additional,
    items: Option<Box<Node>>,
    limits: limit::Limits,
    junctors: Option<Box<Junctors>>,
    rules: Vec<rule::Rule>,
    /// The features that this node or a node below it uses.
    has: Has,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

/// The identity of the items of a list (`x-kubernetes-list-type`).
#[derive(Debug, Default, Clone, PartialEq, Eq)]
enum List {
    /// Not specified: items are identified by their index.
    #[default]
    Unsaid,
    Atomic,
    Set,
    Map(Vec<String>),
}

#[derive(Debug, Default)]
enum Additional {
    /// Not specified: unknown fields are dropped.
    #[default]
    Unsaid,
    /// `true` or `false`.
    Allowed(bool),
    /// The schema of the values.
    Values(Box<Node>),
}

#[derive(Debug, Default)]
struct Junctors {
    all_of: Vec<Node>,
    any_of: Vec<Node>,
    one_of: Vec<Node>,
    not: Option<Node>,
}

#[derive(Debug, Default, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "a set of them")]
struct Has {
    defaults: bool,
    embedded: bool,
    unique_lists: bool,
    rules: bool,
}

// === impl CustomSchema ===

impl CustomSchema {
    /// Compiles `openAPIV3Schema` of a version.
    ///
    /// Invalid parts of the schema are ignored, as they are refused before a CRD is stored.
    pub(crate) fn compile(schema: &Value) -> Self {
        Self { root: Node::compile(schema) }
    }

    /// Fills in defaults for absent fields, and for null where null is not allowed.
    pub(crate) fn default(&self, object: &mut Value) {
        fill::default(object, &self.root);
    }

    /// Drops the fields that the schema does not know, and returns their paths in the order of
    /// their texts. `metadata`, `apiVersion` and `kind` at the root are left alone; inside of
    /// embedded resources the unknown fields of `metadata` are dropped, too, and their paths come
    /// last.
    pub(crate) fn prune(&self, object: &mut Value) -> Vec<String> {
        let mut unknown = prune::prune(object, &self.root);
        unknown.extend(embedded::prune_metadata(object, &self.root));
        unknown
    }

    /// Returns the error that prevents an object from being read at all: an embedded resource whose
    /// `apiVersion`, `kind` or `metadata` has the wrong type.
    pub(crate) fn unreadable(&self, object: &Value) -> Option<FieldError> {
        embedded::unreadable(&self.root, object)
    }

    /// Drops null for fields that are not nullable (defaults come first, see [`Self::default`]).
    pub(crate) fn drop_nulls(&self, object: &mut Value) {
        prune::drop_nulls(object, &self.root);
    }

    /// Validates a write. `found` are errors found already (those of the metadata), which come
    /// first in the answer, and `scale` those of the subresource `scale`, which follow those of the
    /// schema. Rules are not evaluated if an error shows that the object does not have the
    /// structure that rules rely on.
    ///
    /// On updates, errors of values that did not change are not reported; those that rules find go
    /// to `doubts`, as texts of warnings.
    pub(crate) fn validate(
        &self,
        write: Write<'_>,
        found: Vec<FieldError>,
        scale: Vec<FieldError>,
        doubts: &mut Vec<String>,
    ) -> Vec<FieldError> {
        let mut errors = found;
        if write.status {
            self.validate_status(write, &mut errors);
            errors.extend(scale);
        } else {
            errors.extend(validate::validate(&self.root, write.object, write.old, None));
            errors.extend(scale);
            errors.extend(embedded::validate(&self.root, write.object));
        }
        if self.root.has.unique_lists {
            let unchanged =
                write.old.is_some_and(|old| !list::validate(&self.root, old).is_empty());
            if !unchanged {
                errors.extend(list::validate(&self.root, write.object));
            }
        }
        if self.root.has.rules {
            if let Some(error) = blocks_rules(&errors) {
                errors.push(error);
            } else {
                let found = evaluate::validate(&self.root, write.object, write.old);
                errors.extend(found.errors);
                doubts.extend(found.doubts.iter().map(ToString::to_string));
            }
        }
        errors
    }

    fn validate_status(&self, write: Write<'_>, errors: &mut Vec<FieldError>) {
        let (Some(node), Some(status)) =
            (self.root.properties.get("status"), write.object.get("status"))
        else {
            return;
        };
        let old = write.old.and_then(|old| old.get("status"));
        errors.extend(validate::validate(node, status, old, Some("status")));
    }
}

/// Returns the error to report instead of evaluating rules, if the object does not have the
/// structure that rules rely on.
fn blocks_rules(errors: &[FieldError]) -> Option<FieldError> {
    let blocking = errors.iter().any(|error| {
        matches!(
            error.kind,
            Kind::NotSupported | Kind::Required | Kind::TooLong | Kind::TooMany | Kind::TypeInvalid
        )
    });
    blocking.then(|| {
        FieldError::invalid(
            FieldPath::root(),
            Shown::Raw("null".to_owned()),
            "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation",
        )
    })
}

// === impl Type ===

impl Type {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}
