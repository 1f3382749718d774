//! Eviction: the deletion of a pod that disruption budgets may forbid.

use serde_json::{Value, json};

use super::{Call, delete::eviction_options, metadata::text};
use crate::{
    Cause, Failure,
    answer::Answer,
    collect::{Deletion, is_ready},
    selector::LabelSelector,
    state::{State, time_text},
    storage::{Image, Place, TableId},
};

const REFUSED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// Evicts a pod.
pub(super) fn create(call: &mut Call<'_>) -> Result<Answer, Failure> {
    let (eviction, options) = eviction_options(call)?;
    if text(&eviction, "name") != call.path.name {
        return Err(Failure::bad_request("name in URL does not match name in Eviction object"));
    }
    let place = call.place();
    let mut state = call.shared.state.write();
    let Some(image) = state.storage.get(&place).cloned() else {
        return Err(Failure::not_found(call.named(&call.path.name)));
    };
    let pod = image.bare();
    let phase = pod.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
    let is_free = image.head.is_deleting() || matches!(phase, "Pending" | "Succeeded" | "Failed");
    if !is_free {
        let budgets = budgets(&state, &image);
        match budgets.as_slice() {
            [] => {}
            [budget] => take_disruption(&mut state, budget, &pod, options.dry_run, call)?,
            _ => {
                let text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
                return Err(Failure::unclassified(text));
            }
        }
    }
    let deletion = Deletion { resource: call.resource, options: &options, now: call.now };
    state.delete(&place, &deletion)?;
    state.settle(call.now);
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Ok(Answer::document(201, status))
}

/// Returns the budgets that select a pod.
fn budgets(state: &State, pod: &Image) -> Vec<Place> {
    let id = TableId::new("policy", "poddisruptionbudgets");
    let Some(table) = state.storage.table(&id) else { return Vec::new() };
    let budgets = table.list(pod.head.namespace(), None).filter(|(_, budget)| {
        let budget = budget.bare();
        let selector = budget.pointer("/spec/selector").filter(|selector| !selector.is_null());
        selector.is_some_and(|selector| {
            LabelSelector::from_value(selector).matches_by(|key| pod.head.labels.get(key))
        })
    });
    budgets.map(|(key, _)| Place { table: id.clone(), key: key.clone() }).collect()
}

/// Counts one disruption of a budget; fails if the budget allows none.
fn take_disruption(
    state: &mut State,
    place: &Place,
    pod: &Value,
    dry_run: bool,
    call: &Call<'_>,
) -> Result<(), Failure> {
    let Some(image) = state.storage.get(place).cloned() else { return Ok(()) };
    let budget = image.bare();
    let number =
        |pointer: &str| budget.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
    let name = &image.head.name;
    if evicts_unready(&budget, pod) {
        return Ok(());
    }
    if number("/status/observedGeneration") < number("/metadata/generation") {
        let text = format!("The disruption budget {name} is still being processed by the server.");
        return Err(refused(text, Some(10)));
    }
    let allowed = number("/status/disruptionsAllowed");
    if allowed <= 0 {
        let (needed, healthy) =
            (number("/status/desiredHealthy"), number("/status/currentHealthy"));
        let text = format!(
            "The disruption budget {name} needs {needed} healthy pods and has {healthy} currently"
        );
        return Err(refused(text, None));
    }
    if dry_run {
        return Ok(());
    }
    let now = time_text(call.now);
    let pod_name = call.path.name.clone();
    super::internal_update(state, place, "status", call.now, |budget| {
        let Some(status) = budget.get_mut("status").and_then(Value::as_object_mut) else { return };
        status.insert("disruptionsAllowed".to_owned(), Value::from(allowed - 1));
        let pods = status.entry("disruptedPods").or_insert_with(|| json!({}));
        if let Some(pods) = pods.as_object_mut() {
            pods.insert(pod_name, Value::from(now));
        }
    });
    Ok(())
}

/// Returns whether the budget allows the eviction of a pod because the pod is not ready.
fn evicts_unready(budget: &Value, pod: &Value) -> bool {
    if is_ready(pod) {
        return false;
    }
    if budget
        .pointer("/spec/unhealthyPodEvictionPolicy")
        .is_some_and(|policy| policy == "AlwaysAllow")
    {
        return true;
    }
    let number =
        |pointer: &str| budget.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
    let (healthy, desired) = (number("/status/currentHealthy"), number("/status/desiredHealthy"));
    healthy >= desired && desired > 0
}

fn refused(why: String, retry_after: Option<u64>) -> Failure {
    let cause = Cause { reason: "DisruptionBudget".to_owned(), message: why, field: String::new() };
    Failure::too_many_requests(REFUSED, retry_after).with_causes(vec![cause])
}
