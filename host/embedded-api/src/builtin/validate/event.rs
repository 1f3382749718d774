//! Validation of events. Those of `events.k8s.io` are validated more strictly; in either case the
//! fields have the names of the core group.

use serde_json::Value;

use super::{FieldError, FieldPath, add_invalid, shown, text};
use crate::{builtin::event::to_core, name};

/// The largest size of the note, and of the other texts, in bytes.
const MAX_NOTE_BYTES: usize = 1024;
const MAX_TEXT_BYTES: usize = 128;

/// Validates a new event; `strict` for one of `events.k8s.io`.
pub(super) fn create(object: &Value, strict: bool, errors: &mut Vec<FieldError>) {
    let event = &core(object, strict);
    common(event, strict, errors);
    if !strict {
        return;
    }
    series(event, errors);
    if event["eventTime"].is_null() {
        errors.push(FieldError::required("eventTime", ""));
    }
    let kind = text(event, "type");
    if !matches!(kind, "Normal" | "Warning") {
        errors.push(FieldError::invalid("type", "", format!("has invalid value: {kind}")));
    }
    let source = &event["source"];
    let old_fields = [
        ("firstTimestamp", !event["firstTimestamp"].is_null()),
        ("lastTimestamp", !event["lastTimestamp"].is_null()),
        ("count", event["count"].as_i64().is_some_and(|count| count != 0)),
        ("source", !text(source, "component").is_empty() || !text(source, "host").is_empty()),
    ];
    for (field, _) in old_fields.into_iter().filter(|(_, is_set)| *is_set) {
        errors.push(FieldError::invalid(field, "", "needs to be unset"));
    }
}

/// Validates a changed event.
pub(super) fn update(new: &Value, old: &Value, strict: bool, errors: &mut Vec<FieldError>) {
    const FIXED: [&str; 12] = [
        "involvedObject",
        "reason",
        "message",
        "source",
        "firstTimestamp",
        "lastTimestamp",
        "count",
        "type",
        "eventTime",
        "action",
        "related",
        "reportingInstance",
    ];
    let (new, old) = (&core(new, strict), &core(old, strict));
    common(new, strict, errors);
    if !strict {
        return;
    }
    if new["series"] != old["series"] {
        series(new, errors);
    }
    let fields = FIXED.iter().map(|field| (*field, *field));
    for (field, name) in fields.chain([("reportingComponent", "reportingController")]) {
        if new[field] != old[field] {
            errors.push(FieldError::invalid(name, shown(&new[field]), "field is immutable"));
        }
    }
}

fn core(object: &Value, strict: bool) -> Value {
    let mut event = object.clone();
    if strict {
        to_core(&mut event);
    }
    event
}

/// Validates the rules of both groups: an event is in the namespace of its subject, and one with
/// `eventTime` names its reporter.
fn common(event: &Value, strict: bool, errors: &mut Vec<FieldError>) {
    let namespace = text(&event["metadata"], "namespace");
    let about = text(&event["involvedObject"], "namespace");
    let has_time = !event["eventTime"].is_null();
    let fits = match (about.is_empty(), has_time) {
        (true, false) => matches!(namespace, "" | "default"),
        (true, true) => matches!(namespace, "default" | "kube-system"),
        (false, false) => about == namespace,
        (false, true) => true,
    };
    if !fits {
        let fault = "does not match event.namespace";
        errors.push(FieldError::invalid("involvedObject.namespace", about, fault));
    }
    if !has_time {
        return;
    }
    let reporter = text(event, "reportingComponent");
    let field = if strict { "reportingController" } else { "reportingComponent" };
    if reporter.is_empty() {
        errors.push(FieldError::required(field, ""));
    }
    add_invalid(errors, &FieldPath::new(field), reporter, name::is_qualified_name(reporter));
    for (field, required, most) in [
        ("reportingInstance", true, MAX_TEXT_BYTES),
        ("action", true, MAX_TEXT_BYTES),
        ("reason", true, MAX_TEXT_BYTES),
        ("message", false, MAX_NOTE_BYTES),
    ] {
        let value = text(event, field);
        if required && value.is_empty() {
            errors.push(FieldError::required(field, ""));
        }
        if value.len() > most {
            errors.push(FieldError::invalid(
                field,
                "",
                format!("can have at most {most} characters"),
            ));
        }
    }
}

fn series(event: &Value, errors: &mut Vec<FieldError>) {
    let series = &event["series"];
    if series.is_null() {
        return;
    }
    if series["count"].as_i64().unwrap_or(0) < 2 {
        errors.push(FieldError::invalid("series.count", "", "should be at least 2"));
    }
    if series["lastObservedTime"].is_null() {
        errors.push(FieldError::required("series.lastObservedTime", ""));
    }
}
