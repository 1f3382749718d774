//! The status of the Istio resource.

use mortise_sdk::{
    Host,
    object::{Condition, ConditionStatus},
    status::set_condition,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Istio, schema};

/// The state of the installation.
///
/// The schema requires no field: several processors write conditions, each its own, and only one
/// of them writes the state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct IstioStatus {
    /// The state of the module.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "State")]
    pub state: Option<State>,
    /// The state in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The conditions, one of each type.
    #[schemars(with = "Vec<ConditionSchema>", transform = schema::conditions)]
    pub conditions: Vec<Condition>,
}

/// The state of the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum State {
    /// The resource is being reconciled.
    Processing,
    /// The resource is being deleted.
    Deleting,
    /// Istio is as it was asked for.
    Ready,
    /// An error that will not pass by itself.
    Error,
    /// Somebody has to do something.
    Warning,
}

impl IstioStatus {
    /// Returns the conditions of these types: the given ones, which speak of the resource as it is
    /// now, and the others as they were. The clock is asked only if a condition changes.
    pub fn of_conditions(
        types: &[&str],
        given: impl IntoIterator<Item = Condition>,
        istio: &Istio,
        host: &Host,
    ) -> Self {
        let former = istio.status.iter().flat_map(|status| &status.conditions);
        let is_own = |condition: &&Condition| types.contains(&condition.condition_type.as_str());
        let mut conditions: Vec<Condition> = former.filter(is_own).cloned().collect();
        for mut condition in given {
            condition.observed_generation = istio.metadata.generation;
            set_condition(&mut conditions, condition, host);
        }
        Self { conditions, ..Self::default() }
    }
}

/// The schema of a condition, as Kubernetes declares it.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[expect(dead_code, reason = "only its schema is used")]
struct ConditionSchema {
    /// The last time at which the status changed.
    #[schemars(extend("format" = "date-time"))]
    last_transition_time: String,
    /// The message for people.
    #[schemars(length(max = 32768))]
    message: String,
    /// The generation that the condition speaks of.
    #[schemars(range(min = 0))]
    observed_generation: Option<i64>,
    /// The reason, in one word in camel case.
    #[schemars(transform = schema::reason)]
    reason: String,
    /// The status: `True`, `False` or `Unknown`.
    status: ConditionStatus,
    /// The type of the condition.
    #[schemars(rename = "type", transform = schema::condition_type)]
    condition_type: String,
}
