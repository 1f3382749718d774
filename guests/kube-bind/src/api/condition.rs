//! Conditions with a severity, and their summary `Ready`.

use mortise_sdk::Host;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The type of the summary.
pub const READY: &str = "Ready";

/// The longest message; each of its characters takes at most ten bytes.
const MAX_MESSAGE_CHARACTERS: usize = 3_000;

/// A condition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["lastTransitionTime", "status", "type"]))]
pub struct Condition {
    /// The type, in camel case.
    #[serde(rename = "type")]
    pub condition_type: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// The weight of a condition that is False: `Error`, `Warning` or `Info`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub severity: String,
    /// The time of the last change.
    #[schemars(extend("format" = "date-time"))]
    pub last_transition_time: String,
    /// The reason, one word in camel case.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The message for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// The weight of a condition that is False.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// A person must act.
    Error,
    /// A fault that does not stop the rest.
    Warning,
    /// A state that is expected to pass.
    Info,
}

impl Severity {
    fn name(self) -> &'static str {
        match self {
            Self::Error => "Error",
            Self::Warning => "Warning",
            Self::Info => "Info",
        }
    }
}

// === impl Condition ===

impl Condition {
    /// Creates a condition that is True.
    pub fn is_true(condition_type: &str) -> Self {
        Self {
            condition_type: condition_type.to_owned(),
            status: "True".to_owned(),
            ..Self::default()
        }
    }

    /// Creates a condition that is False.
    pub fn is_false(
        condition_type: &str,
        severity: Severity,
        reason: &str,
        message: impl Into<String>,
    ) -> Self {
        Self {
            condition_type: condition_type.to_owned(),
            status: "False".to_owned(),
            severity: severity.name().to_owned(),
            reason: reason.to_owned(),
            message: printable(&message.into()),
            ..Self::default()
        }
    }

    /// Returns whether the condition is True.
    pub fn holds(&self) -> bool {
        self.status == "True"
    }

    /// Returns the rank of the group in which the condition counts for the summary: the worst
    /// first.
    fn rank(&self) -> u8 {
        match (self.status.as_str(), self.severity.as_str()) {
            ("False", "Error") => 0,
            ("False", "Warning") => 1,
            ("False", "Info") => 2,
            ("True", _) => 3,
            ("Unknown", _) => 4,
            // One that is False without a weight comes from somebody else.
            _ => 5,
        }
    }
}

/// Returns a message without characters that could command a terminal, cut to what a condition
/// holds: it may be the provider's.
fn printable(message: &str) -> String {
    let printable = message.chars().take(MAX_MESSAGE_CHARACTERS);
    let escaped = printable.flat_map(|of| {
        let is_unsafe = of.is_control() || matches!(of, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}');
        let (plain, escaped) = if is_unsafe { (None, Some(of.escape_default())) } else { (Some(of), None) };
        plain.into_iter().chain(escaped.into_iter().flatten())
    });
    escaped.collect()
}

/// Returns the condition of a type.
pub fn find<'a>(conditions: &'a [Condition], condition_type: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.condition_type == condition_type)
}

/// Returns whether the condition of a type is True.
pub fn holds(conditions: &[Condition], condition_type: &str) -> bool {
    find(conditions, condition_type).is_some_and(Condition::holds)
}

/// Sets conditions in a list, which is sorted then: `Ready` first, the others by type. The time of
/// a condition changes with any of its fields, and the clock is asked only then.
pub fn set(
    conditions: &mut Vec<Condition>,
    next: impl IntoIterator<Item = Condition>,
    host: &Host,
) {
    for mut condition in next {
        let former =
            conditions.iter_mut().find(|former| former.condition_type == condition.condition_type);
        if let Some(former) = &former {
            condition.last_transition_time.clone_from(&former.last_transition_time);
        }
        match former {
            Some(former) if *former == condition && !former.last_transition_time.is_empty() => {}
            Some(former) => {
                *former = Condition { last_transition_time: host.now_text(), ..condition }
            }
            None => {
                let last_transition_time = host.now_text();
                conditions.push(Condition { last_transition_time, ..condition });
            }
        }
    }
    conditions.sort_by(|a, b| {
        let key = |of: &Condition| (of.condition_type != READY, of.condition_type.clone());
        key(a).cmp(&key(b))
    });
}

/// Sets `Ready` to the summary of the other conditions, if there are any: the first by type of the
/// worst group.
pub fn summarize(conditions: &mut Vec<Condition>, host: &Host) {
    let others = conditions.iter().filter(|condition| condition.condition_type != READY);
    let worst = others.min_by_key(|condition| (condition.rank(), condition.condition_type.clone()));
    let Some(worst) = worst.cloned() else { return };
    let ready = if worst.holds() {
        Condition::is_true(READY)
    } else {
        let is_false = worst.status == "False";
        let severity = if is_false { worst.severity } else { String::new() };
        Condition { condition_type: READY.to_owned(), severity, ..worst }
    };
    set(conditions, [ready], host);
}

#[cfg(test)]
mod tests {
    use mortise_sdk::testing::Stub;

    use super::*;

    fn condition(condition_type: &str, status: &str, severity: &str) -> Condition {
        Condition {
            condition_type: condition_type.to_owned(),
            status: status.to_owned(),
            severity: severity.to_owned(),
            reason: format!("Of{condition_type}"),
            ..Condition::default()
        }
    }

    #[test]
    fn the_summary_is_the_first_of_the_worst_group() {
        let host = Stub::new().host();
        let cases = [
            ("all are True", vec![("B", "True", ""), ("A", "True", "")], "True//"),
            (
                "an error",
                vec![("A", "False", "Warning"), ("B", "False", "Error")],
                "False/Error/OfB",
            ),
            (
                "two errors",
                vec![("B", "False", "Error"), ("A", "False", "Error")],
                "False/Error/OfA",
            ),
            (
                "a warning",
                vec![("A", "False", "Info"), ("B", "False", "Warning")],
                "False/Warning/OfB",
            ),
            ("an info", vec![("A", "True", ""), ("B", "False", "Info")], "False/Info/OfB"),
            ("True is worse than Unknown", vec![("A", "Unknown", ""), ("B", "True", "")], "True//"),
            ("only Unknown", vec![("A", "Unknown", "Error")], "Unknown//OfA"),
            ("False without a severity", vec![("A", "False", ""), ("B", "True", "")], "True//"),
            (
                "Unknown is worse than that",
                vec![("A", "False", ""), ("B", "Unknown", "")],
                "Unknown//OfB",
            ),
            ("only that", vec![("A", "False", "")], "False//OfA"),
        ];
        for (case, others, expected) in cases {
            let mut conditions: Vec<Condition> = others
                .iter()
                .map(|(name, status, severity)| condition(name, status, severity))
                .collect();
            summarize(&mut conditions, &host);
            let ready = conditions.first().unwrap();
            assert_eq!(ready.condition_type, READY, "{case}");
            let found = format!("{}/{}/{}", ready.status, ready.severity, ready.reason);
            assert_eq!(found, expected, "{case}");
        }
    }

    #[test]
    fn no_condition_has_no_summary() {
        let mut conditions = Vec::new();
        summarize(&mut conditions, &Stub::new().host());
        assert_eq!(conditions, []);
    }

    #[test]
    fn conditions_are_sorted_and_keep_their_time_while_they_stay_the_same() {
        let stub = Stub::new().at("2026-01-01T00:00:00Z");
        let old = |name: &str| Condition {
            last_transition_time: "2020-01-01T00:00:00Z".to_owned(),
            ..Condition::is_true(name)
        };
        let mut conditions = vec![old("Zealous"), old("Alive")];
        set(&mut conditions, [Condition::is_true("Zealous")], &stub.host());
        assert_eq!(
            (conditions.clone(), stub.asked_clock()),
            (vec![old("Alive"), old("Zealous")], 0)
        );
        let changed = Condition::is_false("Zealous", Severity::Info, "Lazy", "is lazy");
        set(&mut conditions, [changed, Condition::is_true(READY)], &stub.host());
        let shown: Vec<(&str, &str)> = conditions
            .iter()
            .map(|condition| {
                (condition.condition_type.as_str(), condition.last_transition_time.as_str())
            })
            .collect();
        let now = "2026-01-01T00:00:00Z";
        assert_eq!(shown, [("Ready", now), ("Alive", "2020-01-01T00:00:00Z"), ("Zealous", now)]);
    }
}
