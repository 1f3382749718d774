//! Reviews: may this user do that? They are answered and not stored.

use serde_json::{Value, json};

use super::Call;
use super::write::Writer;
use crate::Failure;
use crate::access::{Action, User};
use crate::answer::Answer;
use crate::field_error::{FieldError, Shown};
use crate::request::WriteOptions;
use crate::status::Named;

/// Answers a review.
pub(super) fn create(call: &mut Call<'_>) -> Result<Answer, Failure> {
    let options = WriteOptions::of(call.request, "CreateOptions", None)?;
    let mut review = call.decode(&options)?;
    let caller = User::impersonated(&call.request.headers, &call.request.path)?
        .unwrap_or_else(User::administrator);
    let mut state = call.shared.state.write();
    let is_own = call.resource.kind == "SelfSubjectAccessReview";
    check(&review, is_own)?;
    let user = if is_own { caller } else { user_of(&review) };
    let status = match state.allows(&user, &action_of(&review)) {
        Some(reason) if reason.is_empty() => json!({"allowed": true}),
        Some(reason) => json!({"allowed": true, "reason": reason}),
        None => json!({"allowed": false}),
    };
    if let Some(fields) = review.as_object_mut() {
        // What the defaults filled in is the answer's, not the writer's.
        fields.remove("status");
    }
    let writer = Writer::new(&mut state, call, &options);
    review = writer.track(None, review, None);
    if let Some(fields) = review.as_object_mut() {
        fields.insert("status".to_owned(), status);
    }
    Ok(Answer::document(201, review))
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
