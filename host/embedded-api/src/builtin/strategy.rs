//! The strategies of the built-in kinds: status is written only through its subresource, the
//! generation counts changes of the spec, and values allotted by the server are kept.

mod job;
mod service;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};

use super::{
    address::Addresses,
    decode, definition,
    edit::{at, child, copy, default, is_empty, items, remove, set, text},
    pod,
};
use crate::Failure;

const CRD: &str = "apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition";

/// Prepares an object, with its name and uid set, for creation.
///
/// # Errors
/// Fails if a requested value cannot be allotted.
pub(crate) fn prepare_create(
    definition: &str,
    object: &mut Value,
    addresses: Option<&Addresses>,
) -> Result<(), Failure> {
    if starts_without_status(definition) {
        set(object, "status", empty_status(definition));
    }
    if generation_of(definition).is_some()
        && let Some(metadata) = child(object, "metadata")
    {
        set(metadata, "generation", 1);
    }
    match definition {
        "api.core.v1.Pod" => {
            let class = pod::quality(&object["spec"]);
            set(object, "status", json!({"phase": "Pending", "qosClass": class}));
        }
        "api.core.v1.Service" => {
            if let Some(addresses) = addresses {
                service::create(object, addresses)?;
            }
        }
        "api.core.v1.Namespace" => namespace(object),
        "api.core.v1.PersistentVolume" | "api.core.v1.PersistentVolumeClaim" => {
            set(object, "status", json!({"phase": "Pending"}));
        }
        "api.apps.v1.DaemonSet" => set_template_generation(object, 1),
        "api.batch.v1.Job" => job::create(object),
        CRD => store_version(object),
        _ => {}
    }
    Ok(())
}

/// Prepares an update of an object, of its status, or of its finalizers (`subresource`).
///
/// # Errors
/// Fails if a requested value cannot be allotted.
pub(crate) fn prepare_update(
    definition: &str,
    new: &mut Value,
    old: &Value,
    subresource: Option<&str>,
    addresses: &Addresses,
) -> Result<(), Failure> {
    if let Some(metadata) = child(new, "metadata") {
        copy(metadata, "generation", &old["metadata"]);
    }
    match subresource {
        Some("status") => {
            keep_all_but_status(definition, new, old);
            return Ok(());
        }
        Some("finalize") => {
            copy(new, "status", old);
            return Ok(());
        }
        _ => {}
    }
    if has_status(definition) {
        copy(new, "status", old);
    }
    match definition {
        "api.core.v1.Namespace" => copy(new, "spec", old),
        "api.core.v1.Service" => service::update(new, old, addresses)?,
        "api.apps.v1.DaemonSet" => update_template_generation(new, old),
        CRD => store_version(new),
        _ => {}
    }
    if let Some(counted) = generation_of(definition)
        && counted.differ(new, old)
    {
        let generation = at(old, &["metadata", "generation"]).as_i64().unwrap_or(0) + 1;
        if let Some(metadata) = child(new, "metadata") {
            set(metadata, "generation", generation);
        }
    }
    Ok(())
}

/// Converts a stored object to the form in which it is read: for a few kinds, fields that older
/// servers stored differently are shown in today's form. The paths of subresources show the stored
/// form.
pub(crate) fn complete(definition: &str, object: &mut Value) {
    if definition == "api.core.v1.Service"
        && let Some(spec) = object.get_mut("spec")
    {
        service::complete(spec);
    }
}

/// The parts of an object whose changes its generation counts.
#[derive(Clone, Copy)]
enum Counted {
    Nothing,
    Spec,
    /// The `spec` and the annotations.
    SpecAndAnnotations,
    Webhooks,
    /// Everything but the metadata.
    Content,
}

impl Counted {
    fn differ(self, new: &Value, old: &Value) -> bool {
        match self {
            Self::Nothing => false,
            Self::Spec => new["spec"] != old["spec"],
            Self::SpecAndAnnotations => {
                new["spec"] != old["spec"]
                    || *at(new, &["metadata", "annotations"])
                        != *at(old, &["metadata", "annotations"])
            }
            Self::Webhooks => new["webhooks"] != old["webhooks"],
            Self::Content => {
                ["addressType", "endpoints", "ports"].iter().any(|key| new[key] != old[key])
            }
        }
    }
}

/// Returns the counted parts of a kind; `None` for kinds without a generation.
fn generation_of(definition: &str) -> Option<Counted> {
    match definition.rsplit('.').next().unwrap_or(definition) {
        "Deployment" => Some(Counted::SpecAndAnnotations),
        "ReplicaSet"
        | "ReplicationController"
        | "StatefulSet"
        | "DaemonSet"
        | "Job"
        | "CronJob"
        | "Ingress"
        | "IngressClass"
        | "NetworkPolicy"
        | "PodDisruptionBudget"
        | "Pod"
        | "CustomResourceDefinition" => Some(Counted::Spec),
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => {
            Some(Counted::Webhooks)
        }
        "EndpointSlice" => Some(Counted::Content),
        "PriorityClass" => Some(Counted::Nothing),
        _ => None,
    }
}

fn has_status(definition: &str) -> bool {
    definition::find(definition).is_some_and(|object| object.fields.contains_key("status"))
}

/// Returns whether a kind begins without a status: all do but nodes, which report it when they
/// register.
fn starts_without_status(definition: &str) -> bool {
    definition != "api.core.v1.Node" && has_status(definition)
}

/// Returns the status as it is read when nothing was written to it.
fn empty_status(definition: &str) -> Value {
    let fresh = definition::find(definition)
        .and_then(|object| decode::object(object, json!({}), &mut Vec::new()).ok());
    fresh.and_then(|mut fresh| remove(&mut fresh, "status")).unwrap_or_else(|| json!({}))
}

fn keep_all_but_status(definition: &str, new: &mut Value, old: &Value) {
    copy(new, "spec", old);
    let kept: &[&str] = match definition {
        "api.apps.v1.Deployment" => &["labels"],
        "api.core.v1.Pod" => &["deletionTimestamp", "ownerReferences"],
        CRD => &["labels", "annotations", "finalizers", "ownerReferences", "deletionTimestamp"],
        _ => &[],
    };
    if let Some(metadata) = child(new, "metadata") {
        for key in kept {
            copy(metadata, key, &old["metadata"]);
        }
    }
}

/// Sets the label with the name, the finalizer that the deletion of the namespace waits for, and
/// the phase.
fn namespace(object: &mut Value) {
    super::default::fill("api.core.v1.Namespace", object);
    set(object, "status", json!({"phase": "Active"}));
    if let Some(spec) = child(object, "spec") {
        default(spec, "finalizers", json!([]));
        let finalizers = spec["finalizers"].as_array_mut();
        if let Some(finalizers) = finalizers.filter(|all| !all.contains(&json!("kubernetes"))) {
            finalizers.push(json!("kubernetes"));
        }
    }
}

/// The annotation that counts the changes of a `DaemonSet`'s template.
pub(crate) const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

fn set_template_generation(object: &mut Value, generation: i64) {
    if let Some(annotations) =
        child(object, "metadata").and_then(|metadata| child(metadata, "annotations"))
    {
        set(annotations, TEMPLATE_GENERATION, generation.to_string());
    }
}

fn update_template_generation(new: &mut Value, old: &Value) {
    let before: i64 =
        text(at(old, &["metadata", "annotations"]), TEMPLATE_GENERATION).parse().unwrap_or(1);
    let changed = *at(new, &["spec", "template"]) != *at(old, &["spec", "template"]);
    set_template_generation(new, before + i64::from(changed));
}

/// Adds the storage version to `storedVersions`.
fn store_version(crd: &mut Value) {
    let versions = items(at(crd, &["spec", "versions"]));
    let Some(version) = versions.iter().find(|version| version["storage"] == true) else { return };
    let name = version["name"].clone();
    let Some(status) = child(crd, "status") else { return };
    if is_empty(&status["storedVersions"]) {
        set(status, "storedVersions", json!([name]));
    } else if let Some(stored) = status["storedVersions"].as_array_mut()
        && !stored.contains(&name)
    {
        stored.push(name);
    }
}
