//! The outcome of a reconcile: that of the original, and that of the processors, in one form.

use std::collections::{BTreeMap, BTreeSet};

use istio::{
    action::RESTARTED_AT,
    api::{ISTIO_NAMESPACE, MODULE_NAMESPACE},
    installed::{NAMED, is_of_istio},
    last_applied::ANNOTATION,
    predicate::MODULE_LABEL,
};
use mortise_sdk::{
    ObjectRef,
    kubernetes::Namespace,
    testing::{Settled, identity::Identity},
};
use mortise_tests::goldens::{group::GroupCase, sorted};
use serde_json::{Map, Value, json};

use super::{
    super::{context::text, processors::OWN},
    stage::Stage,
};

/// The fields of a condition that are compared. The times were not recorded.
const CONDITION_FIELDS: [&str; 3] = ["message", "reason", "status"];

/// An outcome, in its parts.
pub(super) struct Outcome {
    /// State, description, conditions by type, and finalizers; "gone" if the resource is gone.
    pub(super) resource: Value,
    /// The last applied configuration; "" without one.
    pub(super) annotation: Value,
    /// The workloads that carry the annotation of a restart, of those that were there before.
    pub(super) restarts: Value,
    /// The module's own objects, by namespace.
    pub(super) objects: Value,
    /// The labels and annotations of `istio-system`.
    pub(super) namespace: Value,
    /// The objects of Istio that carry the module's label.
    pub(super) labels: Value,
    /// When the resource is looked at again, and the error that says so.
    pub(super) again: Value,
}

impl Outcome {
    pub(super) fn recorded(case: &GroupCase) -> Self {
        let expected = case.document("expected.json");
        let istio = Some(&expected["cr"]).filter(|cr| cr.is_object());
        let list = |key: &str| expected[key].as_array().cloned().unwrap_or_default();
        let namespace = &expected["istioSystemNamespace"];
        Self {
            resource: istio.map_or_else(gone, |cr| {
                resource((&cr["state"], &cr["description"]), &cr["conditions"], &cr["finalizers"])
            }),
            annotation: istio.map_or("".into(), |cr| cr["lastAppliedConfiguration"].clone()),
            restarts: sorted(list("rolledOut")),
            objects: by_namespace(list("resourcesAfter").iter().filter_map(Value::as_str)),
            namespace: namespaced(namespace),
            labels: sorted(list("moduleLabelled")),
            again: json!({
                "after": expected["requeueAfter"], "error": expected["reconcileError"],
            }),
        }
    }

    pub(super) fn settled(stage: &Stage, settled: &Settled) -> Self {
        let istio = stage.stub.object(&stage.of);
        let objects = stage.stub.all();
        let key = Identity::of_ref(&stage.of).to_string();
        let was_there =
            |title: &String| stage.objects.iter().map(self::title).any(|one| one == *title);
        let restarted = objects.iter().filter(|object| {
            let annotations = object.pointer("/spec/template/metadata/annotations");
            annotations.and_then(|annotations| annotations.get(RESTARTED_AT)).is_some()
        });
        let is_own = |object: &&Value| OWN.contains(&text(object, "/kind"));
        let own: Vec<String> = objects.iter().filter(is_own).map(title).collect();
        let after = settled.requeues.get(&key).copied().unwrap_or_default();
        Self {
            resource: istio.as_ref().map_or_else(gone, |istio| {
                let status = &istio["status"];
                let finalizers = &istio["metadata"]["finalizers"];
                resource(
                    (&status["state"], &status["description"]),
                    &status["conditions"],
                    finalizers,
                )
            }),
            annotation: istio.map_or("".into(), |istio| {
                let annotation = &istio["metadata"]["annotations"][ANNOTATION];
                annotation.as_str().unwrap_or_default().into()
            }),
            restarts: sorted(restarted.map(title).filter(was_there).map(Value::from).collect()),
            objects: by_namespace(own.iter().map(String::as_str)),
            namespace: stage
                .stub
                .object(&ObjectRef::of::<Namespace>(None, ISTIO_NAMESPACE))
                .map(|namespace| namespaced(&namespace["metadata"]))
                .unwrap_or_default(),
            labels: labelled(&stage.objects, &objects),
            again: json!({
                "after": duration(after.as_secs()),
                "error": settled.failures.get(&key).cloned().unwrap_or_default(),
            }),
        }
    }
}

fn gone() -> Value {
    "gone".into()
}

fn resource(
    (state, description): (&Value, &Value),
    conditions: &Value,
    finalizers: &Value,
) -> Value {
    let conditions = conditions.as_array().into_iter().flatten().map(|condition| {
        let fields = CONDITION_FIELDS.map(|key| (key.to_owned(), condition[key].clone()));
        (text(condition, "/type").to_owned(), Map::from_iter(fields).into())
    });
    json!({
        "state": state,
        "description": description,
        "conditions": conditions.collect::<Map<String, Value>>(),
        "finalizers": sorted(finalizers.as_array().cloned().unwrap_or_default()),
    })
}

/// Returns the name of an object as it was recorded.
fn title(object: &Value) -> String {
    let [kind, namespace, name] = ["/kind", "/metadata/namespace", "/metadata/name"];
    format!("{}/{}/{}", text(object, kind), text(object, namespace), text(object, name))
}

/// Returns names of objects by their namespaces.
fn by_namespace<'a>(titles: impl Iterator<Item = &'a str>) -> Value {
    let none = [ISTIO_NAMESPACE, MODULE_NAMESPACE].map(|namespace| (namespace, BTreeSet::new()));
    let mut by_namespace = BTreeMap::<&str, BTreeSet<&str>>::from(none);
    for title in titles {
        let namespace = title.split('/').nth(1).unwrap_or_default();
        by_namespace.entry(namespace).or_default().insert(title);
    }
    json!(by_namespace)
}

/// Returns labels and annotations, without the label that an API server sets.
fn namespaced(metadata: &Value) -> Value {
    let without = |part: &str| {
        let mut map = metadata[part].as_object().cloned().unwrap_or_default();
        map.remove("kubernetes.io/metadata.name");
        map
    };
    json!({"labels": without("labels"), "annotations": without("annotations")})
}

/// Returns the recorded objects of Istio that carry the module's label now.
fn labelled(recorded: &[Value], objects: &[Value]) -> Value {
    let mut labelled = Vec::new();
    for given in recorded {
        let labels = given["metadata"]["labels"].clone();
        let named = (text(given, "/kind"), text(given, "/metadata/name"));
        let is_named =
            NAMED.contains(&named) && text(given, "/metadata/namespace") == ISTIO_NAMESPACE;
        if !is_named && !is_of_istio(&serde_json::from_value(labels).unwrap_or_default()) {
            continue;
        }
        let title = title(given);
        let Some(object) = objects.iter().find(|object| self::title(object) == title) else {
            continue;
        };
        let (kind, rest) = title.split_once('/').unwrap_or_default();
        for (part, name) in [
            ("/metadata/labels", title.clone()),
            ("/spec/template/metadata/labels", format!("{kind}.template/{rest}")),
        ] {
            if object.pointer(part).and_then(|labels| labels.get(MODULE_LABEL)).is_some() {
                labelled.push(Value::from(name));
            }
        }
    }
    sorted(labelled)
}

/// Returns a time in the form in which Go writes it.
fn duration(seconds: i64) -> String {
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, minutes) => format!("{minutes}m{seconds}s"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
    }
}
