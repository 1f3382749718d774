//! Strategy of Jobs: their pods get labels with the Job's uid, and their selector matches these
//! labels.

use super::{Value, at, child, json, set, text};

const LABELS: [(&str, &str); 4] = [
    ("controller-uid", "uid"),
    ("batch.kubernetes.io/controller-uid", "uid"),
    ("job-name", "name"),
    ("batch.kubernetes.io/job-name", "name"),
];

pub(super) fn create(object: &mut Value) {
    if *at(object, &["spec", "manualSelector"]) == true {
        return;
    }
    let metadata = object["metadata"].clone();
    let labels = child(object, "spec")
        .and_then(|spec| child(spec, "template"))
        .and_then(|template| child(template, "metadata"))
        .and_then(|metadata| child(metadata, "labels"));
    if let Some(labels) = labels {
        for (label, field) in LABELS {
            set(labels, label, text(&metadata, field));
        }
    }
    if let Some(spec) = child(object, "spec")
        && let Some(wanted) =
            child(spec, "selector").and_then(|selector| child(selector, "matchLabels"))
    {
        set(wanted, "batch.kubernetes.io/controller-uid", text(&metadata, "uid"));
    }
    crate::builtin::default::job_labels(object);
    set(object, "status", json!({}));
}
