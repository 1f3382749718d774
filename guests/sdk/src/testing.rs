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
pub mod cluster;
mod convert;
mod grants;
mod hooks;
pub mod identity;
mod native;
mod run;

#[doc(inline)]
pub use crate::cases;
pub use case::check as check_cases;
pub use grants::check as check_grants;
pub use hooks::{Asked, Reviewed};
pub use run::{Change, MAX_RUNS, Run, Settled, title};

use std::{cell::RefCell, collections::BTreeSet, rc::Rc, sync::Arc};

use jiff::Timestamp;
use mortise_core::{
    contract,
    grant::Grant,
    path::Fields,
    reads::{self, View},
    store::{Scope, Stores, Wanted},
};
use mortise_embedded_api::{self as api, News};
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

use self::{
    cluster::Cluster,
    identity::Identity,
    native::{Imports, Journal},
    run::Driver,
};
use crate::{
    Description, Host, Kind, Level, ObjectRef, Processor, Request, Selection,
    bindings::mortise::host::{cluster::Page, types::ReadError},
    host::Source,
    processor, time,
};

/// A host in memory, whose objects, kinds and time are set by the test. Clones share one state.
#[derive(Clone)]
pub struct Stub {
    state: Arc<Mutex<State>>,
    journal: Arc<Mutex<Journal>>,
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
    /// The objects that the test gave.
    objects: Vec<Value>,
    /// True if the objects that the test gave must be valid.
    is_checked: bool,
    /// Group and kind of each kind that the cluster must not know.
    without: BTreeSet<(String, String)>,
    /// The names of the kinds that cannot be read.
    unavailable: Vec<String>,
    /// The description that limits reads; `None` if everything can be read.
    declared: Option<Description>,
    now: u64,
    /// The most objects of a page.
    page: u32,
    crds: Vec<Value>,
    /// The cluster in memory, and the host's rules over it, from the first reconcile on.
    cluster: Option<Cluster>,
    driver: Option<Driver>,
    journal: Arc<Mutex<Journal>>,
}

/// Creates a first request for an object of the reconciler `""`, without the object itself and
/// without a configuration: `Request::object` is `None`.
pub fn request(reference: ObjectRef) -> Request {
    Request {
        reconciler: String::new(),
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
        let journal = Arc::<Mutex<Journal>>::default();
        let state = State {
            objects: Vec::new(),
            is_checked: true,
            without: BTreeSet::new(),
            unavailable: Vec::new(),
            declared: None,
            now: 1_767_225_600_000,
            page: u32::MAX,
            crds: Vec::new(),
            cluster: None,
            driver: None,
            journal: Arc::clone(&journal),
        };
        Self { state: Arc::new(Mutex::new(state)), journal }
    }

    /// Creates a stub whose reconciles run against this cluster.
    pub(crate) fn over(cluster: Cluster) -> Self {
        let stub = Self::new();
        stub.state.lock().cluster = Some(cluster);
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
        let (mut state, of) = (self.preparing(), Identity::of(&object));
        let objects = &mut state.objects;
        objects.retain(|held| Identity::of(held) != of);
        objects.push(object);
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
        self.preparing().crds.extend(crds);
        self
    }

    /// Makes a kind unknown to the cluster.
    #[must_use]
    pub fn without_kind(self, group: &str, kind: &str) -> Self {
        self.preparing().without.insert((group.to_owned(), kind.to_owned()));
        self
    }

    /// Accepts objects of the test that are not valid.
    #[must_use]
    pub fn unchecked(self) -> Self {
        self.preparing().is_checked = false;
        self
    }

    /// Makes every read of a kind fail because the kind is unavailable.
    #[must_use]
    pub fn unavailable(self, kind: &str) -> Self {
        self.preparing().unavailable.push(kind.to_owned());
        self
    }

    /// Denies reads that the description does not declare. A reconcile through the stub uses the
    /// description of its processor.
    #[must_use]
    pub fn declared(self, description: Description) -> Self {
        self.preparing().declared = Some(description);
        self
    }

    /// Sets the time of the call, in RFC 3339. After the first reconcile, use [`Stub::advance`].
    ///
    /// # Panics
    ///
    /// If `now` is not a time in UTC.
    #[must_use]
    pub fn at(self, now: &str) -> Self {
        self.preparing().now = time::parse(now).expect("a time in RFC 3339 that ends in Z");
        self
    }

    /// Answers lists in pages of at most this many objects.
    #[must_use]
    pub fn page(self, objects: usize) -> Self {
        self.preparing().page = u32::try_from(objects).unwrap_or(u32::MAX).max(1);
        self
    }

    /// Returns the host to call the processor's functions with.
    pub fn host(&self) -> Host {
        Host::new(Rc::new(self.clone()))
    }

    /// Returns how often the clock was asked.
    pub fn asked_clock(&self) -> u32 {
        self.journal.lock().asked_clock
    }

    /// Returns the reads so far.
    pub fn reads(&self) -> Vec<Read> {
        self.journal.lock().reads.clone()
    }

    /// Returns the lines of the log so far.
    pub fn lines(&self) -> Vec<Line> {
        self.journal.lock().lines.clone()
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

    /// Returns the state, which a test prepares.
    ///
    /// # Panics
    ///
    /// If a reconcile has run before: the cluster already holds the prepared objects.
    fn preparing(&self) -> MutexGuard<'_, State> {
        let state = self.state.lock();
        assert!(
            state.cluster.is_none(),
            "the stub is prepared before the first reconcile; later the cluster is changed with \
             `apply`, `patch`, `delete` and `advance`"
        );
        state
    }

    fn change(&self, change: impl FnOnce(&mut Cluster) -> Result<(), String>) {
        let mut state = self.state.lock();
        let cluster =
            state.cluster.as_mut().expect("the cluster is there from the first reconcile on");
        change(cluster).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Returns an object as it is in the cluster or, before the first reconcile, as the test gave
    /// it. `None` if there is no such object.
    pub fn object(&self, of: &ObjectRef) -> Option<Value> {
        let state = self.state.lock();
        if let Some(cluster) = &state.cluster {
            return cluster.get(of);
        }
        let of = Identity::of_ref(of);
        state.objects.iter().find(|object| Identity::of(object) == of).cloned()
    }

    /// Returns all objects of the cluster, without the API's own namespaces, definitions of kinds
    /// that no test gave, and namespaces that were created for objects.
    ///
    /// # Panics
    ///
    /// If nothing was reconciled before.
    pub fn all(&self) -> Vec<Value> {
        let mut objects = Vec::new();
        self.change(|cluster| {
            objects = cluster.objects();
            Ok(())
        });
        objects
    }

    /// Returns the imports of one read, which see the objects as they are now.
    fn imports(&self, kind: &Kind) -> Result<Imports, ReadError> {
        let state = self.state.lock();
        let view = state.view(&kind.clone().into()).map_err(ReadError::Invalid)?;
        let (view, journal) = (RefCell::new(view), Arc::clone(&self.journal));
        Ok(Imports { view, journal, page: state.page, now: state.now() })
    }
}

impl Source for Stub {
    fn get(&self, reference: &ObjectRef, fields: &[String]) -> Result<Option<String>, ReadError> {
        self.imports(&reference.kind)?.get(reference, fields)
    }

    fn list(&self, of: &Selection, limit: u32, from: Option<&str>) -> Result<Page, ReadError> {
        self.imports(&of.kind)?.list(of, limit, from)
    }

    fn now(&self) -> u64 {
        self.journal.lock().asked_clock += 1;
        self.state.lock().now()
    }

    fn log(&self, level: Level, message: &str, fields: &[(String, String)]) {
        let line = Line { level, message: message.to_owned(), fields: fields.to_vec() };
        self.journal.lock().lines.push(line);
    }
}

// === impl State ===

impl State {
    /// Returns the driver, which has loaded the processor with this configuration.
    fn driver<P: Processor>(&mut self, config: &str) -> Result<&mut Driver, String> {
        let description = processor::described::<P>(config)?;
        let mut driver = if let Some(driver) = self.driver.take() {
            driver
        } else {
            let cluster = self.open(&description)?;
            Driver::new(cluster, &self.journal, self.page, self.unavailable.clone())
        };
        let loaded = driver.load::<P>(&description, config);
        self.declared = Some(description);
        let driver = self.driver.insert(driver);
        loaded.map(|()| driver)
    }

    /// Returns the cluster, which is created from the objects given so far unless it exists.
    fn open(&mut self, description: &Description) -> Result<Cluster, String> {
        if let Some(cluster) = &self.cluster {
            return Ok(cluster.clone());
        }
        let now = i64::try_from(self.now).ok();
        let now = now.and_then(|now| Timestamp::from_millisecond(now).ok()).unwrap_or_default();
        let mut cluster =
            Cluster::new(now, &self.crds, &cluster::declared_kinds(description), &[])?;
        let names: Vec<String> = cluster.names_of(&self.without);
        cluster.set_missing(&names)?;
        let is_served =
            |of: &&(String, String)| cluster.api().preferred_version(&of.0, &of.1).is_some();
        if let Some((_, kind)) = self.without.iter().find(is_served) {
            return Err(format!("`{kind}` is built into Kubernetes, and cannot be missing"));
        }
        if self.is_checked {
            cluster.load(self.objects.clone(), true)?;
        } else {
            for object in &self.objects {
                let loaded = cluster.load([object.clone()], true);
                loaded.or_else(|_| cluster.load([object.clone()], false))?;
            }
        }
        Ok(self.cluster.insert(cluster).clone())
    }

    /// Returns a view of the objects of one kind as they are now.
    fn view(&self, kind: &contract::Kind) -> Result<View, String> {
        let stores = Stores::new();
        let wanted =
            Wanted { fields: Fields::whole(), matching: BTreeSet::default(), written: true };
        let feed = stores.open(kind, &Scope::default(), &wanted);
        if self.unavailable.contains(&kind.kind) {
            stores.set_unavailable(kind, "the test makes it unavailable");
        } else {
            match (self.objects_of(kind), feed) {
                (Err(failure), _) => stores.set_unavailable(kind, failure.message()),
                (Ok(Some(objects)), Some(feed)) => {
                    feed.begin_list();
                    for object in &objects {
                        feed.list_item(object);
                    }
                    feed.end_list();
                }
                _ => stores.set_unknown(kind, &Scope::default()),
            }
        }
        let description = match &self.declared {
            Some(declared) => declared.clone(),
            None => Description::new("", "").reads(Selection::new(kind.clone().into())),
        };
        let grant = Grant::new(&description.into()).map_err(|error| error.to_string())?;
        Ok(View::new(stores, Arc::new(grant), reads::PAGE_BYTES))
    }

    /// Returns the objects of a kind as they are now, or as the test gave them before the first
    /// reconcile; `None` if the kind is not known.
    fn objects_of(&self, kind: &contract::Kind) -> Result<Option<Vec<Value>>, api::Failure> {
        let contract::Kind { cluster: _, group, version, kind: name } = kind;
        if let Some(cluster) = &self.cluster {
            let update = cluster.api().changes_since(group, version, name, None)?;
            return Ok(update.and_then(|update| match update.news {
                News::List(objects) => Some(objects),
                News::Changes(_) => None,
            }));
        }
        if self.without.contains(&(group.clone(), name.clone())) {
            return Ok(None);
        }
        let is_of = |object: &&Value| {
            let of = Identity::of(object);
            (&of.group, &of.kind) == (group, name)
        };
        let mut objects: Vec<Value> = self.objects.iter().filter(is_of).cloned().collect();
        for object in objects.iter_mut().filter_map(Value::as_object_mut) {
            // Every version of a kind shows the same objects.
            object.insert("apiVersion".to_owned(), Kind::from(kind.clone()).api_version().into());
        }
        Ok(Some(objects))
    }

    fn now(&self) -> u64 {
        let of_cluster = self.cluster.as_ref().map(|cluster| cluster.now().as_millisecond());
        of_cluster.and_then(|now| u64::try_from(now).ok()).unwrap_or(self.now)
    }
}

#[cfg(test)]
mod tests;
