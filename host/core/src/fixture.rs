//! Fixtures that the tests of several modules share.

#![expect(clippy::unwrap_used, reason = "a fixture that is wrong fails its test")]

use std::sync::Arc;

use serde_json::{Value, json};
use tracing::{
    Dispatch, Subscriber,
    subscriber::{DefaultGuard, NoSubscriber, set_default},
};

use crate::{
    contract::{
        Description, Kind, Manifest, Mode, ObjectRef, Outcome, Reconciler, Requeue, Selection,
        Verbs, WriteRule,
    },
    grant::{DeclaredReconciler, Grant},
    queue::Key,
    resource::Resource,
    store::{Scope, Stores},
};

/// Texts that a guest may pass, and that mean something in a format into which they are written: a
/// line of the log, a comment or a text in YAML, a terminal, a metric's label, HTML.
pub const HOSTILE_TEXTS: [&str; 20] = [
    "a line\n2026-01-01T00:00:00Z  INFO mortise: leading",
    "a return\rmortise: leading",
    "1\u{2028}{kind: Namespace,apiVersion: v1,metadata: {name: mortise}}#",
    "a paragraph\u{2029}kind: Namespace",
    "a next line\u{85}kind: Namespace",
    "a form feed\u{c} a vertical tab\u{b} a tab\t",
    "a zero\0 a delete\u{7f} a bell\u{7}",
    "\u{1b}[2J\u{1b}]0;title\u{7}\u{1b}]8;;http://a.example\u{1b}\\link",
    "\u{9b}2J \u{9d}0;title\u{9c}",
    "\u{202e}txt.exe\u{202c} \u{2066}a\u{2069} \u{200e}\u{200f}\u{61c}",
    "\u{feff}a byte order mark",
    "tags \u{e0001}\u{e0041}\u{e007f}",
    "nothing seen \u{200b}\u{2060}\u{ad}\u{180e}\u{fffb}",
    "--> ]]> <script>alert(1)</script> &amp; <!--",
    "\"} 1\nmortise_leading{a=\"",
    "'\"`\\\\\" \\u{1b} \\x1b $(id) ${HOME} %s {}",
    "# a comment: [a, b]: {c: d}",
    "---\nkind: Namespace\n...",
    "- &a *a !!binary | > %YAML @",
    "~",
];

/// Sends the events of this thread to a subscriber, until the result is dropped.
///
/// A process that has only one dispatcher asks that of the thread which meets an event first whether
/// anybody wants the event, and remembers the answer for all threads. So there is a second one.
pub fn listen(to: impl Subscriber + Send + Sync + 'static) -> (DefaultGuard, Dispatch) {
    let second = Dispatch::new(NoSubscriber::default());
    (set_default(to), second)
}

/// A kind in another cluster.
pub fn elsewhere(kind: Kind, cluster: &str) -> Arc<Kind> {
    Kind { cluster: cluster.into(), ..kind }.into()
}

/// A kind of the group `g`.
pub fn kind(name: &str) -> Kind {
    v1("g", name)
}

/// A kind in version `v1` of its group.
pub fn v1(group: &str, kind: &str) -> Kind {
    Kind::home(group, "v1", kind)
}

/// A key of the processor `p` and its reconciler `r`.
pub fn key(name: &str) -> Key {
    Key::new(&"p".into(), &"r".into(), Some("default"), name)
}

/// Selects all objects of a kind of the group `g`, whole.
pub fn all(name: &str) -> Selection {
    whole(kind(name))
}

/// Selects all objects of a kind, whole.
pub fn whole(kind: impl Into<Arc<Kind>>) -> Selection {
    Selection {
        kind: kind.into(),
        namespace: None,
        name: None,
        labels: String::new(),
        matching: Vec::new(),
        fields: Arc::default(),
    }
}

/// A selection with these fields.
pub fn fields(mut of: Selection, fields: &[&str]) -> Selection {
    of.fields = fields.iter().map(|path| (*path).to_owned()).collect();
    of
}

/// A selection with these labels.
pub fn labelled(mut of: Selection, labels: &str) -> Selection {
    of.labels = labels.into();
    of
}

/// A selection of what holds a text at a path.
pub fn matching(mut of: Selection, path: &str, value: &str) -> Selection {
    of.matching.push((path.into(), value.into()));
    of
}

/// A reference to an object in the namespace `default`.
pub fn reference(kind_name: &str, name: &str) -> ObjectRef {
    object_ref(kind(kind_name), Some("default"), name)
}

/// A reference to an object.
pub fn object_ref(kind: impl Into<Arc<Kind>>, namespace: Option<&str>, name: &str) -> ObjectRef {
    ObjectRef { kind: kind.into(), namespace: namespace.map(str::to_owned), name: name.into() }
}

/// The resource of a kind whose objects live in namespaces and have a status.
pub fn resource(kind: &Kind) -> Resource {
    let plural = format!("{}s", kind.kind.to_lowercase());
    Resource { kind: kind.clone(), plural, namespaced: true, status: true }
}

/// A rule by which the objects of a selection may be written.
pub fn write_rule(of: Selection, verbs: Verbs, fields: &[&str]) -> WriteRule {
    WriteRule { of, verbs, fields: fields.iter().map(|&field| field.into()).collect() }
}

/// An empty outcome.
pub fn outcome() -> Outcome {
    Outcome {
        apply: Vec::new(),
        patch: Vec::new(),
        evict: Vec::new(),
        delete: Vec::new(),
        prune: Vec::new(),
        status: None,
        events: Vec::new(),
        requeue: Requeue::ByDefault,
        finalizers: None,
        start: Vec::new(),
        note: None,
    }
}

/// An object as an outcome holds it.
pub fn given(object: &Value) -> Manifest {
    Manifest {
        cluster: Arc::default(),
        object: object.to_string(),
        mode: Mode::Apply,
        leave: Vec::new(),
        absent: Vec::new(),
    }
}

/// A reconciler named `r`.
pub fn reconciler(of: Selection) -> Reconciler {
    Reconciler {
        name: "r".into(),
        of,
        finalizers: Vec::new(),
        resync: 0,
        triggered_by_status: false,
        min_interval: 0,
        on_demand: false,
        whole_status: false,
    }
}

/// A reconciler, parsed.
pub fn declared(reconciler: Reconciler) -> Arc<DeclaredReconciler> {
    let of = reconciler.of.clone();
    let description = Description { reconcilers: vec![reconciler], ..description(of, Vec::new()) };
    let grant = Grant::new(&description).unwrap();
    Arc::clone(grant.reconcilers().first().unwrap())
}

/// The reconciler `r` with reads.
pub fn description(of: Selection, reads: Vec<Selection>) -> Description {
    Description {
        name: "p".into(),
        version: "1".into(),
        reconcilers: vec![reconciler(of)],
        reads,
        writes: Vec::new(),
        grants: Vec::new(),
        outbound: Vec::new(),
        config_schema: None,
    }
}

/// An object in the namespace `default`.
pub fn object(kind: &str, name: &str, revision: u64) -> Value {
    json!({
        "apiVersion": "g/v1", "kind": kind,
        "metadata": {"name": name, "namespace": "default", "uid": format!("{kind}-{name}"),
            "resourceVersion": revision.to_string()}
    })
}

/// The object with a value at a place like `spec/a`.
pub fn with(mut object: Value, place: &str, value: Value) -> Value {
    let mut at = &mut object;
    for key in place.split('/') {
        at = at.as_object_mut().unwrap().entry(key).or_insert(json!({}));
    }
    *at = value;
    object
}

/// Lists these objects of a kind into its store.
pub fn list(stores: &Stores, name: &str, scope: &Scope, objects: &[Value]) {
    stores.feed(&kind(name), scope).unwrap().begin_list();
    for object in objects {
        stores.feed(&kind(name), scope).unwrap().list_item(object);
    }
    stores.feed(&kind(name), scope).unwrap().end_list();
}
