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
//!
//! [`Stub::cluster`] adds other clusters.

pub mod case;
pub mod cluster;
pub mod clusters;
mod convert;
mod grants;
mod hooks;
pub mod identity;
mod native;
mod outbound;
mod run;

#[doc(inline)]
pub use crate::cases;
pub use case::check as check_cases;
pub use grants::check as check_grants;
pub use hooks::{Asked, Reviewed};
pub use outbound::{CallMade, OutboundRequest, Reply, granted};
pub use run::{Change, MAX_RUNS, Run, Settled, title};

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
};

use jiff::Timestamp;
use mortise_core::{
    contract,
    grant::Grant,
    path::Fields,
    reads::{self, View},
    store::{Scope, Stores, Wanted},
};
use mortise_embedded_api::News;
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use serde_json::Value;

use self::{
    cluster::Cluster,
    clusters::{Clusters, Outages},
    identity::Identity,
    native::{Imports, Journal},
    outbound::{Client, Replies},
    run::{Driver, Notes},
};
use crate::{
    Description, Host, Kind, Level, ObjectRef, Processor, Request, Selection,
    bindings::mortise::host::{
        cluster::Page,
        outbound::{Answer, Call, CallError},
        types::ReadError,
    },
    host::Source,
    kubernetes::Secret,
    object::Object as _,
    processor, time,
};

/// A host in memory, whose objects, kinds and time are set by the test. Clones share one state.
#[derive(Clone)]
pub struct Stub {
    /// The cluster of the objects and kinds that methods name without a cluster.
    cluster: Arc<str>,
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
    /// The prepared clusters, by name; the home cluster is always one of them.
    prepared: BTreeMap<Arc<str>, Prepared>,
    /// True if the objects that the test gave must be valid.
    is_checked: bool,
    outages: Outages,
    /// The description that limits reads; `None` if everything can be read.
    declared: Option<Description>,
    now: u64,
    /// The most objects of a page.
    page: u32,
    crds: Vec<Value>,
    replies: Replies,
    notes: Notes,
    /// The grants of calls to the outside; `None`: all that is declared.
    granted: Option<Vec<contract::OutboundRule>>,
    /// The former field managers whose fields are taken over.
    take_over: Arc<[String]>,
    /// The clusters in memory, and the host's rules over them, from the first reconcile on.
    clusters: Option<Clusters>,
    driver: Option<Driver>,
    journal: Arc<Mutex<Journal>>,
}

/// A cluster as the test prepares it before the first reconcile.
#[derive(Default)]
struct Prepared {
    /// The objects that the test gave.
    objects: Vec<Value>,
    /// Group and kind of each kind that the cluster must not know.
    without: BTreeSet<(String, String)>,
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
        note: None,
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
            prepared: [(Arc::default(), Prepared::default())].into(),
            is_checked: true,
            outages: Outages::default(),
            declared: None,
            now: 1_767_225_600_000,
            page: u32::MAX,
            crds: Vec::new(),
            replies: Replies::default(),
            notes: Notes::Kept,
            granted: None,
            take_over: Arc::default(),
            clusters: None,
            driver: None,
            journal: Arc::clone(&journal),
        };
        Self { cluster: Arc::default(), state: Arc::new(Mutex::new(state)), journal }
    }

    /// Creates a stub whose reconciles run against clusters that exist already. Several stubs over the
    /// same clusters are hosts that run one after the other.
    pub fn over(clusters: Clusters) -> Self {
        let stub = Self::new();
        stub.state.lock().clusters = Some(clusters);
        stub
    }

    /// Adds another cluster with these objects. Its name is the one by which the processor reads and
    /// writes it; the Secret of that name need not be there. The definitions of [`Stub::crds`] are
    /// installed in each cluster; those that only this one has are among its objects.
    #[must_use]
    pub fn cluster(self, name: impl AsRef<str>, objects: impl IntoIterator<Item = Value>) -> Self {
        let there = self.in_cluster(name);
        // Also a cluster without objects is there.
        drop(there.prepared());
        objects.into_iter().for_each(|object| there.set(object));
        self
    }

    /// Returns the same stub, whose methods then mean objects and kinds of another cluster where
    /// they name none.
    #[must_use]
    pub fn in_cluster(&self, name: impl AsRef<str>) -> Self {
        Self { cluster: name.as_ref().into(), ..self.clone() }
    }

    /// Makes a cluster unreachable: reads of it are unavailable, and writes get no answer.
    pub fn unreachable(&self, cluster: impl AsRef<str>) {
        self.state.lock().outages.set_reachable(cluster.as_ref(), false);
    }

    /// Makes a cluster reachable again.
    pub fn reachable(&self, cluster: impl AsRef<str>) {
        self.state.lock().outages.set_reachable(cluster.as_ref(), true);
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
        let (mut prepared, of) = (self.prepared(), Identity::of(&object));
        let objects = &mut prepared.objects;
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
        self.prepared().without.insert((group.to_owned(), kind.to_owned()));
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
        self.preparing().outages.add_kind(&self.cluster, kind);
        self
    }

    /// Denies reads that the description does not declare. A reconcile through the stub uses the
    /// description of its processor.
    #[must_use]
    pub fn declared(self, description: Description) -> Self {
        self.preparing().declared = Some(description);
        self
    }

    /// Takes over the fields of these former field managers, as `spec.takeOver` of a Processor does.
    #[must_use]
    pub fn takes_over<T: Into<String>>(self, managers: impl IntoIterator<Item = T>) -> Self {
        self.state.lock().take_over = managers.into_iter().map(Into::into).collect();
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
            state.clusters.is_none(),
            "the stub is prepared before the first reconcile; later the cluster is changed with \
             `apply`, `patch`, `delete` and `advance`"
        );
        state
    }

    /// Returns the prepared cluster of this handle.
    fn prepared(&self) -> MappedMutexGuard<'_, Prepared> {
        MutexGuard::map(self.preparing(), |state| {
            state.prepared.entry(Arc::clone(&self.cluster)).or_default()
        })
    }

    fn change(&self, change: impl FnOnce(&mut Cluster) -> Result<(), String>) {
        let mut state = self.state.lock();
        let clusters =
            state.clusters.as_mut().expect("the clusters are there from the first reconcile on");
        let changed = clusters.get_mut(&self.cluster).and_then(change);
        changed.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Returns an object as it is in its cluster or, before the first reconcile, as the test gave
    /// it. `None` if there is no such object.
    pub fn object(&self, of: &ObjectRef) -> Option<Value> {
        let state = self.state.lock();
        let cluster = if of.cluster.is_empty() { &*self.cluster } else { &of.cluster };
        if let Some(clusters) = &state.clusters {
            return clusters.get(cluster).ok()?.get(of);
        }
        let of = Identity::of_ref(of);
        let objects = &state.prepared.get(cluster)?.objects;
        objects.iter().find(|object| Identity::of(object) == of).cloned()
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
    fn imports(&self, kind: &contract::Kind) -> Result<Imports, ReadError> {
        let state = self.state.lock();
        let view = state.view(kind).map_err(ReadError::Invalid)?;
        let (view, journal) = (RefCell::new(view), Arc::clone(&self.journal));
        let (sending, page, now) = (RefCell::default(), state.page, state.now());
        Ok(Imports { view, sending, client: None, journal, page, now })
    }
}

impl Source for Stub {
    fn get(&self, reference: &ObjectRef, fields: &[String]) -> Result<Option<String>, ReadError> {
        let kind = contract::ObjectRef::from(reference.clone()).kind;
        self.imports(&kind)?.get(reference, fields)
    }

    fn list(&self, of: &Selection, limit: u32, from: Option<&str>) -> Result<Page, ReadError> {
        let kind = contract::Selection::from(of.clone()).kind;
        self.imports(&kind)?.list(of, limit, from)
    }

    /// Refuses the call: calls are made by a reconcile only.
    fn send(&self, call: &Call) -> Result<Answer, CallError> {
        let kind = Secret::kind().into();
        let imports = self.imports(&kind).map_err(|error| CallError::Denied(error.to_string()))?;
        imports.send(call)
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
        if let Some(driver) = self.driver.take_if(|driver| driver.has_loaded::<P>(config)) {
            return Ok(self.driver.insert(driver));
        }
        let description = processor::described::<P>(config)?;
        let mut driver = if let Some(driver) = self.driver.take() {
            driver
        } else {
            let clusters = self.open(&description)?;
            let clock = clusters.home().clone();
            let client = Client::new(self.replies.clone(), Arc::new(move || clock.now()));
            let outside = (Arc::new(client), self.granted.clone());
            let take_over = Arc::clone(&self.take_over);
            Driver::new(clusters, outside, &self.journal, (self.page, self.notes), take_over)
        };
        let loaded = driver.load::<P>(&description, config);
        self.declared = Some(description);
        let driver = self.driver.insert(driver);
        loaded.map(|()| driver)
    }

    /// Returns the clusters, which are created from the objects given so far unless they exist.
    fn open(&mut self, description: &Description) -> Result<Clusters, String> {
        if let Some(clusters) = &self.clusters {
            return Ok(clusters.clone());
        }
        let now = i64::try_from(self.now).ok();
        let now = now.and_then(|now| Timestamp::from_millisecond(now).ok()).unwrap_or_default();
        let (crds, description) = (&self.crds, contract::Description::from(description.clone()));
        let home = Cluster::new(now, crds, &description.at_home().kinds(), &[])?;
        let mut clusters = Clusters::with(home, self.outages.clone());
        let kinds = description.elsewhere().kinds();
        for name in self.prepared.keys().filter(|name| !name.is_empty()) {
            let cluster = clusters.home().beside(name, crds, &kinds, &[])?;
            clusters.add(cluster);
        }
        for (name, prepared) in &self.prepared {
            prepared.fill(clusters.get_mut(name)?, self.is_checked)?;
        }
        Ok(self.clusters.insert(clusters).clone())
    }

    /// Returns a view of the objects of one kind as they are now.
    fn view(&self, kind: &contract::Kind) -> Result<View, String> {
        let stores = Stores::new();
        let wanted =
            Wanted { fields: Fields::whole(), matching: BTreeSet::default(), written: true };
        let feed = stores.open(kind, &Scope::default(), &wanted);
        match (self.objects_of(kind), feed) {
            (Err(why), _) => stores.set_unavailable(kind, &why),
            (Ok(Some(objects)), Some(feed)) => {
                feed.begin_list();
                for object in &objects {
                    feed.list_item(object);
                }
                feed.end_list();
            }
            _ => stores.set_unknown(kind, &Scope::default()),
        }
        let all = |kind: Kind| Description::new("", "").reads(Selection::new(kind));
        let description = match &self.declared {
            Some(declared) => declared.clone(),
            None if kind.cluster.is_empty() => all(kind.clone().into()),
            // A cluster is read only if its Secret is.
            None => all(Secret::kind())
                .reads(Selection::new(kind.clone().into()).in_cluster(&kind.cluster)),
        };
        let grant = Grant::new(&description.into()).map_err(|error| error.to_string())?;
        Ok(View::new(stores, Arc::new(grant), reads::PAGE_BYTES))
    }

    /// Returns the objects of a kind as they are now, or as the test gave them before the first
    /// reconcile; `None` if the kind is not known. Fails if the kind cannot be read.
    fn objects_of(&self, kind: &contract::Kind) -> Result<Option<Vec<Value>>, String> {
        let contract::Kind { cluster, group, version, kind: name } = kind;
        if let Some(clusters) = &self.clusters {
            let api = clusters.readable(kind)?.api();
            let update = api.changes_since(group, version, name, None);
            let update = update.map_err(|failure| failure.message().to_owned())?;
            return Ok(update.and_then(|update| match update.news {
                News::List(objects) => Some(objects),
                News::Changes(_) => None,
            }));
        }
        if let Some(why) = self.outages.of(kind) {
            return Err(why);
        }
        let prepared = self.prepared.get(cluster).ok_or_else(|| clusters::absent(cluster))?;
        Ok(prepared.objects_of(kind))
    }

    fn now(&self) -> u64 {
        let clusters = self.clusters.as_ref();
        let of_cluster = clusters.map(|clusters| clusters.home().now().as_millisecond());
        of_cluster.and_then(|now| u64::try_from(now).ok()).unwrap_or(self.now)
    }
}

// === impl Prepared ===

impl Prepared {
    /// Puts the objects into the cluster, and removes the kinds that it must not know.
    fn fill(&self, cluster: &mut Cluster, is_checked: bool) -> Result<(), String> {
        cluster.set_missing(&cluster.names_of(&self.without))?;
        let is_served =
            |of: &&(String, String)| cluster.api().preferred_version(&of.0, &of.1).is_some();
        if let Some((_, kind)) = self.without.iter().find(is_served) {
            return Err(format!("`{kind}` is built into Kubernetes, and cannot be missing"));
        }
        if is_checked {
            return cluster.load(self.objects.clone(), true);
        }
        for object in &self.objects {
            let loaded = cluster.load([object.clone()], true);
            loaded.or_else(|_| cluster.load([object.clone()], false))?;
        }
        Ok(())
    }

    /// Returns the objects of a kind; `None` if the cluster must not know the kind.
    fn objects_of(&self, kind: &contract::Kind) -> Option<Vec<Value>> {
        if self.without.contains(&(kind.group.clone(), kind.kind.clone())) {
            return None;
        }
        let is_of = |object: &&Value| {
            let of = Identity::of(object);
            (&of.group, &of.kind) == (&kind.group, &kind.kind)
        };
        let mut objects: Vec<Value> = self.objects.iter().filter(is_of).cloned().collect();
        for object in objects.iter_mut().filter_map(Value::as_object_mut) {
            // Every version of a kind shows the same objects.
            object.insert("apiVersion".to_owned(), Kind::from(kind.clone()).api_version().into());
        }
        Some(objects)
    }
}

#[cfg(test)]
mod tests;
