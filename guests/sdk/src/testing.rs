//! The host's contract in memory: reads over a set of objects, a clock that stands still, a log that can be looked at.
//!
//! ```
//! use mortise_sdk::{kubernetes::Service, testing::Stub};
//! use serde_json::json;
//!
//! let stub = Stub::new().objects([json!({
//!     "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
//!     "spec": {"selector": {"app": "web"}, "clusterIP": "10.0.0.1"},
//! })]);
//! let service: Option<Service> = stub.host().get(Some("shop"), "web", &["spec.selector"]).unwrap();
//! assert_eq!(service.unwrap().spec.selector["app"], "web");
//! ```

mod labels;
mod path;

use std::{cell::RefCell, collections::BTreeSet, rc::Rc};

use serde_json::Value;

use crate::{
    Description, Host, Kind, Level, ObjectRef, Request, Selection,
    bindings::mortise::host::{cluster::Page, types::ReadError},
    host::Source,
    selection, time,
};
use labels::Selector;
use path::{Fields, Path};

/// What the host knows, as a test decides it. Clones share it.
#[derive(Clone)]
pub struct Stub {
    state: Rc<RefCell<State>>,
}

/// One read that was made.
#[derive(Debug, Clone, PartialEq)]
pub enum Read {
    /// One object, and the fields that were asked for.
    Get(ObjectRef, Vec<String>),
    /// A page of a selection.
    List(Selection),
}

/// One line of the log.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// How loud.
    pub level: Level,
    /// What was said.
    pub message: String,
    /// With which fields.
    pub fields: Vec<(String, String)>,
}

struct State {
    objects: Vec<Value>,
    /// Group and kind of what the cluster does not know.
    missing: BTreeSet<(String, String)>,
    /// Kinds that cannot be read now.
    unavailable: BTreeSet<String>,
    declared: Option<Description>,
    now: u64,
    page: usize,
    asked_clock: u32,
    reads: Vec<Read>,
    log: Vec<Line>,
}

/// A first request for an object of the reconciler `""`: without the object, without a configuration.
pub fn request(reference: ObjectRef) -> Request {
    Request {
        reconciler: String::new(),
        parent: None,
        context: String::new(),
        ref_: reference,
        object: None,
        config: String::new(),
        attempt: 0,
        failed_writes: Vec::new(),
    }
}

/// A first request for an object that is there.
pub fn request_for(object: &Value) -> Request {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
    let (group, version) = group_version(object);
    let kind = Kind::new(group, version, text("/kind").unwrap_or_default());
    let reference = ObjectRef::new(
        kind,
        text("/metadata/namespace"),
        text("/metadata/name").unwrap_or_default(),
    );
    Request { object: Some(object.to_string()), ..request(reference) }
}

// === impl Stub ===

impl Default for Stub {
    fn default() -> Self {
        Self::new()
    }
}

impl Stub {
    /// A cluster without objects that knows every kind, at 2026-01-01T00:00:00Z.
    pub fn new() -> Self {
        let state = State {
            objects: Vec::new(),
            missing: BTreeSet::new(),
            unavailable: BTreeSet::new(),
            declared: None,
            now: 1_767_225_600_000,
            page: usize::MAX,
            asked_clock: 0,
            reads: Vec::new(),
            log: Vec::new(),
        };
        Self { state: Rc::new(RefCell::new(state)) }
    }

    /// Adds objects; one with the same group, kind, namespace and name is replaced.
    #[must_use]
    pub fn objects(self, objects: impl IntoIterator<Item = Value>) -> Self {
        for object in objects {
            self.set(object);
        }
        self
    }

    /// Adds one object, or replaces it.
    pub fn set(&self, object: Value) {
        let objects = &mut self.state.borrow_mut().objects;
        objects.retain(|other| identity(other) != identity(&object));
        objects.push(object);
        objects.sort_by(|a, b| place(a).cmp(&place(b)));
    }

    /// A kind that the cluster does not know.
    #[must_use]
    pub fn without_kind(self, group: &str, kind: &str) -> Self {
        self.state.borrow_mut().missing.insert((group.to_owned(), kind.to_owned()));
        self
    }

    /// A kind that cannot be read now.
    #[must_use]
    pub fn unavailable(self, kind: &str) -> Self {
        self.state.borrow_mut().unavailable.insert(kind.to_owned());
        self
    }

    /// Denies what this description does not declare.
    #[must_use]
    pub fn declared(self, description: Description) -> Self {
        self.state.borrow_mut().declared = Some(description);
        self
    }

    /// The time of the call, in RFC 3339.
    ///
    /// # Panics
    ///
    /// If it is not a time in UTC.
    #[must_use]
    pub fn at(self, now: &str) -> Self {
        self.state.borrow_mut().now = time::parse(now).expect("a time in RFC 3339 that ends in Z");
        self
    }

    /// Answers lists in pages of at most this many objects.
    #[must_use]
    pub fn page(self, objects: usize) -> Self {
        self.state.borrow_mut().page = objects.max(1);
        self
    }

    /// What a processor's logic is handed.
    pub fn host(&self) -> Host {
        Host::new(Rc::new(self.clone()))
    }

    /// How often the clock was asked.
    pub fn asked_clock(&self) -> u32 {
        self.state.borrow().asked_clock
    }

    /// The reads so far.
    pub fn reads(&self) -> Vec<Read> {
        self.state.borrow().reads.clone()
    }

    /// The log so far.
    pub fn lines(&self) -> Vec<Line> {
        self.state.borrow().log.clone()
    }
}

impl Source for Stub {
    fn get(&self, reference: &ObjectRef, fields: &[String]) -> Result<Option<String>, ReadError> {
        let state = &mut *self.state.borrow_mut();
        state.reads.push(Read::Get(reference.clone(), fields.to_vec()));
        let mut selection =
            Selection::new(reference.kind.clone()).name(&reference.name).fields(fields);
        selection.namespace.clone_from(&reference.namespace);
        state.check(&selection, &selection::named(reference))?;
        let wanted = state.fields(&selection)?;
        let found = state.objects.iter().find(|object| {
            is_kind(object, &reference.kind)
                && place(object) == (reference.namespace.as_deref(), reference.name.as_str())
        });
        Ok(found.map(|object| answer(object, &wanted, &reference.kind)))
    }

    fn list(&self, of: &Selection, limit: u32, from: Option<&str>) -> Result<Page, ReadError> {
        let state = &mut *self.state.borrow_mut();
        state.reads.push(Read::List(of.clone()));
        state.check(of, &format!("a list of `{}`", of.kind.kind))?;
        let wanted = state.fields(of)?;
        let selector = Selector::parse(&of.labels).map_err(ReadError::Invalid)?;
        let matching = parse_matching(of)?;
        let start = from.map_or(Ok(0), |token| {
            token.parse::<usize>().map_err(|error| ReadError::Invalid(error.to_string()))
        })?;
        let limit = usize::try_from(limit)
            .ok()
            .filter(|limit| *limit > 0)
            .unwrap_or(usize::MAX)
            .min(state.page);
        let mut found = state.objects.iter().filter(|object| {
            let (namespace, name) = place(object);
            is_kind(object, &of.kind)
                && of.namespace.as_deref().is_none_or(|wanted| namespace == Some(wanted))
                && of.name.as_deref().is_none_or(|wanted| name == wanted)
                && selector.matches(object.pointer("/metadata/labels"))
                && matching.iter().all(|(path, value)| path.holds(object, value))
        });
        let objects = found
            .by_ref()
            .skip(start)
            .take(limit)
            .map(|object| answer(object, &wanted, &of.kind))
            .collect();
        let next = found.next().map(|_| (start + limit).to_string());
        Ok(Page { objects, next })
    }

    fn now(&self) -> u64 {
        let mut state = self.state.borrow_mut();
        state.asked_clock += 1;
        state.now
    }

    fn log(&self, level: Level, message: &str, fields: &[(String, String)]) {
        let line = Line { level, message: message.to_owned(), fields: fields.to_vec() };
        self.state.borrow_mut().log.push(line);
    }
}

// === impl State ===

impl State {
    /// Whether a read is answered at all.
    fn check(&self, of: &Selection, what: &str) -> Result<(), ReadError> {
        if !of.cluster.is_empty() {
            return Err(ReadError::Denied(format!("{what}: there is no cluster `{}`", of.cluster)));
        }
        if let Some(declared) = &self.declared {
            if !declared.reads.iter().any(|read| covers(read, of)) {
                return Err(ReadError::Denied(format!(
                    "{what} with {:?} is not declared",
                    of.fields
                )));
            }
        }
        if self.unavailable.contains(&of.kind.kind) {
            return Err(ReadError::Unavailable(format!("{what}: as the test wants it")));
        }
        if self.missing.contains(&(of.kind.group.clone(), of.kind.kind.clone())) {
            return Err(ReadError::UnknownKind);
        }
        Ok(())
    }

    /// What an answer holds: what was asked for, or all that was declared of the kind.
    fn fields(&self, of: &Selection) -> Result<Fields, ReadError> {
        let declared = self.declared.as_ref().map_or(&[][..], |declared| &declared.reads);
        let mut of_kind = declared.iter().filter(|read| covers(read, of)).peekable();
        let paths: Vec<&String> = if !of.fields.is_empty() {
            of.fields.iter().collect()
        } else if of_kind.peek().is_some() && of_kind.clone().all(|read| !read.fields.is_empty()) {
            of_kind.flat_map(|read| &read.fields).collect()
        } else {
            return Ok(Fields::whole());
        };
        let paths: Result<Vec<Path>, String> =
            paths.into_iter().map(|path| Path::parse(path)).collect();
        Ok(Fields::of(&paths.map_err(ReadError::Invalid)?))
    }
}

/// Whether a declared read holds all that a selection can select, and its fields.
fn covers(declared: &Selection, of: &Selection) -> bool {
    let holds = |declared: &str, wanted: &str| declared == "*" || declared == wanted;
    let within = |declared: Option<&String>, wanted: Option<&String>| {
        declared.is_none() || declared == wanted
    };
    let field = |wanted: &String| {
        declared.fields.iter().any(|field| match wanted.strip_prefix(field.as_str()) {
            Some(rest) => rest.is_empty() || rest.starts_with(['.', '[']),
            None => false,
        }) || Path::parse(wanted).is_ok_and(|path| path.is_always_there())
    };
    holds(&declared.kind.group, &of.kind.group)
        && holds(&declared.kind.version, &of.kind.version)
        && holds(&declared.kind.kind, &of.kind.kind)
        && within(declared.namespace.as_ref(), of.namespace.as_ref())
        && within(declared.name.as_ref(), of.name.as_ref())
        && declared.matching.iter().all(|pair| pair.1 == "*" || of.matching.contains(pair))
        && (declared.labels.is_empty() || declared.labels == of.labels)
        && (declared.fields.is_empty() || of.fields.iter().all(field))
}

fn parse_matching(of: &Selection) -> Result<Vec<(Path, &str)>, ReadError> {
    let parse =
        |(path, value): &'_ (String, String)| Path::parse(path).map(|path| (path, value.clone()));
    let parsed: Result<Vec<(Path, String)>, String> = of.matching.iter().map(parse).collect();
    let parsed = parsed.map_err(ReadError::Invalid)?;
    Ok(parsed
        .into_iter()
        .zip(&of.matching)
        .map(|((path, _), (_, value))| (path, value.as_str()))
        .collect())
}

/// An object as the contract answers it: cut down to the fields, in the version that was asked for.
fn answer(object: &Value, wanted: &Fields, kind: &Kind) -> String {
    let mut projected = wanted.project(object);
    if let Some(object) = projected.as_object_mut() {
        object.insert("apiVersion".to_owned(), kind.api_version().into());
    }
    projected.to_string()
}

fn group_version(object: &Value) -> (&str, &str) {
    let api_version = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// Every version of a kind shows the same objects.
fn is_kind(object: &Value, kind: &Kind) -> bool {
    group_version(object).0 == kind.group
        && object.get("kind").and_then(Value::as_str) == Some(&kind.kind)
}

fn place(object: &Value) -> (Option<&str>, &str) {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
    (text("/metadata/namespace"), text("/metadata/name").unwrap_or_default())
}

fn identity(object: &Value) -> (&str, Option<&Value>, (Option<&str>, &str)) {
    (group_version(object).0, object.get("kind"), place(object))
}

#[cfg(test)]
mod tests;
