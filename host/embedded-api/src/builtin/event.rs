//! The two forms of events: that of the core group, in which they are stored, and that of
//! `events.k8s.io`.

use serde_json::Value;

use super::edit::{remove, set};

/// The fields with different names: in the core group, in `events.k8s.io`.
const NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Converts an event to the form of the core group.
pub(crate) fn to_core(event: &mut Value) {
    for (core, other) in NAMES {
        rename(event, other, core);
    }
    for key in ["reportingComponent", "reportingInstance"] {
        if event.get(key).is_none() {
            set(event, key, "");
        }
    }
}

/// Converts an event to the form of `events.k8s.io`.
pub(crate) fn from_core(event: &mut Value) {
    for (core, other) in NAMES {
        rename(event, core, other);
    }
    for key in ["reportingController", "reportingInstance"] {
        if event[key] == "" {
            remove(event, key);
        }
    }
}

fn rename(event: &mut Value, from: &str, to: &str) {
    if let Some(value) = remove(event, from) {
        set(event, to, value);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn an_event_goes_through_the_other_form_unchanged() {
        let core = json!({
            "involvedObject": {"name": "a"}, "message": "made it", "count": 2, "source": {"component": "c"},
            "firstTimestamp": null, "lastTimestamp": null, "eventTime": null, "reason": "Made",
            "reportingComponent": "", "reportingInstance": "",
        });
        let mut event = core.clone();
        super::from_core(&mut event);
        assert_eq!(event["note"], "made it");
        assert_eq!(event["deprecatedCount"], 2);
        assert_eq!(event.get("reportingController"), None);
        super::to_core(&mut event);
        assert_eq!(event, core);
    }
}
