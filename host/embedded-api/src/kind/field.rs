//! The fields that field selectors may name.

use std::borrow::Cow;

use serde_json::Value;

use super::{Form, Resource};
use crate::builtin::edit::{at, text};

const POD: &[&str] = &[
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.podIPs",
    "status.nominatedNodeName",
];
const EVENT: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];
const OTHER_EVENT: &[&str] = &[
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "regarding.apiVersion",
    "regarding.resourceVersion",
    "regarding.fieldPath",
    "reason",
    "reportingController",
    "type",
];

impl Resource {
    /// Returns the value of a field as selectors compare it; `None` if selectors may not name the
    /// field.
    pub(crate) fn field<'a>(&self, object: &'a Value, field: &str) -> Option<Cow<'a, str>> {
        if matches!(field, "metadata.name" | "metadata.namespace") || self.is_selectable(field) {
            return Some(value(object, field));
        }
        None
    }

    /// Returns the message for a selector that names an unknown field.
    pub(crate) fn unknown_field(&self, field: &str) -> String {
        match &self.form {
            Form::BuiltIn(_) => match (self.kind.as_str(), own_fields(self)) {
                (kind @ ("Job" | "StatefulSet"), _) => {
                    let group = self.group.as_str();
                    format!(
                        "field label \"{field}\" not supported for {group}{}.{kind}",
                        self.version
                    )
                }
                (_, Some(_)) => format!("field label not supported: {field}"),
                (_, None) => format!(
                    "\"{field}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                ),
            },
            Form::Custom(_) | Form::Untyped => format!("field label not supported: {field}"),
        }
    }

    fn is_selectable(&self, field: &str) -> bool {
        match &self.form {
            Form::BuiltIn(_) => own_fields(self).is_some_and(|fields| fields.contains(&field)),
            Form::Custom(custom) => custom.selectable.iter().any(|known| known == field),
            Form::Untyped => false,
        }
    }
}

/// Returns the selectable fields that a built-in kind adds; `None` if it adds none.
fn own_fields(resource: &Resource) -> Option<&'static [&'static str]> {
    Some(match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Pod") => POD,
        ("", "Event") => EVENT,
        ("events.k8s.io", "Event") => OTHER_EVENT,
        ("", "Namespace") => &["status.phase"],
        ("", "Node") => &["spec.unschedulable"],
        ("", "Secret") => &["type"],
        ("", "Service") => &["spec.clusterIP", "spec.type"],
        (_, "Job" | "StatefulSet") => &["status.successful"],
        _ => return None,
    })
}

fn value<'a>(object: &'a Value, field: &str) -> Cow<'a, str> {
    if field == "source" && object["source"].is_object() {
        let component = text(&object["source"], "component");
        let reporting = text(object, "reportingComponent");
        return Cow::Borrowed(if component.is_empty() { reporting } else { component });
    }
    let keys: Vec<_> = field.split('.').collect();
    match at(object, &keys) {
        Value::String(text) => Cow::Borrowed(text),
        Value::Null if matches!(field, "spec.hostNetwork" | "spec.unschedulable") => {
            Cow::Borrowed("false")
        }
        Value::Null => Cow::Borrowed(""),
        other => Cow::Owned(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::kind::Registry;

    #[test]
    fn selectors_may_name_the_fields_of_their_kind_only() {
        let registry = Registry::new();
        let event = json!({"source": {"component": "ctl"}, "involvedObject": {"name": "a"}});
        let pod = json!({"spec": {"nodeName": "n"}});
        let cases = [
            ("events", &event, "involvedObject.name", Some("a")),
            ("events", &event, "source", Some("ctl")),
            ("pods", &pod, "spec.nodeName", Some("n")),
            ("pods", &pod, "spec.hostNetwork", Some("false")),
            ("pods", &pod, "spec.priority", None),
            ("configmaps", &pod, "spec.nodeName", None),
        ];
        for (plural, object, field, expected) in cases {
            let resource = registry.find("", "v1", plural).unwrap();
            assert_eq!(resource.field(object, field).as_deref(), expected, "{plural} {field}");
        }
        let unknown = registry.find("", "v1", "configmaps").unwrap().unknown_field("data.k");
        let text =
            r#""data.k" is not a known field selector: only "metadata.name", "metadata.namespace""#;
        assert_eq!(unknown, text);
    }
}
