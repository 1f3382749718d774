//! Statuses and conditions whose times change only with their other fields.
//!
//! A run that asks the clock is never skipped later, and a status with the time of every run is
//! written in every run. So both functions ask the clock only if another field has changed.

use crate::{Host, object::Condition};

/// Returns `next` with the time of `previous` if the two are otherwise equal, else with the time of
/// this call.
///
/// `time` returns the field that holds the time: `|status| &mut status.last_processed_time`.
pub fn stamp<S: PartialEq>(
    previous: Option<S>,
    mut next: S,
    time: impl Fn(&mut S) -> &mut Option<String>,
    host: &Host,
) -> S {
    if let Some(mut previous) = previous {
        let former = time(&mut previous).clone();
        if former.is_some() {
            *time(&mut next) = former;
            if next == previous {
                return next;
            }
        }
    }
    *time(&mut next) = Some(host.now_text());
    next
}

/// Sets a condition in a list of conditions, where it replaces the one of the same type.
///
/// `last_transition_time` changes only when the condition's status does.
pub fn set_condition(conditions: &mut Vec<Condition>, mut condition: Condition, host: &Host) {
    let former =
        conditions.iter_mut().find(|other| other.condition_type == condition.condition_type);
    condition.last_transition_time = match &former {
        Some(former)
            if former.status == condition.status && !former.last_transition_time.is_empty() =>
        {
            former.last_transition_time.clone()
        }
        _ => host.now_text(),
    };
    match former {
        Some(former) => *former = condition,
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{object::ConditionStatus, testing::Stub};

    #[derive(Debug, Clone, PartialEq)]
    struct Status {
        state: &'static str,
        time: Option<String>,
    }

    #[test]
    fn the_time_changes_only_with_the_rest() {
        let old = Status { state: "Ready", time: Some("2020-01-01T00:00:00Z".to_owned()) };
        let next = |state| Status { state, time: None };
        let cases = [
            ("same", Some(old.clone()), "Ready", "2020-01-01T00:00:00Z", 0),
            ("other state", Some(old.clone()), "Error", "2026-01-01T00:00:00Z", 1),
            ("no status before", None, "Ready", "2026-01-01T00:00:00Z", 1),
            (
                "no time before",
                Some(Status { time: None, ..old }),
                "Ready",
                "2026-01-01T00:00:00Z",
                1,
            ),
        ];
        for (case, previous, state, time, asked) in cases {
            let stub = Stub::new().at("2026-01-01T00:00:00Z");
            let status = stamp(previous, next(state), |status| &mut status.time, &stub.host());
            assert_eq!(status.time.as_deref(), Some(time), "{case}");
            assert_eq!(stub.asked_clock(), asked, "{case}");
        }
    }

    #[test]
    fn a_condition_keeps_its_time_while_its_status_stays() {
        let stub = Stub::new().at("2026-01-01T00:00:00Z");
        let mut former = Condition::new("Ready", ConditionStatus::True, "Done", "all of it");
        former.last_transition_time = "2020-01-01T00:00:00Z".to_owned();
        let mut conditions = vec![former];

        set_condition(
            &mut conditions,
            Condition::new("Ready", ConditionStatus::True, "Done", "nearly"),
            &stub.host(),
        );
        assert_eq!(
            (conditions[0].message.as_str(), conditions[0].last_transition_time.as_str()),
            ("nearly", "2020-01-01T00:00:00Z")
        );
        assert_eq!(stub.asked_clock(), 0);

        set_condition(
            &mut conditions,
            Condition::new("Ready", ConditionStatus::False, "Broken", ""),
            &stub.host(),
        );
        set_condition(
            &mut conditions,
            Condition::new("Other", ConditionStatus::Unknown, "New", ""),
            &stub.host(),
        );
        let times: Vec<&str> =
            conditions.iter().map(|condition| condition.last_transition_time.as_str()).collect();
        assert_eq!(times, ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"]);
    }
}
