//! The rules by which ours differs from the original on purpose. What a rule expects is computed
//! here; why ours differs is in `tests/goldens-differ.yaml`, by the rule's name.

use std::{collections::BTreeMap, path::Path};

use mortise_tests::goldens::Case;
use regex::Regex;
use serde_json::{Value, json};

use super::{
    conversion::{CARRIED, escaped},
    input,
};

/// The description of a rule of v1beta1 that has no error.
pub(super) const DEPRECATED: &str = "Version v1beta1 of APIRule is deprecated and will be removed in future releases. \
    Use version v2 instead.";
const UNSUPPORTED: &str = "Version v1beta1 of APIRule is no longer supported";
/// The operators of a path as regular expressions.
const OPERATORS: [&str; 2] = [
    "([A-Za-z0-9-._~!$&'()*+,;=:@/]|%[0-9a-fA-F]{2})*",
    "([A-Za-z0-9-._~!$&'()*+,;=:@]|%[0-9a-fA-F]{2})+",
];

/// A part of a case that is compared.
struct Part<'a> {
    case: &'a Case,
    name: &'a str,
    ours: &'a Value,
}

/// A rule: changes the original's output to what is expected of ours.
type Rule = fn(&Part<'_>, &mut Value);

const RULES: [(&str, Rule); 10] = [
    ("paths-are-literal", paths_are_literal),
    ("no-crash", no_crash),
    ("broken-kyma-gateway", broken_kyma_gateway),
    ("old-gateway", old_gateway),
    ("no-retry-without-access", no_retry_without_access),
    ("no-rerun-after-deletion", no_rerun_after_deletion),
    ("missing-service", missing_service),
    ("other-parser", other_parser),
    ("spec-is-carried", spec_is_carried),
    ("service-by-kind", service_by_kind),
];

/// The reasons of all rules, by name.
pub(super) struct Differences(BTreeMap<String, String>);

impl Differences {
    pub(super) fn read() -> Self {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("goldens-differ.yaml");
        let reasons: BTreeMap<String, String> =
            serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        let mut named: Vec<&str> = reasons.keys().map(String::as_str).collect();
        let mut known = RULES.map(|(name, _)| name);
        named.sort_unstable();
        known.sort_unstable();
        assert_eq!(named, known, "each rule has a reason in the file");
        Self(reasons)
    }

    /// Returns the output expected of ours, and the reasons why it differs from the original's.
    pub(super) fn apply(
        &self,
        case: &Case,
        name: &str,
        original: &Value,
        ours: &Value,
    ) -> (Value, Vec<String>) {
        let part = Part { case, name, ours };
        let (mut expected, mut reasons) = (original.clone(), Vec::new());
        for (rule, change) in RULES {
            let before = expected.clone();
            change(&part, &mut expected);
            if before != expected {
                reasons.push(self.0[rule].clone());
            }
        }
        (expected, reasons)
    }
}

impl Part<'_> {
    fn recorded(&self, pointer: &str) -> &Value {
        self.case.expected.pointer(pointer).unwrap_or(&Value::Null)
    }

    fn error(&self) -> &str {
        self.recorded("/controller/error").as_str().unwrap_or_default()
    }

    fn is_v1beta1(&self) -> bool {
        input::mode(self.case) == "v1beta1"
    }
}

/// Characters of a path in v2 stand for themselves.
fn paths_are_literal(part: &Part<'_>, expected: &mut Value) {
    if part.is_v1beta1() {
        return;
    }
    for change in expected.as_array_mut().into_iter().flatten() {
        let object = if change.get("object").is_some() { &mut change["object"] } else { change };
        let routes = object.pointer_mut("/spec/http").and_then(Value::as_array_mut);
        for route in routes.into_iter().flatten() {
            if let Some(regex) = route.pointer_mut("/match/0/uri/regex") {
                *regex = literal(regex.as_str().unwrap()).into();
            }
        }
    }
}

/// Escapes what stands between the operators of a path's regular expression.
fn literal(regex: &str) -> String {
    let inner = regex.strip_prefix('^').and_then(|rest| rest.strip_suffix('$')).unwrap();
    let (mut literal, mut rest) = (String::from("^"), inner);
    while !rest.is_empty() {
        let operator = OPERATORS.into_iter().find(|operator| rest.starts_with(operator));
        let length = operator.map_or_else(|| rest.chars().next().unwrap().len_utf8(), str::len);
        let (first, others) = rest.split_at(length);
        if operator.is_none() && r"\.+*?()|[]{}^$".contains(first) {
            literal.push('\\');
        }
        literal.push_str(first);
        rest = others;
    }
    literal.push('$');
    literal
}

/// Where the original crashes, ours says in the status what is wrong.
fn no_crash(part: &Part<'_>, expected: &mut Value) {
    let is_told = part.ours["state"] == "Error" && part.ours["description"] != "";
    if part.name == "controller" && is_told && part.recorded("/controller/panic").is_string() {
        *expected = part.ours.clone();
    }
}

/// A Kyma Gateway without a single domain concerns only hosts in v1beta1 that need the domain.
fn broken_kyma_gateway(part: &Part<'_>, expected: &mut Value) {
    let is_broken = ["gateway must have", "gateway https server"]
        .iter()
        .any(|start| part.error().starts_with(start));
    if part.name != "controller" || !is_broken {
        return;
    }
    let is_short =
        part.case.input["object"]["spec"]["host"].as_str().is_some_and(|host| !host.contains('.'));
    *expected = match part.is_v1beta1() {
        true if is_short => error(part.error()),
        true => of_status(part.recorded("/v1beta1Status/APIRuleStatus")),
        false if *part.recorded("/validationFailures") == json!([]) => json!({
            "state": "Ready", "description": "Reconciled successfully", "requeueAfterSeconds": 1800,
        }),
        // What is wrong with the rule is compared by itself.
        false => json!({
            "state": "Error", "requeueAfterSeconds": 60, "description": part.ours["description"],
        }),
    };
}

/// The original's test double loses the status of an object whose gateway has an old name.
fn old_gateway(part: &Part<'_>, expected: &mut Value) {
    let is_lost = part.error().starts_with("apirules.gateway.kyma-project.io")
        && part.error().ends_with("not found");
    if part.name == "controller" && part.is_v1beta1() && is_lost {
        *expected = of_status(part.recorded("/v1beta1Status/APIRuleStatus"));
    }
}

/// Returns the stored status for v1beta1's.
fn of_status(status: &Value) -> Value {
    if status["code"] == "OK" {
        return json!({"state": "Warning", "description": DEPRECATED, "requeueAfterSeconds": 1800});
    }
    error(status["desc"].as_str().unwrap())
}

fn error(description: &str) -> Value {
    let description = format!("{DEPRECATED}\n\n{description}");
    json!({"state": "Error", "description": description, "requeueAfterSeconds": 60})
}

/// What waits for access is not tried again before there is access.
fn no_retry_without_access(_part: &Part<'_>, expected: &mut Value) {
    let description = expected["description"].as_str().unwrap_or_default();
    if description.starts_with(UNSUPPORTED) {
        expected["requeueAfterSeconds"] = json!(1800);
    }
}

/// An object that is gone is not looked for again.
fn no_rerun_after_deletion(part: &Part<'_>, expected: &mut Value) {
    let is_deleted = part.case.input["object"]["metadata"]["deletionTimestamp"].is_string();
    if is_deleted && expected.get("requeueAfterSeconds").is_some() {
        expected["requeueAfterSeconds"] = Value::Null;
    }
}

/// The workloads behind a missing service are unknown, and not all Pods of its namespace.
fn missing_service(part: &Part<'_>, expected: &mut Value) {
    let (original, ours) = (expected.to_string(), part.ours.to_string());
    let is_about_pods = original.contains("does not have an injected istio sidecar");
    let is_told = ours.contains("Service \\\"") && ours.contains("not found") || ours == "[]";
    if part.is_v1beta1() && is_about_pods && is_told && !has_service(part.case) {
        *expected = part.ours.clone();
    }
}

/// The original's cache names a missing Service by its kind; what was recorded came from a test
/// double of the API server.
fn service_by_kind(_: &Part<'_>, expected: &mut Value) {
    let recorded = Regex::new(r#"\bservices (\\"[^"]+") not found"#).unwrap();
    let text = expected.to_string();
    *expected = serde_json::from_str(&recorded.replace_all(&text, "Service $1 not found")).unwrap();
}

fn has_service(case: &Case) -> bool {
    let name = &case.input["object"]["spec"]["service"]["name"];
    let objects = case.input["cluster"].as_array().map(Vec::as_slice).unwrap_or_default();
    objects.iter().any(|object| object["kind"] == "Service" && object["metadata"]["name"] == *name)
}

/// The end of a message about JSON that cannot be read is the parser's.
fn other_parser(part: &Part<'_>, expected: &mut Value) {
    const END: &str = "Can't read json: ";
    fn walk(expected: &mut Value, ours: &Value) {
        match (expected, ours) {
            (Value::String(text), Value::String(ours)) => {
                if let (Some((begin, _)), Some((other, _))) =
                    (text.split_once(END), ours.split_once(END))
                    && begin == other
                {
                    text.clone_from(ours);
                }
            }
            (Value::Array(list), Value::Array(ours)) => {
                list.iter_mut().zip(ours).for_each(|(expected, ours)| walk(expected, ours));
            }
            (Value::Object(members), Value::Object(ours)) => {
                for (key, value) in members {
                    ours.get(key).into_iter().for_each(|ours| walk(value, ours));
                }
            }
            _ => {}
        }
    }
    walk(expected, part.ours);
}

/// In v1beta1, an object that was written in v2 takes its spec along.
fn spec_is_carried(part: &Part<'_>, expected: &mut Value) {
    if input::mode(part.case) != "convert" || part.name != "v1beta1" {
        return;
    }
    let place = format!("/metadata/annotations/{}", escaped(CARRIED));
    let spec = part.recorded("/v2alpha1/spec");
    if part.ours.pointer(&place).is_some() && expected.get("spec").is_none() {
        expected["metadata"]["annotations"][CARRIED] = mortise_tests::goldens::without_nulls(spec);
    }
}

#[test]
fn operators_of_a_path_stay() {
    let regex = format!("^/a.b/{}/c+/{}$", OPERATORS[1], OPERATORS[0]);
    assert_eq!(literal(&regex), format!(r"^/a\.b/{}/c\+/{}$", OPERATORS[1], OPERATORS[0]));
}
