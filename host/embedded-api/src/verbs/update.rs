//! Update: a PUT of an object, its status or the finalizers of a namespace.

use super::Call;
use super::metadata::text;
use super::write::{Live, Writer};
use crate::Failure;
use crate::answer::Answer;
use crate::request::WriteOptions;
use crate::state::State;
use crate::storage::Image;

/// Replaces an object; a few kinds are made if they are absent.
pub(super) fn update(call: &mut Call<'_>) -> Result<Answer, Failure> {
    let options = WriteOptions::of(call.request, "UpdateOptions", None)?;
    let mut new = call.decode(&options)?;
    call.fit(&mut new, true)?;
    let mut state = call.shared.state.write();
    let Some(image) = state.storage.get(&call.place()).cloned() else {
        if call.subresource().is_some() || !creates_on_update(&call.resource.plural) {
            return Err(Failure::not_found(call.named(&call.path.name)));
        }
        let writer = Writer::new(&mut state, call, &options);
        let object = writer.track(None, new, None);
        return writer.answer_new(call, object);
    };
    check_uid(call, &text(&new, "uid"), &image)?;
    let value = State::view(call.resource, &image);
    let live = Live { image, value };
    let writer = Writer::new(&mut state, call, &options);
    let new = writer.track(Some(&live.value), new, call.subresource());
    writer.answer_changed(call, &live, new)
}

/// A uid that is sent must be that of the object.
fn check_uid(call: &Call<'_>, uid: &str, image: &Image) -> Result<(), Failure> {
    if uid.is_empty() || uid == image.head.uid {
        return Ok(());
    }
    let why = format!(
        "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
        image.head.uid
    );
    let group =
        if call.resource.is_custom() { format!("{}/", call.resource.group) } else { String::new() };
    let key = format!("/registry/{group}{}/{}", call.resource.plural, call.place().key);
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {why}"
    );
    Err(Failure::conflict(call.named(&call.path.name), &why))
}

/// Kinds that a PUT makes.
fn creates_on_update(plural: &str) -> bool {
    const KINDS: [&str; 9] = [
        "clusterrolebindings",
        "clusterroles",
        "endpoints",
        "events",
        "leases",
        "limitranges",
        "rolebindings",
        "roles",
        "services",
    ];
    KINDS.contains(&plural)
}
