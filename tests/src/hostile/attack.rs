//! The table of attacks.

use serde_json::{Value, json};

use super::{
    benign,
    registry::{LAYERS, TAG},
};

/// Resources and verbs of an account in its namespace, both separated by blanks.
pub type Rights = &'static [(&'static str, &'static str)];

/// The rights of every hostile account: to read the objects that it reconciles, and to write
/// events.
const PLAIN_RIGHTS: Rights =
    &[("configmaps", "get list watch create patch"), ("events", "create patch")];
/// A length of which four texts fit into the memory of a call.
const LONG_TEXT_BYTES: usize = 15_000_000;
/// The default of `limits.memory`.
const MEMORY_MIB: u64 = 64;
/// The default of `limits.concurrency`.
const CONCURRENCY: u32 = 4;

/// An object of 100 bytes that the guest `hooks` converts.
const RULE: &str = r#"{"apiVersion":"example.com/v1","kind":"Rule","metadata":{"name":"a-small-rule","uid":"1"},"spec":{}}"#;

/// An attacking Processor, and the conditions expected of it.
#[derive(Clone, Copy, Debug)]
pub struct Attack {
    /// The name of the attack in tables, and of its Processor and account.
    pub name: &'static str,
    /// The attack's row in the table of threats.
    pub row: &'static str,
    /// The module.
    pub module: &'static str,
    /// The guest's action in `describe`.
    pub describe: &'static str,
    /// The guest's action in `reconcile`, or in all conversions.
    pub reconcile: &'static str,
    /// Number of repetitions of the action, or of its parts.
    pub times: u32,
    /// Bytes of the texts.
    pub bytes: usize,
    /// `spec.limits.memory`.
    pub memory_mib: u64,
    /// `spec.limits.deadline`.
    pub deadline: &'static str,
    /// `spec.limits.concurrency`.
    pub concurrency: u32,
    /// The kind of the objects that are made in the namespace; the Processor reconciles
    /// `ConfigMap`s.
    pub kind: Flood,
    /// Number of these objects.
    pub objects: usize,
    /// Bytes of data of each of these objects.
    pub object_bytes: usize,
    /// The metadata of each of these objects.
    pub metadata: Metadata,
    /// Rights of the account in addition to the common ones.
    pub rights: Rights,
    /// True if the Processor reconciles an object in the benign namespace, where its account has
    /// the additional rights too.
    pub within: bool,
    /// True if the host may impersonate the account.
    pub may_be: bool,
    /// The side action.
    pub beside: Beside,
    /// Texts of which at least one must be in a condition of the Processor, written as
    /// `Type Status Reason message`, or in a metric series of its namespace. Empty: nothing is
    /// expected.
    pub says: &'static [&'static str],
}

/// A kind of objects that are made before an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flood {
    /// `ConfigMap`s with data.
    ConfigMaps,
    /// `ServiceAccount`s with an annotation.
    Accounts,
    /// `RoleBinding`s with an annotation.
    Bindings,
    /// Processors with a list in their configuration, and without a module.
    Processors,
}

/// An action beside the Processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// No action.
    Nothing,
    /// Changes the Processor's spec a hundred times a second.
    Changes,
    /// Replaces the Processor's module more often than the host reads it.
    Modules,
    /// Replaces the Processor's module in the registry, under its tag.
    Tag,
    /// Names libraries in the registry that are no modules, and fill the folder of modules; a benign
    /// Processor pulls its module.
    Layers,
    /// Opens this many connections to `--listen` and never completes a request.
    Connections(usize),
    /// Changes a `ConfigMap` of the attack's namespace again and again: one with this many bytes of
    /// data, which the Processor does not reconcile.
    Objects(usize),
    /// Makes TLS handshakes with `--webhooks`, this many at once, and ends none.
    Handshakes(usize),
    /// Sends reviews to the Processor, which converts objects.
    Reviews {
        /// Each of the objects of a review.
        object: &'static str,
        /// Bytes of the objects of a review.
        bytes: usize,
    },
    /// Asks for all pages of `--admin`, as a web page in a browser there does.
    Pages,
    /// Deletes and creates the definition of the kind `Thing`, each time with another scope or plural.
    Definitions,
    /// Creates the benign Processor again, so that it is younger than the attacking one.
    Older,
}

/// Many entries in the metadata of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metadata {
    /// No entries.
    Nothing,
    /// This many annotations.
    Annotations(usize),
    /// This many finalizers.
    Finalizers(usize),
}

/// The defaults of an attack.
const PLAIN: Attack = Attack {
    name: "",
    row: "",
    module: "hostile",
    describe: "plain",
    reconcile: "nothing",
    times: 1,
    bytes: 0,
    memory_mib: MEMORY_MIB,
    deadline: "5s",
    concurrency: CONCURRENCY,
    kind: Flood::ConfigMaps,
    objects: 1,
    object_bytes: 0,
    metadata: Metadata::Nothing,
    rights: &[],
    within: false,
    may_be: true,
    beside: Beside::Nothing,
    says: &[],
};

/// The attacks that the tests carry out.
pub const ATTACKS: &[Attack] = &[
    Attack {
        name: "long-names",
        row: "C1",
        reconcile: "names",
        times: 100,
        bytes: LONG_TEXT_BYTES,
        says: &["passed more than 1048576 bytes"],
        ..PLAIN
    },
    Attack {
        name: "long-paths",
        row: "C1",
        reconcile: "fields",
        times: 20,
        bytes: LONG_TEXT_BYTES,
        says: &["passed more than 1048576 bytes"],
        ..PLAIN
    },
    Attack {
        name: "long-selectors",
        row: "C1",
        reconcile: "selectors",
        times: 20,
        bytes: LONG_TEXT_BYTES,
        says: &["passed more than 1048576 bytes"],
        ..PLAIN
    },
    Attack {
        name: "many-kinds",
        row: "C2",
        reconcile: "kinds",
        times: 9_000,
        says: &["Synced False Denied"],
        ..PLAIN
    },
    Attack { name: "schema", row: "C3", describe: "schema", says: &["schema"], ..PLAIN },
    Attack { name: "schema-too", row: "C3", describe: "schema", says: &["schema"], ..PLAIN },
    Attack {
        name: "loops",
        row: "C4",
        reconcile: "loop",
        deadline: "10m",
        concurrency: 256,
        objects: 141,
        memory_mib: 2,
        says: &["Limited"],
        ..PLAIN
    },
    Attack {
        name: "impersonation",
        row: "H1",
        describe: "secrets",
        reconcile: "failure",
        bytes: 1_000,
        rights: &[("configmaps secrets", "get list watch")],
        within: true,
        may_be: false,
        says: &["AccountNotGranted"],
        ..PLAIN
    },
    Attack {
        name: "finalizer",
        row: "H2",
        describe: "finalizer",
        within: true,
        beside: Beside::Older,
        says: &["RightsMissing", "FinalizerShared"],
        ..PLAIN
    },
    Attack {
        name: "memory",
        row: "H3",
        reconcile: "memory",
        bytes: 1_900_000_000,
        memory_mib: 2_048,
        objects: 2,
        says: &["Limited"],
        ..PLAIN
    },
    Attack { name: "path", row: "H4", reconcile: "path", times: 1, ..PLAIN },
    Attack {
        name: "delete-path",
        row: "H4",
        reconcile: "delete",
        says: &["Synced False"],
        ..PLAIN
    },
    Attack {
        name: "many-selections",
        row: "H5",
        describe: "selections",
        times: 4_000,
        says: &["256 reads", "at most 256", "selections"],
        ..PLAIN
    },
    Attack {
        name: "many-grants",
        row: "M",
        describe: "grants",
        times: 200,
        says: &["single rights together"],
        ..PLAIN
    },
    Attack {
        name: "scale",
        row: "M",
        describe: "deployments",
        reconcile: "scale",
        rights: &[("deployments.apps deployments.apps/scale", "get")],
        ..PLAIN
    },
    Attack {
        name: "log",
        row: "M",
        reconcile: "log",
        times: 200,
        bytes: 1_000,
        says: &["LogLimited"],
        ..PLAIN
    },
    Attack {
        name: "forged-lines",
        row: "M",
        reconcile: "forge",
        times: 200,
        says: &["LogLimited"],
        ..PLAIN
    },
    Attack {
        name: "long-version",
        row: "M",
        describe: "version",
        bytes: 5_000_000,
        says: &["version"],
        ..PLAIN
    },
    Attack {
        name: "forged-version",
        row: "S11",
        describe: "forged-version",
        says: &["DescriptionInvalid"],
        ..PLAIN
    },
    Attack {
        name: "owners",
        row: "M",
        describe: "secrets",
        rights: &[("secrets", "get list watch")],
        reconcile: "owners",
        times: 1_000,
        objects: 100,
        says: &["ownerReferences", "owner"],
        ..PLAIN
    },
    Attack {
        name: "long-failure",
        row: "M",
        describe: "secrets",
        reconcile: "failure",
        bytes: 8_000_000,
        rights: &[("secrets", "get list watch")],
        says: &["Synced False"],
        ..PLAIN
    },
    Attack {
        name: "trapping",
        row: "M",
        reconcile: "trap",
        objects: 300,
        says: &["Synced False"],
        ..PLAIN
    },
    Attack { name: "connections", row: "M", beside: Beside::Connections(3_000), ..PLAIN },
    Attack { name: "handshakes", row: "S16", beside: Beside::Handshakes(64), ..PLAIN },
    Attack {
        name: "reviews",
        row: "S1",
        module: "hooks",
        objects: 0,
        beside: Beside::Reviews { object: "0", bytes: 64 << 20 },
        says: &[r#"hook="convert",result="invalid""#],
        ..PLAIN
    },
    Attack {
        name: "growing-reviews",
        row: "S6",
        module: "hooks",
        reconcile: "bloat",
        objects: 0,
        beside: Beside::Reviews { object: RULE, bytes: 1 << 20 },
        says: &[r#"hook="convert",result="failed""#],
        ..PLAIN
    },
    Attack { name: "pages", row: "S14", beside: Beside::Pages, ..PLAIN },
    Attack { name: "endless-describe", row: "+", describe: "loop", says: &["limit of"], ..PLAIN },
    Attack {
        name: "deep",
        row: "+",
        reconcile: "deep",
        times: 100_000,
        says: &["Synced False"],
        ..PLAIN
    },
    Attack {
        name: "wide",
        row: "+",
        reconcile: "wide",
        times: 300_000,
        says: &["Synced False"],
        ..PLAIN
    },
    Attack {
        name: "nested-lists",
        row: "+",
        describe: "nested",
        reconcile: "nested",
        times: 60,
        bytes: 3_000_000,
        says: &["Synced False"],
        ..PLAIN
    },
    Attack {
        name: "zeros",
        row: "+",
        reconcile: "nested",
        times: 1,
        bytes: 7_000_000,
        concurrency: 16,
        objects: 16,
        says: &["Synced False"],
        ..PLAIN
    },
    Attack {
        name: "labels",
        row: "+",
        reconcile: "labels",
        times: 100_000,
        says: &["Synced False"],
        ..PLAIN
    },
    Attack {
        name: "finalizers",
        row: "+",
        reconcile: "finalizers",
        times: 100_000,
        says: &["Synced False"],
        ..PLAIN
    },
    Attack {
        name: "events",
        row: "+",
        reconcile: "events",
        times: 100_000,
        says: &["Synced False"],
        ..PLAIN
    },
    Attack {
        name: "long-status",
        row: "+",
        reconcile: "status",
        bytes: 8_000_000,
        says: &["Synced False"],
        ..PLAIN
    },
    Attack {
        name: "brackets",
        row: "+",
        reconcile: "brackets",
        times: 100,
        bytes: 10_000,
        ..PLAIN
    },
    Attack {
        name: "leave-brackets",
        row: "+",
        reconcile: "leave",
        times: 100,
        bytes: 10_000,
        says: &["Synced False"],
        ..PLAIN
    },
    Attack { name: "changes", row: "+", beside: Beside::Changes, ..PLAIN },
    Attack { name: "modules", row: "+", module: "replaced", beside: Beside::Modules, ..PLAIN },
    Attack { name: "tags", row: "S15", module: "replaced", beside: Beside::Tag, ..PLAIN },
    Attack {
        name: "layers",
        row: "S9",
        beside: Beside::Layers,
        says: &["CacheFull", "ModuleInvalid"],
        ..PLAIN
    },
    Attack { name: "contexts", row: "S3", module: "contexts", says: &["ModuleTooLarge"], ..PLAIN },
    Attack { name: "exports", row: "S8", module: "exports", says: &["ModuleTooLarge"], ..PLAIN },
    Attack { name: "functions", row: "+", module: "functions", ..PLAIN },
    Attack { name: "requeues", row: "+", objects: 1_000, ..PLAIN },
    Attack { name: "ping-pong", row: "+", reconcile: "ping", objects: 2, ..PLAIN },
    Attack {
        name: "definitions",
        row: "+",
        describe: "things",
        beside: Beside::Definitions,
        ..PLAIN
    },
    Attack {
        name: "definitions-within",
        row: "+",
        describe: "things-within",
        beside: Beside::Definitions,
        ..PLAIN
    },
    Attack {
        name: "stores",
        row: "+",
        objects: 400,
        object_bytes: 1_000_000,
        says: &["Limited"],
        ..PLAIN
    },
    Attack {
        name: "many-stores",
        row: "+",
        objects: 2_000,
        object_bytes: 1 << 20,
        says: &["Limited"],
        ..PLAIN
    },
    Attack {
        name: "accounts-flood",
        row: "S2",
        kind: Flood::Accounts,
        objects: 280,
        object_bytes: 250_000,
        ..PLAIN
    },
    Attack {
        name: "bindings-flood",
        row: "S12",
        kind: Flood::Bindings,
        objects: 280,
        object_bytes: 250_000,
        ..PLAIN
    },
    Attack {
        name: "configs",
        row: "S7",
        kind: Flood::Processors,
        objects: 54,
        object_bytes: 1_240_000,
        ..PLAIN
    },
    Attack {
        name: "many-processors",
        row: "+",
        kind: Flood::Processors,
        objects: 10_000,
        object_bytes: 100,
        ..PLAIN
    },
    Attack {
        name: "index-rows",
        row: "S5",
        describe: "index",
        objects: 100,
        metadata: Metadata::Finalizers(50_000),
        says: &["Limited"],
        ..PLAIN
    },
    Attack {
        name: "unindexed-reads",
        row: "S10",
        reconcile: "lists",
        times: 60,
        objects: 20,
        object_bytes: 1_000_000,
        ..PLAIN
    },
    Attack {
        name: "tiny-list",
        row: "S10",
        reconcile: "lists",
        times: 20,
        objects: 50_000,
        ..PLAIN
    },
    Attack {
        name: "annotations",
        row: "S10",
        describe: "index",
        reconcile: "lists",
        times: 60,
        objects: 20,
        metadata: Metadata::Annotations(50_000),
        ..PLAIN
    },
    Attack {
        name: "many-trapping",
        row: "+",
        reconcile: "trap",
        objects: 10_000,
        says: &["Synced False"],
        ..PLAIN
    },
    Attack {
        name: "unindexed-lists",
        row: "S4",
        reconcile: "unindexed",
        times: 132,
        objects: 20,
        beside: Beside::Objects(560_000),
        ..PLAIN
    },
    Attack {
        name: "label-lists",
        row: "S4",
        reconcile: "in-labels",
        times: 4_000,
        objects: 60,
        beside: Beside::Objects(100),
        ..PLAIN
    },
];

// === impl Flood ===

impl Flood {
    /// Returns the group, version and kind of the objects.
    pub fn kind(self) -> [&'static str; 3] {
        match self {
            Self::ConfigMaps => ["", "v1", "ConfigMap"],
            Self::Accounts => ["", "v1", "ServiceAccount"],
            Self::Bindings => ["rbac.authorization.k8s.io", "v1", "RoleBinding"],
            Self::Processors => ["mortise.dev", "v1alpha1", "Processor"],
        }
    }

    /// Returns the fields of an object with so many bytes, besides those of its type and name.
    /// `account` has a role of this name.
    pub fn fields(self, account: &str, bytes: usize) -> Value {
        let text = "x".repeat(bytes);
        match self {
            Self::ConfigMaps => json!({"data": {"text": text}}),
            Self::Accounts => json!({"metadata": {"annotations": {"text": text}}}),
            Self::Bindings => {
                let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account});
                json!({"metadata": {"annotations": {"text": text}}, "roleRef": role})
            }
            Self::Processors => json!({
                "spec": {
                    "module": {"path": "none.wasm"}, "serviceAccountName": account,
                    "config": {"list": vec![0; bytes / 2]},
                },
            }),
        }
    }
}

// === impl Attack ===

impl Attack {
    /// Returns the attack of this name.
    ///
    /// # Panics
    ///
    /// Panics if no attack has this name.
    pub fn named(name: &str) -> &'static Self {
        let attack = ATTACKS.iter().find(|attack| attack.name == name);
        attack.expect("an attack of the table")
    }

    /// Returns the bytes of memory that all concurrent calls of the attack may have.
    pub fn may_hold(&self) -> u64 {
        (u64::from(self.concurrency) * self.memory_mib) << 20
    }

    /// Returns the namespace of the attack.
    pub fn namespace(&self) -> String {
        format!("hostile-{}", self.name)
    }

    /// Returns the namespace of the objects that the Processor reconciles.
    pub fn reconciled(&self) -> String {
        if self.within { benign::NAME.to_owned() } else { self.namespace() }
    }

    /// Returns the common and the additional rights of the account.
    pub fn all_rights(&self) -> Vec<(&'static str, &'static str)> {
        [PLAIN_RIGHTS, self.rights].concat()
    }

    /// Returns the Processor of the attack; each `number` gives another spec. `registry`: host and
    /// port.
    pub fn processor(&self, registry: &str, number: u32) -> Value {
        let image = |repository: &str| json!({"image": format!("{registry}/{repository}:{TAG}")});
        let module = match self.beside {
            Beside::Tag => image(self.module),
            _ => json!({"path": format!("{}.wasm", self.module)}),
        };
        let libraries = if self.beside == Beside::Layers { LAYERS } else { 0 };
        let library = |number: usize| {
            let interface = format!("hostile:layers/l{number}@1.0.0");
            json!({"interface": interface, "module": image(&format!("layer-{number}"))})
        };
        let libraries: Vec<Value> = (0..libraries).map(library).collect();
        let config = match self.beside {
            Beside::Reviews { .. } => json!({"do": self.reconcile}),
            _ => json!({
                "name": self.name, "namespace": self.reconciled(),
                "describe": self.describe, "reconcile": self.reconcile,
                "times": self.times + number, "bytes": self.bytes,
            }),
        };
        json!({
            "apiVersion": "mortise.dev/v1alpha1", "kind": "Processor",
            "metadata": {"namespace": self.namespace(), "name": self.name},
            "spec": {
                "module": module, "libraries": libraries,
                "serviceAccountName": self.name,
                "onDelete": "Release",
                "limits": {
                    "memory": format!("{}Mi", self.memory_mib), "deadline": self.deadline,
                    "concurrency": self.concurrency,
                },
                "config": config,
            },
        })
    }

    /// Returns the path of the Processor's conversions.
    pub fn conversions(&self) -> String {
        format!("/convert/{}/{}", self.namespace(), self.name)
    }
}
