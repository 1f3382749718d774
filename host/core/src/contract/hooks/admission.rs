//! The decision about a request that a hook has reviewed: refusal, patch and warnings.

use std::collections::BTreeMap;

use json_patch::{
    AddOperation, Patch, PatchOperation, RemoveOperation, ReplaceOperation, jsonptr::PointerBuf,
};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Map, Value};

use super::{Answer, Denial, Hook, Operation, Review, Verdict};
use crate::{
    contract::{
        bounds::{ENTRY, MAX_LEVELS, account},
        display_kind, display_ref,
    },
    labels::LabelSelector,
};

/// Bytes that the pointers of a patch may take beside the account of the object.
const PATCH_BYTES: usize = 64 << 10;
/// Bytes of an index in a pointer.
const INDEX_BYTES: usize = 8;

/// The decision about a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The refusal; `None` if the request is allowed.
    pub denial: Option<Denial>,
    /// The changes of the object; `None` if it is stored as it is.
    pub patch: Option<Patch>,
    /// The warnings for the client of the request.
    pub warnings: Vec<String>,
}

/// The fields of metadata that a hook may change.
const OF_COMPONENT: [&str; 4] = ["labels", "annotations", "finalizers", "ownerReferences"];

/// The fields of an object that decide whether a hook reviews it.
#[derive(Deserialize)]
struct Object {
    metadata: Option<Metadata>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    labels: Option<BTreeMap<String, Value>>,
    deletion_timestamp: Option<IgnoredAny>,
}

/// Returns the bytes that are held at most while [`matches`] reads the objects of a request, of
/// which one at a time is parsed.
pub fn account_of_matching(hook: &Hook, review: &Review) -> usize {
    let reads = hook.changes || !hook.of.labels.is_empty();
    let objects = review.object.iter().chain(&review.old).filter(|_| reads);
    objects.map(|text| account(text.as_bytes(), MAX_LEVELS)).max().unwrap_or(0)
}

/// Returns the bytes that are held at most while [`decide`] makes the patch of an answer: both
/// objects, and the values and the pointers of the patch.
pub fn account_of_deciding(review: &Review, answer: &Answer) -> usize {
    let Verdict::Change(changed) = &answer.verdict else { return 0 };
    let [object, changed] = [review.object.as_deref().unwrap_or_default(), changed]
        .map(|text| account(text.as_bytes(), MAX_LEVELS));
    object + 3 * changed + PATCH_BYTES
}

/// Returns whether a hook reviews a request: the new or the old object matches the namespace and
/// the labels that the hook declares. A hook that changes objects does not review an object that is
/// being deleted, as its webhook configuration states.
///
/// # Errors
///
/// Fails for a request that the hook's configuration must not send to it: of another kind, another
/// version or another operation. Fails for an object that cannot be read: its labels are not known.
pub fn matches(hook: &Hook, review: &Review) -> Result<bool, String> {
    let (wanted, found) = (&hook.of.kind, &review.ref_.kind);
    if wanted != found {
        return Err(format!(
            "hook `{}` reviews {}, not {}",
            hook.name,
            display_kind(wanted),
            display_kind(found)
        ));
    }
    if !hook.operations.contains(&review.operation) {
        return Err(format!(
            "hook `{}` reviews {:?}, not {:?}",
            hook.name, hook.operations, review.operation
        ));
    }
    if hook.of.namespace.is_some() && hook.of.namespace != review.ref_.namespace {
        return Ok(false);
    }
    let labels = LabelSelector::parse(&hook.of.labels).map_err(|error| error.problem)?;
    if labels.is_empty() && !hook.changes {
        return Ok(true);
    }
    // An object that cannot be read is not taken for one that is not selected.
    let parse = |text: &String| {
        let no_object = |error| format!("an object cannot be read: {error}");
        serde_json::from_str::<Object>(text).map(|object| object.metadata).map_err(no_object)
    };
    let object = review.object.as_ref().map(parse).transpose()?.flatten();
    if hook.changes && object.as_ref().is_some_and(|object| object.deletion_timestamp.is_some()) {
        return Ok(false);
    }
    let is_selected = |object: Option<Metadata>| {
        let held = object.and_then(|object| object.labels).unwrap_or_default();
        labels.matches(|key| held.get(key).and_then(Value::as_str))
    };
    Ok(labels.is_empty()
        || review.object.is_some() && is_selected(object)
        || match review.old.as_ref() {
            Some(old) => is_selected(parse(old)?),
            None => false,
        })
}

/// Returns the decision about a request from a hook's answer. Differences between the object and
/// the answer's become a patch.
///
/// # Errors
///
/// Fails if the answer changes fields that the hook may not change.
pub fn decide(hook: &Hook, review: &Review, answer: Answer) -> Result<Decision, String> {
    let Answer { verdict, warnings } = answer;
    let (denial, patch) = match verdict {
        Verdict::Allow => (None, None),
        Verdict::Deny(denial) => (Some(denial), None),
        Verdict::Change(changed) => (None, patch(hook, review, &changed)?),
    };
    Ok(Decision { denial, patch, warnings })
}

fn patch(hook: &Hook, review: &Review, changed_text: &str) -> Result<Option<Patch>, String> {
    let refused = |problem: &str| {
        format!("hook `{}`: the answer for {} {problem}", hook.name, display_ref(&review.ref_))
    };
    if !hook.changes {
        return Err(refused("changes the object, which the hook does not declare"));
    }
    let object = review.object.as_ref().filter(|_| review.operation != Operation::Delete);
    let Some(object) = object else {
        return Err(refused("changes the object, which is about to be deleted"));
    };
    let parsed = |text: &str| {
        serde_json::from_str::<Value>(text)
            .map_err(|error| refused(&format!("is no JSON: {error}")))
    };
    let (object, changed) = (parsed(object)?, parsed(changed_text)?);
    for key in ["apiVersion", "kind"] {
        if object.get(key) != changed.get(key) {
            return Err(refused(&format!("changes {key}")));
        }
    }
    if let Some(key) = changed_metadata(&object, &changed) {
        return Err(refused(&format!(
            "changes metadata.{key}; of the metadata it may change {}",
            OF_COMPONENT.join(", ")
        )));
    }
    let mut left = account(changed_text.as_bytes(), MAX_LEVELS) + PATCH_BYTES;
    take_operations(Some(&object), Some(&changed), 0, &mut left);
    let patch = match (&object, &changed) {
        (Value::Object(object), Value::Object(changed)) if left == 0 => replacing(object, changed),
        _ => json_patch::diff(&object, &changed),
    };
    Ok((!patch.is_empty()).then_some(patch))
}

/// Takes the bytes of the operations of `json_patch::diff` off `left`, without their values. Each
/// holds its whole pointer, of which `pointer` bytes lead to these values.
fn take_operations(
    before: Option<&Value>,
    after: Option<&Value>,
    pointer: usize,
    left: &mut usize,
) {
    match (before, after) {
        _ if *left == 0 => {}
        (Some(Value::Object(before)), Some(Value::Object(after))) => {
            let removed = before.keys().filter(|key| !after.contains_key(*key));
            for key in after.keys().chain(removed) {
                // In a pointer, `~` and `/` take two bytes.
                let pointer = pointer + 1 + 2 * key.len();
                take_operations(before.get(key), after.get(key), pointer, left);
            }
        }
        (Some(Value::Array(before)), Some(Value::Array(after))) => {
            for index in 0..before.len().max(after.len()) {
                let pointer = pointer + INDEX_BYTES;
                take_operations(before.get(index), after.get(index), pointer, left);
            }
        }
        _ if before == after => {}
        _ => *left = left.saturating_sub(ENTRY + pointer),
    }
}

/// Returns a patch of whole fields of the object, with few and short pointers.
fn replacing(object: &Map<String, Value>, changed: &Map<String, Value>) -> Patch {
    let removed = object.keys().filter(|key| !changed.contains_key(*key));
    let differing =
        changed.keys().chain(removed).filter(|key| object.get(*key) != changed.get(*key));
    let operation = |key: &String| {
        let path = PointerBuf::from_tokens([key]);
        match changed.get(key).cloned() {
            None => PatchOperation::Remove(RemoveOperation { path }),
            Some(value) if object.contains_key(key) => {
                PatchOperation::Replace(ReplaceOperation { path, value })
            }
            Some(value) => PatchOperation::Add(AddOperation { path, value }),
        }
    };
    Patch(differing.map(operation).collect())
}

/// Returns a changed field of the metadata that must not change, if any.
fn changed_metadata(object: &Value, changed: &Value) -> Option<String> {
    let fields = |of| Value::get(of, "metadata").and_then(Value::as_object);
    let (before, after) = match (fields(object), fields(changed)) {
        (Some(before), Some(after)) => (before, after),
        (None, None) => return None,
        _ => return Some("*".to_owned()),
    };
    let keys = before.keys().chain(after.keys());
    let mut kept = keys.filter(|key| !OF_COMPONENT.contains(&key.as_str()));
    kept.find(|key| before.get(*key) != after.get(*key)).cloned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        contract::hooks::Otherwise,
        fixture::{all, labelled, reference},
    };

    fn hook() -> Hook {
        Hook {
            name: "mark".into(),
            of: all("Rule"),
            operations: vec![Operation::Create, Operation::Delete],
            changes: true,
            on_failure: Otherwise::Refuse,
            timeout: 5_000,
        }
    }

    fn rule() -> Value {
        let kind = all("Rule").kind;
        json!({
            "apiVersion": crate::contract::api_version(&kind), "kind": "Rule",
            "metadata": {"name": "a", "uid": "1"}, "spec": {"n": 1},
        })
    }

    fn review() -> Review {
        Review {
            hook: "mark".into(),
            operation: Operation::Create,
            ref_: reference("Rule", "a"),
            object: Some(rule().to_string()),
            old: None,
            user: "jane".into(),
            groups: Vec::new(),
            dry_run: false,
            config: String::new(),
        }
    }

    fn changed(change: impl FnOnce(&mut Value)) -> Answer {
        let mut object = rule();
        change(&mut object);
        Answer { verdict: Verdict::Change(object.to_string()), warnings: Vec::new() }
    }

    #[test]
    fn the_patch_turns_the_reviewed_object_into_the_answer() {
        let mut wanted = Value::Null;
        let answer = changed(|object| {
            object["metadata"]["annotations"] = json!({"a/b": "~c"});
            object["metadata"]["finalizers"] = json!(["f"]);
            object["spec"] = json!({"m": [1, 2]});
            wanted = object.clone();
        });
        let decision = decide(&hook(), &review(), answer).unwrap();
        let mut object = rule();
        json_patch::patch(&mut object, &decision.patch.unwrap()).unwrap();
        assert_eq!(object, wanted);
        let same = decide(&hook(), &review(), changed(|_| {})).unwrap();
        assert_eq!(same.patch, None, "an equal object needs no patch");
    }

    #[test]
    fn a_patch_of_many_long_pointers_replaces_whole_fields() {
        let long = "k".repeat(10_000);
        let mut wanted = Value::Null;
        let answer = changed(|object| {
            object["spec"] = json!({"n": 1, &long: vec![1; 1_000]});
            object["gone"] = json!(null);
            object["metadata"]["labels"] = json!({"a": "b"});
            wanted = object.clone();
        });
        let mut object = rule();
        object["spec"] = json!({"n": 1, &long: vec![0; 1_000]});
        object["old"] = json!([1]);
        let review = Review { object: Some(object.to_string()), ..review() };
        let most = account_of_deciding(&review, &answer);
        let patch = decide(&hook(), &review, answer).unwrap().patch.unwrap();
        let pointers: Vec<&str> = patch.0.iter().map(|of| of.path().as_str()).collect();
        assert_eq!(pointers, ["/gone", "/metadata", "/spec", "/old"]);
        assert!(serde_json::to_string(&patch).unwrap().len() < most);
        json_patch::patch(&mut object, &patch).unwrap();
        assert_eq!(object, wanted);
    }

    #[test]
    fn what_is_parsed_of_a_review_is_counted_with_its_entries() {
        let mut object = rule();
        object["spec"] = json!(vec![0; 10_000]);
        let old = Some(object.to_string());
        let review = Review { object: old.clone(), old, ..review() };
        let hook = hook();
        assert!((660_000..670_000).contains(&account_of_matching(&hook, &review)));
        let check = Hook { changes: false, ..hook };
        assert_eq!(account_of_matching(&check, &review), 0, "nothing is parsed");
        let answer = changed(|of| *of = object.clone());
        assert!(account_of_deciding(&review, &answer) > 4 * 660_000);
        let allow = Answer { verdict: Verdict::Allow, warnings: Vec::new() };
        assert_eq!(account_of_deciding(&review, &allow), 0);
    }

    type Change = fn(&mut Value);

    #[test]
    fn a_change_that_is_not_allowed_is_a_failure() {
        let error =
            |hook: &Hook, review: &Review, answer| decide(hook, review, answer).unwrap_err();
        let (hook, review) = (hook(), review());
        let changes: [(Change, &str); 5] = [
            (|of| of["kind"] = json!("Pod"), "changes kind"),
            (|of| of["apiVersion"] = json!("v9"), "changes apiVersion"),
            (|of| of["metadata"]["name"] = json!("b"), "changes metadata.name"),
            (|of| of["metadata"]["generateName"] = json!("b"), "changes metadata.generateName"),
            (|of| of["metadata"] = json!(null), "changes metadata.*"),
        ];
        for (change, expected) in changes {
            let message = error(&hook, &review, changed(change));
            assert!(message.contains(expected), "{expected}: {message}");
        }
        let quiet = Hook { changes: false, ..hook.clone() };
        let message = error(&quiet, &review, changed(|_| {}));
        assert!(message.contains("does not declare"), "{message}");
        let deletion = Review { operation: Operation::Delete, ..review };
        let message = error(&hook, &deletion, changed(|_| {}));
        assert!(message.contains("about to be deleted"), "{message}");
    }

    #[test]
    fn requests_that_the_hook_did_not_ask_for_are_told_apart() {
        let (hook, review) = (hook(), review());
        assert_eq!(matches(&hook, &review), Ok(true));
        let other = Review { ref_: reference("Pod", "a"), ..review.clone() };
        assert!(matches(&hook, &other).unwrap_err().contains("reviews Rule g/v1, not Pod g/v1"));
        let update = Review { operation: Operation::Update, ..review.clone() };
        assert!(matches(&hook, &update).unwrap_err().contains("not Update"));
        let labelled = Hook { of: labelled(all("Rule"), "a=b"), ..hook };
        assert_eq!(matches(&labelled, &review), Ok(false));
        let mut old = rule();
        old["metadata"]["labels"] = json!({"a": "b"});
        let replaced = Review { old: Some(old.to_string()), ..review };
        assert_eq!(matches(&labelled, &replaced), Ok(true), "its labels were taken away");
        let mut deep = rule();
        deep["metadata"]["labels"] = json!({"a": "b"});
        deep["spec"] = (0..200).fold(json!(0), |inner, _| json!([inner]));
        let deep = Review { object: Some(deep.to_string()), ..replaced };
        assert_eq!(matches(&labelled, &deep), Ok(true), "its depth lets it not past the hook");
        let broken = Review { object: Some("{".to_owned()), ..deep };
        let error = matches(&labelled, &broken).unwrap_err();
        assert!(error.contains("an object cannot be read"), "{error}");
    }

    #[test]
    fn a_hook_that_changes_objects_lets_those_go_that_are_being_deleted() {
        let mut deleted = rule();
        deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let review = Review { object: Some(deleted.to_string()), ..review() };
        assert_eq!(matches(&hook(), &review), Ok(false));
        let check = Hook { changes: false, ..hook() };
        assert_eq!(matches(&check, &review), Ok(true), "a check holds to the end of an object");
    }
}
