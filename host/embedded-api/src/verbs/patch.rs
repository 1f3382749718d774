//! Patch: JSON patch, merge patch, strategic merge patch and server-side apply.

use http::header::CONTENT_TYPE;
use serde_json::Value;

use super::{
    Call,
    decode::complaints,
    metadata::{text, wipe_system_fields},
    update::creates_on_update,
    write::{Live, Writer},
};
use crate::{
    Failure,
    answer::Answer,
    field_error::{FieldError, go_json},
    go::Plain,
    kind::{Decoded, FieldValidation},
    managed_fields,
    request::{Body, Encoding, WriteOptions},
    state::State,
    status::Named,
    storage::Place,
};

const CUSTOM_TYPES: &str =
    "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";

/// The kind of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mechanism {
    Json,
    Merge,
    Strategic,
    Apply,
}

// === impl Mechanism ===

impl Mechanism {
    /// Returns the mechanism of the content type; strategic merge patch is for built-in kinds only.
    pub(super) fn of(call: &Call<'_>) -> Result<Self, Failure> {
        let content_type = call
            .request
            .headers
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let media_type = content_type.split(';').next().unwrap_or_default().trim();
        match media_type {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            "application/strategic-merge-patch+json" if !call.resource.is_custom() => {
                Ok(Self::Strategic)
            }
            _ if call.resource.is_custom() => Err(Failure::unsupported_media_type(CUSTOM_TYPES)),
            _ => Err(Failure::unroutable_media_type()),
        }
    }

    /// Returns the object changed by the patch.
    pub(super) fn change(
        self,
        object: &Value,
        patch: &Value,
        call: &Call<'_>,
    ) -> Result<Value, Failure> {
        let changed = match self {
            Self::Json => crate::patch::json(object, patch),
            Self::Merge => crate::patch::merge(object, patch),
            Self::Strategic => crate::patch::strategic(object, patch, &call.resource.schema),
            Self::Apply => return Err(Failure::internal("an apply is no change of an object")),
        };
        changed.map_err(Failure::from)
    }

    /// Returns what errors of a patch show: of a strategic patch the patch as Go prints it, of
    /// others the patched object, as it is before it is decoded.
    pub(super) fn shown(
        self,
        object: &Value,
        patch: &Value,
        call: &Call<'_>,
    ) -> Result<String, Failure> {
        Ok(match self {
            Self::Strategic => Plain(patch).to_string(),
            _ => go_json(&self.change(object, patch, call)?),
        })
    }

    /// Returns the error of a patch whose result is no object of its kind.
    fn unreadable(
        self,
        object: &Value,
        patch: &Value,
        call: &Call<'_>,
        failure: &Failure,
    ) -> Result<Failure, Failure> {
        let prefix = call.resource.unhandled();
        let why = failure.message();
        let why = why.strip_prefix(&prefix).unwrap_or(why);
        let shown = self.shown(object, patch, call)?;
        Ok(match self {
            Self::Strategic => patch_fault(shown, &unconverted(why)),
            _ => patch_fault(shown, why),
        })
    }
}

/// Converts a message of the JSON decoder to that of Kubernetes' converter, which reads the results
/// of strategic patches.
fn unconverted(why: &str) -> String {
    let Some((found, wanted)) = why
        .strip_prefix("json: cannot unmarshal ")
        .and_then(|why| Some((why.split(' ').next()?, why.rsplit_once(" of type ")?.1)))
    else {
        return why.to_owned();
    };
    let found = match found {
        "array" => "slice",
        "object" => "map",
        "number" => "int64",
        scalar => scalar,
    };
    match wanted {
        "string" | "bool" | "int32" | "int64" | "float64" => format!("unrecognized type: {wanted}"),
        _ if wanted.starts_with("[]") => format!("cannot restore slice from {found}"),
        _ if wanted.starts_with("map[") => format!("cannot restore map from {found}"),
        _ => format!("cannot restore struct from: {found}"),
    }
}

/// Changes an object in part, or applies one.
pub(super) fn patch(call: &mut Call<'_>) -> Result<Answer, Failure> {
    let mechanism = Mechanism::of(call)?;
    let is_apply = mechanism == Mechanism::Apply;
    let options = WriteOptions::of(call.request, "PatchOptions", Some(is_apply))?;
    let encoding = if is_apply { Encoding::Yaml } else { Encoding::Json };
    let body = Body::read(&call.request.body, encoding)?;
    if is_apply {
        if let Some(path) = body.duplicates.first() {
            return Err(Failure::bad_request(format!(
                "error decoding YAML: key {path:?} already set in map"
            )));
        }
        return apply(call, &options, &body.value);
    }
    let shared = call.shared;
    let mut state = shared.state.write();
    let live = live(call, &state, &call.place())?;
    let patched = mechanism.change(&live.value, &body.value, call)?;
    let decoded = call.resource.decode(patched).or_else(|failure| match failure.code() {
        400 => Err(mechanism.unreadable(&live.value, &body.value, call, &failure)?),
        _ => Err(failure),
    });
    let Decoded { object: mut new, unknown } = decoded?;
    let complaints = complaints(body.duplicates, unknown);
    let shown = |call: &Call<'_>| mechanism.shown(&live.value, &body.value, call);
    complain(call, shown, complaints, options.field_validation)?;
    call.resource.default(&mut new);
    call.fit(&mut new, true)?;
    let writer = Writer::new(&mut state, call, &options);
    let new = writer.track(Some(&live.value), new, call.subresource());
    writer.answer_changed(call, &live, new)
}

/// Returns the object that the path names, or 404.
pub(super) fn live(call: &Call<'_>, state: &State, place: &Place) -> Result<Live, Failure> {
    let image = state
        .storage
        .get(place)
        .cloned()
        .ok_or_else(|| Failure::not_found(call.named(&call.path.name)))?;
    let value = State::view(call.resource, &image)?;
    Ok(Live { image, value })
}

/// Decodes the result of an apply.
fn decode_applied(call: &Call<'_>, merged: Value) -> Result<Value, Failure> {
    let object = managed_fields::object_text(&merged);
    let decoded = call.resource.decode_applied(merged);
    decoded.map(|decoded| decoded.object).map_err(|failure| match failure.code() {
        400 => Failure::unclassified(format!(
            "failed to convert new typed object ({object}) to object: {}",
            failure.message()
        )),
        _ => failure,
    })
}

/// Reports errors of strict decoding: fails, or adds warnings, as `fieldValidation` demands.
/// `shown` returns what the error shows.
pub(super) fn complain(
    call: &mut Call<'_>,
    shown: impl FnOnce(&Call<'_>) -> Result<String, Failure>,
    complaints: Vec<String>,
    validation: FieldValidation,
) -> Result<(), Failure> {
    match validation {
        FieldValidation::Strict if !complaints.is_empty() => {
            let why = format!("strict decoding error: {}", complaints.join(", "));
            return Err(patch_fault(shown(call)?, &why));
        }
        FieldValidation::Warn => call.warnings.extend(complaints),
        FieldValidation::Strict | FieldValidation::Ignore => {}
    }
    Ok(())
}

fn patch_fault(object: String, why: &str) -> Failure {
    Failure::invalid(Named::new("", "", ""), [FieldError::invalid("patch", object, why)])
}

/// Applies an object by server-side apply.
fn apply(call: &mut Call<'_>, options: &WriteOptions, applied: &Value) -> Result<Answer, Failure> {
    if !applied.is_object() {
        return Err(Failure::bad_request("error decoding YAML: the body is no object"));
    }
    let shared = call.shared;
    let mut state = shared.state.write();
    let live = match live(call, &state, &call.place()) {
        Ok(live) => Some(live),
        Err(failure)
            if failure.code() != 404
                || (call.subresource().is_some() && !creates_on_update(call.resource)) =>
        {
            return Err(failure);
        }
        Err(_) => None,
    };
    let writer = Writer::new(&mut state, call, options);
    let before = live.as_ref().map(|live| &live.value);
    let merged = writer.apply(before, applied, call.subresource())?;
    let uid = text(applied, "uid");
    if live.is_none() && !uid.is_empty() {
        let why = format!(
            "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        );
        return Err(Failure::conflict(call.named(&call.path.name), &why));
    }
    let mut new = decode_applied(call, merged)?;
    call.resource.default(&mut new);
    call.fit(&mut new, true)?;
    if let Some(live) = live {
        return writer.answer_changed(call, &live, new);
    }
    wipe_system_fields(&mut new);
    writer.by_update().answer_new(call, new)
}
