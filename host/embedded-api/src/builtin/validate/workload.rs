//! Validation of kinds that make pods.

use serde_json::json;

use super::{
    FieldError, FieldPath, Shown, Value, add_invalid, at, is_empty, items,
    number::{at_most_all, is_zero, not_negative, number_or_percent},
    pod, schedule, selector, shown, text,
};
use crate::{
    builtin::edit::{child, remove, set},
    field_error::go_json,
};

const MISMATCH: &str = "`selector` does not match template `labels`";

pub(super) fn deployment(object: &Value, errors: &mut Vec<FieldError>) {
    let spec = &object["spec"];
    let path = FieldPath::new("spec");
    not_negative(&spec["replicas"], &path.child("replicas"), errors);
    selector_and_template(spec, "Deployment", &path, errors);
    deployment_strategy(&spec["strategy"], &path.child("strategy"), errors);
    for field in ["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"] {
        not_negative(&spec[field], &path.child(field), errors);
    }
    if let Some(deadline) = spec["progressDeadlineSeconds"].as_i64()
        && deadline <= spec["minReadySeconds"].as_i64().unwrap_or(0)
    {
        let fault = "must be greater than minReadySeconds";
        errors.push(FieldError::invalid(path.child("progressDeadlineSeconds"), deadline, fault));
    }
}

fn deployment_strategy(strategy: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let update = &strategy["rollingUpdate"];
    let path_of_update = path.child("rollingUpdate");
    match text(strategy, "type") {
        "Recreate" if !update.is_null() => {
            let fault = "may not be specified when strategy `type` is 'Recreate'";
            errors.push(FieldError::forbidden(path_of_update, fault));
        }
        "Recreate" => {}
        "RollingUpdate" => {
            let (unavailable, surge) = (&update["maxUnavailable"], &update["maxSurge"]);
            let path = path_of_update.child("maxUnavailable");
            number_or_percent(unavailable, &path, errors);
            number_or_percent(surge, &path_of_update.child("maxSurge"), errors);
            if is_zero(unavailable) && is_zero(surge) {
                let fault = "may not be 0 when `maxSurge` is 0";
                errors.push(FieldError::invalid(path, unavailable.clone(), fault));
            }
            at_most_all(unavailable, &path, errors);
        }
        other => {
            // The server's internal type has other field names.
            let raw = format!(
                "{{\"Type\":{},\"RollingUpdate\":{}}}",
                go_json(&other.into()),
                go_json(&strategy["rollingUpdate"])
            );
            let known = ["Recreate", "RollingUpdate"];
            errors.push(FieldError::not_supported(path, Shown::Raw(raw), known));
        }
    }
}

pub(super) fn replica_set(object: &Value, errors: &mut Vec<FieldError>) {
    let spec = &object["spec"];
    let path = FieldPath::new("spec");
    for field in ["replicas", "minReadySeconds"] {
        not_negative(&spec[field], &path.child(field), errors);
    }
    selector_and_template(spec, "ReplicaSet", &path, errors);
}

pub(super) fn replication_controller(object: &Value, errors: &mut Vec<FieldError>) {
    let spec = &object["spec"];
    let path = FieldPath::new("spec");
    for field in ["replicas", "minReadySeconds"] {
        not_negative(&spec[field], &path.child(field), errors);
    }
    let selector = &spec["selector"];
    if is_empty(selector) {
        errors.push(FieldError::required(path.child("selector"), ""));
    }
    let template = &spec["template"];
    let path = path.child("template");
    if template.is_null() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let labels = at(template, &["metadata", "labels"]);
    if !selector::matches(&json!({"matchLabels": selector}), labels) {
        let here = path.child("metadata");
        errors.push(FieldError::invalid(here.child("labels"), shown(labels), MISMATCH));
    }
    pod::template(template, &path, errors);
    always_restarts(template, "ReplicationController", &path.child("spec"), errors);
}

pub(super) fn stateful_set(object: &Value, errors: &mut Vec<FieldError>) {
    let spec = &object["spec"];
    let path = FieldPath::new("spec");
    match text(spec, "podManagementPolicy") {
        "OrderedReady" | "Parallel" => {}
        other => {
            let fault = "must be 'OrderedReady' or 'Parallel'";
            errors.push(FieldError::invalid(path.child("podManagementPolicy"), other, fault));
        }
    }
    match text(&spec["updateStrategy"], "type") {
        "OnDelete" => {
            let rolling = at(spec, &["updateStrategy", "rollingUpdate"]);
            if !rolling.is_null() {
                let raw = format!(
                    r#"{{"Partition":{},"MaxUnavailable":{}}}"#,
                    rolling["partition"].as_i64().unwrap_or_default(),
                    rolling["maxUnavailable"]
                );
                let fault = "only allowed for updateStrategy 'RollingUpdate'";
                let here = path.child("updateStrategy");
                errors.push(FieldError::invalid(
                    here.child("rollingUpdate"),
                    Shown::Raw(raw),
                    fault,
                ));
            }
        }
        "RollingUpdate" => {}
        _ => {
            let fault = "must be 'RollingUpdate' or 'OnDelete'";
            errors.push(FieldError::invalid(
                path.child("updateStrategy"),
                spec["updateStrategy"].clone(),
                fault,
            ));
        }
    }
    for field in ["replicas", "minReadySeconds"] {
        not_negative(&spec[field], &path.child(field), errors);
    }
    selector_and_template(spec, "StatefulSet", &path, errors);
}

pub(super) fn daemon_set(object: &Value, errors: &mut Vec<FieldError>) {
    let spec = &object["spec"];
    let path = FieldPath::new("spec");
    selector_and_template(spec, "DaemonSet", &path, errors);
    for field in ["minReadySeconds", "revisionHistoryLimit"] {
        not_negative(&spec[field], &path.child(field), errors);
    }
    let strategy = &spec["updateStrategy"];
    match text(strategy, "type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let update = &strategy["rollingUpdate"];
            let path = path.child("updateStrategy");
            let path = path.child("rollingUpdate");
            let (unavailable, surge) = (&update["maxUnavailable"], &update["maxSurge"]);
            number_or_percent(unavailable, &path.child("maxUnavailable"), errors);
            number_or_percent(surge, &path.child("maxSurge"), errors);
            if is_zero(unavailable) && is_zero(surge) {
                let fault = "cannot be 0 when maxSurge is 0";
                errors.push(FieldError::required(path.child("maxUnavailable"), fault));
            }
        }
        other => {
            let known = ["OnDelete", "RollingUpdate"];
            errors.push(FieldError::not_supported(
                path.child("updateStrategy").child("type"),
                other,
                known,
            ));
        }
    }
}

/// Validates that there is a selector, and that it matches the pods of the template.
fn selector_and_template(
    spec: &Value,
    kind: &str,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    let selector = &spec["selector"];
    let here = path.child("selector");
    if selector.is_null() {
        if kind != "DaemonSet" {
            errors.push(FieldError::required(here, ""));
        }
    } else {
        selector::validate(selector, &here, errors);
        if selector::is_everything(selector) {
            let kind = if kind == "ReplicaSet" { "deployment" } else { &kind.to_lowercase() };
            let fault = format!("empty selector is invalid for {kind}");
            errors.push(FieldError::invalid(here, selector.clone(), fault));
        }
    }
    let template = &mut spec["template"].clone();
    if kind == "StatefulSet" {
        complete_template(template, items(&spec["volumeClaimTemplates"]));
    }
    let path = path.child("template");
    let labels = at(template, &["metadata", "labels"]);
    let everything = !selector.is_null() && selector::is_everything(selector);
    if !everything && !selector::matches(selector, labels) {
        let here = path.child("metadata");
        let here = here.child("labels");
        errors.push(FieldError::invalid(here, shown(labels), MISMATCH));
    }
    pod::template(template, &path, errors);
    always_restarts(template, kind, &path.child("spec"), errors);
}

/// Changes the template of a `StatefulSet` as its controller does for each pod: claims become
/// volumes, in place of those of the same name, and the names of the host are replaced.
fn complete_template(template: &mut Value, claims: &[Value]) {
    let Some(spec) = child(template, "spec") else { return };
    for field in ["hostname", "subdomain"] {
        remove(spec, field);
    }
    let claimed: Vec<_> = claims.iter().map(|claim| text(&claim["metadata"], "name")).collect();
    let mut volumes: Vec<_> = claimed
        .iter()
        .map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}))
        .collect();
    let own = items(&spec["volumes"]).iter();
    volumes.extend(own.filter(|volume| !claimed.contains(&text(volume, "name"))).cloned());
    set(spec, "volumes", volumes);
}

/// Validates that the pods never end by themselves.
fn always_restarts(
    template: &Value,
    kind: &str,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    let policy = text(&template["spec"], "restartPolicy");
    if matches!(policy, "OnFailure" | "Never") {
        errors.push(FieldError::not_supported(path.child("restartPolicy"), policy, ["Always"]));
    }
    if !at(template, &["spec", "activeDeadlineSeconds"]).is_null() {
        let kind = if kind == "Deployment" { "ReplicaSet" } else { kind };
        let fault = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.push(FieldError::forbidden(path.child("activeDeadlineSeconds"), fault));
    }
}

/// Validates that the selector of a workload is unchanged.
pub(super) fn selector_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let (new, old) = (at(new, &["spec", "selector"]), at(old, &["spec", "selector"]));
    if new != old {
        errors.push(FieldError::invalid("spec.selector", shown(new), "field is immutable"));
    }
}

pub(super) fn stateful_set_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    const FREE: [&str; 7] = [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    let fixed = |object: &Value| {
        let mut spec = object["spec"].clone();
        for field in FREE {
            remove(&mut spec, field);
        }
        spec
    };
    if fixed(new) != fixed(old) {
        let fault = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
        errors.push(FieldError::forbidden("spec", fault));
    }
}

pub(super) fn job(spec: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        not_negative(&spec[field], &path.child(field), errors);
    }
    let here = path.child("completionMode");
    match text(spec, "completionMode") {
        "NonIndexed" | "" => {}
        "Indexed" => {
            if spec["completions"].is_null() {
                let fault = "when completion mode is Indexed";
                errors.push(FieldError::required(path.child("completions"), fault));
            }
        }
        other => errors.push(FieldError::not_supported(here, other, ["NonIndexed", "Indexed"])),
    }
    let template = path.child("template");
    pod::template(&spec["template"], &template, errors);
    let here = template.child("spec");
    let here = here.child("restartPolicy");
    match text(at(spec, &["template", "spec"]), "restartPolicy") {
        "Always" | "" => {
            errors.push(FieldError::required(here, "valid values: \"OnFailure\", \"Never\""));
        }
        "OnFailure" | "Never" => {}
        other => errors.push(FieldError::not_supported(here, other, ["OnFailure", "Never"])),
    }
}

pub(super) fn job_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let (new, old) = (&new["spec"], &old["spec"]);
    let path = FieldPath::new("spec");
    let indexed = text(new, "completionMode") == "Indexed";
    let mut fields =
        vec!["selector", "template", "completionMode", "podFailurePolicy", "backoffLimitPerIndex"];
    if !indexed {
        fields.insert(0, "completions");
    }
    for field in fields {
        let before_start = field == "template" && old["suspend"] == true;
        if new[field] != old[field] && !before_start {
            errors.push(FieldError::invalid(
                path.child(field),
                shown(&new[field]),
                "field is immutable",
            ));
        }
    }
}

pub(super) fn cron_job(object: &Value, errors: &mut Vec<FieldError>) {
    let spec = &object["spec"];
    let path = FieldPath::new("spec");
    let here = path.child("schedule");
    let schedule = text(spec, "schedule");
    if schedule.is_empty() {
        errors.push(FieldError::required(here, ""));
    } else {
        if let Err(fault) = schedule::parse(schedule) {
            errors.push(FieldError::invalid(here, schedule, fault));
        }
        if schedule.contains("TZ") {
            let fault = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
            errors.push(FieldError::invalid(here, schedule, fault));
        }
    }
    not_negative(&spec["startingDeadlineSeconds"], &path.child("startingDeadlineSeconds"), errors);
    match text(spec, "concurrencyPolicy") {
        "Allow" | "Forbid" | "Replace" => {}
        other => {
            let known = ["Allow", "Forbid", "Replace"];
            errors.push(FieldError::not_supported(path.child("concurrencyPolicy"), other, known));
        }
    }
    for field in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        not_negative(&spec[field], &path.child(field), errors);
    }
    if is_empty(at(spec, &["jobTemplate", "spec"])) {
        return;
    }
    job(at(spec, &["jobTemplate", "spec"]), &path.child("jobTemplate").child("spec"), errors);
}

/// Validates the name of a cron job: the names of its jobs append a time to it.
pub(super) fn cron_job_name(object: &Value, errors: &mut Vec<FieldError>) {
    let name = text(&object["metadata"], "name");
    if name.len() > 52 {
        let fault = "must be no more than 52 characters".to_owned();
        add_invalid(errors, &FieldPath::new("metadata.name"), name, vec![fault]);
    }
}
