//! The objects of an outcome, component by component.

use std::collections::BTreeSet;

use istio::{
    api::ISTIO_NAMESPACE,
    installed::{COMPONENT_LABEL, NAMED},
    predicate::MODULE_LABEL,
    resource::{DISCLAIMER, DISCLAIMER_TEXT},
};
use mortise_sdk::{Error, Host, Kind, Manifest, ObjectRef, Outcome, Selection, object::Metadata};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    describe::{LABELS, within},
    kind::WRITTEN,
    render::{Component, kind_of, name_of, namespace_of},
    run::{Run, Stop},
    webhook,
    workload::Workload,
};

/// The components that wait for another one.
const AFTER: [(&str, &str); 3] =
    [("IngressGateways", "Pilot"), ("EgressGateways", "Pilot"), ("Ztunnel", "Cni")];
/// The label of the namespace by which its Pods' images are verified.
const VALIDATE: &str = "namespaces.warden.kyma-project.io/validate";

/// A component, with its workloads as they are.
pub(super) struct Part<'a> {
    component: &'a Component,
    pub(super) workloads: Vec<Workload<'a>>,
    /// The component is not written before another one is ready.
    pub(super) is_held: bool,
}

/// An object of which only the metadata matters.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Named {
    metadata: Metadata,
}

impl<'a> Part<'a> {
    /// Reads the workloads of the components.
    pub(super) fn read(components: &'a [Component], run: &Run) -> Result<Vec<Self>, Stop> {
        let mut parts = components
            .iter()
            .map(|component| {
                let workloads = Workload::read(&component.objects, run.host)?;
                Ok(Self { component, workloads, is_held: false })
            })
            .collect::<Result<Vec<_>, Error>>()?;
        let is_ready =
            |part: &Self| part.workloads.iter().all(|one| one.is_current() && one.is_rolled_out());
        let unready: BTreeSet<&str> = parts
            .iter()
            .filter(|part| !is_ready(part))
            .map(|part| part.component.name.as_str())
            .collect();
        for part in &mut parts {
            let waits = AFTER
                .iter()
                .any(|(name, first)| *name == part.component.name && unready.contains(first));
            // What is of this version already is kept as it should be, whatever becomes of others.
            part.is_held = waits && !part.workloads.iter().all(Workload::is_current);
        }
        Ok(parts)
    }
}

/// Returns the outcome with all objects.
pub(super) fn outcome(parts: &[Part], run: &Run) -> Result<Outcome, Stop> {
    let scaled = scaled(parts);
    let mut outcome = Outcome::new().apply(Manifest::json(&namespace()));
    for part in parts.iter().filter(|part| !part.is_held) {
        for object in &part.component.objects {
            outcome = outcome.apply(manifest(object, &scaled));
        }
    }
    for patch in labels(run.host)? {
        outcome = outcome.patch(patch);
    }
    for deletion in webhook::deletions(run.host)? {
        outcome = outcome.delete(deletion);
    }
    Ok(prunes(parts).into_iter().fold(outcome, Outcome::prune))
}

fn namespace() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": ISTIO_NAMESPACE,
            "labels": {VALIDATE: "enabled"},
            "annotations": {DISCLAIMER: DISCLAIMER_TEXT},
        },
    })
}

/// Returns namespace, kind and name of the workloads that are scaled automatically.
fn scaled(parts: &[Part]) -> BTreeSet<(String, String, String)> {
    let objects = parts.iter().flat_map(|part| &part.component.objects);
    let scalers = objects.filter(|object| kind_of(object).kind == "HorizontalPodAutoscaler");
    let target = |object: &Value| {
        let target = object.pointer("/spec/scaleTargetRef")?;
        let text = |key: &str| target.get(key).and_then(Value::as_str).map(str::to_owned);
        Some((namespace_of(object)?.to_owned(), text("kind")?, text("name")?))
    };
    scalers.filter_map(target).collect()
}

fn manifest(object: &Value, scaled: &BTreeSet<(String, String, String)>) -> Manifest {
    let manifest = Manifest::json(object);
    let (kind, namespace) = (kind_of(object).kind, namespace_of(object).unwrap_or_default());
    let manifest = match kind.as_str() {
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => {
            webhook::leave(manifest, object)
        }
        _ => manifest,
    };
    let key = (namespace.to_owned(), kind, name_of(object).to_owned());
    if scaled.contains(&key) && object.pointer("/spec/replicas").is_some() {
        return manifest.leave("spec.replicas");
    }
    manifest
}

/// Returns the module's label for objects that Istio makes at run time, where they are there.
fn labels(host: &Host) -> Result<Vec<Manifest>, Error> {
    let mut labels = Vec::new();
    for (kind, name) in NAMED {
        let of = ObjectRef::new(Kind::new("", "v1", kind), Some(ISTIO_NAMESPACE), name);
        let found: Option<Named> = host.get_ref(&of, &LABELS)?;
        if found.is_some_and(|found| !found.metadata.is_deleted()) {
            labels.push(Manifest::json(&json!({
                "apiVersion": "v1",
                "kind": kind,
                "metadata": {
                    "name": name,
                    "namespace": ISTIO_NAMESPACE,
                    "labels": {MODULE_LABEL: "istio"},
                },
            })));
        }
    }
    Ok(labels)
}

/// Returns the selections of objects that go if they are no longer made. Definitions stay, and so
/// does what belongs to components that wait.
fn prunes(parts: &[Part]) -> Vec<Selection> {
    let held: Vec<&str> =
        parts.iter().filter(|part| part.is_held).map(|part| part.component.name.as_str()).collect();
    let labels = match held.as_slice() {
        [] => COMPONENT_LABEL.to_owned(),
        held => format!("{COMPONENT_LABEL},{COMPONENT_LABEL} notin ({})", held.join(",")),
    };
    let mut prunes = Vec::new();
    for kind in WRITTEN.iter().filter(|kind| !kind.is_definition()) {
        for namespace in kind.namespaces() {
            prunes.push(within(Selection::new(kind.kind()), *namespace).labels(&labels));
        }
    }
    prunes
}
