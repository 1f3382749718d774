//! Update: a PUT of an object, its status or the finalizers of a namespace.

use super::{
    Call,
    metadata::text,
    write::{Live, Writer},
};
use crate::{Failure, answer::Answer, kind::Resource, request::WriteOptions, state::State};

/// Replaces an object; objects of a few kinds are created if they are absent.
pub(super) fn update(call: &mut Call<'_>) -> Result<Answer, Failure> {
    let options = WriteOptions::of(call.request, "UpdateOptions", None)?;
    let mut new = call.decode(&options)?;
    call.fit(&mut new, true)?;
    let mut state = call.shared.state.write();
    let Some(image) = state.storage.get(&call.place()).cloned() else {
        if !creates_on_update(call.resource) {
            return Err(Failure::not_found(call.named(&call.path.name)));
        }
        check_uid(call, &text(&new, "uid"), "", options.dry_run)?;
        let writer = Writer::new(&mut state, call, &options).by_update();
        let object = writer.track(None, new, call.subresource());
        return writer.answer_new(call, object);
    };
    check_uid(call, &text(&new, "uid"), &image.head.uid, options.dry_run)?;
    let value = State::view(call.resource, &image)?;
    let live = Live { image, value };
    let writer = Writer::new(&mut state, call, &options);
    let new = writer.track(Some(&live.value), new, call.subresource());
    writer.answer_changed(call, &live, new)
}

/// Fails with 409 if the request has a uid that is not that of the object; an absent object has
/// none. The message of a dry run shows another storage key.
fn check_uid(call: &Call<'_>, uid: &str, of_live: &str, dry_run: bool) -> Result<(), Failure> {
    if uid.is_empty() || uid == of_live {
        return Ok(());
    }
    let why =
        format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {of_live}");
    let group =
        if call.resource.is_custom() { format!("{}/", call.resource.group) } else { String::new() };
    let place = match call.resource.plural.as_str() {
        "endpoints" => "services/endpoints",
        "ingresses" => "ingress",
        "nodes" => "minions",
        "replicationcontrollers" => "controllers",
        "services" => "services/specs",
        plural => plural,
    };
    let root = if dry_run { "" } else { "/registry" };
    let key = format!("{root}/{group}{place}/{}", call.place().key);
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {why}"
    );
    Err(Failure::conflict(call.named(&call.path.name), &why))
}

/// Returns whether a PUT of an absent object, or of its status, creates the object.
pub(super) fn creates_on_update(resource: &Resource) -> bool {
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
    !resource.is_custom() && KINDS.contains(&resource.plural.as_str())
}
