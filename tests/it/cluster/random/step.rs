//! The requests of a random sequence, and their generation.
//!
//! A step is generated before any request is sent. Values that depend on an answer are
//! placeholders, which each server's own last answer fills: `${uid}`, `${current}` and `${stale}`
//! (resource versions).

use std::{fmt::Write as _, sync::Arc};

use proptest::{
    collection::vec,
    option,
    prelude::{BoxedStrategy, Just, Strategy, any},
    prop_oneof, sample,
    strategy::Union,
};
use serde_json::{Map, Value, json};

use super::{kind::Kind, value};

/// The requests of a sequence, all about one kind.
#[derive(Debug, Clone)]
pub(super) struct Sequence {
    pub(super) kind: Arc<Kind>,
    pub(super) steps: Vec<Step>,
}

/// A request.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) method: &'static str,
    pub(super) version: String,
    /// The name of the object; `None`: the collection.
    pub(super) name: Option<&'static str>,
    /// `status` or `scale`; empty for the object itself.
    pub(super) subresource: &'static str,
    pub(super) query: String,
    pub(super) content_type: Option<&'static str>,
    pub(super) body: Body,
}

/// The body of a request.
#[derive(Debug, Clone)]
pub(super) enum Body {
    None,
    /// This value.
    Given(Value),
    /// The last object that the server returned, with these fields in place of its own; in
    /// `metadata`, field by field.
    Edited(Value),
}

/// The field managers that apply.
const MANAGERS: [&str; 3] = ["m1", "m2", "m3"];
/// The prefix of generated names.
pub(super) const GENERATED: &str = "g-";
/// Excludes the service account that a controller creates in every namespace.
const NOT_DEFAULT: &str = "&fieldSelector=metadata.name%21%3Ddefault";
const MAX_STEPS: usize = 13;
/// The share of requests for a subresource.
const SUBRESOURCES: f64 = 0.2;

/// Generates sequences about one of these kinds.
pub(super) fn sequence(kinds: Vec<Kind>) -> BoxedStrategy<Sequence> {
    Union::new(kinds.into_iter().map(|kind| of(&Arc::new(kind)))).boxed()
}

fn of(kind: &Arc<Kind>) -> BoxedStrategy<Sequence> {
    let first = prop_oneof![create(kind).boxed(), apply(kind).boxed()];
    let kind = Arc::clone(kind);
    (first, vec(step(&kind), 2..=MAX_STEPS))
        .prop_map(move |(first, mut steps)| {
            steps.insert(0, first);
            Sequence { kind: Arc::clone(&kind), steps }
        })
        .boxed()
}

fn step(kind: &Arc<Kind>) -> impl Strategy<Value = Step> + use<> {
    prop_oneof![
        8 => create(kind).boxed(),
        36 => apply(kind).boxed(),
        14 => update(kind).boxed(),
        10 => json_patch(kind).boxed(),
        12 => merge_patch(kind).boxed(),
        8 => strategic_patch(kind).boxed(),
        9 => delete(kind).boxed(),
        1 => delete_all(kind).boxed(),
        2 => read(kind).boxed(),
    ]
}

// === requests ===

fn create(kind: &Arc<Kind>) -> impl Strategy<Value = Step> + use<> {
    let place = place(kind, 0.0);
    let parts = (place, object(kind), query(false), option::weighted(0.05, Just(())));
    parts.prop_map(|(mut place, object, query, is_generated)| {
        let mut object = place.typed(object);
        match is_generated {
            Some(()) => object["metadata"]["generateName"] = json!(GENERATED),
            None => object["metadata"]["name"] = json!(place.name),
        }
        place.step("POST", query, Some("application/json"), Body::Given(object)).of_all()
    })
}

fn apply(kind: &Arc<Kind>) -> impl Strategy<Value = Step> + use<> {
    let parts = (place(kind, SUBRESOURCES), object(kind), query(true));
    parts.prop_map(|(mut place, object, query)| {
        let mut object = place.typed(object);
        object["metadata"]["name"] = json!(place.name);
        place.step("PATCH", query, Some("application/apply-patch+yaml"), Body::Given(object))
    })
}

/// Generates an update: the object is read, edited and written back.
fn update(kind: &Arc<Kind>) -> impl Strategy<Value = Step> + use<> {
    let version = prop_oneof![
        12 => Just(None),
        3 => Just(Some(Value::Null)),
        2 => Just(Some(json!("${stale}"))),
        1 => Just(Some(json!("1"))),
    ];
    let parts = (place(kind, SUBRESOURCES), object(kind), query(false), version);
    parts.prop_map(|(mut place, object, query, version)| {
        let mut object = place.typed(object);
        object["metadata"]["name"] = json!(place.name);
        if let Some(version) = version {
            object["metadata"]["resourceVersion"] = version;
        }
        place.step("PUT", query, Some("application/json"), Body::Edited(object))
    })
}

fn merge_patch(kind: &Arc<Kind>) -> impl Strategy<Value = Step> + use<> {
    let parts = (place(kind, SUBRESOURCES), holes(kind), query(false));
    parts.prop_map(|(mut place, object, query)| {
        let object = place.cut(object);
        place.step("PATCH", query, Some("application/merge-patch+json"), Body::Given(object))
    })
}

fn strategic_patch(kind: &Arc<Kind>) -> impl Strategy<Value = Step> + use<> {
    let parts = (place(kind, SUBRESOURCES), holes(kind), query(false));
    parts.prop_map(|(mut place, object, query)| {
        let object = place.cut(object);
        place.step(
            "PATCH",
            query,
            Some("application/strategic-merge-patch+json"),
            Body::Given(object),
        )
    })
}

fn json_patch(kind: &Arc<Kind>) -> impl Strategy<Value = Step> + use<> {
    let verb = prop_oneof![
        5 => Just("add"), 4 => Just("replace"), 4 => Just("remove"), 1 => Just("test"), 1 => Just("move"), 1 => Just("copy"),
    ];
    let operation = (verb, any::<sample::Index>(), any::<sample::Index>());
    let parts = (place(kind, SUBRESOURCES), object(kind), vec(operation, 1..3), query(false));
    parts.prop_map(|(mut place, object, operations, query)| {
        let object = Value::Object(place.cut_map(object));
        let mut places = Vec::new();
        pointers(&object, &mut String::new(), &mut places);
        let operation = |(verb, at, from): &(&str, sample::Index, sample::Index)| {
            let (path, value) = &places[at.index(places.len())];
            let from = &places[from.index(places.len())].0;
            match *verb {
                "remove" => json!({"op": verb, "path": path}),
                "move" | "copy" => json!({"op": verb, "path": path, "from": from}),
                _ => json!({"op": verb, "path": path, "value": value}),
            }
        };
        let body = Value::Array(operations.iter().map(operation).collect());
        place.step("PATCH", query, Some("application/json-patch+json"), Body::Given(body))
    })
}

fn delete(kind: &Arc<Kind>) -> impl Strategy<Value = Step> + use<> {
    let precondition = prop_oneof![
        5 => Just(json!({})),
        2 => Just(json!({"uid": "${uid}"})),
        1 => Just(json!({"uid": "11111111-2222-3333-4444-555555555555"})),
        2 => Just(json!({"resourceVersion": "${current}"})),
        1 => Just(json!({"resourceVersion": "${stale}"})),
        1 => Just(json!({"uid": "${uid}", "resourceVersion": "${current}"})),
    ];
    let is_dry = option::weighted(0.05, Just(()));
    (place(kind, 0.0), precondition, is_dry).prop_map(|(mut place, precondition, is_dry)| {
        let mut options =
            json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
        if precondition != json!({}) {
            options["preconditions"] = precondition;
        }
        if is_dry.is_some() {
            options["dryRun"] = json!(["All"]);
        }
        place.step("DELETE", String::new(), Some("application/json"), Body::Given(options))
    })
}

fn delete_all(kind: &Arc<Kind>) -> impl Strategy<Value = Step> + use<> {
    let selector =
        sample::select(vec!["", "labelSelector=a%3Db", "labelSelector=a", "labelSelector=%21a"]);
    (place(kind, 0.0), selector).prop_map(|(mut place, selector)| {
        place.step("DELETE", selector.to_owned(), None, Body::None).of_all()
    })
}

fn read(kind: &Arc<Kind>) -> impl Strategy<Value = Step> + use<> {
    (place(kind, SUBRESOURCES), any::<bool>()).prop_map(|(mut place, is_list)| {
        let step = place.step("GET", String::new(), None, Body::None);
        if is_list { step.of_all() } else { step }
    })
}

// === parts ===

/// An object's place: kind, version, name and subresource.
#[derive(Debug, Clone)]
struct Place {
    kind: Arc<Kind>,
    version: String,
    name: &'static str,
    subresource: &'static str,
}

fn place(kind: &Arc<Kind>, subresources: f64) -> impl Strategy<Value = Place> + use<> {
    let mut choices = Vec::new();
    choices.extend(kind.has_status.then_some("status"));
    choices.extend(kind.has_scale.then_some("scale"));
    let chance = if choices.is_empty() { 0.0 } else { subresources };
    choices.push("");
    let subresource = option::weighted(chance.max(f64::EPSILON), sample::select(choices));
    let name = prop_oneof![9 => Just("a"), 1 => Just("b")];
    let version = sample::select(kind.versions.clone());
    let kind = Arc::clone(kind);
    (subresource, name, version).prop_map(move |(subresource, name, version)| {
        let subresource = subresource.unwrap_or_default();
        Place { kind: Arc::clone(&kind), version, name, subresource }
    })
}

impl Place {
    fn step(
        &mut self,
        method: &'static str,
        query: String,
        content_type: Option<&'static str>,
        body: Body,
    ) -> Step {
        let (version, name) = (std::mem::take(&mut self.version), Some(self.name));
        Step { method, version, name, subresource: self.subresource, query, content_type, body }
    }

    /// Adds the type to an object; for `scale`, returns a `Scale` with the replicas only.
    fn typed(&self, fields: Map<String, Value>) -> Value {
        let mut object = Value::Object(self.cut_map(fields));
        let (api_version, kind) = match self.subresource {
            "scale" => ("autoscaling/v1".to_owned(), "Scale"),
            _ => (self.kind.api_version(&self.version), self.kind.name.as_str()),
        };
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        object
    }

    fn cut(&self, object: Map<String, Value>) -> Value {
        Value::Object(self.cut_map(object))
    }

    fn cut_map(&self, mut object: Map<String, Value>) -> Map<String, Value> {
        if self.subresource == "scale" {
            let replicas = object.get("spec").and_then(|spec| spec.get("replicas")).cloned();
            object.retain(|key, _| key == "metadata");
            object.insert("spec".to_owned(), json!({"replicas": replicas.unwrap_or(json!(2))}));
        }
        object
    }
}

impl Step {
    /// Returns a read of the whole collection.
    pub(super) fn list(version: &str) -> Self {
        Self {
            method: "GET",
            version: version.to_owned(),
            name: None,
            subresource: "",
            query: String::new(),
            content_type: None,
            body: Body::None,
        }
    }

    /// Returns the same request for the whole collection.
    fn of_all(self) -> Self {
        Self { name: None, subresource: "", ..self }
    }

    /// Returns the path and the query.
    pub(super) fn path(&self, kind: &Kind, namespace: &str) -> String {
        let mut path = kind.collection(&self.version, namespace);
        for part in
            self.name.into_iter().chain(Some(self.subresource).filter(|part| !part.is_empty()))
        {
            path.push('/');
            path.push_str(part);
        }
        let mut query = self.query.clone();
        if kind.name == "ServiceAccount" && self.name.is_none() && self.method != "POST" {
            query.push_str(NOT_DEFAULT);
        }
        if !query.is_empty() {
            write!(path, "?{}", query.trim_start_matches('&')).expect("a String takes all");
        }
        path
    }
}

/// Generates `fieldManager`, `force`, `fieldValidation` and `dryRun`.
fn query(is_apply: bool) -> impl Strategy<Value = String> {
    let manager =
        option::weighted(if is_apply { 0.99 } else { 0.4 }, sample::select(&MANAGERS[..]));
    let force = prop_oneof![6 => Just(""), 4 => Just("true"), 1 => Just("false")];
    let validation =
        prop_oneof![14 => Just(""), 2 => Just("Strict"), 2 => Just("Warn"), 2 => Just("Ignore")];
    let dry = option::weighted(0.04, Just("All"));
    (manager, force, validation, dry).prop_map(move |(manager, force, validation, dry)| {
        let parts = [
            ("fieldManager", manager.unwrap_or_default()),
            ("force", if is_apply { force } else { "" }),
            ("fieldValidation", validation),
            ("dryRun", dry.unwrap_or_default()),
        ];
        let parts = parts.iter().filter(|(_, value)| !value.is_empty());
        parts.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join("&")
    })
}

/// Generates the fields of an object, with metadata but without its type and name.
fn object(kind: &Arc<Kind>) -> impl Strategy<Value = Map<String, Value>> + use<> {
    (value::fields(&kind.schema), metadata()).prop_map(|(mut object, metadata)| {
        object.insert("metadata".to_owned(), metadata);
        object
    })
}

/// Generates fields as [`object`] does, with some values replaced by null.
fn holes(kind: &Arc<Kind>) -> impl Strategy<Value = Map<String, Value>> + use<> {
    let holes = vec(any::<sample::Index>(), 0..3);
    (object(kind), holes).prop_map(|(object, holes)| {
        let mut object = Value::Object(object);
        let mut places = Vec::new();
        pointers(&object, &mut String::new(), &mut places);
        for hole in holes {
            let (path, _) = &places[hole.index(places.len())];
            if let Some(value) = object.pointer_mut(path) {
                *value = Value::Null;
            }
        }
        match object {
            Value::Object(object) => object,
            _ => Map::new(),
        }
    })
}

fn metadata() -> impl Strategy<Value = Value> {
    let map = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let finalizers = json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"enum": ["example.dev/x", "example.dev/y"]}});
    let labels = option::weighted(0.4, value::value(&map));
    let annotations = option::weighted(0.3, value::value(&map));
    let finalizers = option::weighted(0.15, value::value(&finalizers));
    let managed = option::weighted(0.01, sample::select(vec![json!([]), json!([{}])]));
    let uid = option::weighted(0.02, Just(json!("${uid}")));
    let versions = sample::select(vec![json!("${current}"), json!("${stale}")]);
    let version = option::weighted(0.03, versions);
    let parts = (labels, annotations, finalizers, managed, uid, version);
    parts.prop_map(|(labels, annotations, finalizers, managed, uid, version)| {
        let fields = [
            ("uid", uid),
            ("resourceVersion", version),
            ("labels", labels),
            ("annotations", annotations),
            ("finalizers", finalizers),
            ("managedFields", managed),
        ];
        fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
    })
}

/// Collects the pointers of all places below a value, with their values.
fn pointers(value: &Value, at: &mut String, out: &mut Vec<(String, Value)>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), value)).collect(),
        Value::Array(items) => {
            items.iter().enumerate().map(|(at, value)| (at.to_string(), value)).collect()
        }
        _ => Vec::new(),
    };
    for (key, value) in children {
        let length = at.len();
        at.push('/');
        at.push_str(&key.replace('~', "~0").replace('/', "~1"));
        out.push((at.clone(), value.clone()));
        pointers(value, at, out);
        at.truncate(length);
    }
}
