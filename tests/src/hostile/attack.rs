//! The attacks, as a table.

use serde_json::{Value, json};

/// Resources and verbs of an account in its namespace, both with blanks between.
pub type Rights = &'static [(&'static str, &'static str)];

/// What every hostile account may do: what it reconciles is read, and what it says is heard.
const PLAIN_RIGHTS: Rights =
    &[("configmaps", "get list watch create patch"), ("events", "create patch")];
/// A length that fits into the memory of a call four times.
const LONG: usize = 15_000_000;
/// The default of `limits.memory`.
const MEMORY_MIB: u64 = 64;
/// The default of `limits.concurrency`.
const CONCURRENCY: u32 = 4;

/// A Processor that attacks, and what has to be said of it.
#[derive(Clone, Copy, Debug)]
pub struct Attack {
    /// What it is called in tables; the name of the Processor, and of its namespace.
    pub name: &'static str,
    /// Where in the table of threats it stands.
    pub row: &'static str,
    /// What the guest does in `describe`.
    pub describe: &'static str,
    /// What it does in `reconcile`.
    pub reconcile: &'static str,
    /// How often, or of how many parts.
    pub times: u32,
    /// How long the texts are.
    pub bytes: usize,
    /// `spec.limits.memory`.
    pub memory_mib: u64,
    /// `spec.limits.deadline`.
    pub deadline: &'static str,
    /// `spec.limits.concurrency`.
    pub concurrency: u32,
    /// How many objects it reconciles.
    pub objects: usize,
    /// How long the data of each of them is.
    pub object_bytes: usize,
    /// What its account may do besides what all may.
    pub rights: Rights,
    /// Whether it reconciles an object in the benign namespace, where its account has the rights besides too.
    pub within: bool,
    /// Whether the host may act as its account.
    pub may_be: bool,
    /// What else happens.
    pub beside: Beside,
    /// One of these texts is in a condition of the Processor, as `Type Reason message`. Empty: nothing has to be said.
    pub says: &'static [&'static str],
}

/// What happens beside the Processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Nothing.
    Nothing,
    /// Its spec is changed a hundred times a second.
    Changes,
    /// Its module is replaced as often as it is looked at.
    Modules,
    /// So many connections are opened to `--listen`, and never say what they want.
    Connections(usize),
    /// The benign Processor is made anew, so that it is the younger one.
    Older,
}

/// What is not said of an attack is so.
const PLAIN: Attack = Attack {
    name: "",
    row: "",
    describe: "plain",
    reconcile: "nothing",
    times: 1,
    bytes: 0,
    memory_mib: MEMORY_MIB,
    deadline: "5s",
    concurrency: CONCURRENCY,
    objects: 1,
    object_bytes: 0,
    rights: &[],
    within: false,
    may_be: true,
    beside: Beside::Nothing,
    says: &[],
};

/// All of them.
pub const ATTACKS: &[Attack] = &[
    Attack {
        name: "long-names",
        row: "C1",
        reconcile: "names",
        times: 100,
        bytes: LONG,
        says: &["passed more than 1048576 bytes"],
        ..PLAIN
    },
    Attack {
        name: "long-paths",
        row: "C1",
        reconcile: "fields",
        times: 20,
        bytes: LONG,
        says: &["passed more than 1048576 bytes"],
        ..PLAIN
    },
    Attack {
        name: "long-selectors",
        row: "C1",
        reconcile: "selectors",
        times: 20,
        bytes: LONG,
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
    Attack { name: "modules", row: "+", beside: Beside::Modules, ..PLAIN },
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
        objects: 1_000,
        object_bytes: 1_000_000,
        says: &["Limited"],
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
];

// === impl Attack ===

impl Attack {
    /// The attack of this name.
    ///
    /// # Panics
    ///
    /// There is none.
    pub fn named(name: &str) -> &'static Self {
        let attack = ATTACKS.iter().find(|attack| attack.name == name);
        attack.expect("an attack of the table")
    }

    /// What its own calls may hold at once, in bytes.
    pub fn may_hold(&self) -> u64 {
        (u64::from(self.concurrency) * self.memory_mib) << 20
    }

    /// Its namespace.
    pub fn namespace(&self) -> String {
        format!("hostile-{}", self.name)
    }

    /// All that its account may do.
    pub fn all_rights(&self) -> Vec<(&'static str, &'static str)> {
        [PLAIN_RIGHTS, self.rights].concat()
    }

    /// The Processor, where the benign one is in this namespace; with another number, it is another one.
    pub fn processor(&self, benign: &str, number: u32) -> Value {
        let namespace = self.namespace();
        let reconciles = if self.within { benign } else { &namespace };
        json!({
            "apiVersion": "mortise.dev/v1alpha1", "kind": "Processor",
            "metadata": {"namespace": namespace, "name": self.name},
            "spec": {
                "module": {"path": format!("{}.wasm", self.module())},
                "serviceAccountName": self.name,
                "onDelete": "Release",
                "limits": {
                    "memory": format!("{}Mi", self.memory_mib), "deadline": self.deadline,
                    "concurrency": self.concurrency,
                },
                "config": {
                    "name": self.name, "namespace": reconciles,
                    "describe": self.describe, "reconcile": self.reconcile,
                    "times": self.times + number, "bytes": self.bytes,
                },
            },
        })
    }

    /// The name of its module, which is its own where it is replaced.
    pub fn module(&self) -> &'static str {
        if self.beside == Beside::Modules { "replaced" } else { "hostile" }
    }
}
