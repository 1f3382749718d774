//! The quality of service of pods.

use serde_json::Value;

use super::{
    edit::{at, is_empty, items},
    quantity::Quantity,
};

/// Returns the quality of service: `Guaranteed` if all is limited to its requests, `BestEffort` if
/// nothing is requested.
pub(crate) fn quality(spec: &Value) -> &'static str {
    let containers = || containers(spec);
    let counted = |amounts: &Value| {
        ["cpu", "memory"].iter().any(|name| nanos(&amounts[name]).is_some_and(|nanos| nanos > 0))
    };
    let bare = containers().all(|container| {
        let resources = &container["resources"];
        !counted(&resources["limits"]) && !counted(&resources["requests"])
    });
    if bare {
        return "BestEffort";
    }
    let guaranteed = containers().all(|container| {
        let (limits, requests) =
            (at(container, &["resources", "limits"]), at(container, &["resources", "requests"]));
        ["cpu", "memory"].iter().all(|name| {
            let limit = nanos(&limits[name]);
            limit.is_some_and(|limit| limit > 0)
                && (is_empty(&requests[name]) || nanos(&requests[name]) == limit)
        })
    });
    if guaranteed { "Guaranteed" } else { "Burstable" }
}

/// Returns the containers and init containers of a pod.
pub(crate) fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    ["containers", "initContainers"].into_iter().flat_map(|list| items(&spec[list]))
}

fn nanos(amount: &Value) -> Option<i128> {
    Quantity::parse(amount.as_str()?).map(Quantity::nanos)
}
