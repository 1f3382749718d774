//! The selectors of a claim: labels, names and references. An object is claimed if any takes it.

use std::collections::BTreeMap;

use serde_json::Value;

use super::path::lookup;
use crate::{
    api::{Expression, JsonPath, LabelSelector, Named, Selector},
    valid::{is_dns_label, is_dns_name, is_label_key, is_label_value},
};

/// An object that may be claimed, under its name and namespace at the consumer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

/// Returns whether Kubernetes accepts the names and labels of a selector.
pub(crate) fn is_valid(selector: &Selector) -> bool {
    let is_name = |of: &Named| {
        is_dns_name(&of.name) && (of.namespace.is_empty() || is_dns_label(&of.namespace))
    };
    let is_label = |(key, value): (&String, &String)| is_label_key(key) && is_label_value(value);
    let is_expression =
        |of: &Expression| is_label_key(&of.key) && of.values.iter().all(|of| is_label_value(of));
    let labels = selector.label_selector.iter();
    let mut expressions = labels.clone().flat_map(|of| &of.match_expressions);
    selector.named_resources.iter().all(is_name)
        && labels.flat_map(|of| &of.match_labels).all(is_label)
        && expressions.all(is_expression)
}

/// Returns whether labels fit a selector.
pub(crate) fn matches_labels(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    selector.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
        && selector.match_expressions.iter().all(|expression| fits(expression, labels))
}

fn fits(of: &Expression, labels: &BTreeMap<String, String>) -> bool {
    let value = labels.get(&of.key);
    let is_in = value.is_some_and(|value| of.values.contains(value));
    match of.operator.as_str() {
        "In" => is_in,
        "NotIn" => !is_in,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        _ => false,
    }
}

/// Returns a selector in kubectl's syntax; `None` if it takes nothing.
pub(crate) fn labels_text(selector: &LabelSelector) -> Option<String> {
    let equal = selector.match_labels.iter().map(|(key, value)| Some(format!("{key}={value}")));
    let expressions = selector.match_expressions.iter().map(|of| {
        let (key, values) = (&of.key, of.values.join(","));
        match of.operator.as_str() {
            "In" if !of.values.is_empty() => Some(format!("{key} in ({values})")),
            "NotIn" if !of.values.is_empty() => Some(format!("{key} notin ({values})")),
            "Exists" => Some(key.clone()),
            "DoesNotExist" => Some(format!("!{key}")),
            _ => None,
        }
    });
    equal.chain(expressions).collect::<Option<Vec<_>>>().map(|parts| parts.join(","))
}

/// Returns whether one of the names is that of the object.
pub(crate) fn named(named: &[Named], of: Subject) -> bool {
    named.iter().any(|named| {
        named.name == of.name && (named.namespace.is_empty() || named.namespace == of.namespace)
    })
}

/// Returns whether an object refers to another one. If no place names the namespace, the other is
/// in that of the object where `is_same_namespace`, else in any; if a place is named that the
/// object does not have, in any.
pub(crate) fn refers(
    object: &Value,
    path: &JsonPath,
    is_same_namespace: bool,
    to: Subject,
) -> bool {
    let has = |texts: Vec<String>, wanted: &str| texts.iter().any(|text| text == wanted);
    if !lookup(object, &path.name).is_some_and(|names| has(names, to.name)) {
        return false;
    }
    if path.namespace.is_empty() {
        let own = object.pointer("/metadata/namespace").and_then(Value::as_str);
        return !is_same_namespace || own == Some(to.namespace);
    }
    lookup(object, &path.namespace).is_none_or(|namespaces| has(namespaces, to.namespace))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn labels_are_selected_as_by_kubernetes() {
        let expression = |operator: &str, values: Value| json!({"matchExpressions": [{"key": "app", "operator": operator, "values": values}]});
        let cases = [
            (json!({}), Some(""), [true, true, true]),
            (json!({"matchLabels": {"app": "rocket"}}), Some("app=rocket"), [true, false, false]),
            (expression("In", json!(["rocket"])), Some("app in (rocket)"), [true, false, false]),
            (
                expression("NotIn", json!(["rocket", "x"])),
                Some("app notin (rocket,x)"),
                [false, true, true],
            ),
            (expression("Exists", json!([])), Some("app"), [true, true, false]),
            (expression("DoesNotExist", json!([])), Some("!app"), [false, false, true]),
            (expression("In", json!([])), None, [false, false, false]),
            (expression("Near", json!(["rocket"])), None, [false, false, false]),
        ];
        let objects = [labels(&[("app", "rocket")]), labels(&[("app", "moon")]), labels(&[])];
        for (selector, text, expected) in cases {
            let parsed: LabelSelector = serde_json::from_value(selector.clone()).unwrap();
            assert_eq!(labels_text(&parsed).as_deref(), text, "{selector}");
            let found = [0, 1, 2].map(|index| matches_labels(&parsed, &objects[index]));
            assert_eq!(found, expected, "{selector}");
        }
    }

    #[test]
    fn names_are_selected_in_one_namespace_or_in_all() {
        let of = |namespace, name| Subject { namespace, name };
        let names = [
            Named { name: "key".into(), namespace: "team".into() },
            Named { name: "token".into(), namespace: String::new() },
        ];
        let cases = [
            ("team", "key", true),
            ("crew", "key", false),
            ("crew", "token", true),
            ("team", "other", false),
        ];
        for (namespace, name, expected) in cases {
            assert_eq!(named(&names, of(namespace, name)), expected, "{namespace}/{name}");
        }
    }

    #[test]
    fn references_name_an_object_and_maybe_its_namespace() {
        let to = Subject { namespace: "team", name: "key" };
        let object = |spec: Value| json!({"metadata": {"namespace": "crew"}, "spec": spec});
        let path = |name: &str, namespace: &str| JsonPath {
            name: name.into(),
            namespace: namespace.into(),
        };
        let cases = [
            ("the name", json!({"key": "key"}), path("spec.key", ""), false, true),
            ("another name", json!({"key": "other"}), path("spec.key", ""), false, false),
            (
                "another namespace than its own",
                json!({"key": "key"}),
                path("spec.key", ""),
                true,
                false,
            ),
            (
                "the namespace",
                json!({"key": "key", "in": "team"}),
                path("spec.key", "spec.in"),
                true,
                true,
            ),
            (
                "another namespace",
                json!({"key": "key", "in": "crew"}),
                path("spec.key", "spec.in"),
                false,
                false,
            ),
            ("no namespace there", json!({"key": "key"}), path("spec.key", "spec.in"), true, true),
            (
                "lists",
                json!({"l": [{"n": "a", "i": "b"}, {"n": "key", "i": "team"}]}),
                path("spec.l.#.n", "spec.l.#.i"),
                false,
                true,
            ),
            (
                "a list without a namespace",
                json!({"l": [{"n": "key"}]}),
                path("spec.l.#.n", "spec.l.#.i"),
                false,
                false,
            ),
            ("no list", json!({"key": "key"}), path("spec.key", "spec.l.#.i"), false, true),
            ("no path", json!({"key": "key"}), path("", ""), false, false),
        ];
        for (case, spec, path, is_same_namespace, expected) in cases {
            assert_eq!(refers(&object(spec), &path, is_same_namespace, to), expected, "{case}");
        }
    }
}
