//! Conversion reviews.

use std::time::Instant;

use bytes::{BufMut as _, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::{json, value::RawValue};

use super::{Refused, short};
use crate::host::{Hooking, NoAnswer};

const KIND: &str = "ConversionReview";
/// The versions of the review, which have one form. A definition that names only `v1beta1` among
/// those that the API server knows is asked in that.
const VERSIONS: [&str; 2] = ["apiextensions.k8s.io/v1", "apiextensions.k8s.io/v1beta1"];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(borrow)]
    request: Option<&'a RawValue>,
}

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
    ends: Instant,
) -> Result<Bytes, Refused> {
    let (api_version, request) = parse(&body)?;
    let kind = match request.objects.first() {
        Some(first) => serde_json::from_str::<Kind>(first.get()).map(|of| of.kind),
        None => return Ok(success(api_version, &request.uid, Vec::new())),
    };
    let kind = kind.map_err(|error| Refused::bad(format!("an object cannot be read: {error}")))?;
    let objects = request.objects.iter().map(|object| body.slice_ref(object.get().as_bytes()));
    let objects: Vec<Bytes> = objects.collect();
    let converted = hooking.convert(&kind, &request.desired_api_version, objects, ends).await;
    match converted {
        Ok(objects) => Ok(success(api_version, &request.uid, objects)),
        Err(error @ (NoAnswer::NotAsked(_) | NoAnswer::Refused(_))) => {
            Ok(failure(api_version, &request.uid, &error.message()))
        }
        Err(error) => Err(Refused::unavailable(error.message())),
    }
}

fn parse(body: &Bytes) -> Result<(&'static str, Request<'_>), Refused> {
    let no_review = |error| Refused::bad(format!("this is no {KIND}: {error}"));
    let review: Review<'_> = serde_json::from_slice(body).map_err(no_review)?;
    let Review { api_version, kind, request } = review;
    let known = VERSIONS.into_iter().find(|known| *known == api_version);
    let (Some(known), KIND) = (known, kind.as_str()) else {
        return Err(Refused::bad(format!(
            "kind {} of {}: a {KIND} of {} is expected",
            short(&kind),
            short(&api_version),
            VERSIONS.join(" or ")
        )));
    };
    let request = request.ok_or_else(|| Refused::bad(format!("the {KIND} has no request")))?;
    Ok((known, serde_json::from_str(request.get()).map_err(no_review)?))
}

/// Writes an answer. The objects are JSON already, and are not parsed again: there may be many.
fn success(api_version: &str, uid: &str, objects: Vec<String>) -> Bytes {
    let start = format!(
        r#"{{"apiVersion":"{api_version}","kind":"{KIND}","response":{{"uid":{},"result":{{"status":"Success"}},"convertedObjects":["#,
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
    json!({"apiVersion": api_version, "kind": KIND, "response": response}).to_string().into()
}
