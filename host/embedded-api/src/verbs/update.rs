//! Update: a PUT of an object, its status or the finalizers of a namespace.

use super::Call;
use super::write::{Live, Writer, check_name, fit_namespace, text};
use crate::Failure;
use crate::answer::Answer;
use crate::request::WriteOptions;
use crate::state::State;

/// Replaces an object; a few kinds are made if they are absent.
pub(super) fn update(call: &mut Call<'_>) -> Result<Answer, Failure> {
    let options = WriteOptions::of(call.request, "UpdateOptions", None)?;
    let mut new = call.decode(&options)?;
    fit_namespace(&mut new, &call.path.namespace)?;
    check_name(&new, &call.path.name)?;
    call.dedup_owners(&mut new);
    let place = call.place();
    let subresource = call.subresource().map(str::to_owned);
    let subresource = subresource.as_deref();
    let mut state = call.shared.state.write();
    let Some(image) = state.storage.get(&place).cloned() else {
        if subresource.is_some() || !creates_on_update(&call.resource.plural) {
            return Err(Failure::not_found(call.named(&call.path.name)));
        }
        let mut writer = Writer {
            state: &mut state,
            resource: call.resource,
            options: &options,
            now: call.now,
            doubts: Vec::new(),
        };
        let object = writer.track(None, new, None);
        let doubts = call.resource.warnings(&object, None);
        let shown = writer.create(&call.path.namespace, object)?;
        call.warnings.extend(doubts);
        return Ok(Answer::object(201, shown));
    };
    let uid = text(&new, "uid");
    if !uid.is_empty() && uid != image.head.uid {
        let why = format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            image.head.uid
        );
        let group = if call.resource.is_custom() {
            format!("{}/", call.resource.group)
        } else {
            String::new()
        };
        let key = format!("/registry/{group}{}/{}", call.resource.plural, place.key);
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {why}"
        );
        return Err(Failure::conflict(call.named(&call.path.name), &why));
    }
    let value = State::view(call.resource, &image);
    let live = Live { image, value };
    let mut writer = Writer {
        state: &mut state,
        resource: call.resource,
        options: &options,
        now: call.now,
        doubts: Vec::new(),
    };
    let new = writer.track(Some(&live.value), new, subresource);
    let doubts = call.resource.warnings(&new, Some(&live.value));
    let shown = writer.update(&place, &live, new, subresource)?;
    call.warnings.extend(doubts);
    call.warnings.append(&mut writer.doubts);
    Ok(Answer::object(200, shown))
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
