//! Conflicts with other field managers: the fields that are taken from them, and how often.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    api::Refusal,
    contract::{ObjectRef, display_ref},
};

/// The number of times that one field is taken from one manager within [`TAKINGS_PERIOD`] before we
/// back off.
pub const MAX_TAKINGS: usize = 5;
/// The period in which takings are counted.
pub const TAKINGS_PERIOD: Duration = Duration::from_mins(10);

/// A field that another manager holds with another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Conflict {
    pub(super) field: String,
    pub(super) manager: String,
}

/// The forced takings within [`TAKINGS_PERIOD`].
#[derive(Debug, Default)]
pub(super) struct Takings(Mutex<HashMap<Taking, VecDeque<Instant>>>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Taking {
    object: String,
    field: String,
    manager: String,
}

impl Takings {
    /// Counts a forced taking of these fields. Fails with the first field that was taken too often,
    /// and then counts none.
    pub(super) fn take(&self, object: &ObjectRef, conflicts: &[Conflict]) -> Result<(), Conflict> {
        /// The number of entries above which outdated ones are removed; in between, the map grows
        /// by real conflicts only.
        const MAX_ENTRIES_BEFORE_CLEANUP: usize = 1024;
        let now = Instant::now();
        let is_over = |taken: &Instant| now.duration_since(*taken) >= TAKINGS_PERIOD;
        let taking = |conflict: &Conflict| Taking {
            object: display_ref(object),
            field: conflict.field.clone(),
            manager: conflict.manager.clone(),
        };
        let mut takings = self.0.lock();
        if takings.len() > MAX_ENTRIES_BEFORE_CLEANUP {
            takings.retain(|_, times| times.back().is_some_and(|last| !is_over(last)));
        }
        for conflict in conflicts {
            if let Some(times) = takings.get_mut(&taking(conflict)) {
                times.retain(|time| !is_over(time));
                if times.len() >= MAX_TAKINGS {
                    return Err(conflict.clone());
                }
            }
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
            takings.take(&object(), &[conflict(".data.a")]).unwrap();
            tokio::time::advance(Duration::from_mins(1)).await;
        }
        assert_eq!(
            takings.take(&object(), &[conflict(".data.b"), conflict(".data.a")]),
            Err(conflict(".data.a"))
        );
        takings.take(&object(), &[conflict(".data.b")]).unwrap();
        tokio::time::advance(Duration::from_mins(5)).await;
        takings.take(&object(), &[conflict(".data.a")]).unwrap();
        takings.take(&object(), &[conflict(".data.a")]).unwrap_err();
    }
}
