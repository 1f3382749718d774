//! The contract's types (wit/), independent of wasmtime.
//!
//! Names and meaning are those of wit/, where the fields are documented.
//! [`contract_conversions`](crate::contract_conversions) converts generated types to these and
//! back.

pub mod bounds;
mod convert;
mod display;
pub mod hooks;
mod note;
pub mod origin;
pub mod outbound;

pub use display::{api_version, display_kind, display_kind_in_any_version, display_ref};
pub use note::Note;

use std::{
    borrow::Borrow,
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

use serde::Serialize;

/// A kind in a cluster, by group and version.
///
/// Kinds of different clusters differ, so whatever is kept by kind is kept by cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Kind {
    /// The cluster's name; empty for the one that the host runs in.
    pub cluster: Arc<str>,
    pub group: String,
    pub version: String,
    pub kind: String,
}

/// The identity of an object: its name, with its kind in one version. [`SameObject`] compares
/// without the version.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct ObjectRef {
    /// Shared, since records hold many references of few kinds.
    pub kind: Arc<Kind>,
    pub namespace: Option<String>,
    pub name: String,
}

/// A reference that equals every other one of the same object, in any version of its kind.
#[derive(Clone, Debug)]
pub struct SameObject<R>(pub R);

/// Some objects of a kind, and some of their fields.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Selection {
    /// Shared, as in [`ObjectRef`].
    pub kind: Arc<Kind>,
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub labels: String,
    pub matching: Vec<(String, String)>,
    /// Shared, since records hold many selections of the same fields.
    pub fields: Arc<[String]>,
}

/// The reason why a read failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    Denied(String),
    UnknownKind,
    Unavailable(String),
    Invalid(String),
}

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The JSON of each object.
    pub objects: Vec<String>,
    pub next: Option<String>,
}

/// The severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

/// A kind of objects that a processor reconciles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reconciler {
    pub name: String,
    pub of: Selection,
    pub finalizers: Vec<String>,
    /// In milliseconds.
    pub resync: u64,
    pub triggered_by_status: bool,
    /// In milliseconds.
    pub min_interval: u64,
    pub on_demand: bool,
    pub whole_status: bool,
}

bitflags::bitflags! {
    /// Verbs that a processor may use on objects.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Verbs: u8 {
        const CREATE = 1;
        const UPDATE = 1 << 1;
        const DELETE = 1 << 2;
        const EVICT = 1 << 3;
    }
}

/// Objects that a processor may write, with the verbs and the fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteRule {
    pub of: Selection,
    pub verbs: Verbs,
    pub fields: Vec<String>,
}

/// A rule that a processor grants in a role, as RBAC's `PolicyRule`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GrantedRule {
    pub api_groups: Vec<String>,
    pub resources: Vec<String>,
    pub resource_names: Vec<String>,
    pub verbs: Vec<String>,
    pub non_resource_urls: Vec<String>,
}

bitflags::bitflags! {
    /// HTTP methods that a processor may use on a system outside.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Methods: u8 {
        const GET = 1;
        const HEAD = 1 << 1;
        const POST = 1 << 2;
        const PUT = 1 << 3;
        const PATCH = 1 << 4;
        const DELETE = 1 << 5;
    }
}

/// A system outside of the cluster that a processor may call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OutboundRule {
    pub origin: String,
    pub methods: Methods,
    pub credentials: Vec<Selection>,
    /// In milliseconds.
    pub pause: u64,
}

/// A processor's self-description: name, reconcilers and declared rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    pub name: String,
    pub version: String,
    pub reconcilers: Vec<Reconciler>,
    pub reads: Vec<Selection>,
    pub writes: Vec<WriteRule>,
    pub grants: Vec<GrantedRule>,
    pub outbound: Vec<OutboundRule>,
    pub config_schema: Option<String>,
}

/// A step in writing an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Apply,
    Patch,
    Evict,
    Delete,
    Prune,
    Finalize,
    Status,
}

/// A write that the API server refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteFailure {
    pub action: Action,
    pub ref_: ObjectRef,
    pub code: u16,
    pub reason: String,
    pub message: String,
    pub conflicting_managers: Vec<String>,
}

/// The input of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub reconciler: String,
    pub ref_: ObjectRef,
    /// The JSON of the object.
    pub object: Option<String>,
    pub config: String,
    pub attempt: u32,
    pub failed_writes: Vec<WriteFailure>,
    pub note: Option<Note>,
}

/// The way in which a manifest is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Apply,
    Create,
}

/// The desired state of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The cluster of the object, whose kind only its JSON names.
    pub cluster: Arc<str>,
    /// The JSON of the object.
    pub object: String,
    pub mode: Mode,
    pub leave: Vec<String>,
    pub absent: Vec<String>,
}

/// Objects for which an on-demand reconciler shall run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Start {
    pub reconciler: String,
    pub of: Selection,
}

/// An object to delete or evict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    pub ref_: ObjectRef,
    pub uid: Option<String>,
    pub propagation: Propagation,
    /// In seconds.
    pub grace_period: Option<u32>,
}

/// The propagation policy of a deletion: the handling of the objects that the deleted one owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    Background,
    Foreground,
    Orphan,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    Normal,
    Warning,
}

/// An event about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub on: Option<ObjectRef>,
    pub event_type: EventType,
    pub reason: String,
    pub message: String,
}

/// The time of the next run after a success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    ByDefault,
    /// In milliseconds.
    After(u64),
    Never,
}

/// The result of a call that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub apply: Vec<Manifest>,
    pub patch: Vec<Manifest>,
    pub evict: Vec<Deletion>,
    pub delete: Vec<Deletion>,
    pub prune: Vec<Selection>,
    /// The JSON of the status.
    pub status: Option<String>,
    pub events: Vec<Event>,
    pub requeue: Requeue,
    pub finalizers: Option<Vec<String>>,
    pub start: Vec<Start>,
    pub note: Option<Note>,
}

/// The time of the next run after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    BackOff,
    /// In milliseconds.
    After(u64),
    OnChange,
}

/// The result of a call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub message: String,
    /// The JSON of the status.
    pub status: Option<String>,
    pub events: Vec<Event>,
    pub retry: Retry,
    pub note: Option<Note>,
}

// === impl Kind ===

impl Kind {
    /// A kind in the cluster that the host runs in.
    pub fn home(
        group: impl Into<String>,
        version: impl Into<String>,
        kind: impl Into<String>,
    ) -> Self {
        let (group, version, kind) = (group.into(), version.into(), kind.into());
        Self { cluster: Arc::default(), group, version, kind }
    }

    /// Returns whether the cluster, the group or the name is `*`, as in a declaration: the kind
    /// stands for several ones.
    pub fn has_wildcard(&self) -> bool {
        [&*self.cluster, &self.group, &self.kind].contains(&"*")
    }

    /// Returns whether both are the same kind of a cluster in any version: Kubernetes' `GroupKind`.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.group, &self.kind, &self.cluster) == (&other.group, &other.kind, &other.cluster)
    }
}

// === impl ObjectRef ===

impl ObjectRef {
    /// Returns whether both name the same object, in any version of its kind.
    pub fn is_same(&self, other: &Self) -> bool {
        SameObject(self) == SameObject(other)
    }
}

// === impl SameObject ===

impl<R: Borrow<ObjectRef>> SameObject<R> {
    fn identity(&self) -> (&str, &str, &str, Option<&str>, &str) {
        let ObjectRef { kind, namespace, name } = self.0.borrow();
        (&kind.cluster, &kind.group, &kind.kind, namespace.as_deref(), name)
    }
}

impl<R: Borrow<ObjectRef>> PartialEq for SameObject<R> {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl<R: Borrow<ObjectRef>> Eq for SameObject<R> {}

impl<R: Borrow<ObjectRef>> Hash for SameObject<R> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

// === impl Description ===

impl Description {
    /// Returns the declarations: all that a processor may reconcile, read and write.
    ///
    /// A new list of declarations is one more value here, so that no caller compiles until it
    /// handles the list.
    pub fn declared(&self) -> (&[Reconciler], &[Selection], &[WriteRule]) {
        let Self {
            reconcilers,
            reads,
            writes,
            name: _,
            version: _,
            // Rights that are handed out, not used: see `grant::granted`.
            grants: _,
            // Its selections are not read by the processor: see `credentials`.
            outbound: _,
            config_schema: _,
        } = self;
        (reconcilers, reads, writes)
    }

    /// Returns the declarations for the home cluster, those for every cluster among them.
    #[must_use]
    pub fn at_home(&self) -> Self {
        self.within(|cluster| matches!(cluster, "" | "*"))
    }

    /// Returns the declarations for other clusters, as if all of them were for one home cluster.
    #[must_use]
    pub fn elsewhere(&self) -> Self {
        let grants = Vec::new();
        Self { grants, ..self.within(|cluster| !cluster.is_empty()) }
    }

    /// Returns the selections of objects that hold credentials for calls to the outside. The host
    /// reads and watches them; the processor does not.
    pub fn credentials(&self) -> impl Iterator<Item = &Selection> {
        self.outbound.iter().flat_map(|rule| &rule.credentials)
    }

    fn within(&self, is_in: impl Fn(&str) -> bool) -> Self {
        let is_meant = |of: &mut Selection| {
            let is_meant = is_in(&of.kind.cluster);
            if is_meant && !of.kind.cluster.is_empty() {
                Arc::make_mut(&mut of.kind).cluster = Arc::default();
            }
            is_meant
        };
        let mut within = self.clone();
        within.reconcilers.retain_mut(|reconciler| is_meant(&mut reconciler.of));
        within.reads.retain_mut(is_meant);
        within.writes.retain_mut(|rule| is_meant(&mut rule.of));
        within.outbound.iter_mut().for_each(|rule| rule.credentials.retain_mut(is_meant));
        within
    }

    /// Returns the distinct kinds of all declarations, without wildcards (`*`).
    pub fn kinds(&self) -> Vec<Kind> {
        let (reconcilers, reads, writes) = self.declared();
        let credentials = self.credentials().map(|selection| &selection.kind);
        let reconciled = reconcilers.iter().map(|reconciler| &reconciler.of.kind);
        let read = reads.iter().map(|selection| &selection.kind);
        let written = writes.iter().map(|rule| &rule.of.kind);
        let mut kinds: Vec<Kind> = Vec::new();
        for kind in reconciled.chain(read).chain(written).chain(credentials) {
            if !kind.has_wildcard() && !kinds.contains(&**kind) {
                kinds.push(Kind::clone(kind));
            }
        }
        kinds
    }
}

/// Names the action as in a sentence: `apply of …`.
impl fmt::Display for Action {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Apply => "apply",
            Self::Patch => "patch",
            Self::Evict => "eviction",
            Self::Delete => "deletion",
            Self::Prune => "pruning",
            Self::Finalize => "change of the finalizers",
            Self::Status => "status",
        })
    }
}
