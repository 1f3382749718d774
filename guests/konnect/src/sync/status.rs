//! The status of an object: what is stored, and what the run found.

use mortise_sdk::{
    Host,
    object::{Condition, ConditionStatus},
    status::set_condition,
};
use serde_json::{Map, Value};

use crate::kind::Entity;

/// The condition that says whether the entity is as the object wants it.
pub(crate) const PROGRAMMED: &str = "Programmed";

/// Reasons of conditions that several modules set.
pub(crate) mod reason {
    pub(crate) const PROGRAMMED: &str = "Programmed";
    pub(crate) const VALID: &str = "Valid";
    pub(crate) const INVALID: &str = "Invalid";
    pub(crate) const NOT_PROGRAMMED: &str = "NotProgrammed";
    pub(crate) const NOT_PERMITTED: &str = "RefNotPermitted";
    pub(crate) const FAILED_TO_CREATE: &str = "FailedToCreate";
    pub(crate) const FAILED_TO_UPDATE: &str = "FailedToUpdate";
    pub(crate) const FAILED_TO_ADOPT: &str = "FailedToAdopt";
    pub(crate) const OPERATION_FAILED: &str = "KonnectAPIOpFailed";
    pub(crate) const FALSE_EXISTS: &str = "ConditionWithStatusFalseExists";
}

/// The most bytes of a message: an answer of the API is as long as the API likes.
const MAX_MESSAGE: usize = 4 << 10;

/// The status of an object.
#[derive(Clone)]
pub(crate) struct Status<'a> {
    host: &'a Host,
    entity: &'static Entity,
    generation: Option<i64>,
    conditions: Vec<Condition>,
    /// The object with everything of its status but the conditions.
    object: Value,
}

// === impl Status ===

impl<'a> Status<'a> {
    /// Reads the status of an object.
    pub(crate) fn of(entity: &'static Entity, object: &Value, host: &'a Host) -> Self {
        let generation = object.pointer("/metadata/generation").and_then(Value::as_i64);
        let fields = object.get("status").and_then(Value::as_object);
        let mut fields = fields.cloned().unwrap_or_default();
        let stored = fields.remove("conditions").unwrap_or_default();
        let conditions = conditions(&stored);
        let object = Map::from_iter([("status".to_owned(), Value::Object(fields))]);
        Self { host, entity, generation, conditions, object: Value::Object(object) }
    }

    /// Sets a condition for the present generation.
    pub(crate) fn set(
        &mut self,
        condition: &str,
        status: impl Into<ConditionStatus>,
        reason: &str,
        message: impl Into<String>,
    ) {
        let mut message = message.into();
        truncate(&mut message);
        let mut condition = Condition::new(condition, status.into(), reason, message);
        condition.observed_generation = self.generation;
        set_condition(&mut self.conditions, condition, self.host);
    }

    /// Sets `Programmed` to False because another condition is.
    pub(crate) fn set_false_exists(&mut self) {
        let message = "Some conditions have status set to False";
        self.set(PROGRAMMED, false, reason::FALSE_EXISTS, message);
    }

    /// Makes a condition one of the present generation, if there is one.
    pub(crate) fn confirm(&mut self, condition: &str) {
        let mut conditions = self.conditions.iter_mut();
        let held = conditions.find(|other| other.condition_type == condition);
        if let Some(held) = held {
            held.observed_generation = self.generation;
        }
    }

    /// Removes a condition.
    pub(crate) fn remove(&mut self, condition: &str) {
        self.conditions.retain(|other| other.condition_type != condition);
    }

    /// Returns whether a condition is True, of whatever generation.
    pub(crate) fn is_true(&self, condition: &str) -> bool {
        let is = |other: &Condition| other.condition_type == condition;
        self.conditions
            .iter()
            .find(|other| is(other))
            .is_some_and(|other| other.status == ConditionStatus::True)
    }

    /// Returns the message of a condition.
    pub(crate) fn message(&self, condition: &str) -> Option<String> {
        let mut conditions = self.conditions.iter();
        let found = conditions.find(|other| other.condition_type == condition)?;
        Some(found.message.clone())
    }

    /// Returns whether the present generation is programmed.
    pub(crate) fn is_programmed(&self) -> bool {
        self.conditions.iter().any(|condition| {
            condition.condition_type == PROGRAMMED
                && condition.status == ConditionStatus::True
                && condition.observed_generation == self.generation
        })
    }

    /// Returns whether `Programmed` is False because another condition was.
    pub(crate) fn is_hidden(&self) -> bool {
        let is = |of: &&Condition| of.condition_type == PROGRAMMED;
        self.conditions.iter().find(is).is_some_and(|of| of.reason == reason::FALSE_EXISTS)
    }

    /// Returns an ID; `None` if it is absent or empty.
    pub(crate) fn id(&self, field: &str) -> Option<&str> {
        self.entity.id(&self.object, field)
    }

    /// Sets the value at the place of an ID, or removes it.
    pub(crate) fn set_field(&mut self, field: &str, value: Option<Value>) {
        let path = self.entity.id_path(field);
        let Some((above, last)) = path.rsplit_once('.') else { return };
        let mut place = &mut self.object;
        for step in above.split('.') {
            let Some(map) = place.as_object_mut() else { return };
            place = map.entry(step).or_insert_with(|| Value::Object(Map::new()));
        }
        let Some(map) = place.as_object_mut() else { return };
        match value {
            Some(value) => drop(map.insert(last.to_owned(), value)),
            None => drop(map.remove(last)),
        }
    }

    /// Sets an ID, or removes it.
    pub(crate) fn set_id(&mut self, field: &str, id: Option<&str>) {
        self.set_field(field, id.map(Value::from));
    }

    /// Returns the status to write.
    pub(crate) fn to_json(&self) -> Value {
        let fields = self.object.get("status").and_then(Value::as_object);
        let mut status = fields.cloned().unwrap_or_default();
        status.retain(|_, value| !value.as_object().is_some_and(Map::is_empty));
        if !self.conditions.is_empty() {
            let conditions = serde_json::to_value(&self.conditions).unwrap_or_default();
            status.insert("conditions".to_owned(), conditions);
        }
        Value::Object(status)
    }
}

/// Reads a list of conditions. Those that do not parse are left out.
fn conditions(list: &Value) -> Vec<Condition> {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(|one| serde_json::from_value(one.clone()).ok()).collect()
}

/// Returns whether a condition of an object is True.
pub(crate) fn is_true(object: &Value, condition: &str) -> bool {
    find(object, condition).is_some_and(|found| found.status == ConditionStatus::True)
}

/// Returns a condition of an object.
pub(crate) fn find(object: &Value, condition: &str) -> Option<Condition> {
    let list = object.pointer("/status/conditions")?;
    conditions(list).into_iter().find(|other| other.condition_type == condition)
}

/// Cuts a message to the bytes that it may have here.
fn truncate(message: &mut String) {
    if message.len() > MAX_MESSAGE {
        let end = (0..=MAX_MESSAGE - 3).rev().find(|end| message.is_char_boundary(*end));
        message.truncate(end.unwrap_or_default());
        message.push_str("...");
    }
}

#[cfg(test)]
mod tests {
    use mortise_sdk::testing::Stub;
    use serde_json::json;

    use super::*;
    use crate::kind;

    #[test]
    fn ids_are_kept_where_the_kind_keeps_them() {
        let host = Stub::new().host();
        let cases = [
            ("KongService", "controlPlaneID", json!({"konnect": {"controlPlaneID": "x"}})),
            ("KonnectGatewayControlPlane", "id", json!({"id": "x"})),
            ("KonnectConfigStore", "controlPlaneID", json!({"controlPlaneID": {"id": "x"}})),
        ];
        for (kind, field, expected) in cases {
            let mut status = Status::of(kind::find(kind).unwrap(), &json!({}), &host);
            assert_eq!(status.to_json(), json!({}), "{kind}");
            status.set_id(field, Some("x"));
            assert_eq!((status.to_json(), status.id(field)), (expected, Some("x")), "{kind}");
            status.set_id(field, None);
            assert_eq!((status.to_json(), status.id(field)), (json!({}), None), "{kind}");
        }
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let mut message = "ä".repeat(MAX_MESSAGE);
        truncate(&mut message);
        assert!(message.len() <= MAX_MESSAGE && message.ends_with("ä..."), "{}", message.len());
    }
}
