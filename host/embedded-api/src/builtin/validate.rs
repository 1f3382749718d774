//! Validation of objects of built-in kinds, with the messages of Kubernetes.
//!
//! The rules are those that people and operators commonly break: names, required fields, values out
//! of range, immutable fields. Rules for fields that only nodes or clouds read are left out.

mod claim;
mod data;
mod event;
mod namespace;
mod network_policy;
mod number;
mod other;
mod place;
mod pod;
mod pod_field;
mod pod_parts;
mod rbac;
mod schedule;
mod selector;
mod service;
mod storage;
#[cfg(test)]
mod tests;
mod webhook;
mod workload;

pub(crate) use service::addresses as service_addresses;

use serde_json::Value;

use super::edit::{at, is_empty, items, members, text};
use crate::{
    crd,
    field_error::{FieldError, FieldPath, Shown},
    name::{self, MetadataRules, NameRule},
};

/// The definition of CRDs.
pub(crate) const CRD: &str =
    "apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition";

/// Returns the rules for the metadata of a kind.
pub(crate) fn metadata_rules(definition: &str, namespaced: bool) -> MetadataRules {
    let name = match definition {
        "api.core.v1.Namespace" => NameRule::Label,
        "api.core.v1.Service" => NameRule::Label1035,
        "api.core.v1.Event" => NameRule::PathSegment,
        _ if definition.starts_with("api.rbac.v1.") => NameRule::PathSegment,
        _ => NameRule::Subdomain,
    };
    MetadataRules { name, namespaced, qualified_finalizers: definition != CRD }
}

/// Validates a new object, including its metadata.
pub(crate) fn create(definition: &str, namespaced: bool, object: &Value) -> Vec<FieldError> {
    let rules = metadata_rules(definition, namespaced);
    let mut errors =
        name::validate_metadata(&object["metadata"], rules, &FieldPath::new("metadata"));
    whole(definition, object, None, &mut errors);
    match definition {
        "api.core.v1.Event" => event::create(object, false, &mut errors),
        "api.events.v1.Event" => event::create(object, true, &mut errors),
        "api.core.v1.Namespace" => namespace::create(object, &mut errors),
        "api.batch.v1.CronJob" => workload::cron_job_name(object, &mut errors),
        "api.scheduling.v1.PriorityClass" => other::priority_class(object, &mut errors),
        "api.networking.v1.Ingress" => other::ingress_class_annotation(object, &mut errors),
        CRD => errors.extend(crd::validate::validate(object)),
        _ => {}
    }
    errors
}

/// Returns how often Kubernetes validates the metadata as that of a new object, and how often the
/// rest, when an object of this kind is updated: each error is reported as often.
fn repeats(definition: &str) -> (usize, usize) {
    match definition {
        "api.rbac.v1.ClusterRole"
        | "api.rbac.v1.ClusterRoleBinding"
        | "api.rbac.v1.Role"
        | "api.rbac.v1.RoleBinding"
        | "api.core.v1.PersistentVolumeClaim" => (2, 2),
        "api.core.v1.ReplicationController" | "api.networking.v1.NetworkPolicy" => (1, 2),
        "api.admissionregistration.v1.MutatingWebhookConfiguration"
        | "api.admissionregistration.v1.ValidatingWebhookConfiguration"
        | "api.core.v1.ConfigMap"
        | "api.core.v1.LimitRange"
        | "api.core.v1.Namespace"
        | "api.core.v1.Pod"
        | "api.core.v1.Secret"
        | "api.core.v1.Service"
        | "api.core.v1.ServiceAccount" => (1, 1),
        _ => (0, 1),
    }
}

/// Validates an update: first immutable fields, then the new object. The rules for all updates of
/// metadata are elsewhere.
pub(crate) fn update(
    definition: &str,
    namespaced: bool,
    (new, old): (&Value, &Value),
    subresource: Option<&str>,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(subresource) = subresource {
        match (definition, subresource) {
            ("api.core.v1.Service", "status") => service::status_update(new, &mut errors),
            ("api.core.v1.Namespace", "status") => namespace::status_update(new, &mut errors),
            ("api.core.v1.Namespace", "finalize") => namespace::finalize(new, &mut errors),
            _ => {}
        }
        return errors;
    }
    match definition {
        "api.core.v1.ConfigMap" | "api.core.v1.Secret" => {
            data::update(definition, new, old, &mut errors);
        }
        "api.core.v1.Service" => {
            service::address_update(new, old, &mut errors);
            service::traffic_update(new, old, &mut errors);
        }
        CRD => return crd::validate::validate_update(new, old),
        "api.core.v1.Event" => event::update(new, old, false, &mut errors),
        "api.events.v1.Event" => event::update(new, old, true, &mut errors),
        "api.rbac.v1.RoleBinding" | "api.rbac.v1.ClusterRoleBinding" => {
            rbac::binding_update(new, old, &mut errors);
        }
        "api.scheduling.v1.PriorityClass" => other::priority_class_update(new, old, &mut errors),
        "api.storage.v1.StorageClass" => storage::class_update(new, old, &mut errors),
        "api.networking.v1.IngressClass" => storage::ingress_class_update(new, old, &mut errors),
        _ => {}
    }
    let (of_metadata, of_all) = repeats(definition);
    name::validate_qualified_finalizers(&new["metadata"], &FieldPath::new("metadata"), &mut errors);
    for _ in 0..of_metadata {
        let rules = metadata_rules(definition, namespaced);
        errors.extend(name::validate_metadata(
            &new["metadata"],
            rules,
            &FieldPath::new("metadata"),
        ));
    }
    for _ in 0..of_all {
        whole(definition, new, Some(old), &mut errors);
    }
    match definition {
        "api.apps.v1.Deployment" | "api.apps.v1.ReplicaSet" | "api.apps.v1.DaemonSet" => {
            workload::selector_update(new, old, &mut errors);
        }
        "api.apps.v1.StatefulSet" => workload::stateful_set_update(new, old, &mut errors),
        "api.core.v1.Pod" => pod::update(&new["spec"], &old["spec"], &mut errors),
        "api.batch.v1.Job" => workload::job_update(new, old, &mut errors),
        "api.core.v1.PersistentVolumeClaim" => claim::update(new, old, &mut errors),
        _ => {}
    }
    errors
}

/// Validates an object without its metadata; `old` is the object that it replaces.
fn whole(definition: &str, object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    match definition {
        "api.core.v1.ConfigMap" => data::config_map(object, errors),
        "api.core.v1.Secret" => data::secret(object, errors),
        "api.core.v1.Service" => service::service(object, old, errors),
        "api.core.v1.Pod" => pod::pod(object, errors),
        "api.core.v1.PersistentVolumeClaim" => claim::whole(object, errors),
        "api.apps.v1.Deployment" => workload::deployment(object, errors),
        "api.apps.v1.ReplicaSet" => workload::replica_set(object, errors),
        "api.core.v1.ReplicationController" => workload::replication_controller(object, errors),
        "api.apps.v1.StatefulSet" => workload::stateful_set(object, errors),
        "api.apps.v1.DaemonSet" => workload::daemon_set(object, errors),
        "api.batch.v1.Job" => workload::job(&object["spec"], &FieldPath::new("spec"), errors),
        "api.batch.v1.CronJob" => workload::cron_job(object, errors),
        "api.autoscaling.v1.HorizontalPodAutoscaler"
        | "api.autoscaling.v2.HorizontalPodAutoscaler" => other::autoscaler(object, errors),
        "api.core.v1.PersistentVolume" => storage::volume(object, errors),
        "api.storage.v1.StorageClass" => storage::class(object, errors),
        "api.networking.v1.IngressClass" => storage::ingress_class(object, errors),
        "api.networking.v1.Ingress" => other::ingress(object, errors),
        "api.networking.v1.NetworkPolicy" => network_policy::policy(object, errors),
        "api.policy.v1.PodDisruptionBudget" => other::disruption_budget(object, errors),
        "api.admissionregistration.v1.MutatingWebhookConfiguration"
        | "api.admissionregistration.v1.ValidatingWebhookConfiguration" => {
            webhook::configuration(object, errors);
        }
        "api.coordination.v1.Lease" => other::lease(object, errors),
        "api.rbac.v1.Role" => rbac::rules(object, true, errors),
        "api.rbac.v1.ClusterRole" => rbac::rules(object, false, errors),
        "api.rbac.v1.RoleBinding" => rbac::binding(object, true, errors),
        "api.rbac.v1.ClusterRoleBinding" => rbac::binding(object, false, errors),
        _ => {}
    }
}

/// Adds an error for each reason for which a value is invalid.
fn add_invalid(
    errors: &mut Vec<FieldError>,
    path: &FieldPath<'_>,
    value: &str,
    faults: Vec<String>,
) {
    errors.extend(faults.into_iter().map(|fault| FieldError::invalid(path, value, fault)));
}

/// Returns a map or list as Go prints it; an absent one is `null`.
pub(crate) fn shown(value: &Value) -> Shown {
    if value.is_null() { Shown::Raw("null".to_owned()) } else { value.clone().into() }
}

/// Validates that the value is one of the allowed ones.
fn one_of(value: &Value, allowed: &[&str], path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let found = value.as_str().unwrap_or("");
    if found.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !allowed.contains(&found) {
        errors.push(FieldError::not_supported(path, found, allowed));
    }
}
