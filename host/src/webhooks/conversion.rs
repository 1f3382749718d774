//! Conversion reviews.

use std::{pin::pin, time::Instant};

use bytes::{BufMut as _, Bytes, BytesMut};
use futures::TryStreamExt as _;
use mortise_core::contract::bounds::ENTRY;
use serde::Deserialize;
use serde_json::{json, value::RawValue};

use super::{Answered, Refused, body::Holding, parsed, review::Form};
use crate::host::{Hooking, NoAnswer};

/// The API server sends `v1beta1` if the definition names no other version that it knows.
const REVIEW: Form = Form {
    kind: "ConversionReview",
    versions: ["apiextensions.k8s.io/v1", "apiextensions.k8s.io/v1beta1"],
};

/// The largest object that is converted, in bytes: the API server accepts requests of 3 MiB, and adds
/// managed fields.
const MAX_OBJECT_BYTES: usize = 4 << 20;

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

/// What a review asks for.
#[derive(Debug)]
struct Asked {
    api_version: &'static str,
    uid: String,
    to: String,
    /// The kind of the first object.
    kind: String,
    objects: Vec<Bytes>,
}

/// Answers a review.
pub(super) async fn answer(
    hooking: &Hooking,
    body: Bytes,
    holding: &mut Holding,
    ends: Instant,
) -> Result<Answered, Refused> {
    let Asked { api_version, uid, to, kind, objects } =
        parsed(body.len(), move || read(&body)).await?;
    if objects.is_empty() {
        let body = success(api_version, &uid, Vec::new());
        return Ok(Answered { body, is_refused: false });
    }
    match convert(hooking, &kind, &to, objects, holding, ends).await {
        Ok(objects) => {
            Ok(Answered { body: success(api_version, &uid, objects), is_refused: false })
        }
        Err(error @ (NoAnswer::NotAsked(_) | NoAnswer::Refused(_))) => {
            let body = failure(api_version, &uid, &error.message());
            Ok(Answered { body, is_refused: true })
        }
        Err(error) => Err(Refused::unavailable(error.message())),
    }
}

fn read(body: &Bytes) -> Result<Asked, Refused> {
    let (api_version, request): (_, Request<'_>) = REVIEW.parse(body)?;
    let Request { uid, desired_api_version: to, objects } = request;
    if let Some(at) = objects.iter().position(|object| object.get().len() > MAX_OBJECT_BYTES) {
        let most = MAX_OBJECT_BYTES >> 20;
        return Err(Refused::bad(format!("object {at} of the review has more than {most} MiB")));
    }
    let first = objects.first().map(|first| serde_json::from_str::<Kind>(first.get()));
    let kind = first.transpose();
    let kind = kind.map_err(|error| Refused::bad(format!("an object cannot be read: {error}")))?;
    let objects = objects.iter().map(|object| body.slice_ref(object.get().as_bytes()));
    let kind = kind.map(|of| of.kind).unwrap_or_default();
    Ok(Asked { api_version, uid, to, kind, objects: objects.collect() })
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
        holding.charge(bytes).map_err(|refused| NoAnswer::Broken(refused.message))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_the_api_server_does_not_accept_is_refused_by_its_place() {
        let of = |bytes: usize| {
            let large = "x".repeat(bytes);
            let objects = json!([{"kind": "Tea"}, {"kind": "Tea", "leaves": large}]);
            let request = json!({"uid": "u", "desiredAPIVersion": "g/v2", "objects": objects});
            let (kind, version) = (REVIEW.kind, REVIEW.versions[0]);
            let review = json!({"apiVersion": version, "kind": kind, "request": request});
            read(&review.to_string().into())
        };
        let asked = of(3 << 20).unwrap();
        assert_eq!((&*asked.kind, &*asked.to, asked.objects.len()), ("Tea", "g/v2", 2));
        let refused = of(MAX_OBJECT_BYTES).unwrap_err();
        assert_eq!(refused.message, "object 1 of the review has more than 4 MiB");
    }
}
