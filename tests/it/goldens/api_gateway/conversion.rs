//! Cases of conversions.

use api_rule::conversion::{VERSIONS, convert};
use mortise_tests::goldens::{Case, without_nulls};
use serde_json::{Map, Value};

use super::{Comparison, input};

/// The annotation of an object without a spec in v1beta1, which holds its spec in v2.
pub(super) const CARRIED: &str = "gateway.kyma-project.io/v2alpha1-spec";

pub(super) fn run(case: &Case, comparison: &mut Comparison) {
    for version in VERSIONS {
        let Some(original) = case.expected.get(version) else { continue };
        let ours = input::stored(case).and_then(|stored| convert(&stored, version));
        match ours {
            Ok(ours) => comparison.part(case, version, &compared(original), &compared(&ours)),
            Err(error) => comparison.tally.failed(&case.name, version, &error),
        }
    }
}

/// Returns an object in the form in which it is compared: nulls, a spec and a status without
/// fields, and an empty state come of the original's types.
fn compared(object: &Value) -> Value {
    let mut object = without_nulls(object);
    if object["status"]["state"] == "" {
        object["status"].as_object_mut().unwrap().remove("state");
    }
    let members = object.as_object_mut().unwrap();
    members.retain(|_, value| !value.as_object().is_some_and(Map::is_empty));
    if let Some(carried) =
        object.pointer_mut(&format!("/metadata/annotations/{}", escaped(CARRIED)))
    {
        *carried = serde_json::from_str(carried.as_str().unwrap()).unwrap();
    }
    object
}

/// Returns a key as a part of a JSON pointer.
pub(super) fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}
