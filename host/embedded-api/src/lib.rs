//! A Kubernetes API in memory, for people at their desk and for tests.
//!
//! It answers as kube-apiserver 1.34 does: server-side apply with its managed fields, watches, CRDs with their schemas, tables for
//! kubectl. It is a tower service ([`EmbeddedApi::router`], for `kube::Client::new`) and an HTTP server ([`EmbeddedApi::serve`]).
//! All state is in memory and ends with the value.
//!
//! # Who asks
//!
//! There is no authentication: whoever connects is the administrator `admin`, who may do everything and may impersonate others. So
//! `kubectl auth can-i` says yes to all, and the answer says why; with `--as` it asks the RBAC objects that are there. Tokens of
//! service accounts have no signature and are not asked for.
//!
//! # What it leaves out
//!
//! It is no server for production: no TLS, no admission or conversion webhooks, no protobuf in answers, no persistence, no
//! aggregation. There are no controllers but the garbage collector and those that count disruption budgets, aggregate cluster roles
//! and let namespaces, CRDs and claims go when nothing needs them, which act at once, within the request that causes them:
//! Deployments make no pods, claims are not bound, and no node runs anything. Logs, exec, attach, port-forward, debugging and proxies
//! are refused with a sentence. Versions of a CRD differ in nothing but `apiVersion` and schema.
//!
//! The rules of a CRD (CEL, with `oldSelf` too) are refused if they may cost too much, as Kubernetes estimates it; what they do cost
//! when they run is not counted. The schemas of the built-in kinds have no descriptions: `kubectl explain` shows their fields and
//! types. Of the kinds of Kubernetes 1.34 those are served that programs at a desk meet; `kubectl api-resources` names them.
//!
//! # What it answers otherwise
//!
//! Random sequences of requests go to this API and to a real kube-apiserver, and are answered the same, but for:
//!
//! - **patches that do not fit**: a patch whose result is no object of its kind is refused as by Kubernetes; the message quotes
//!   the object or the patch with its fields in the order of their names, and puts the fault in other words.
//! - **words of the decoder**: which of several faults of types is told, and Go's names of types and of embedded fields.
//! - **mixed lists**: a strategic merge patch that puts null beside texts into a list: 500 there; here the null counts as none, or the
//!   message does not show the list.
//! - **empty is absent**: an empty list or map of a built-in kind is as if it were not there. In Kubernetes it differs until it is
//!   stored: it counts for the generation of a `NetworkPolicy` and as a change of an immutable `ConfigMap`, and messages show it.
//! - **writes of scales**: a write of a scale that leaves the replicas as they are may be a change there; and who owned them by an
//!   update has two entries then, of which the later one hides the other from an apply.
//! - **repeated keys**: who owns the items of a list of a `ServiceAccount` in which one name stands twice.
//!
//! The names are those by which the comparison accepts the difference; one that does not occur any more is a fault there.
//!
//! Faults of ours that some seeds of the comparison find, and that it does not accept; one of some 150 sequences meets one:
//!
//! - **more ready than there are**: a status of a `StatefulSet` with more `readyReplicas` than `replicas` is taken.
//! - **rules of no rule**: whether a `Role` keeps `[]` or null in `rules`; who owns some lists of a `StatefulSet`.
//! - **scales that are refused**: two refusals of writes of scales are missing, and an owner of `replicas` differs after some.
//! - **warnings of copies**: a JSON patch that copies an unknown field is warned of in another place.
//! - **names of ports with dots**: the message says another thing of them.
//! - **null in embedded metadata**: an applied object whose embedded object has null there is refused with 500, not with 422.
//! - **a version more**: a write that changes nothing may count as one, so that later versions differ by one.
//!
//! # How much it bears
//!
//! Objects are kept as compact JSON: 50,000 of 3 KB take 1.4 times their text, and the history of a busy resource a few dozen MB
//! besides ([`Options::history`]). With 100 watches on them an optimised build takes a write in a fraction of a millisecond and tells
//! all watches in a few; an unoptimised one, as `cargo run` makes, takes ten times as long. `cargo bench -p mortise-tests` prints the
//! numbers. A watch that is slow holds no texts, only what it has still to send.
//!
//! # Modules
//!
//! - `server`, `direct`, `request`, `answer`: HTTP; `status`, `field_error`: what is refused, and why
//! - `verbs`: one file for each thing that a request can do; `collect`: what follows from deletions; `access`: RBAC
//! - `state`, `storage`: the objects and their history; `selector`: which are meant; `fault`: what goes wrong on purpose
//! - `kind`, `builtin`, `crd`: which kinds there are, and the rules of each; `structural`, `name`: the rules for their objects
//! - `schema`, `typed`, `fields`, `managed_fields`, `patch`: merging objects and knowing who owns which fields
//! - `discovery`, `openapi`, `table`: what clients ask about the API itself, and how kubectl prints objects

mod access;
mod answer;
mod builtin;
mod chance;
mod collect;
mod crd;
mod direct;
mod discovery;
mod fault;
mod field_error;
mod fields;
mod go;
mod kind;
mod load;
mod managed_fields;
mod name;
mod openapi;
mod patch;
mod request;
mod schema;
mod selector;
mod server;
mod state;
mod status;
mod storage;
mod structural;
mod table;
#[cfg(test)]
mod testing;
mod typed;
mod verbs;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use fault::{Fault, Faults, Filter};
pub use request::Verb;
pub use selector::{LabelSelector, SelectorError};
pub use status::{Cause, Failure};

use chance::Chance;
use state::State;
use storage::TableId;

/// Says what time it is.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// How an API behaves.
#[derive(Clone)]
pub struct Options {
    /// What objects and conditions take as the present time.
    pub now: Clock,
    /// How many changes of each resource are remembered for watches and lists of the past.
    pub history: usize,
    /// The namespaces that are there from the beginning.
    pub namespaces: Vec<String>,
    /// What uids and generated names follow from; none: the operating system's random numbers.
    pub seed: Option<u64>,
}

/// A Kubernetes API in memory. Clones are the same API.
#[derive(Clone)]
pub struct EmbeddedApi {
    shared: Arc<Shared>,
}

/// Requests of one sort, for counting.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestKind {
    /// What was done.
    pub verb: Verb,
    /// The group of the resource, empty for the core group.
    pub group: String,
    /// The plural of the resource.
    pub resource: String,
    /// The subresource, empty for the object itself.
    pub subresource: String,
}

/// What all requests share.
pub(crate) struct Shared {
    pub(crate) state: RwLock<State>,
    pub(crate) faults: Faults,
    pub(crate) counts: Mutex<BTreeMap<RequestKind, u64>>,
    /// What watches sent last.
    pub(crate) lines: verbs::Lines,
    /// Ends all watches.
    pub(crate) stop: CancellationToken,
    pub(crate) now: Mutex<Clock>,
}

// === impl Options ===

impl Default for Options {
    fn default() -> Self {
        let namespaces = ["default", "kube-node-lease", "kube-public", "kube-system"];
        Self {
            now: Arc::new(Timestamp::now),
            history: 10_000,
            namespaces: namespaces.map(str::to_owned).into(),
            seed: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("history", &self.history)
            .field("namespaces", &self.namespaces)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

// === impl Shared ===

impl Shared {
    pub(crate) fn now(&self) -> Timestamp {
        let clock = self.now.lock().clone();
        clock()
    }
}

// === impl EmbeddedApi ===

impl fmt::Debug for EmbeddedApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedApi").field("revision", &self.revision()).finish_non_exhaustive()
    }
}

impl EmbeddedApi {
    /// An API with the built-in kinds and no objects but its namespaces.
    pub fn new(options: Options) -> Self {
        let mut state = State::new(options.history.max(1), Chance::new(options.seed));
        let now = (options.now)();
        for namespace in &options.namespaces {
            state.add_namespace(namespace, now);
        }
        // Nobody can have seen anything yet: watches from before now are too old.
        state.storage.compact();
        let shared = Shared {
            state: RwLock::new(state),
            faults: Faults::default(),
            counts: Mutex::default(),
            lines: verbs::Lines::default(),
            stop: CancellationToken::new(),
            now: Mutex::new(options.now),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The API as a tower service: `kube::Client::new(api.router(), "default")`.
    pub fn router(&self) -> axum::Router {
        server::router(self.shared.clone())
    }

    /// Serves the API over HTTP until `shutdown` is cancelled; then watches end and running requests are answered.
    ///
    /// # Errors
    ///
    /// The listener failed.
    pub async fn serve(
        &self,
        listener: TcpListener,
        shutdown: CancellationToken,
    ) -> std::io::Result<()> {
        server::serve(self.shared.clone(), listener, shutdown).await
    }

    /// Ends all watches, now and to come, as the end of the server would.
    pub fn stop(&self) {
        self.shared.stop.cancel();
    }

    /// What goes wrong on purpose.
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// The revision of the last write.
    pub fn revision(&self) -> u64 {
        self.shared.state.read().storage.revision()
    }

    /// The revision of the last change of a resource; 0 if nothing of it was ever stored.
    pub fn latest(&self, group: &str, plural: &str) -> u64 {
        let state = self.shared.state.read();
        state.storage.table(&TableId::new(group, plural)).map_or(0, storage::Table::last)
    }

    /// Forgets the history: watches and lists from before now are answered with 410.
    pub fn compact(&self) {
        self.shared.state.write().storage.compact();
    }

    /// How often what was asked for, refused requests and those that faults hit included.
    pub fn requests(&self) -> BTreeMap<RequestKind, u64> {
        self.shared.counts.lock().clone()
    }

    /// Begins counting requests anew.
    pub fn reset_requests(&self) {
        self.shared.counts.lock().clear();
    }

    /// Takes another clock.
    pub fn set_clock(&self, now: Clock) {
        *self.shared.now.lock() = now;
    }

    /// Whether a kind is served in this version.
    pub fn serves(&self, group: &str, version: &str, kind: &str) -> bool {
        self.shared.state.read().registry.find_kind(group, version, kind).is_some()
    }

    /// The version in which a kind is shown to who names none, as kubectl does: the first of its group that serves it.
    pub fn preferred_version(&self, group: &str, kind: &str) -> Option<String> {
        let registry = &self.shared.state.read().registry;
        let versions = registry.group(group)?.versions;
        let serves = |version: &&str| registry.find_kind(group, version, kind).is_some();
        versions.into_iter().find(serves).map(str::to_owned)
    }

    /// Serves a kind without a schema: everything is kept as it comes, lists are atomic.
    pub fn serve_untyped(
        &self,
        group: &str,
        version: &str,
        kind: &str,
        plural: &str,
        namespaced: bool,
    ) {
        self.shared.state.write().registry.add_untyped((group, version), kind, plural, namespaced);
    }

    /// All objects, as they are stored.
    pub fn objects(&self) -> Vec<Value> {
        let state = self.shared.state.read();
        let mut objects = Vec::new();
        for (id, table) in state.storage.tables() {
            if let Some(resource) = state.resource_of(id) {
                let api_version = resource.storage_api_version();
                objects.extend(
                    table.all().map(|(_, image)| image.value(&api_version, &resource.kind)),
                );
            }
        }
        objects
    }

    /// An object as it was before the write that made it what is given; none of one that was made by that write, or whose history
    /// is forgotten.
    pub fn before(&self, object: &Value) -> Option<Value> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let (api_version, kind) = (text("/apiVersion")?, text("/kind")?);
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let revision: u64 = text("/metadata/resourceVersion")?.parse().ok()?;
        let state = self.shared.state.read();
        let resource = state.registry.find_kind(group, version, kind)?;
        let table =
            state.storage.table(&TableId::new(&resource.storage_group, &resource.plural))?;
        let write = table.events_after(revision.checked_sub(1)?).ok()?.next()?;
        let is_of = write.revision == revision
            && write
                .object
                .as_ref()
                .is_some_and(|image| Some(&*image.head.name) == text("/metadata/name"));
        Some(write.previous.as_ref().filter(|_| is_of)?.value(api_version, kind))
    }

    /// Puts an object in as if it were stored already: status, uid, owners, finalizers and marks of deletion stay. With
    /// `validate` it gets defaults and must fulfil the schema of its kind; without, it is taken as it is, as an object
    /// that was stored under an older schema. A `CustomResourceDefinition` is served from then on.
    ///
    /// # Errors
    ///
    /// The kind is not served, the object has no name, or it is not valid.
    pub fn load(&self, object: Value, validate: bool) -> Result<(), Failure> {
        let now = self.shared.now();
        self.shared.state.write().load(object, validate, now)
    }
}
