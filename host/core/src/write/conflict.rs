//! Conflicts with other field managers: the fields that are taken from them, and how often.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    time::Duration,
};

use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use crate::{
    api::Refusal,
    applied_fields::digest,
    contract::{ObjectRef, display_ref},
};

/// The number of times that one field is taken from one manager within [`TAKINGS_PERIOD`] before we
/// back off.
pub const MAX_TAKINGS: usize = 5;
/// The period in which takings are counted.
pub const TAKINGS_PERIOD: Duration = Duration::from_mins(10);
/// The fields that are counted for the processors of one namespace: a real conflict is about few.
const MAX_TAKEN_FIELDS: usize = 1 << 14;

/// A field that another manager holds with another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Conflict {
    pub(super) field: String,
    pub(super) manager: String,
}

/// The forced takings within [`TAKINGS_PERIOD`], by namespace of the Processor: others neither fill
/// its part nor are locked for longer by it.
#[derive(Debug, Default)]
pub(super) struct Takings(Mutex<BTreeMap<String, HashMap<u128, VecDeque<Instant>>>>);

/// The reason why fields are not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NotTaken {
    /// This one was taken too often.
    TooOften(Conflict),
    /// The processors of the namespace have taken as many fields as are counted.
    TooMany,
}

impl Takings {
    /// Counts a forced taking of these fields for a Processor's namespace. Fails if one of them was
    /// taken too often, or if too many fields would be counted, and then counts none.
    pub(super) fn take(
        &self,
        namespace: &str,
        object: &ObjectRef,
        conflicts: &[Conflict],
    ) -> Result<(), NotTaken> {
        let now = Instant::now();
        let is_over = |taken: &Instant| now.duration_since(*taken) >= TAKINGS_PERIOD;
        let object = display_ref(object);
        let taking =
            |Conflict { field, manager }: &Conflict| digest(&json!([object, field, manager]));
        let mut all = self.0.lock();
        let takings = all.entry(namespace.to_owned()).or_default();
        if takings.len() + conflicts.len() > MAX_TAKEN_FIELDS {
            takings.retain(|_, times| times.back().is_some_and(|last| !is_over(last)));
        }
        for conflict in conflicts {
            if let Some(times) = takings.get_mut(&taking(conflict)) {
                times.retain(|time| !is_over(time));
                if times.len() >= MAX_TAKINGS {
                    return Err(NotTaken::TooOften(conflict.clone()));
                }
            }
        }
        if takings.len() + conflicts.len() > MAX_TAKEN_FIELDS {
            return Err(NotTaken::TooMany);
        }
        for conflict in conflicts {
            takings.entry(taking(conflict)).or_default().push_back(now);
        }
        Ok(())
    }
}

/// Returns the conflicts that a 409 names; empty if the 409 has another reason.
pub(super) fn conflicts(refusal: &Refusal) -> Vec<Conflict> {
    let causes = refusal
        .causes
        .iter()
        .filter(|cause| refusal.code == 409 && cause.reason == "FieldManagerConflict");
    causes
        .map(|cause| Conflict {
            field: cause.field.clone(),
            manager: manager_in(&cause.message).unwrap_or_else(|| cause.message.clone()),
        })
        .collect()
}

/// Parses the manager in `conflict with "kubectl-edit" using v1`, quoted as Go does.
fn manager_in(message: &str) -> Option<String> {
    let quoted = message.get(message.find('"')?..)?;
    serde_json::Deserializer::from_str(quoted).into_iter::<String>().next()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{api::Cause, contract::Kind, fixture::object_ref};

    fn object() -> ObjectRef {
        let kind = Kind::home("", "v1", "ConfigMap");
        object_ref(kind, Some("a"), "n")
    }

    fn conflict(field: &str) -> Conflict {
        Conflict { field: field.into(), manager: "kubectl-edit".into() }
    }

    fn take(takings: &Takings, namespace: &str, fields: &[&str]) -> Result<(), NotTaken> {
        let conflicts: Vec<Conflict> = fields.iter().map(|field| conflict(field)).collect();
        takings.take(namespace, &object(), &conflicts)
    }

    #[test]
    fn the_causes_of_a_conflict_name_field_and_manager() {
        let cause = |message: &str| Cause {
            reason: "FieldManagerConflict".into(),
            field: ".data.a".into(),
            message: message.into(),
        };
        let refusal = Refusal {
            code: 409,
            causes: vec![cause(
                "conflict with \"a \\\"b\\\"\" with subresource \"status\" using v1",
            )],
            ..Refusal::default()
        };
        assert_eq!(
            conflicts(&refusal),
            [Conflict { field: ".data.a".into(), manager: "a \"b\"".into() }]
        );
        assert_eq!(conflicts(&Refusal { code: 409, ..Refusal::default() }), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_field_is_taken_five_times_in_ten_minutes_and_again_when_they_are_over() {
        let takings = Takings::default();
        for _ in 0..MAX_TAKINGS {
            take(&takings, "a", &[".data.a"]).unwrap();
            tokio::time::advance(Duration::from_mins(1)).await;
        }
        assert_eq!(
            take(&takings, "a", &[".data.b", ".data.a"]),
            Err(NotTaken::TooOften(conflict(".data.a")))
        );
        take(&takings, "a", &[".data.b"]).unwrap();
        tokio::time::advance(Duration::from_mins(5)).await;
        take(&takings, "a", &[".data.a"]).unwrap();
        take(&takings, "a", &[".data.a"]).unwrap_err();
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_that_takes_many_fields_takes_none_of_the_places_of_others() {
        let takings = Takings::default();
        let fields: Vec<String> = (0..MAX_TAKEN_FIELDS).map(|at| format!(".data.{at}")).collect();
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        take(&takings, "a", &fields).unwrap();
        assert_eq!(take(&takings, "a", &[".data.more"]), Err(NotTaken::TooMany));
        take(&takings, "b", &[".data.more"]).unwrap();
        tokio::time::advance(TAKINGS_PERIOD).await;
        take(&takings, "a", &[".data.more"]).unwrap();
        assert_eq!(takings.0.lock()["a"].len(), 1, "outdated ones are dropped");
    }
}
