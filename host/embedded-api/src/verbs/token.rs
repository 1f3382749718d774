//! Tokens of service accounts: they have the right form but no signature. Requests are never
//! refused because of a token; a review returns its account.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{Call, decode::Part};
use crate::{
    Failure,
    answer::Answer,
    field_error::FieldError,
    request::WriteOptions,
    state::{State, time_text},
    status::Named,
    storage::{Place, TableId},
};

const GROUP: &str = "authentication.k8s.io";
const DEFAULT_EXPIRATION_SECONDS: i64 = 3600;

/// Answers a request for a token.
pub(super) fn create(call: &mut Call<'_>) -> Result<Answer, Failure> {
    let options = WriteOptions::of(call.request, "CreateOptions", None)?;
    let sent = call.decode_part(Part::TOKEN, options.field_validation)?;
    let state = call.shared.state.read();
    let image = state
        .storage
        .get(&call.place())
        .ok_or_else(|| Failure::not_found(call.named(&call.path.name)))?;
    let seconds = seconds(&sent)?;
    let end = call.now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(call.now);
    let issuer = "https://kubernetes.default.svc.cluster.local";
    let audiences = sent
        .pointer("/spec/audiences")
        .filter(|list| list.is_array())
        .cloned()
        .unwrap_or_else(|| json!([issuer]));
    let (namespace, name) = (&call.path.namespace, &call.path.name);
    let claims = json!({
        "aud": audiences,
        "exp": end.as_second(),
        "iat": call.now.as_second(),
        "iss": issuer,
        "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": name, "uid": image.head.uid}},
        "sub": format!("system:serviceaccount:{namespace}:{name}"),
    });
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let token = format!("{}.{}.", part(&json!({"alg": "none"})), part(&claims));
    let bound = sent.pointer("/spec/boundObjectRef").cloned().unwrap_or_default();
    let spec =
        json!({"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": bound});
    let answer = json!({
        "kind": "TokenRequest",
        "apiVersion": format!("{GROUP}/v1"),
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": time_text(call.now)},
        "spec": spec,
        "status": {"token": token, "expirationTimestamp": time_text(end)},
    });
    Ok(Answer::document(201, answer))
}

/// Returns the status of a token review: the service account of the token, if it exists, and the
/// token is from this server and not expired.
pub(super) fn review(state: &State, review: &Value, now: Timestamp) -> Result<Value, Failure> {
    let token = review.pointer("/spec/token").and_then(Value::as_str).unwrap_or_default();
    if token.is_empty() {
        return Err(Failure::bad_request("token is required for TokenReview in authentication"));
    }
    let unknown = |why: &str| json!({"user": {}, "error": why});
    let Some(claims) = claims(token) else {
        return Ok(unknown("the token is none that this server gave"));
    };
    if claims.get("exp").and_then(Value::as_i64).unwrap_or_default() <= now.as_second() {
        return Ok(unknown("the token has expired"));
    }
    let subject = claims.get("sub").and_then(Value::as_str).unwrap_or_default();
    let account =
        subject.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    let Some((namespace, name)) = account else {
        return Ok(unknown("the token names no service account"));
    };
    let place = Place::new(TableId::new("", "serviceaccounts"), namespace, name);
    let uid = claims.pointer("/kubernetes.io/serviceaccount/uid").and_then(Value::as_str);
    match state.storage.get(&place) {
        Some(image) if uid == Some(&image.head.uid) => {
            let groups = [
                "system:serviceaccounts",
                &format!("system:serviceaccounts:{namespace}"),
                "system:authenticated",
            ];
            let user = json!({"username": subject, "uid": uid, "groups": groups});
            Ok(json!({"authenticated": true, "user": user, "audiences": claims.get("aud")}))
        }
        _ => Ok(unknown("the service account of the token is gone")),
    }
}

fn claims(token: &str) -> Option<Value> {
    let part = token.split('.').nth(1)?;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

fn seconds(sent: &Value) -> Result<i64, Failure> {
    const MIN_EXPIRATION_SECONDS: i64 = 600;
    const MAX_EXPIRATION_SECONDS: i64 = 1 << 32;
    let field = "spec.expirationSeconds";
    let seconds = match sent.pointer("/spec/expirationSeconds") {
        None | Some(Value::Null) => DEFAULT_EXPIRATION_SECONDS,
        Some(value) => value
            .as_i64()
            .ok_or_else(|| Failure::bad_request(format!("TokenRequest: wrong type of {field}")))?,
    };
    let why = match seconds {
        ..MIN_EXPIRATION_SECONDS => "may not specify a duration less than 10 minutes",
        MIN_EXPIRATION_SECONDS..=MAX_EXPIRATION_SECONDS => return Ok(seconds),
        _ => "may not specify a duration larger than 2^32 seconds",
    };
    Err(Failure::invalid(
        Named::new(GROUP, "TokenRequest", ""),
        [FieldError::invalid(field, seconds, why)],
    ))
}
