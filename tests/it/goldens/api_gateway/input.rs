//! The input of a case, as the original's test double had it.

use api_rule::{admission, api::ApiRule, conversion};
use mortise::commands::simulate::Input;
use mortise_sdk::testing::Stub;
use mortise_tests::{definitions, goldens::Case};
use serde_json::{Value, json};

use super::GUEST;

/// The time of the first run.
pub(super) const NOW: &str = "2026-01-01T00:00:00Z";
const FINALIZER: &str = "gateway.kyma-project.io/subresources";

pub(super) fn mode(case: &Case) -> &str {
    case.input["mode"].as_str().unwrap_or("none")
}

/// Returns whether access to v1beta1 is granted in a case.
pub(super) fn is_granted(case: &Case) -> bool {
    mode(case) == "v1beta1" || case.input["v1beta1AccessGranted"] == true
}

/// Returns the configuration of the guest.
pub(super) fn config(is_granted: bool) -> String {
    let config = if is_granted { json!({"v1beta1": "allowed"}) } else { json!({}) };
    config.to_string()
}

/// Returns the object under test as it is stored: converted, and marked by the hook.
pub(super) fn stored(case: &Case) -> Result<Value, String> {
    let object = &case.input["object"];
    if object["apiVersion"] == "gateway.kyma-project.io/v2alpha1" {
        return Ok(admission::mark(object, None).unwrap_or_else(|| object.clone()));
    }
    conversion::convert(object, "v2alpha1")
}

/// Returns the objects of a case, the one under test first, with its finalizer.
pub(super) fn objects(case: &Case) -> Vec<Value> {
    let mut object = stored(case).unwrap_or_else(|error| panic!("{}: {error}", case.name));
    object["metadata"]["finalizers"] = json!([FINALIZER]);
    let mut objects = vec![object];
    objects.extend(case.input["cluster"].as_array().cloned().unwrap_or_default());
    if let Some(handler) = handler(case) {
        objects.push(json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "api-gateway-config", "namespace": "kyma-system"},
            "data": {"api-gateway-config": format!("jwtHandler: {handler}")},
        }));
    }
    objects
}

/// Returns the handler that the configuration names.
pub(super) fn handler(case: &Case) -> Option<&str> {
    case.input["jwtHandler"].as_str().filter(|handler| !handler.is_empty())
}

/// Returns the input of a run at the beginning.
pub(super) fn of(case: &Case) -> Input {
    let metadata = &case.input["object"]["metadata"];
    let only = format!(
        "APIRule/{}/{}",
        metadata["namespace"].as_str().unwrap(),
        metadata["name"].as_str().unwrap()
    );
    let missing = case.input["missingCRDs"].as_array().cloned().unwrap_or_default();
    Input {
        objects: objects(case),
        crds: definitions(GUEST).unwrap(),
        clusters: Vec::new(),
        now: NOW.parse().unwrap(),
        missing_kinds: missing.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        validate: false,
        only: Some(only.parse().unwrap()),
        rounds: None,
    }
}

/// Returns the rule of a case.
pub(super) fn rule(case: &Case) -> ApiRule {
    serde_json::from_value(objects(case)[0].clone()).unwrap()
}

/// Returns a host in memory with the objects of a case.
pub(super) fn stub(case: &Case) -> Stub {
    Stub::new().objects(objects(case)).at(NOW)
}
