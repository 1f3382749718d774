//! The default `IstioOperator` of each size of cluster.

use serde_json::{Map, Value};

use crate::cluster::Size;

/// The `IstioOperator` of large clusters.
const PRODUCTION: &str = include_str!("template/production.json");
/// The difference of small clusters, a JSON Merge Patch (RFC 7386).
const EVALUATION: &str = include_str!("template/evaluation.json");

/// Returns the default `IstioOperator` of a size.
///
/// # Panics
///
/// Never: the templates are compiled in, and a test reads them.
pub fn of(size: Size) -> Value {
    let read = |text| serde_json::from_str::<Value>(text).expect("a template is JSON");
    let mut template = read(PRODUCTION);
    if size == Size::Evaluation {
        apply_patch(&mut template, read(EVALUATION));
    }
    template
}

fn apply_patch(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Map::new().into();
    }
    let Value::Object(target) = target else { return };
    for (key, value) in patch {
        if value.is_null() {
            target.remove(&key);
        } else {
            apply_patch(target.entry(key).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::Version;

    #[test]
    fn both_templates_install_the_same_version() {
        let (production, evaluation) = (of(Size::Production), of(Size::Evaluation));
        assert_ne!(production, evaluation);
        for field in ["tag", "profile"] {
            assert_eq!(production["spec"][field], evaluation["spec"][field], "{field}");
        }
        let version = Version::parse(production["spec"]["tag"].as_str().unwrap()).unwrap();
        assert_eq!(version.pre_release, "distroless");
    }
}
