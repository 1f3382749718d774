//! Decoding of the objects in requests, and the errors of strict decoding.

use serde_json::Value;

use super::Call;
use crate::{
    Failure,
    answer::BODIES,
    builtin::{decode, definition, edit::text},
    kind::{Decoded, FieldValidation},
    request::{Body, Encoding, WriteOptions},
};

/// A kind that is sent to a subresource.
#[derive(Clone, Copy)]
pub(super) struct Part {
    kind: &'static str,
    /// The name of the kind in the definitions.
    definition: &'static str,
}

// === impl Part ===

impl Part {
    pub(super) const EVICTION: Self =
        Self { kind: "Eviction", definition: "api.policy.v1.Eviction" };
    pub(super) const SCALE: Self = Self { kind: "Scale", definition: "api.autoscaling.v1.Scale" };
    pub(super) const TOKEN: Self =
        Self { kind: "TokenRequest", definition: "api.authentication.v1.TokenRequest" };

    /// Decodes an object. Also returns the paths of the fields that the kind does not know.
    pub(super) fn read(self, body: Value) -> Result<(Value, Vec<String>), Failure> {
        let kind = text(&body, "kind");
        if !kind.is_empty() && kind != self.kind {
            return Err(self.refuse(&format!("no kind {kind:?} is registered for it")));
        }
        let mut unknown = Vec::new();
        let Some(definition) = definition::find(self.definition) else {
            return Ok((body, unknown));
        };
        match decode::object(definition, body, &mut unknown) {
            Ok(object) => Ok((object, unknown)),
            Err(wrong) => Err(self.refuse(&wrong.to_string())),
        }
    }

    fn refuse(self, why: &str) -> Failure {
        let kind = self.kind;
        Failure::bad_request(format!(
            "{kind} in version \"v1\" cannot be handled as a {kind}: {why}"
        ))
    }
}

// === impl Call ===

impl Call<'_> {
    /// Decodes the body as an object of the resource, with defaults.
    pub(super) fn decode(&mut self, options: &WriteOptions) -> Result<Value, Failure> {
        let encoding = Encoding::of(self.request.header("content-type"))
            .ok_or_else(|| Failure::unsupported_media_type(BODIES))?;
        let body = Body::read(&self.request.body, encoding)?;
        let Decoded { mut object, unknown } = self.resource.decode(body.value)?;
        let mut complaints = complaints(body.duplicates, unknown);
        if complaints.len() > 1 && encoding == Encoding::Json && !self.resource.is_custom() {
            sort_as_written(&mut complaints, &self.request.body);
        }
        match options.field_validation {
            FieldValidation::Strict if !complaints.is_empty() => {
                return Err(self.resource.strict(&complaints.join(", ")));
            }
            FieldValidation::Warn => self.warnings.extend(complaints),
            FieldValidation::Strict | FieldValidation::Ignore => {}
        }
        self.resource.default(&mut object);
        Ok(object)
    }

    /// Decodes the body as an object of a subresource: a scale, an eviction or a token request.
    pub(super) fn decode_part(
        &mut self,
        part: Part,
        validation: FieldValidation,
    ) -> Result<Value, Failure> {
        let encoding = Encoding::of(self.request.header("content-type"))
            .ok_or_else(|| Failure::unsupported_media_type(BODIES))?;
        let body = Body::read(&self.request.body, encoding)?;
        let (object, unknown) = part.read(body.value)?;
        let complaints = complaints(body.duplicates, unknown);
        match validation {
            FieldValidation::Strict if !complaints.is_empty() => {
                return Err(
                    part.refuse(&format!("strict decoding error: {}", complaints.join(", ")))
                );
            }
            FieldValidation::Warn => self.warnings.extend(complaints),
            FieldValidation::Strict | FieldValidation::Ignore => {}
        }
        Ok(object)
    }

    /// Removes repeated owner references, with a warning, as the server does before it tracks
    /// fields.
    pub(super) fn dedup_owners(&mut self, object: &mut Value) {
        let Some(owners) =
            object.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut)
        else {
            return;
        };
        let mut kept: Vec<Value> = Vec::new();
        let mut repeated = Vec::new();
        for owner in owners.drain(..) {
            if kept.contains(&owner) {
                repeated
                    .push(owner.get("uid").and_then(Value::as_str).unwrap_or_default().to_owned());
            } else {
                kept.push(owner);
            }
        }
        *owners = kept;
        if !repeated.is_empty() {
            let uids = repeated.join(", ");
            self.warnings.push(format!(
                ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may \
                 reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {uids}"
            ));
        }
    }
}

/// Sorts errors of a built-in kind by their positions in the text; a duplicate field by its second
/// position.
fn sort_as_written(complaints: &mut [String], body: &[u8]) {
    let order = Body::order(body);
    complaints.sort_by_cached_key(|complaint| {
        let (what, path) = complaint.split_once(" field ").unwrap_or_default();
        let mut places =
            order.iter().enumerate().filter(|(_, field)| *field == path.trim_matches('"'));
        let place = if what == "duplicate" { places.nth(1) } else { places.next() };
        place.map_or(usize::MAX, |(place, _)| place)
    });
}

/// Returns the errors of strict decoding: fields that occur twice, and fields that the kind does
/// not know.
pub(super) fn complaints(duplicates: Vec<String>, unknown: Vec<String>) -> Vec<String> {
    let duplicates = duplicates.into_iter().map(|path| format!("duplicate field \"{path}\""));
    duplicates.chain(unknown.into_iter().map(|path| format!("unknown field \"{path}\""))).collect()
}
