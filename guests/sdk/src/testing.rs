//! The host's contract in memory, for native tests: reads over a set of objects, a clock that
//! stands still, and a log that tests can inspect.
//!
//! ```
//! use mortise_sdk::{kubernetes::Service, testing::Stub};
//! use serde_json::json;
//!
//! let stub = Stub::new().objects([json!({
//!     "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
//!     "spec": {"selector": {"app": "web"}, "clusterIP": "10.0.0.1"},
//! })]);
//! let service: Option<Service> =
//!     stub.host().get(Some("shop"), "web", &["spec.selector"]).unwrap();
//! assert_eq!(service.unwrap().spec.selector["app"], "web");
//! ```

pub mod case;
mod check;
pub mod cluster;
mod form;
pub mod identity;
mod known;
mod path;
mod place;
mod run;
mod write;

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use jiff::Timestamp;
use serde_json::Value;

#[doc(inline)]
pub use crate::cases;
use crate::{
    Description, Host, Level, ObjectRef, Request, Selection,
    bindings::mortise::host::{cluster::Page, types::ReadError},
    host::Source,
    time,
};
pub use case::check as check_cases;
use cluster::Cluster;
use identity::{Identity, text};
use known::Known;
pub use run::{MOST_RUNS, Run, Settled, title};
pub use write::Change;

/// A host in memory, whose objects, kinds and time are set by the test. Clones share one state.
#[derive(Clone)]
pub struct Stub {
    state: Rc<RefCell<State>>,
}

/// A read that the processor made.
#[derive(Debug, Clone, PartialEq)]
pub enum Read {
    /// A read of an object, with the fields that were asked for.
    Get(ObjectRef, Vec<String>),
    /// A read of a page of a selection.
    List(Selection),
}

/// A line of the log.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The severity.
    pub level: Level,
    /// The message, without the named values.
    pub message: String,
    /// The named values.
    pub fields: Vec<(String, String)>,
}

struct State {
    known: Known,
    /// Group and kind of each kind that the cluster must not know.
    without: BTreeSet<(String, String)>,
    now: u64,
    page: usize,
    asked_clock: u32,
    reads: Vec<Read>,
    log: Vec<Line>,
    /// The uids of the objects that the current run has read.
    answered: BTreeMap<Identity, String>,
    crds: Vec<Value>,
    /// The cluster in memory, which exists from the first reconcile on.
    cluster: Option<Cluster>,
    ran: BTreeMap<run::Key, run::Ran>,
    /// The keys that must run, even if the reason for it has passed meanwhile.
    due: BTreeSet<run::Key>,
    memory: write::Memory,
    /// The titles of the keys by their marks, which tell the field managers of different keys
    /// apart.
    marks: BTreeMap<String, String>,
}

/// Creates a first request for an object of the reconciler `""`, without the object itself and
/// without a configuration: `Request::object` is `None`.
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

/// Creates a first request for an object that exists, with the object in it.
pub fn request_for(object: &Value) -> Request {
    Request { object: Some(object.to_string()), ..request(identity::reference_of(object)) }
}

// === impl Stub ===

impl Default for Stub {
    fn default() -> Self {
        Self::new()
    }
}

impl Stub {
    /// Creates a stub without objects that knows every kind, at 2026-01-01T00:00:00Z.
    pub fn new() -> Self {
        let state = State {
            known: Known::default(),
            without: BTreeSet::new(),
            now: 1_767_225_600_000,
            page: usize::MAX,
            asked_clock: 0,
            reads: Vec::new(),
            log: Vec::new(),
            answered: BTreeMap::new(),
            crds: Vec::new(),
            cluster: None,
            ran: BTreeMap::new(),
            due: BTreeSet::new(),
            memory: write::Memory::default(),
            marks: BTreeMap::new(),
        };
        Self { state: Rc::new(RefCell::new(state)) }
    }

    /// Creates a stub whose reconciles run against this cluster.
    pub(crate) fn over(cluster: Cluster) -> Self {
        let stub = Self::new();
        stub.state.borrow_mut().cluster = Some(cluster);
        stub
    }

    /// Adds objects; each replaces an object with the same group, kind, namespace and name.
    #[must_use]
    pub fn objects(self, objects: impl IntoIterator<Item = Value>) -> Self {
        for object in objects {
            self.set(object);
        }
        self
    }

    /// Adds or replaces an object. To change an object that a processor has written, use
    /// [`Stub::apply`].
    pub fn set(&self, object: Value) {
        self.state.borrow_mut().known.set(object);
    }

    /// Adds the definitions of kinds that the files of a folder hold. Kinds that a processor
    /// declares and that no file defines have no schema.
    ///
    /// # Panics
    ///
    /// If the files cannot be read.
    #[must_use]
    pub fn crds(self, folder: impl AsRef<std::path::Path>) -> Self {
        let crds = case::load_objects(folder.as_ref()).unwrap_or_else(|error| panic!("{error}"));
        self.state.borrow_mut().crds.extend(crds);
        self
    }

    /// Makes a kind unknown to the cluster.
    #[must_use]
    pub fn without_kind(self, group: &str, kind: &str) -> Self {
        {
            let state = &mut *self.state.borrow_mut();
            state.without.insert((group.to_owned(), kind.to_owned()));
            state.known.missing.clone_from(&state.without);
        }
        self
    }

    /// Makes every read of a kind fail because the kind is unavailable.
    #[must_use]
    pub fn unavailable(self, kind: &str) -> Self {
        self.state.borrow_mut().known.unavailable.insert(kind.to_owned());
        self
    }

    /// Denies reads that the description does not declare. A reconcile through the stub uses the
    /// description of its processor.
    #[must_use]
    pub fn declared(self, description: Description) -> Self {
        self.state.borrow_mut().known.declared = Some(description);
        self
    }

    /// Sets the time of the call, in RFC 3339. After the first reconcile, use [`Stub::advance`].
    ///
    /// # Panics
    ///
    /// If `now` is not a time in UTC.
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

    /// Returns the host to call the processor's functions with.
    pub fn host(&self) -> Host {
        Host::new(Rc::new(self.clone()))
    }

    /// Returns how often the clock was asked.
    pub fn asked_clock(&self) -> u32 {
        self.state.borrow().asked_clock
    }

    /// Returns the reads so far.
    pub fn reads(&self) -> Vec<Read> {
        self.state.borrow().reads.clone()
    }

    /// Returns the lines of the log so far.
    pub fn lines(&self) -> Vec<Line> {
        self.state.borrow().log.clone()
    }

    // === changes to the cluster between reconciles ===

    /// Applies an object and its status, as `kubectl apply --server-side --force-conflicts` does.
    ///
    /// # Panics
    ///
    /// If the API refuses the object, or nothing was reconciled before.
    pub fn apply(&self, object: &Value) {
        self.change(|cluster| cluster.apply(object));
    }

    /// Changes an object and its status by a JSON merge patch, which must name the object.
    ///
    /// # Panics
    ///
    /// In the same cases as [`Stub::apply`].
    pub fn patch(&self, patch: &Value) {
        self.change(|cluster| cluster.patch(patch));
    }

    /// Deletes an object, named as `KIND/NAMESPACE/NAME`; `*` stands for any kind, namespace or
    /// name.
    ///
    /// # Panics
    ///
    /// In the same cases as [`Stub::apply`], and if there is no such object.
    pub fn delete(&self, object: &str) {
        self.change(|cluster| cluster.delete(&identity::Pattern::parse(object)?));
    }

    /// Moves the time forward.
    ///
    /// # Panics
    ///
    /// If nothing was reconciled before.
    pub fn advance(&self, by: std::time::Duration) {
        self.change(|cluster| {
            cluster.advance(by);
            Ok(())
        });
    }

    fn change(&self, change: impl FnOnce(&mut Cluster) -> Result<(), String>) {
        let mut state = self.state.borrow_mut();
        let cluster =
            state.cluster.as_mut().expect("the cluster is there from the first reconcile on");
        change(cluster).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Returns an object as it is in the cluster or, before the first reconcile, as the test gave
    /// it. `None` if there is no such object.
    pub fn object(&self, of: &ObjectRef) -> Option<Value> {
        let state = self.state.borrow();
        match &state.cluster {
            Some(cluster) => cluster.get(of),
            None => state.known.find(of).cloned(),
        }
    }

    /// Creates the cluster from the objects given so far, unless there is one already.
    fn open(&self, description: &Description) -> Result<(), String> {
        let mut state = self.state.borrow_mut();
        if state.cluster.is_some() {
            return Ok(());
        }
        let now = i64::try_from(state.now).ok();
        let now = now.and_then(|now| Timestamp::from_millisecond(now).ok()).unwrap_or_default();
        let mut cluster =
            Cluster::new(now, &state.crds, &cluster::declared_kinds(description), &[])?;
        let names: Vec<String> = cluster.names_of(&state.without);
        cluster.set_missing(&names)?;
        cluster.load(state.known.objects.clone(), true)?;
        state.cluster = Some(cluster);
        Ok(())
    }
}

impl Source for Stub {
    fn get(&self, reference: &ObjectRef, fields: &[String]) -> Result<Option<String>, ReadError> {
        let state = &mut *self.state.borrow_mut();
        state.reads.push(Read::Get(reference.clone(), fields.to_vec()));
        form::check_get(reference).map_err(ReadError::Invalid)?;
        let found = state.known.get(reference, fields)?;
        if let Some(object) = &found {
            answered(&mut state.answered, object);
        }
        Ok(found.map(|object| object.to_string()))
    }

    fn list(&self, of: &Selection, limit: u32, from: Option<&str>) -> Result<Page, ReadError> {
        let state = &mut *self.state.borrow_mut();
        state.reads.push(Read::List(of.clone()));
        form::check_list(of).map_err(ReadError::Invalid)?;
        let found = state.known.list(of)?;
        let start = from.map_or(Ok(0), |token| {
            token.parse::<usize>().map_err(|error| ReadError::Invalid(error.to_string()))
        })?;
        let limit = usize::try_from(limit)
            .ok()
            .filter(|limit| *limit > 0)
            .unwrap_or(usize::MAX)
            .min(state.page);
        let next = found.len().checked_sub(start).filter(|rest| *rest > limit);
        let objects: Vec<&Value> = found.iter().skip(start).take(limit).collect();
        for object in &objects {
            answered(&mut state.answered, object);
        }
        Ok(Page {
            objects: objects.iter().map(ToString::to_string).collect(),
            next: next.map(|_| (start + limit).to_string()),
        })
    }

    fn now(&self) -> u64 {
        let mut state = self.state.borrow_mut();
        state.asked_clock += 1;
        let of_cluster = state.cluster.as_ref().map(|cluster| cluster.now().as_millisecond());
        of_cluster.and_then(|now| u64::try_from(now).ok()).unwrap_or(state.now)
    }

    fn log(&self, level: Level, message: &str, fields: &[(String, String)]) {
        let line = Line { level, message: message.to_owned(), fields: fields.to_vec() };
        self.state.borrow_mut().log.push(line);
    }
}

/// Records the uid of an object that was read.
fn answered(uids: &mut BTreeMap<Identity, String>, object: &Value) {
    let uid = text(object, "/metadata/uid");
    if !uid.is_empty() {
        uids.insert(Identity::of(object), uid.to_owned());
    }
}

#[cfg(test)]
mod tests;
