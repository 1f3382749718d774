//! Reviews: questions about the permissions of users. They are answered and not stored.

use serde_json::{Value, json};

use super::{Call, token, write::Writer};
use crate::{
    Failure,
    access::{Action, User},
    answer::Answer,
    field_error::{FieldError, Shown},
    request::WriteOptions,
    state::State,
    status::Named,
};

/// The reason in answers to `kubectl auth can-i` without impersonation.
const EVERYTHING: &str = "the embedded API knows no users: whoever connects may do everything";

/// Answers a review.
pub(super) fn create(call: &mut Call<'_>) -> Result<Answer, Failure> {
    let options = WriteOptions::of(call.request, "CreateOptions", None)?;
    let mut review = call.decode(&options)?;
    let impersonated = call.user.clone();
    let caller = impersonated.clone().unwrap_or_else(User::administrator);
    let mut state = call.shared.state.write();
    let status = match call.resource.kind.as_str() {
        "SelfSubjectReview" => json!({"userInfo": caller.to_value()}),
        "SelfSubjectRulesReview" => {
            let namespace = review.pointer("/spec/namespace").and_then(Value::as_str);
            rules(&state.rules_of(&caller, namespace.unwrap_or_default()))
        }
        "TokenReview" => token::review(&state, &review, call.now)?,
        "SelfSubjectAccessReview" => {
            check(&review, true)?;
            let status = access(&state, &caller, &action_of(&review));
            if impersonated.is_some() {
                status
            } else {
                json!({"allowed": true, "reason": EVERYTHING})
            }
        }
        _ => {
            check(&review, false)?;
            check_namespace(call, &review)?;
            access(&state, &user_of(&review), &action_of(&review))
        }
    };
    if let Some(fields) = review.as_object_mut() {
        // The status that the defaults filled in belongs to the answer: the writer does not own it.
        fields.remove("status");
    }
    review = Writer::new(&mut state, call, &options).track(None, review, None);
    if let Some(fields) = review.as_object_mut() {
        fields.insert("status".to_owned(), status);
    }
    Ok(Answer::document(201, review))
}

/// Returns the status of an access review: whether the user may do this, and the reason.
fn access(state: &State, user: &User, action: &Action) -> Value {
    match state.allows(user, action) {
        Some(reason) if reason.is_empty() => json!({"allowed": true}),
        Some(reason) => json!({"allowed": true, "reason": reason}),
        None => json!({"allowed": false}),
    }
}

/// Returns the status of a rules review: rules for resources and for paths apart.
fn rules(all: &[Value]) -> Value {
    let (paths, resources): (Vec<&Value>, Vec<&Value>) =
        all.iter().partition(|rule| rule.get("nonResourceURLs").is_some_and(Value::is_array));
    json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false})
}

fn check(review: &Value, is_own: bool) -> Result<(), Failure> {
    let is_there = |pointer: &str| review.pointer(pointer).is_some_and(|value| !value.is_null());
    let mut faults = Vec::new();
    match (is_there("/spec/resourceAttributes"), is_there("/spec/nonResourceAttributes")) {
        (true, true) => {
            let value = review.pointer("/spec/nonResourceAttributes").cloned().unwrap_or_default();
            let why = "cannot be specified in combination with resourceAttributes";
            faults.push(FieldError::invalid("spec.nonResourceAttributes", value, why));
        }
        (false, false) => {
            let why =
                "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            faults.push(FieldError::invalid(
                "spec.resourceAttributes",
                Shown::Raw("null".to_owned()),
                why,
            ));
        }
        _ => {}
    }
    let user = review.pointer("/spec/user").and_then(Value::as_str).unwrap_or_default();
    let has_groups = review
        .pointer("/spec/groups")
        .and_then(Value::as_array)
        .is_some_and(|groups| !groups.is_empty());
    if !is_own && user.is_empty() && !has_groups {
        faults.push(FieldError::invalid(
            "spec.user",
            user,
            "at least one of user or group must be specified",
        ));
    }
    if faults.is_empty() {
        Ok(())
    } else {
        Err(Failure::invalid(Named::new("authorization.k8s.io", "", ""), faults))
    }
}

/// Fails if a local review is not about the namespace of its path.
fn check_namespace(call: &Call<'_>, review: &Value) -> Result<(), Failure> {
    let namespace = &call.path.namespace;
    let asked = review.pointer("/spec/resourceAttributes/namespace").and_then(Value::as_str);
    if namespace.is_empty() || asked == Some(namespace) {
        return Ok(());
    }
    let text = format!("spec.resourceAttributes.namespace must match namespace: {namespace}");
    Err(Failure::bad_request(text))
}

fn user_of(review: &Value) -> User {
    let groups = review.pointer("/spec/groups").and_then(Value::as_array).into_iter().flatten();
    User {
        name: review.pointer("/spec/user").and_then(Value::as_str).unwrap_or_default().to_owned(),
        groups: groups.filter_map(Value::as_str).map(str::to_owned).collect(),
    }
}

fn action_of(review: &Value) -> Action {
    let text = |base: &str, key: &str| {
        review
            .pointer(&format!("/spec/{base}/{key}"))
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    if review.pointer("/spec/nonResourceAttributes").is_some_and(Value::is_object) {
        let base = "nonResourceAttributes";
        return Action::Path { verb: text(base, "verb"), path: text(base, "path") };
    }
    let base = "resourceAttributes";
    Action::Resource {
        verb: text(base, "verb"),
        group: text(base, "group"),
        resource: text(base, "resource"),
        subresource: text(base, "subresource"),
        namespace: text(base, "namespace"),
        name: text(base, "name"),
    }
}
