//! The Processor: a component with reconciliation logic, and how it is run. The doc comments are
//! the CRD's descriptions.

use std::sync::Arc;

use kube::CustomResource;
use mortise_core::contract::{Kind, Selection};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, value::RawValue};

use super::schema;
use crate::reason::Reason;

/// The spec of a Processor: the module, the account, the configuration and the limits.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "mortise.dev",
    version = "v1alpha1",
    kind = "Processor",
    plural = "processors",
    shortname = "proc",
    category = "mortise",
    namespaced,
    status = "ProcessorStatus",
    derive = "PartialEq",
    doc = "Processor runs reconciliation logic that comes as a WebAssembly component.",
    printcolumn = r#"{"name": "Version", "type": "string", "jsonPath": ".status.module.version"}"#,
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name": "Reason", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name": "Synced", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Synced\")].status", "priority": 1}"#,
    printcolumn = r#"{"name": "Failing", "type": "integer", "jsonPath": ".status.counts.failing", "priority": 1}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ProcessorSpec {
    /// The component: exactly one of `image` and `path`.
    #[schemars(transform = schema::one_module)]
    pub module: Module,
    /// The components that implement the interfaces which the module imports beside those of the
    /// host. A library is a pure function: it imports nothing but `mortise:host/log`, and its
    /// results are cached. Another library is another version of the Processor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::libraries)]
    pub libraries: Vec<Library>,
    /// The signatures that the module and the libraries need: what lacks one is not loaded. The
    /// host may require others besides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification: Option<Verification>,
    /// The Secrets of this namespace with credentials for registries, of the type
    /// kubernetes.io/dockerconfigjson. They are read as the `ServiceAccount`, which needs the right
    /// to get them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::pull_secrets)]
    pub image_pull_secrets: Vec<SecretReference>,
    /// The `ServiceAccount` of this namespace that the processor acts as: it may do what this
    /// account may do, and nothing else. The account must consent: by the label or annotation
    /// `mortise.dev/processor` with the Processor's name, or the annotation with `*`.
    #[schemars(transform = schema::object_name)]
    pub service_account_name: String,
    /// The configuration of the processor, at most 64 KiB as JSON. It is validated against the
    /// schema that the processor declares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::any_object")]
    pub config: Option<Config>,
    /// Reconcile: the outcomes of the processor are written. Observe: the processor runs and its
    /// runs are recorded; nothing but this Processor's status is written.
    #[serde(default)]
    pub mode: Mode,
    /// The systems outside of the cluster that the processor may call, of those that it declares.
    /// None: it calls nothing. The host has to allow them, too, by its options `--egress` and
    /// `--egress-private`. Whatever the processor reads, it can send there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::egress)]
    pub egress: Vec<Egress>,
    /// The other clusters that the processor may use, named by Secrets with kubeconfigs that its
    /// declared reads select. None: no other cluster. Whoever may write such a Secret decides which
    /// of these servers the processor writes to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::clusters)]
    pub clusters: Vec<Clusters>,
    /// Field managers of a former operator, whose fields become the processor's when it first
    /// applies an object. In other clusters also `mortise/NAMESPACE/PROCESSOR`: the managers of that
    /// Processor of another home cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::managers)]
    pub take_over: Vec<String>,
    /// The handling of the processor's finalizers when this Processor is deleted. Finalize: objects
    /// that hold one of them are reconciled as if they were being deleted, until they hold none.
    /// Release: the finalizers are removed, all else is left.
    #[serde(default)]
    pub on_delete: OnDelete,
    /// The limits of one call of the processor, and on the number of calls.
    #[serde(default)]
    pub limits: Limits,
    /// Suspends the processor: no runs begin. Its stores and its queue are kept. The deletion of
    /// this Processor is carried out nevertheless.
    #[serde(default)]
    pub suspend: bool,
    /// The reason why the stored spec is not used, and a sentence about it; all other fields are
    /// empty then. Not a part of the resource.
    #[serde(skip)]
    pub unreadable: Option<(Reason, String)>,
}

/// A system outside of the cluster that the processor may call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Egress {
    /// The scheme and the host, and the port if it is not the scheme's: `https://api.example.com`,
    /// or `https://*.example.com:8443`, where `*` stands for one label.
    #[schemars(transform = schema::origin)]
    pub origin: String,
    /// The objects that may hold what calls are authenticated with, of those that the processor
    /// declares and its account may get. None: calls have no credentials of the host. They are sent
    /// over TLS only, and never shown to the processor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::credentials)]
    pub credentials: Vec<EgressCredential>,
    /// The rate of calls to the origin. None: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<EgressRate>,
    /// The certificates (PEM) of the authorities that the origin's certificate is checked with, in
    /// place of those that are built into the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::ca_bundle)]
    pub ca_bundle: Option<String>,
    /// Lets the origin have addresses of private networks and of the host's own Pod. Never called
    /// are link-local addresses, metadata services and the API server of this cluster.
    #[serde(default)]
    pub private: bool,
    /// The `HOST:PORT` that is connected to, in place of the origin's: a proxy that passes TLS on,
    /// or a test. Its addresses are checked in the same way, and the certificate is that of the
    /// origin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::connect)]
    pub connect: Option<String>,
}

/// Objects of a kind that may hold credentials.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EgressCredential {
    /// The group of the kind; empty for the core kinds.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(transform = schema::group)]
    pub group: String,
    /// The kind: `Secret`.
    #[schemars(transform = schema::kind)]
    pub kind: String,
    /// A label selector: `example.com/credential=api`. Empty: all objects of the kind.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(transform = schema::labels)]
    pub labels: String,
}

/// The rate of calls to an origin. Calls beyond it are not sent; the processor is told when the next
/// one can be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EgressRate {
    /// The calls of a second, on average.
    #[schemars(transform = schema::rate)]
    pub per_second: u32,
    /// The calls at once, after a time without calls.
    #[schemars(transform = schema::rate)]
    pub burst: u32,
}

/// Clusters that the processor may use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Clusters {
    /// The servers that kubeconfigs may name, as `https://10.0.0.7:6443`, or
    /// `https://*.provider.example:6443` for all names below a domain. The host has to grant them,
    /// too, by its option `--clusters`.
    #[schemars(transform = schema::servers)]
    pub servers: Vec<String>,
    /// The Secrets that may hold these kubeconfigs. None: all that the declared reads select.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<SecretPlace>,
}

/// The place of Secrets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretPlace {
    /// The namespace of the Secrets.
    #[schemars(transform = schema::namespace)]
    pub namespace: String,
}

/// A configuration: a JSON object, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config(Arc<str>);

/// The source of a component: an OCI artifact or a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Module {
    /// An OCI artifact, as `mortise push` makes it, by digest or tag:
    /// `registry.example.com/team/rules:1.0.0@sha256:…`. With a digest the tag says nothing;
    /// without one it is resolved again and again, and another artifact is another version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::image)]
    pub image: Option<String>,
    /// A file in the host's folder of modules: `/modules/NAME.wasm`, or `NAME.wasm`, which is the
    /// same one. `/modules` stands for the folder wherever it really is; links do not lead out of
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::module_path)]
    pub path: Option<String>,
}

/// A component that implements one interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Library {
    /// The interface with its package and version, as the module imports it:
    /// `example:shouting/shout@1.0.0`.
    #[schemars(transform = schema::interface)]
    pub interface: String,
    /// The component: exactly one of `image` and `path`.
    #[schemars(transform = schema::one_module)]
    pub module: Module,
    /// The limits of one call of the library.
    #[serde(default)]
    pub limits: LibraryLimits,
}

/// The limits of one call of a library. Its memory and its CPU time count for the Processor; the
/// calling call waits for it no longer than until its own deadline, and the result is kept for the
/// next one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LibraryLimits {
    /// The memory of one call, as Kubernetes writes quantities: `64Mi`. From 1Mi to 4Gi.
    #[schemars(transform = schema::memory)]
    pub memory: String,
    /// The time limit of one call: `500ms`, `5s`, `1m`. At most 10m.
    #[schemars(transform = schema::deadline)]
    pub deadline: String,
}

/// The signatures that a module needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verification {
    /// Public keys in PEM (ECDSA on P-256, as `cosign generate-key-pair` makes them): a signature
    /// by one of them is enough.
    #[schemars(transform = schema::keys)]
    pub keys: Vec<String>,
}

/// A Secret, by its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretReference {
    /// The name of the Secret.
    #[schemars(transform = schema::object_name)]
    pub name: String,
}

/// The handling of a processor's outcomes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = schema::plain_enum)]
pub enum Mode {
    /// Outcomes are written.
    #[default]
    Reconcile,
    /// Outcomes are recorded, and not written.
    Observe,
}

/// The handling of a processor's finalizers when its Processor is deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = schema::plain_enum)]
pub enum OnDelete {
    /// Objects that hold a finalizer are reconciled as deleted first.
    #[default]
    Finalize,
    /// The finalizers are removed.
    Release,
}

/// The limits of one call, and on the number of calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Limits {
    /// The memory of one call, as Kubernetes writes quantities: `64Mi`. From 1Mi to 4Gi.
    #[schemars(transform = schema::memory)]
    pub memory: String,
    /// The time limit of one call: `500ms`, `5s`, `1m`. At most 10m.
    #[schemars(transform = schema::deadline)]
    pub deadline: String,
    /// The maximum number of calls at the same time.
    #[schemars(transform = schema::concurrency)]
    pub concurrency: u32,
    /// The maximum number of runs that begin in a second. None: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::rate)]
    pub rate: Option<u32>,
}

/// The status of the processor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessorStatus {
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The module that runs, or ran last: the former one if a newer one cannot be loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<ModuleStatus>,
    /// The libraries that the module calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::atomic)]
    pub libraries: Vec<LibraryStatus>,
    /// The kinds that the processor reconciles.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::atomic)]
    pub reconciles: Vec<ReconciledKind>,
    /// The finalizers that the processor holds, and the objects that it may put them on: no other
    /// Processor may. The first that claims one has it, also after a restart of the host, which
    /// reads the claims here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::atomic)]
    pub finalizers: Vec<HeldFinalizer>,
    /// The number of objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counts: Option<Counts>,
    /// The last run that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<LastFailure>,
    /// Loaded: the version that the spec names runs. Synced: all objects are as the processor wants
    /// them. Ready: the processor runs, and has the rights and kinds that it needs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::by_type)]
    pub conditions: Vec<Condition>,
}

/// A module that runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ModuleStatus {
    /// The SHA-256 of the component's bytes.
    pub digest: String,
    /// The name that the processor declares.
    pub name: String,
    /// The version that the processor declares.
    pub version: String,
    /// The artifact that it comes from, with the digest of its manifest. None: a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

/// A library that is called.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LibraryStatus {
    /// The interface that the library implements.
    pub interface: String,
    /// The SHA-256 of the component's bytes.
    pub digest: String,
    /// The artifact that it comes from, with the digest of its manifest. None: a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

/// A kind that is reconciled.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ReconciledKind {
    /// The name of the reconciler.
    pub name: String,
    /// The group of the kind; empty for the core kinds.
    pub group: String,
    /// The version of the kind.
    pub version: String,
    /// The kind.
    pub kind: String,
    /// The finalizers that the reconciler may put on the objects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::atomic)]
    pub finalizers: Vec<String>,
}

/// A finalizer, and the objects that it may be put on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HeldFinalizer {
    /// The finalizer.
    pub finalizer: String,
    /// The group of the objects; empty for the core kinds.
    pub group: String,
    /// The version of the kind.
    pub version: String,
    /// The kind.
    pub kind: String,
    /// The namespace of the objects. None: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name of the object. None: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object_name: Option<String>,
    /// The label selector. Empty: all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub labels: String,
}

/// The number of objects.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Counts {
    /// Objects that are reconciled.
    #[schemars(transform = schema::count)]
    pub objects: u64,
    /// Objects whose last run failed.
    #[schemars(transform = schema::count)]
    pub failing: u64,
}

/// A run that failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LastFailure {
    /// The key of the run: the reconciler, and the object's namespace and name.
    pub object: String,
    /// The time at which the run ended.
    #[schemars(transform = schema::time)]
    pub time: String,
    /// The failure of the run.
    pub message: String,
}

/// A condition of the processor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["type"]))]
pub struct Condition {
    /// Loaded, Synced, Ready, Limited, Serving or Connected.
    #[serde(rename = "type")]
    pub type_: String,
    /// True, False or Unknown.
    pub status: String,
    /// The reason of the status, in one word.
    pub reason: String,
    /// The reason of the status, in a sentence.
    pub message: String,
    /// The time of the last change of the status.
    #[schemars(transform = schema::time)]
    pub last_transition_time: String,
    /// The generation of the spec that the condition describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

// === impl Config ===

impl Config {
    /// Returns the text.
    pub fn text(&self) -> &Arc<str> {
        &self.0
    }
}

impl Serialize for Config {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        text.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Config {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = Map::<String, Value>::deserialize(deserializer)?;
        Ok(Self(Value::Object(fields).to_string().into()))
    }
}

// === impl HeldFinalizer ===

impl HeldFinalizer {
    /// A finalizer on the objects of a selection.
    pub fn new(finalizer: &str, on: &Selection) -> Self {
        let Kind { cluster: _, group, version, kind } = Kind::clone(&on.kind);
        Self {
            finalizer: finalizer.to_owned(),
            group,
            version,
            kind,
            namespace: on.namespace.clone(),
            object_name: on.name.clone(),
            labels: on.labels.clone(),
        }
    }

    /// Returns the kind of the objects.
    pub fn of_kind(&self) -> Kind {
        let Self { group, version, kind, .. } = self.clone();
        Kind::home(group, version, kind)
    }
}

// === impl Library ===

impl Library {
    /// Returns the field of the library, for messages.
    pub fn field(&self) -> String {
        format!("spec.libraries[{}]", self.interface)
    }
}

// === impl LibraryLimits ===

impl Default for LibraryLimits {
    fn default() -> Self {
        let Limits { memory, deadline, .. } = Limits::default();
        Self { memory, deadline }
    }
}

// === impl Limits ===

impl Default for Limits {
    fn default() -> Self {
        Self { memory: "64Mi".into(), deadline: "5s".into(), concurrency: 4, rate: None }
    }
}
