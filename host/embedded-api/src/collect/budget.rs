//! The status of disruption budgets: the number of pods that may be evicted, as the controller of
//! Kubernetes counts them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::contents::set_conditions;
use crate::{
    selector::LabelSelector,
    state::{State, time_text},
    storage::{Image, Place, TableId},
    verbs::internal_update,
};

/// The time, in seconds, for which an evicted pod that still exists counts as gone.
const DISRUPTION_SECONDS: i64 = 120;

/// The numbers of pods of a budget.
struct Count {
    expected: i64,
    desired: i64,
    healthy: i64,
}

pub(super) fn table() -> TableId {
    TableId::new("policy", "poddisruptionbudgets")
}

// === impl State ===

impl State {
    /// Returns the budgets of a namespace, which a change of a pod may affect.
    pub(crate) fn budgets_of(&self, namespace: &str) -> Vec<Place> {
        let id = table();
        let budgets =
            self.storage.table(&id).into_iter().flat_map(|table| table.list(namespace, None));
        budgets.map(|(key, _)| Place { table: id.clone(), key: key.clone() }).collect()
    }

    /// Counts the pods of a budget, and updates its status.
    pub(super) fn count_budget(&mut self, place: &Place, now: Timestamp) {
        let Some(budget) = self.storage.get(place).map(|image| image.bare()) else { return };
        let (namespace, _) = place.namespace_and_name();
        let pods = self.pods_of(&budget, namespace);
        let disrupted = disrupted(&budget, &pods, now);
        let count = self.count(&budget, &pods, &disrupted);
        let generation =
            budget.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
        let (allowed, reason, message) = match &count {
            Ok(Count { expected: 0, .. }) => (0, "InsufficientPods", String::new()),
            Ok(count) if count.healthy > count.desired => {
                (count.healthy - count.desired, "SufficientPods", String::new())
            }
            Ok(_) => (0, "InsufficientPods", String::new()),
            Err(why) => (0, "SyncFailed", why.clone()),
        };
        let condition = json!({
            "type": "DisruptionAllowed", "status": if allowed > 0 { "True" } else { "False" }, "reason": reason,
            "message": message, "observedGeneration": generation, "lastTransitionTime": time_text(now),
        });
        internal_update(self, place, "status", now, |budget| {
            let Some(fields) = budget.as_object_mut() else { return };
            let status = fields.entry("status").or_insert_with(|| json!({}));
            let Some(status) = status.as_object_mut() else { return };
            status.insert("disruptionsAllowed".to_owned(), Value::from(allowed));
            if let Ok(count) = &count {
                status.insert("currentHealthy".to_owned(), Value::from(count.healthy));
                status.insert("desiredHealthy".to_owned(), Value::from(count.desired));
                status.insert("expectedPods".to_owned(), Value::from(count.expected));
                status.insert("observedGeneration".to_owned(), Value::from(generation));
                status.remove("disruptedPods");
                if !disrupted.is_empty() {
                    status.insert("disruptedPods".to_owned(), Value::Object(disrupted));
                }
            }
            set_conditions(budget, &[condition]);
        });
    }

    /// Returns the pods that a budget selects.
    fn pods_of(&self, budget: &Value, namespace: &str) -> Vec<Value> {
        let Some(selector) =
            budget.pointer("/spec/selector").filter(|selector| selector.is_object())
        else {
            return Vec::new();
        };
        let selector = LabelSelector::from_value(selector);
        let pods = self
            .storage
            .table(&TableId::new("", "pods"))
            .into_iter()
            .flat_map(|table| table.list(namespace, None));
        let pods = pods.filter(|(_, pod)| selector.matches_by(|key| pod.head.labels.get(key)));
        pods.map(|(_, pod)| pod.bare()).collect()
    }

    fn count(
        &self,
        budget: &Value,
        pods: &[Value],
        disrupted: &Map<String, Value>,
    ) -> Result<Count, String> {
        let is_healthy = |pod: &&Value| {
            let name = pod.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
            !is_deleting(pod) && !disrupted.contains_key(name) && is_ready(pod)
        };
        let healthy = length(pods.iter().filter(is_healthy).count());
        let (expected, desired) =
            match (budget.pointer("/spec/maxUnavailable"), budget.pointer("/spec/minAvailable")) {
                (Some(most), _) if !most.is_null() => {
                    let expected = self.expected(pods)?;
                    (expected, (expected - of_total(most, expected)).max(0))
                }
                (_, Some(Value::Number(least))) => {
                    (length(pods.len()), least.as_i64().unwrap_or_default())
                }
                (_, Some(least)) => {
                    let expected = self.expected(pods)?;
                    (expected, of_total(least, expected))
                }
                _ => (length(pods.len()), 0),
            };
        Ok(Count { expected, desired, healthy })
    }

    /// Returns the number of pods that the controllers of these pods want.
    fn expected(&self, pods: &[Value]) -> Result<i64, String> {
        let mut controllers: BTreeMap<String, i64> = BTreeMap::new();
        for pod in pods {
            let name = pod.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
            let controller = self
                .controller_of(pod)
                .ok_or_else(|| format!("found no controller ref for pod {name:?}"))?;
            let controller = self.controller_of(&controller.bare()).unwrap_or(controller);
            let replicas = controller
                .bare()
                .pointer("/spec/replicas")
                .and_then(Value::as_i64)
                .unwrap_or_default();
            controllers.insert(controller.head.uid.clone(), replicas);
        }
        Ok(controllers.values().sum())
    }

    fn controller_of(&self, object: &Value) -> Option<std::sync::Arc<Image>> {
        let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array)?;
        let owner = owners
            .iter()
            .find(|owner| owner.get("controller").is_some_and(|controller| *controller == true))?;
        let place = self.storage.by_uid(owner.get("uid")?.as_str()?)?;
        self.storage.get(place).cloned()
    }
}

/// Returns the evicted pods that still exist, with the times of their evictions.
fn disrupted(budget: &Value, pods: &[Value], now: Timestamp) -> Map<String, Value> {
    let noted =
        budget.pointer("/status/disruptedPods").and_then(Value::as_object).into_iter().flatten();
    let counts = |name: &str, time: &Value| {
        let time = time.as_str().and_then(|time| time.parse::<Timestamp>().ok());
        let is_recent =
            time.is_some_and(|time| now.as_second() - time.as_second() < DISRUPTION_SECONDS);
        let pod = pods
            .iter()
            .find(|pod| pod.pointer("/metadata/name").and_then(Value::as_str) == Some(name));
        is_recent && pod.is_some_and(|pod| !is_deleting(pod))
    };
    noted
        .filter(|(name, time)| counts(name, time))
        .map(|(name, time)| (name.clone(), time.clone()))
        .collect()
}

fn is_deleting(pod: &Value) -> bool {
    pod.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null())
}

/// Returns whether the condition `Ready` of a pod is true.
pub(crate) fn is_ready(pod: &Value) -> bool {
    let conditions =
        pod.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    conditions.into_iter().any(|condition| {
        let has = |key: &str, text: &str| condition.get(key).and_then(Value::as_str) == Some(text);
        has("type", "Ready") && has("status", "True")
    })
}

/// Returns a number, or a share of the total, rounded up.
fn of_total(value: &Value, total: i64) -> i64 {
    match value {
        Value::Number(number) => number.as_i64().unwrap_or_default(),
        Value::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or_default();
            (percent * total + 99) / 100
        }
        _ => 0,
    }
}

fn length(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
