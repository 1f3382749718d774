//! The accepted differences, by the names under which the embedded API's crate documentation
//! explains them.

use serde_json::Value;

use super::kind::Kind;

/// A difference that is known and explained.
pub(super) struct Accepted {
    /// The name of the difference in the documentation of the crate.
    pub(super) name: &'static str,
    /// True if both servers hold the same objects in spite of the difference.
    pub(super) goes_on: bool,
    is_it: fn(&Answers<'_>) -> bool,
}

/// The servers' answers to the last of some requests.
pub(super) struct Answers<'a> {
    pub(super) kind: &'a Kind,
    /// The requests up to this one, as the steps of a scenario.
    pub(super) steps: &'a [Value],
    pub(super) embedded: &'a Value,
    pub(super) real: &'a Value,
}

/// The accepted differences.
pub(super) const ALL: &[Accepted] = &[
    Accepted { name: "patches that do not fit", goes_on: true, is_it: unfit_patch_quoted },
    Accepted { name: "words of the decoder", goes_on: true, is_it: decoder_put_otherwise },
    Accepted { name: "mixed lists", goes_on: false, is_it: mixed_list },
    Accepted { name: "empty is absent", goes_on: false, is_it: empty_and_absent_differ },
    Accepted { name: "writes of scales", goes_on: false, is_it: scale_written },
    Accepted { name: "repeated keys", goes_on: false, is_it: repeated_key },
];

#[test]
fn every_accepted_difference_is_documented_in_the_embedded_api() {
    let documentation = include_str!("../../../../host/embedded-api/src/lib.rs");
    for Accepted { name, .. } in ALL {
        assert!(
            documentation.contains(&format!("//! - **{name}**: ")),
            "`{name}` is not explained"
        );
    }
}

/// Returns the accepted difference that explains why two answers differ.
pub(super) fn find(answers: &Answers<'_>) -> Option<&'static Accepted> {
    ALL.iter().find(|accepted| (accepted.is_it)(answers))
}

// === impl Answers ===

impl Answers<'_> {
    pub(super) fn are_equal_without(&self, fields: &[&str]) -> bool {
        without(self.embedded, fields) == without(self.real, fields)
    }

    /// Returns the messages of two refusals with the same status and reason.
    fn messages(&self) -> Option<[&str; 2]> {
        let at = |answer: &Value, key: &str| answer["body"][key].clone();
        let is_alike = ["kind", "code", "reason"]
            .iter()
            .all(|key| at(self.embedded, key) == at(self.real, key));
        let is_refusal = self.real["body"]["kind"] == "Status" && is_alike;
        is_refusal.then_some(())?;
        Some([self.embedded["body"]["message"].as_str()?, self.real["body"]["message"].as_str()?])
    }
}

// === conditions of the differences ===

/// The message quotes the patched object with its fields in another order, or quotes the patch.
fn unfit_patch_quoted(answers: &Answers<'_>) -> bool {
    let is_about_patch =
        |message: &str| message.starts_with(" \"\" is invalid: patch: Invalid value: ");
    answers.messages().is_some_and(|messages| messages.into_iter().all(is_about_patch))
}

/// The message contains Go's names of types and nested fields, or another of several faults.
fn decoder_put_otherwise(answers: &Answers<'_>) -> bool {
    const WORDS: [&str; 2] = ["cannot be handled as a", "failed to c"];
    let is_decoder = |message: &str| WORDS.iter().any(|words| message.contains(words));
    answers.messages().is_some_and(|messages| messages.into_iter().all(is_decoder))
}

/// A strategic patch makes a list with elements of several types.
fn mixed_list(answers: &Answers<'_>) -> bool {
    let message = answers.real["body"]["message"].as_str().unwrap_or_default();
    message.starts_with("list element types are not identical: ")
}

/// Returns an answer without some fields.
fn without(value: &Value, left_out: &[&str]) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(key, _)| !left_out.contains(&key.as_str()));
            kept.map(|(key, value)| (key.clone(), without(value, left_out))).collect()
        }
        Value::Array(items) => items.iter().map(|item| without(item, left_out)).collect(),
        value => value.clone(),
    }
}

/// The request has an empty list or map in place of an absent one, and the real server treats that
/// as a change, or shows it in a message.
fn empty_and_absent_differ(answers: &Answers<'_>) -> bool {
    let concerned = ["ConfigMap", "Secret", "NetworkPolicy"].contains(&answers.kind.name.as_str());
    let is_immutable =
        |answer: &Value| answer["body"].to_string().contains("field is immutable when");
    let generation = |answer: &Value| answer["body"]["metadata"]["generation"].as_i64();
    let with_null = |text: &str| {
        ["[]", "{}"].iter().fold(text.to_owned(), |text, empty| {
            text.replace(&format!("Invalid value: {empty}"), "Invalid value: null")
        })
    };
    let is_shown = |[embedded, real]: [&str; 2]| with_null(embedded) == with_null(real);
    if answers.messages().is_some_and(is_shown) {
        return true;
    }
    concerned
        && answers.steps.last().is_some_and(|step| holds_empty(&step["body"]))
        && (is_immutable(answers.real) || generation(answers.real) > generation(answers.embedded))
}

/// The real server treats a write of a scale without an effect as a change.
fn scale_written(answers: &Answers<'_>) -> bool {
    let is_scale = |step: &Value| {
        step["path"].as_str().is_some_and(|path| path.contains("/scale")) && step["method"] != "GET"
    };
    let is_change = answers.steps.last().is_some_and(is_scale)
        && answers.are_equal_without(&["resourceVersion"]);
    is_change || (answers.steps.iter().any(is_scale) && only_replicas_are_disputed(answers))
}

/// Returns whether both servers refuse an apply with conflicts, and one of them reports all but
/// those about replicas.
fn only_replicas_are_disputed(answers: &Answers<'_>) -> bool {
    let others = |answer: &Value| -> Vec<Value> {
        let causes = answer["body"]["details"]["causes"].as_array().into_iter().flatten();
        causes.filter(|cause| cause["field"] != ".spec.replicas").cloned().collect()
    };
    answers.embedded["status"] == 409
        && answers.real["status"] == 409
        && others(answers.embedded) == others(answers.real)
}

/// A list with a key for its items holds two items with the same key.
fn repeated_key(answers: &Answers<'_>) -> bool {
    let asks = answers.steps.iter().any(|step| holds_name_twice(&step["body"]));
    answers.kind.name == "ServiceAccount"
        && (asks || holds_name_twice(&answers.real["body"]))
        && answers.are_equal_without(&["managedFields"])
}

fn holds_name_twice(value: &Value) -> bool {
    match value {
        Value::Array(items) => {
            let names: Vec<&Value> = items.iter().filter_map(|item| item.get("name")).collect();
            let is_twice =
                |(at, name): (usize, &&Value)| names.iter().skip(at + 1).any(|other| other == name);
            names.iter().enumerate().any(is_twice) || items.iter().any(holds_name_twice)
        }
        Value::Object(fields) => fields.values().any(holds_name_twice),
        _ => false,
    }
}

fn holds_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty() || items.iter().any(holds_empty),
        Value::Object(fields) => fields.is_empty() || fields.values().any(holds_empty),
        _ => false,
    }
}
