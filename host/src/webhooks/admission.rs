//! Admission reviews.

use std::time::{Duration, Instant};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use mortise_core::contract::{
    Kind, ObjectRef,
    hooks::{self, Decision, Operation, shown},
};
use serde::Deserialize;
use serde_json::{Map, Value, json, value::RawValue};

use super::{Answered, RESPONSE_TIME, Refused, body::Holding, parsed, review::Form, short};
use crate::host::{Hooking, NoAnswer};

const REVIEW: Form =
    Form { kind: "AdmissionReview", versions: ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"] };

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    uid: String,
    kind: GroupVersionKind,
    #[serde(default)]
    sub_resource: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    operation: String,
    #[serde(default)]
    user_info: UserInfo,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
    #[serde(borrow)]
    old_object: Option<&'a RawValue>,
    #[serde(default)]
    dry_run: Option<bool>,
}

#[derive(Deserialize)]
struct GroupVersionKind {
    #[serde(default)]
    group: String,
    version: String,
    kind: String,
}

#[derive(Default, Deserialize)]
struct UserInfo {
    #[serde(default)]
    username: String,
    #[serde(default)]
    groups: Option<Vec<String>>,
}

/// Answers a review; `asked` is the time of the request, and `ends` the deadline of the caller.
pub(super) async fn answer(
    hooking: &Hooking,
    hook: &str,
    (body, mut holding): (Bytes, Holding),
    (asked, ends): (Instant, Instant),
) -> Result<Answered, Refused> {
    let timeout = hooking.hooks().hook(hook).map(|hook| Duration::from_millis(hook.timeout));
    let own = timeout.map(|timeout| asked + timeout.saturating_sub(RESPONSE_TIME));
    let ends = own.map_or(ends, |own| own.min(ends));
    let (name, size) = (hook.to_owned(), body.len());
    let read = move || {
        let (api_version, request): (_, Request<'_>) = REVIEW.parse(&body)?;
        Ok((api_version, request.uid.clone(), review(&name, request)?))
    };
    let (api_version, uid, review) = parsed(size, read).await?;
    let charge = |bytes| holding.charge(bytes).map_err(|refused| NoAnswer::Broken(refused.message));
    match hooking.admit(review, ends, charge).await {
        Ok(decision) => {
            let body = response(api_version, &uid, &decision, &mut holding)?;
            Ok(Answered { body, is_refused: decision.denial.is_some() })
        }
        Err(NoAnswer::NotAsked(message)) => Err(Refused::bad(message)),
        Err(error) => Err(Refused::unavailable(error.message())),
    }
}

fn review(hook: &str, request: Request<'_>) -> Result<hooks::Review, Refused> {
    let operation = match request.operation.as_str() {
        "CREATE" => Operation::Create,
        "UPDATE" => Operation::Update,
        "DELETE" => Operation::Delete,
        other => {
            let message =
                format!("operation {}: CREATE, UPDATE and DELETE are reviewed", short(other));
            return Err(Refused::bad(message));
        }
    };
    if !request.sub_resource.is_empty() {
        let message = format!("hooks review no subresource: {}", short(&request.sub_resource));
        return Err(Refused::bad(message));
    }
    let GroupVersionKind { group, version, kind } = request.kind;
    let object = |raw: Option<&RawValue>| raw.map(|raw| shown(raw.get())).transpose();
    Ok(hooks::Review {
        hook: hook.to_owned(),
        operation,
        ref_: ObjectRef {
            kind: Kind::home(group, version, kind).into(),
            namespace: Some(request.namespace).filter(|namespace| !namespace.is_empty()),
            name: request.name,
        },
        object: object(request.object).map_err(Refused::bad)?,
        old: object(request.old_object).map_err(Refused::bad)?,
        user: request.user_info.username,
        groups: request.user_info.groups.unwrap_or_default(),
        dry_run: request.dry_run.unwrap_or_default(),
        config: String::new(),
    })
}

fn response(
    api_version: &str,
    uid: &str,
    decision: &Decision,
    holding: &mut Holding,
) -> Result<Bytes, Refused> {
    let Decision { denial, patch, warnings } = decision;
    let mut response = Map::new();
    let mut set = |key: &str, value: Value| response.insert(key.to_owned(), value);
    set("uid", uid.into());
    set("allowed", denial.is_none().into());
    if let Some(denial) = denial {
        set("status", json!({"code": denial.code, "message": denial.message}));
    }
    if let Some(patch) = patch {
        let text = serde_json::to_string(patch);
        let text = text.map_err(|error| Refused::unavailable(error.to_string()))?;
        // The text, and a third more of it in the answer, which is written once more.
        holding.charge(4 * text.len())?;
        set("patch", STANDARD.encode(text).into());
        set("patchType", "JSONPatch".into());
    }
    if !warnings.is_empty() {
        set("warnings", warnings.iter().map(String::as_str).map(Value::from).collect());
    }
    let answer = json!({"apiVersion": api_version, "kind": REVIEW.kind, "response": response});
    Ok(answer.to_string().into())
}
