//! Aggregated cluster roles: their rules are those of the roles that their selectors match.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    selector::LabelSelector,
    state::State,
    storage::{Place, TableId},
    verbs::internal_apply,
};

const CONTROLLER: &str = "clusterrole-aggregation-controller";

pub(super) fn table() -> TableId {
    TableId::new("rbac.authorization.k8s.io", "clusterroles")
}

// === impl State ===

impl State {
    /// Updates the rules of all aggregated roles, after some role changed.
    pub(super) fn aggregate_roles(&mut self, now: Timestamp) {
        let id = table();
        let Some(table) = self.storage.table(&id) else { return };
        let roles: Vec<(Place, Value)> = table
            .all()
            .map(|(key, image)| (Place { table: id.clone(), key: key.clone() }, image.bare()))
            .collect();
        for (place, role) in &roles {
            let selectors =
                role.pointer("/aggregationRule/clusterRoleSelectors").and_then(Value::as_array);
            let Some(selectors) = selectors else { continue };
            let united = rules(selectors, place, &roles);
            let present =
                role.get("rules").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            if present != united.as_slice() {
                let applied = json!({
                    "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                    "metadata": {"name": &*place.key}, "rules": united,
                });
                internal_apply(self, place, CONTROLLER, &applied, now);
            }
        }
    }
}

/// Returns the rules of all other roles that the selectors match, each distinct one once, in the
/// order of selectors and names.
fn rules(selectors: &[Value], own: &Place, roles: &[(Place, Value)]) -> Vec<Value> {
    let mut united: Vec<Value> = Vec::new();
    for selector in selectors.iter().map(LabelSelector::from_value) {
        for (_, role) in
            roles.iter().filter(|(place, role)| place != own && selector.matches(&labels(role)))
        {
            for rule in role.get("rules").and_then(Value::as_array).into_iter().flatten() {
                if !united.contains(rule) {
                    united.push(rule.clone());
                }
            }
        }
    }
    united
}

fn labels(role: &Value) -> BTreeMap<String, String> {
    let labels = role.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
    labels
        .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
        .collect()
}
