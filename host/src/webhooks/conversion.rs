//! Conversion reviews.

use std::{pin::pin, time::Instant};

use bytes::{BufMut as _, Bytes, BytesMut};
use futures::TryStreamExt as _;
use mortise_core::contract::bounds::ENTRY;
use serde::Deserialize;
use serde_json::{json, value::RawValue};

use super::{
    Answered, Refused,
    body::{Holding, TOO_MUCH_HELD},
    review::Form,
};
use crate::host::{Hooking, NoAnswer};

/// The API server sends `v1beta1` if the definition names no other version that it knows.
const REVIEW: Form = Form {
    kind: "ConversionReview",
    versions: ["apiextensions.k8s.io/v1", "apiextensions.k8s.io/v1beta1"],
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    uid: String,
    #[serde(rename = "desiredAPIVersion")]
    desired_api_version: String,
    #[serde(borrow)]
    objects: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Kind {
    #[serde(default)]
    kind: String,
}

/// Answers a review.
pub(super) async fn answer(
    hooking: &Hooking,
    body: Bytes,
    holding: &mut Holding,
    ends: Instant,
) -> Result<Answered, Refused> {
    let (api_version, request): (_, Request<'_>) = REVIEW.parse(&body)?;
    let kind = match request.objects.first() {
        Some(first) => serde_json::from_str::<Kind>(first.get()).map(|of| of.kind),
        None => {
            return Ok(Answered {
                body: success(api_version, &request.uid, Vec::new()),
                is_refused: false,
            });
        }
    };
    let kind = kind.map_err(|error| Refused::bad(format!("an object cannot be read: {error}")))?;
    let objects = request.objects.iter().map(|object| body.slice_ref(object.get().as_bytes()));
    let objects: Vec<Bytes> = objects.collect();
    let converted = convert(hooking, &kind, &request.desired_api_version, objects, holding, ends);
    match converted.await {
        Ok(objects) => {
            Ok(Answered { body: success(api_version, &request.uid, objects), is_refused: false })
        }
        Err(error @ (NoAnswer::NotAsked(_) | NoAnswer::Refused(_))) => {
            let body = failure(api_version, &request.uid, &error.message());
            Ok(Answered { body, is_refused: true })
        }
        Err(error) => Err(Refused::unavailable(error.message())),
    }
}

/// Converts objects, and charges each part of the answer to the request's account.
async fn convert(
    hooking: &Hooking,
    kind: &str,
    to: &str,
    objects: Vec<Bytes>,
    holding: &mut Holding,
    ends: Instant,
) -> Result<Vec<String>, NoAnswer> {
    let mut converted = Vec::new();
    let mut parts = pin!(hooking.convert_in_parts(kind, to, objects, ends)?);
    while let Some(part) = parts.try_next().await? {
        // They are held once more when the answer is written.
        let bytes: usize = part.iter().map(|object| 2 * object.len() + ENTRY).sum();
        if !holding.charge(bytes) {
            return Err(NoAnswer::Broken(TOO_MUCH_HELD.to_owned()));
        }
        converted.extend(part);
    }
    Ok(converted)
}

/// Writes an answer. The objects are JSON already, and are not parsed again: there may be many.
fn success(api_version: &str, uid: &str, objects: Vec<String>) -> Bytes {
    let start = format!(
        r#"{{"apiVersion":"{api_version}","kind":"{}","response":{{"uid":{},"result":{{"status":"Success"}},"convertedObjects":["#,
        REVIEW.kind,
        json!(uid)
    );
    let size: usize = objects.iter().map(|object| object.len() + 1).sum();
    let mut text = BytesMut::with_capacity(start.len() + size + 3);
    text.put_slice(start.as_bytes());
    for (at, object) in objects.into_iter().enumerate() {
        if at > 0 {
            text.put_u8(b',');
        }
        text.put_slice(object.as_bytes());
    }
    text.put_slice(b"]}}");
    text.freeze()
}

fn failure(api_version: &str, uid: &str, message: &str) -> Bytes {
    let result = json!({"status": "Failure", "message": message});
    let response = json!({"uid": uid, "convertedObjects": [], "result": result});
    json!({"apiVersion": api_version, "kind": REVIEW.kind, "response": response}).to_string().into()
}
