//! A Kubernetes API in memory, for development and for tests.
//!
//! The API answers as kube-apiserver 1.34 does: server-side apply with its managed fields, watches,
//! CRDs with their schemas, tables for kubectl. It is a tower service ([`EmbeddedApi::router`], for
//! `kube::Client::new`) and an HTTP server ([`EmbeddedApi::serve`]). All state is in memory and is
//! dropped with the value.
//!
//! # Authentication and authorization
//!
//! There is no authentication: every client is the administrator `admin`, may do everything and may
//! impersonate others. `kubectl auth can-i` therefore says yes to all requests, and gives the
//! reason; with `--as` it evaluates the stored RBAC objects. Who impersonates another may store no
//! role or binding that grants more than that user holds. Tokens of service accounts have no
//! signature and are not verified.
//!
//! # Limits
//!
//! The API is no server for production: no TLS, no protobuf in answers, no persistence, no
//! aggregation. The only controllers are the garbage collector and
//! those that count disruption budgets, aggregate cluster roles, and finish the deletion of
//! namespaces, CRDs and claims that nothing uses any more. They act at once, within the request
//! that causes them. Deployments make no pods, claims are not bound, and no node runs anything.
//! Logs, exec, attach, port-forward, debugging and proxies are refused with a sentence.
//!
//! Versions of a CRD differ in nothing but `apiVersion` and schema, unless [`Webhooks`] convert
//! them. No server is asked for webhooks: the stanza `conversion` of a CRD and the configurations
//! of admission are objects without an effect. Server-side apply converts the whole object before
//! and after it merges; the fields of managers of other versions are kept as they are, and neither
//! cause conflicts nor are removed when they are given up. Changes by admission are owned by
//! nobody.
//!
//! The cost of a CRD's rules (CEL, with `oldSelf` too) is neither estimated nor counted:
//! kube-apiserver refuses a rule whose cost may be too high. The schemas of the built-in kinds have
//! no descriptions: `kubectl explain` shows their fields and types. Of the kinds of Kubernetes 1.34,
//! those that programs commonly use are served; `kubectl api-resources` names them. Custom
//! resources of more than 1.5 MiB are refused as etcd refuses them; objects of built-in kinds,
//! whose size in etcd is not known here, are not.
//!
//! JSON of more than 127 levels is refused, as a client in Rust refuses it; Kubernetes takes
//! 10,000.
//!
//! # Differences from kube-apiserver
//!
//! Random sequences of requests are sent to this API and to a real kube-apiserver, and are answered
//! the same, except for:
//!
//! - **patches that do not fit**: a patch whose result is no object of its kind is refused as by
//!   Kubernetes; the message quotes the object or the patch with its fields in the order of their
//!   names, and words the error differently.
//! - **words of the decoder**: the choice among several type errors, and Go's names of types and of
//!   embedded fields.
//! - **mixed lists**: a strategic merge patch that puts null beside texts into a list: 500 in
//!   Kubernetes; here the null is ignored, or the message does not show the list.
//! - **empty is absent**: an empty list or map of a built-in kind counts as absent. In Kubernetes
//!   the two differ until the object is stored: an empty one counts for the generation of a
//!   `NetworkPolicy` and as a change of an immutable `ConfigMap`, and messages show it.
//! - **writes of scales**: in Kubernetes a write of a scale that leaves the replicas unchanged may
//!   be a change; and a manager that owned the replicas by an update has two entries then, of which
//!   the later one hides the other from an apply.
//! - **repeated keys**: the owners of items of a list of a `ServiceAccount` in which one name
//!   occurs twice.
//!
//! The comparison accepts differences by these names, and fails if one of them does not occur any
//! more.
//!
//! Known faults of this API, which some seeds of the comparison find and the comparison does not
//! accept; one of some 150 sequences meets one:
//!
//! - **more ready than there are**: a status of a `StatefulSet` with more `readyReplicas` than
//!   `replicas` is accepted.
//! - **rules of no rule**: whether a `Role` keeps `[]` or null in `rules`; the owners of some lists
//!   of a `StatefulSet`.
//! - **scales that are refused**: two refusals of writes of scales are missing, and an owner of
//!   `replicas` differs after some.
//! - **warnings of copies**: the warning about a JSON patch that copies an unknown field names
//!   another place.
//! - **names of ports with dots**: the message about them differs.
//! - **null in embedded metadata**: an applied object with null in the metadata of an embedded
//!   object is refused with 500, not with 422.
//! - **a version more**: a write that changes nothing may count as a change, so that later versions
//!   differ by one.
//!
//! Rules that are left out, so that more is accepted than by Kubernetes:
//!
//! - **admission**: a `ResourceQuota` counts nothing, the labels of a namespace forbid no Pods, no
//!   class of an Ingress or of storage is the default, the classes of the system are no objects,
//!   and a new node has no taint. A `LimitRange` itself is not validated.
//! - **resources of pods**: those of a pod as a whole have no defaults, are not validated and do not
//!   count for its quality of service; huge pages and extended resources of containers are not
//!   validated; and `pods/resize` is not served.
//! - **parts of pods**: affinities (also of a Pod that is held by a gate), sysctls, host aliases,
//!   names of DNS, references to amounts, several sources of a variable, fields of a
//!   `securityContext` that exclude each other, spread over zones and paths of files are not
//!   validated, nor is a change of the grace period.
//! - **parts of webhooks**: the URL, the path and the match conditions of a webhook, `*` beside
//!   others in its rules, and names and versions that occur twice are not validated, nor is the
//!   webhook of a CRD's conversion.
//! - **parts of others**: metrics, behaviour and `apiVersion` of a `HorizontalPodAutoscaler`;
//!   resource backends of an `Ingress`; of a `Job` the policies for failures, success and
//!   replacement and the limits for each index; and the time zone and the durations after `@every`
//!   of a schedule are not validated; of a TLS Secret only the PEM is looked at; and the types of
//!   volumes that are deprecated have no defaults and no warnings.
//! - **words of patches**: an unknown member of a JSON patch is ignored; errors show numbers and
//!   escapes in another spelling, and `$patch` of a strategic patch; a key that occurs twice in an
//!   applied YAML is always refused, in other words.
//! - **priorities of stored pods**: an update that drops them is refused.
//! - **addresses**: a block of a `NetworkPolicy` whose numbers begin with 0 is refused, also if it
//!   was stored before the check.
//!
//! # Performance
//!
//! Objects are kept as compact JSON: 50,000 of 3 KB take 1.4 times their text, and the history of a
//! busy resource takes a few dozen MB more ([`Options::history`]). With 100 watches on these
//! objects an optimised build takes a fraction of a millisecond for a write and a few milliseconds
//! to notify all watches; an unoptimised build, as `cargo run` makes, takes ten times as long.
//! `cargo bench -p mortise-tests` prints the numbers. A slow watch holds no texts, only the events
//! that it has still to send.
//!
//! # Modules
//!
//! - `server`, `direct`, `request`, `answer`: HTTP; `status`, `field_error`: refusals and
//!   their reasons
//! - `verbs`: one file for each operation of a request; `collect`: consequences of deletions;
//!   `access`: RBAC
//! - `state`, `storage`: the objects and their history; `selector`: label and field selectors;
//!   `fault`: fault injection
//! - `webhooks`: conversion and admission by somebody else
//! - `kind`, `builtin`, `crd`: the kinds and the rules of each; `structural`, `name`: validation of
//!   their objects
//! - `schema`, `typed`, `fields`, `managed_fields`, `patch`: merging objects, and the owners of
//!   their fields
//! - `discovery`, `openapi`, `table`: the description of the API for clients, and the tables that
//!   kubectl prints

#![warn(missing_docs)]

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
#[cfg(test)]
mod tests;
mod typed;
mod verbs;
mod webhooks;

pub use direct::{Change, News, Update};
pub use fault::{Fault, Faults, Filter};
pub use request::{Verb, yaml};
pub use selector::{LabelSelector, SelectorError};
pub use status::{Cause, Failure};
pub use webhooks::{Admitted, Refused, Review, Webhooks};

use std::{collections::BTreeMap, fmt, sync::Arc};

use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::{chance::Chance, state::State, storage::TableId};

/// The clock of an API: returns the present time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The options of an API.
#[derive(Clone)]
pub struct Options {
    /// The clock for the times in objects and conditions.
    pub now: Clock,
    /// The number of changes of each resource that are kept for watches and lists of the past.
    pub history: usize,
    /// The namespaces that exist from the beginning.
    pub namespaces: Vec<String>,
    /// The seed of uids and generated names; `None` for the operating system's random numbers.
    pub seed: Option<u64>,
    /// The check of each request that [`EmbeddedApi::serve`] receives, if any.
    pub check: Option<Check>,
}

/// Fails for a request that is to be refused with 403 and a text.
pub type Check = fn(&http::request::Parts) -> Result<(), String>;

/// A Kubernetes API in memory. Clones share one state.
#[derive(Clone)]
pub struct EmbeddedApi {
    shared: Arc<Shared>,
}

/// A category of requests, for counting.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestKind {
    /// The verb of the requests.
    pub verb: Verb,
    /// The group of the resource, empty for the core group.
    pub group: String,
    /// The plural of the resource.
    pub resource: String,
    /// The subresource, empty for the object itself.
    pub subresource: String,
}

/// The state that all requests share.
pub(crate) struct Shared {
    pub(crate) state: RwLock<State>,
    pub(crate) faults: Faults,
    pub(crate) counts: Mutex<BTreeMap<RequestKind, u64>>,
    /// The last lines that watches sent.
    pub(crate) lines: verbs::Lines,
    /// Ends all watches when cancelled.
    pub(crate) stop: CancellationToken,
    pub(crate) now: Mutex<Clock>,
    pub(crate) check: Option<Check>,
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
            check: None,
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
    /// Returns an API with the built-in kinds, and no objects but its namespaces and their service
    /// accounts.
    pub fn new(options: Options) -> Self {
        let mut state = State::new(options.history.max(1), Chance::new(options.seed));
        let now = (options.now)();
        for namespace in &options.namespaces {
            state.add_namespace(namespace, now);
        }
        // No client can have seen anything yet: watches from before now are too old.
        state.storage.compact();
        let shared = Shared {
            state: RwLock::new(state),
            faults: Faults::default(),
            counts: Mutex::default(),
            lines: verbs::Lines::default(),
            stop: CancellationToken::new(),
            now: Mutex::new(options.now),
            check: options.check,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Returns the API as a tower service: `kube::Client::new(api.router(), "default")`.
    pub fn router(&self) -> axum::Router {
        server::router(self.shared.clone())
    }

    /// Serves the API over HTTP until `shutdown` is cancelled; then watches end and running
    /// requests are answered.
    ///
    /// # Errors
    ///
    /// Fails if the listener fails.
    pub async fn serve(
        &self,
        listener: TcpListener,
        shutdown: CancellationToken,
    ) -> std::io::Result<()> {
        server::serve(self.shared.clone(), listener, shutdown).await
    }

    /// Ends all watches, open and future ones, as the end of the server would.
    pub fn stop(&self) {
        self.shared.stop.cancel();
    }

    /// Returns the fault injection of this API.
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// Returns the revision of the last write.
    pub fn revision(&self) -> u64 {
        self.shared.state.read().storage.revision()
    }

    /// Returns the revision of the last change of a resource; 0 if no object of it was ever stored.
    pub fn latest(&self, group: &str, plural: &str) -> u64 {
        let state = self.shared.state.read();
        state.storage.table(&TableId::new(group, plural)).map_or(0, storage::Table::last)
    }

    /// Forgets the history: watches and lists from before now are answered with 410.
    pub fn compact(&self) {
        self.shared.state.write().storage.compact();
    }

    /// Returns the number of requests of each kind, including refused requests and those that
    /// faults hit.
    pub fn requests(&self) -> BTreeMap<RequestKind, u64> {
        self.shared.counts.lock().clone()
    }

    /// Resets the counts of requests.
    pub fn reset_requests(&self) {
        self.shared.counts.lock().clear();
    }

    /// Replaces the clock.
    pub fn set_clock(&self, now: Clock) {
        *self.shared.now.lock() = now;
    }

    /// Returns whether a kind is served in this version.
    pub fn serves(&self, group: &str, version: &str, kind: &str) -> bool {
        self.shared.state.read().registry.find_kind(group, version, kind).is_some()
    }

    /// Returns the version in which a client that names none gets a kind, as kubectl does: the
    /// first version of the group that serves the kind.
    pub fn preferred_version(&self, group: &str, kind: &str) -> Option<String> {
        let registry = &self.shared.state.read().registry;
        let versions = registry.group(group)?.versions;
        let serves = |version: &&str| registry.find_kind(group, version, kind).is_some();
        versions.into_iter().find(serves).map(str::to_owned)
    }

    /// Replaces the webhooks; `None`: there are none, as at first.
    pub fn set_webhooks(&self, webhooks: Option<Arc<dyn Webhooks>>) {
        self.shared.state.write().registry.webhooks.set(webhooks);
    }

    /// Returns an object in another version of its kind.
    ///
    /// # Errors
    ///
    /// Fails if the kind is not served in one of the versions, or if the object cannot be
    /// converted.
    pub fn in_version(&self, object: &Value, version: &str) -> Result<Value, Failure> {
        self.shared.state.read().in_version(object, version)
    }

    /// Serves a kind without a schema: every field is kept unchanged, lists are atomic.
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

    /// Returns all objects in their stored versions.
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

    /// Returns an object as it was before the write that made `object`. `None` if that write
    /// created the object, if the history is forgotten, or if the object cannot be converted.
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
        let previous = write.previous.as_ref().filter(|_| is_of)?;
        if resource.is_converted() {
            return State::view(resource, previous).ok();
        }
        Some(previous.value(api_version, kind))
    }

    /// Puts an object in as if it had been stored before: status, uid, owners, finalizers and
    /// deletion marks are kept. With `validate`, the object gets defaults and must satisfy the
    /// schema of its kind; without, it is stored unchanged, as an object that was stored under an
    /// older schema. A `CustomResourceDefinition` is served from then on.
    ///
    /// # Errors
    ///
    /// Fails if the kind is not served, the object has no name, or the object is not valid.
    pub fn load(&self, object: Value, validate: bool) -> Result<(), Failure> {
        let now = self.shared.now();
        self.shared.state.write().load(object, validate, now)
    }
}
