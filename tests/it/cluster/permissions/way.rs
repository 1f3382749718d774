//! The ways in which a processor accesses the cluster: each import that reads it, and each field of
//! an outcome that writes to it.

use mortise_core::contract::Kind;
use mortise_sdk::{
    Deletion, Description, Event, Manifest, ObjectRef, Outcome, Selection, Verbs,
    kubernetes::{Pod, Secret},
};
use serde_json::{Value, json};

use crate::{
    cluster::{ground::Rights, kind, stage::returns},
    host::merge,
};

/// The placeholder in scripts for the name of the reconciled object and of the object that the way
/// is about.
const NAME: &str = "$(name)";
/// The end of the name of an object that an earlier run wanted.
const FORMER: &str = "-former";
const CONFIG_MAP: &str = "v1/ConfigMap";
const SECRET: &str = "v1/Secret";

/// A way in which a processor accesses the cluster.
#[derive(Clone, Copy)]
pub(super) struct Way {
    pub(super) name: &'static str,
    /// The reconciled kind.
    pub(super) of: &'static str,
    /// Adds the parts of the description that every case declares, for a namespace.
    pub(super) besides: fn(&mut Description, &str),
    /// Adds the declaration that this way needs, for a namespace and an account.
    pub(super) declare: fn(&mut Description, &str, &str),
    /// Returns the script that runs before, if there is one, for a namespace and an account.
    pub(super) first: Option<fn(&str, &str) -> Value>,
    pub(super) script: fn(&str) -> Value,
    /// Rights that every case needs, besides the lacking one.
    pub(super) rights: Rights<'static>,
    /// The right that this way needs; an account that lacks it has all other rights.
    pub(super) lacking: (&'static str, &'static str),
    /// The field of the outcome; `None` for a read.
    pub(super) place: Option<&'static str>,
    /// Returns the object that the way is about, as it is before the run.
    pub(super) before: fn() -> Value,
    /// The sign that the access succeeded.
    pub(super) through: Through,
}

#[derive(Clone, Copy)]
pub(super) enum Through {
    /// Every read has an answer.
    Answered,
    /// An object of the case's name exists.
    There(&'static str),
    /// No object exists whose name is the case's name and this ending.
    Gone(&'static str, &'static str),
    /// The object has a value at this pointer.
    Holds(&'static str, &'static str),
    /// The object has no value at this pointer.
    Lacks(&'static str, &'static str),
    /// An event with this reason exists for the reconciled object.
    Event(&'static str),
}

pub(super) fn all() -> Vec<Way> {
    // A new field of an outcome needs a new way, unless it needs no right, as `requeue` and
    // `note`, and `start`, with which every outcome is refused.
    let Outcome {
        apply: _,
        patch: _,
        evict: _,
        delete: _,
        prune: _,
        status: _,
        events: _,
        requeue: _,
        finalizers: _,
        start: _,
        note: _,
    } = Outcome::new();
    reads().into_iter().chain(applies()).chain(removals()).chain(prunes()).chain(own()).collect()
}

/// Parses `apiVersion/Kind` as a guest's type.
pub(super) fn guest_kind(text: &str) -> mortise_sdk::Kind {
    let Kind { cluster: _, group, version, kind } = kind(text);
    mortise_sdk::Kind::new(group, version, kind)
}

fn secrets(namespace: &str) -> Selection {
    Selection::of::<Secret>().namespace(namespace)
}

fn reads_secrets(description: &mut Description, namespace: &str, _: &str) {
    description.reads.push(secrets(namespace));
}

fn writes(description: &mut Description, of: Selection, verbs: Verbs) {
    *description = description.clone().writes(of, verbs);
}

fn manifest(namespace: &str, name: &str, rest: &Value) -> Manifest {
    let mut object = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": namespace, "name": name},
    });
    merge(&mut object, rest);
    Manifest::json(&object)
}

fn secret_ref(namespace: &str) -> ObjectRef {
    ObjectRef::of::<Secret>(Some(namespace), NAME)
}

fn secret() -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"labels": {"former": "yes"}}})
}

fn pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "a", "image": "a"}]}})
}

fn service() -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}})
}

/// Returns the object that every case reconciles.
pub(super) fn nothing() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap"})
}

fn annotated() -> Value {
    json!({"metadata": {"annotations": {"written": "yes"}}})
}

fn reads() -> [Way; 2] {
    let get = Way {
        name: "get",
        of: CONFIG_MAP,
        besides: |_, _| {},
        declare: reads_secrets,
        first: None,
        script: |namespace| json!({"reads": [{"get": {"ref": secret_ref(namespace)}}]}),
        rights: &[],
        lacking: ("secrets", "get list watch"),
        place: None,
        before: secret,
        through: Through::Answered,
    };
    let list = Way {
        name: "list",
        script: |namespace| json!({"reads": [{"list": {"of": secrets(namespace)}}]}),
        rights: &[("secrets", "get")],
        lacking: ("secrets", "list watch"),
        ..get
    };
    [get, list]
}

fn applies() -> [Way; 5] {
    let create = Way {
        name: "apply-creates",
        of: CONFIG_MAP,
        besides: |_, _| {},
        declare: |description, namespace, _| {
            writes(description, secrets(namespace), Verbs::CREATE | Verbs::UPDATE);
        },
        first: None,
        script: |namespace| returns(&Outcome::new().apply(manifest(namespace, NAME, &json!({})))),
        rights: &[("secrets", "get list watch patch")],
        lacking: ("secrets", "create"),
        place: Some("apply[0]"),
        before: nothing,
        through: Through::There(SECRET),
    };
    let update = Way {
        name: "apply-updates",
        script: |namespace| returns(&Outcome::new().apply(manifest(namespace, NAME, &annotated()))),
        rights: &[("secrets", "get list watch create")],
        lacking: ("secrets", "patch"),
        before: secret,
        through: Through::Holds(SECRET, "/metadata/annotations/written"),
        ..create
    };
    let create_only = Way {
        name: "create-only",
        script: |namespace| {
            returns(&Outcome::new().apply(manifest(namespace, NAME, &json!({})).create_only()))
        },
        declare: |description, namespace, _| writes(description, secrets(namespace), Verbs::CREATE),
        rights: &[("secrets", "get list watch")],
        ..create
    };
    let patch = Way {
        name: "patch",
        script: |namespace| returns(&Outcome::new().patch(manifest(namespace, NAME, &annotated()))),
        declare: |description, namespace, _| writes(description, secrets(namespace), Verbs::UPDATE),
        rights: &[("secrets", "get list watch")],
        place: Some("patch[0]"),
        ..update
    };
    let absent = Way {
        name: "absent",
        script: |namespace| {
            let manifest = manifest(namespace, NAME, &json!({})).absent("metadata.labels.former");
            returns(&Outcome::new().patch(manifest))
        },
        through: Through::Lacks(SECRET, "/metadata/labels/former"),
        ..patch
    };
    [create, update, create_only, patch, absent]
}

fn removals() -> [Way; 2] {
    let delete = Way {
        name: "delete",
        of: CONFIG_MAP,
        besides: |_, _| {},
        declare: |description, namespace, _| writes(description, secrets(namespace), Verbs::DELETE),
        first: None,
        script: |namespace| returns(&Outcome::new().delete(Deletion::new(secret_ref(namespace)))),
        rights: &[("secrets", "get list watch")],
        lacking: ("secrets", "delete"),
        place: Some("delete[0]"),
        before: secret,
        through: Through::Gone(SECRET, ""),
    };
    let evict = Way {
        name: "evict",
        declare: |description, namespace, _| {
            writes(description, Selection::of::<Pod>().namespace(namespace), Verbs::EVICT);
        },
        script: |namespace| {
            let pod = ObjectRef::of::<Pod>(Some(namespace), NAME);
            returns(&Outcome::new().evict(Deletion::new(pod)))
        },
        rights: &[("pods", "get list watch")],
        lacking: ("pods/eviction", "create"),
        place: Some("evict[0]"),
        before: pod,
        through: Through::Gone("v1/Pod", ""),
        ..delete
    };
    [delete, evict]
}

/// Returns the ways that remove objects which an earlier run has applied.
fn prunes() -> [Way; 2] {
    fn wanted(namespace: &str, name: &str, label: &str) -> Manifest {
        manifest(namespace, name, &json!({"metadata": {"labels": {"of": label}}}))
    }
    let prune = Way {
        name: "prune",
        of: CONFIG_MAP,
        besides: |description, namespace| {
            writes(description, secrets(namespace), Verbs::CREATE | Verbs::UPDATE);
        },
        declare: |description, namespace, _| writes(description, secrets(namespace), Verbs::DELETE),
        first: Some(|namespace, account| {
            let former = wanted(namespace, &former(account), account);
            returns(&Outcome::new().apply(wanted(namespace, account, account)).apply(former))
        }),
        script: |namespace| {
            let mine = secrets(namespace).labels(format!("of={NAME}"));
            returns(&Outcome::new().apply(wanted(namespace, NAME, NAME)).prune(mine))
        },
        rights: &[("secrets", "get list watch create patch")],
        lacking: ("secrets", "delete"),
        place: Some("prune[0]"),
        before: nothing,
        through: Through::Gone(SECRET, FORMER),
    };
    let prune_unlisted = Way {
        name: "prune-lists",
        rights: &[("secrets", "get watch create patch delete")],
        lacking: ("secrets", "list"),
        ..prune
    };
    [prune, prune_unlisted]
}

/// Returns the name of an account's object that an earlier run wanted.
fn former(account: &str) -> String {
    format!("{account}{FORMER}")
}

/// Returns the ways that write to the reconciled object itself, and to events, which may be about
/// others.
fn own() -> [Way; 3] {
    let finalizers = Way {
        name: "finalizers",
        of: CONFIG_MAP,
        besides: |_, _| {},
        declare: |description, _, account| {
            description.reconcilers[0].finalizers.push(finalizer(account));
        },
        first: None,
        script: |_| returns(&Outcome::new().finalizers([finalizer(NAME)])),
        rights: &[],
        lacking: ("configmaps", "patch"),
        place: Some("finalizers"),
        before: nothing,
        through: Through::Holds(CONFIG_MAP, "/metadata/finalizers"),
    };
    let status = Way {
        name: "status",
        of: "v1/Service",
        declare: |_, _, _| {},
        script: |namespace| {
            let status = json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace, "name": NAME},
                "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}},
            });
            returns(&Outcome { status: Some(status.to_string()), ..Outcome::new() })
        },
        lacking: ("services/status", "patch"),
        place: Some("status"),
        before: service,
        through: Through::Holds("v1/Service", "/status/loadBalancer/ingress"),
        ..finalizers
    };
    let events = Way {
        name: "events",
        declare: reads_secrets,
        script: |namespace| {
            let said = Event::normal("Said", "something").on(secret_ref(namespace));
            returns(&Outcome::new().event(said))
        },
        rights: &[("secrets", "get list watch")],
        lacking: ("events", "create patch"),
        place: Some("events[0]"),
        before: secret,
        through: Through::Event("Said"),
        ..finalizers
    };
    [finalizers, status, events]
}

/// Returns a finalizer of the account's own: two Processors may not declare the same one.
fn finalizer(account: &str) -> String {
    format!("example.com/{account}")
}
