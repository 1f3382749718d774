//! Defaults of workloads and autoscalers.

use super::{Value, at, child, claim, default, is_empty, items_mut, json, pod, set};

pub(super) fn deployment(object: &mut Value) {
    let Some(spec) = child(object, "spec") else { return };
    default(spec, "replicas", 1);
    default(spec, "revisionHistoryLimit", 10);
    default(spec, "progressDeadlineSeconds", 600);
    if let Some(strategy) = child(spec, "strategy") {
        default(strategy, "type", "RollingUpdate");
        if strategy["type"] == "RollingUpdate"
            && let Some(update) = child(strategy, "rollingUpdate")
        {
            default(update, "maxUnavailable", "25%");
            default(update, "maxSurge", "25%");
        }
    }
    pod::template(spec);
}

pub(super) fn replica_set(object: &mut Value) {
    let Some(spec) = child(object, "spec") else { return };
    default(spec, "replicas", 1);
    pod::template(spec);
}

/// Fills in the defaults; labels and selector default to the labels of the pods.
pub(super) fn replication_controller(object: &mut Value) {
    let labels = at(object, &["spec", "template", "metadata", "labels"]).clone();
    if !is_empty(&labels) {
        if let Some(metadata) = child(object, "metadata") {
            default(metadata, "labels", labels.clone());
        }
        if let Some(spec) = child(object, "spec") {
            default(spec, "selector", labels);
        }
    }
    replica_set(object);
}

pub(super) fn stateful_set(object: &mut Value) {
    let Some(spec) = child(object, "spec") else { return };
    default(spec, "podManagementPolicy", "OrderedReady");
    default(spec, "replicas", 1);
    default(spec, "revisionHistoryLimit", 10);
    if let Some(strategy) = child(spec, "updateStrategy") {
        let says_nothing = strategy["type"].as_str().unwrap_or_default().is_empty();
        default(strategy, "type", "RollingUpdate");
        let is_rolling = strategy["type"] == "RollingUpdate";
        if (says_nothing || (is_rolling && strategy["rollingUpdate"].is_object()))
            && let Some(update) = child(strategy, "rollingUpdate")
        {
            default(update, "partition", 0);
        }
    }
    if let Some(policy) = child(spec, "persistentVolumeClaimRetentionPolicy") {
        default(policy, "whenDeleted", "Retain");
        default(policy, "whenScaled", "Retain");
    }
    for template in items_mut(spec, "volumeClaimTemplates") {
        set(template, "apiVersion", "v1");
        set(template, "kind", "PersistentVolumeClaim");
        claim(template);
    }
    pod::template(spec);
}

pub(super) const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

pub(super) fn daemon_set(object: &mut Value) {
    if let Some(annotations) =
        child(object, "metadata").and_then(|metadata| child(metadata, "annotations"))
    {
        default(annotations, TEMPLATE_GENERATION, "0");
    }
    let Some(spec) = child(object, "spec") else { return };
    default(spec, "revisionHistoryLimit", 10);
    if let Some(strategy) = child(spec, "updateStrategy") {
        default(strategy, "type", "RollingUpdate");
        if strategy["type"] == "RollingUpdate"
            && let Some(update) = child(strategy, "rollingUpdate")
        {
            default(update, "maxUnavailable", 1);
            default(update, "maxSurge", 0);
        }
    }
    pod::template(spec);
}

pub(super) fn job(object: &mut Value) {
    job_labels(object);
    let Some(spec) = child(object, "spec") else { return };
    if spec["completions"].is_null() && spec["parallelism"].is_null() {
        default(spec, "completions", 1);
    }
    default(spec, "parallelism", 1);
    let by_index = !spec["backoffLimitPerIndex"].is_null();
    default(spec, "backoffLimit", if by_index { i32::MAX } else { 6 });
    default(spec, "completionMode", "NonIndexed");
    default(spec, "suspend", false);
    let replaced =
        if spec["podFailurePolicy"].is_null() { "TerminatingOrFailed" } else { "Failed" };
    default(spec, "podReplacementPolicy", replaced);
    if let Some(policy) = spec.get_mut("podFailurePolicy") {
        for rule in items_mut(policy, "rules") {
            for pattern in items_mut(rule, "onPodConditions") {
                default(pattern, "status", "True");
            }
        }
    }
    pod::template(spec);
}

/// Sets the labels of a job without labels to those of its pods.
pub(crate) fn job_labels(object: &mut Value) {
    let labels = at(object, &["spec", "template", "metadata", "labels"]).clone();
    if !is_empty(&labels)
        && is_empty(at(object, &["metadata", "labels"]))
        && let Some(metadata) = child(object, "metadata")
    {
        set(metadata, "labels", labels);
    }
}

pub(super) fn cron_job(object: &mut Value) {
    let Some(spec) = child(object, "spec") else { return };
    default(spec, "concurrencyPolicy", "Allow");
    default(spec, "suspend", false);
    default(spec, "successfulJobsHistoryLimit", 3);
    default(spec, "failedJobsHistoryLimit", 1);
    if let Some(spec) = child(spec, "jobTemplate").and_then(|template| child(template, "spec")) {
        pod::template(spec);
    }
}

pub(super) fn autoscaler(object: &mut Value) {
    let Some(spec) = child(object, "spec") else { return };
    default(spec, "minReplicas", 1);
    let cpu = json!({
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
    });
    default(spec, "metrics", json!([cpu]));
    if spec["behavior"].is_null() {
        return;
    }
    let Some(behavior) = child(spec, "behavior") else { return };
    let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    if let Some(up) = child(behavior, "scaleUp") {
        default(up, "stabilizationWindowSeconds", 0);
        default(up, "selectPolicy", "Max");
        let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
        default(up, "policies", json!([pods, percent]));
    }
    if let Some(down) = child(behavior, "scaleDown") {
        default(down, "selectPolicy", "Max");
        default(down, "policies", json!([percent]));
    }
}
