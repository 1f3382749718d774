//! The types of a kind's fields, as server-side apply and strategic merge patch see them.
//!
//! A [`Schema`] is built from the `OpenAPI` definitions of the built-in kinds and from a CRD
//! version's `openAPIV3Schema`, by the rules with which kube-openapi makes a schema of
//! structured-merge-diff out of them. It defines which fields may exist, which lists are maps or
//! sets, and which values are atomic; it validates no values (`structural` does).
//!
//! Definitions refer to each other, some to themselves: a reference is resolved on first use, once
//! per process.

mod parse;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, OnceLock},
};

use serde_json::Value;

const BUILT_IN: &str = include_str!("schemas-1.34.json");
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The type of all objects of one kind in one version. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Schema(Arc<Type>);

/// The type of a value; definitions are resolved on first use.
#[derive(Debug, Default)]
pub(crate) struct Type {
    target: Target,
    /// The atomicity that a field declares for its type, if any; overrides that of the type.
    atomic: Option<bool>,
}

#[derive(Debug, Default)]
enum Target {
    Atom(Box<Atom>),
    Definition(&'static Definition),
    /// Any value: scalars, atomic lists, and maps whose fields are owned one by one.
    Deduced,
    /// Any value, atomic.
    #[default]
    Untyped,
}

/// The forms that a value may have: at most one of each. If there are several, the value decides.
#[derive(Debug, Clone, Default)]
pub(crate) struct Atom {
    scalar: Option<Scalar>,
    list: Option<List>,
    map: Option<Map>,
}

/// The type of a scalar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scalar {
    /// Integers and floats.
    Numeric,
    /// Texts.
    String,
    /// `true` and `false`.
    Boolean,
    /// Any scalar: quantities, times, texts with a format, int-or-string.
    Untyped,
}

/// The type of a list.
#[derive(Debug, Clone, Default)]
pub(crate) struct List {
    /// The type of the items.
    pub(crate) items: Arc<Type>,
    pub(crate) relation: Relation,
    /// The treatment of the list by strategic merge patch.
    pub(crate) strategy: Strategy,
}

/// The identity of the items of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Relation {
    /// The list is a single value.
    #[default]
    Atomic,
    /// Each value occurs once and identifies itself.
    Set,
    /// Items are identified by these fields.
    Map(Vec<String>),
}

/// The type of an object with declared fields, of a map, or of both.
#[derive(Debug, Clone, Default)]
pub(crate) struct Map {
    /// The declared fields, sorted by name.
    fields: Vec<Field>,
    /// The type of values under undeclared keys; `None` if there may be no such keys.
    rest: Option<Arc<Type>>,
    /// True if the object is a single value.
    pub(crate) atomic: bool,
}

/// A declared field of an object.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    name: String,
    type_: Arc<Type>,
    /// The value that an absent field counts as; for keys of list maps.
    default: Option<Value>,
    /// The treatment of the value by strategic merge patch, unless it is a list.
    pub(crate) strategy: Strategy,
}

/// `x-kubernetes-patch-strategy` and `-merge-key`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Strategy {
    /// True if items are merged; otherwise a list is replaced.
    pub(crate) merge: bool,
    /// The field that identifies items; `None` for scalars.
    pub(crate) key: Option<String>,
    /// True if `$retainKeys` is supported.
    pub(crate) retain_keys: bool,
    /// True if a map is replaced.
    pub(crate) replace: bool,
}

/// The form by which a walker treats a value, after the value chose among the forms of its type.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape<'a> {
    /// A value without parts.
    Scalar(Scalar),
    /// A list; true if the list is a single value.
    List(&'a List, bool),
    /// A map; true if the map is a single value.
    Map(&'a Map, bool),
}

#[derive(Debug)]
struct Definition {
    name: String,
    source: Value,
    atom: OnceLock<Atom>,
}

static DEFINITIONS: LazyLock<HashMap<String, Definition>> = LazyLock::new(|| {
    let definitions: HashMap<String, Value> =
        serde_json::from_str(BUILT_IN).expect("the schemas that are compiled in are JSON");
    let each = definitions.into_iter();
    each.map(|(name, source)| (name.clone(), Definition { name, source, atom: OnceLock::new() }))
        .collect()
});

static BY_KIND: LazyLock<HashMap<(String, String), Schema>> = LazyLock::new(|| {
    let mut kinds = HashMap::new();
    for definition in DEFINITIONS.values() {
        for (api_version, kind) in parse::kinds_of(&definition.source) {
            kinds.insert((api_version, kind), Schema::of_definition(definition));
        }
    }
    kinds
});

static DEDUCED_TYPE: LazyLock<Type> = LazyLock::new(Type::deduced);

static DEDUCED: LazyLock<Atom> = LazyLock::new(|| Atom {
    scalar: Some(Scalar::Untyped),
    list: Some(List::default()),
    map: Some(Map { rest: Some(Arc::new(Type::deduced())), ..Map::default() }),
});

static UNTYPED: LazyLock<Atom> = LazyLock::new(|| Atom {
    scalar: Some(Scalar::Untyped),
    list: Some(List::default()),
    map: Some(Map { rest: Some(Arc::default()), atomic: true, ..Map::default() }),
});

// === impl Schema ===

impl Schema {
    /// Returns the schema of a built-in kind, by `apiVersion` and `kind`.
    pub(crate) fn built_in(api_version: &str, kind: &str) -> Option<Self> {
        BY_KIND.get(&(api_version.to_owned(), kind.to_owned())).cloned()
    }

    /// Returns the schema of a custom resource, from the `openAPIV3Schema` of one version of its
    /// CRD.
    pub(crate) fn custom(open_api: &Value, preserve_unknown: bool) -> Self {
        Self(Arc::new(parse::custom_root(open_api, preserve_unknown)))
    }

    /// Returns the schema of a kind without one: all fields are kept, lists are atomic, metadata
    /// has its usual type.
    pub(crate) fn untyped() -> Self {
        Self::custom(&serde_json::json!({"type": "object"}), true)
    }

    fn of_definition(definition: &'static Definition) -> Self {
        Self(Arc::new(Type { target: Target::Definition(definition), atomic: None }))
    }

    /// Returns the type of the whole object.
    pub(crate) fn root(&self) -> &Type {
        &self.0
    }
}

// === impl Type ===

impl Type {
    fn deduced() -> Self {
        Self { target: Target::Deduced, atomic: None }
    }

    fn inline(atom: Atom) -> Self {
        Self { target: Target::Atom(Box::new(atom)), atomic: None }
    }

    /// Returns the type of a definition by name; untyped if there is none.
    fn named(name: &str, atomic: Option<bool>) -> Self {
        let target = DEFINITIONS.get(name).map_or(Target::Untyped, Target::Definition);
        Self { target, atomic }
    }

    fn atom(&self) -> &Atom {
        match &self.target {
            Target::Atom(atom) => atom,
            Target::Definition(definition) => definition.atom(),
            Target::Deduced => &DEDUCED,
            Target::Untyped => &UNTYPED,
        }
    }

    /// Returns the form of `value`: the part of the type that fits `value`, else
    /// [`Self::first_shape`].
    pub(crate) fn shape(&self, value: &Value) -> Shape<'_> {
        let atom = self.atom();
        let fitting = match value {
            Value::Null => None,
            Value::Array(_) => atom.list.as_ref().map(|list| self.list(list)),
            Value::Object(_) => atom.map.as_ref().map(|map| self.map_of(map)),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => atom.scalar.map(Shape::Scalar),
        };
        fitting.unwrap_or_else(|| self.first_shape())
    }

    /// Returns the form of a value that fits no part of the type.
    pub(crate) fn first_shape(&self) -> Shape<'_> {
        match self.atom() {
            Atom { map: Some(map), .. } => self.map_of(map),
            Atom { scalar: Some(scalar), .. } => Shape::Scalar(*scalar),
            Atom { list: Some(list), .. } => self.list(list),
            Atom { .. } => Shape::Scalar(Scalar::Untyped),
        }
    }

    fn list<'a>(&self, list: &'a List) -> Shape<'a> {
        Shape::List(list, self.atomic.unwrap_or(list.relation == Relation::Atomic))
    }

    fn map_of<'a>(&self, map: &'a Map) -> Shape<'a> {
        Shape::Map(map, self.atomic.unwrap_or(map.atomic))
    }

    /// Returns the type of the items, if the type allows a list.
    pub(crate) fn items(&self) -> Option<&Type> {
        self.atom().list.as_ref().map(|list| &*list.items)
    }

    /// Returns the part of the type for objects, if any.
    pub(crate) fn map(&self) -> Option<&Map> {
        self.atom().map.as_ref()
    }
}

// === impl Map ===

impl Map {
    /// Returns the declared field of this name, if any.
    pub(crate) fn field(&self, name: &str) -> Option<&Field> {
        let at = self.fields.binary_search_by(|field| field.name.as_str().cmp(name)).ok()?;
        self.fields.get(at)
    }

    /// Returns the type of the value under this key, declared or not; `None` if the key is not
    /// allowed.
    pub(crate) fn type_of(&self, name: &str) -> Option<&Type> {
        self.field(name).map_or(self.rest.as_deref(), |field| Some(&field.type_))
    }

    /// Returns the type of the value under this key, for values that were accepted before: a key
    /// that is not allowed has any type.
    pub(crate) fn type_of_present(&self, name: &str) -> &Type {
        self.type_of(name).unwrap_or(&DEDUCED_TYPE)
    }
}

// === impl Field ===

impl Field {
    /// Returns the value that the field counts as if absent, if any.
    pub(crate) fn default(&self) -> Option<&Value> {
        self.default.as_ref()
    }
}

// === impl Definition ===

impl Definition {
    fn atom(&self) -> &Atom {
        self.atom.get_or_init(|| parse::definition(&self.name, &self.source))
    }
}
