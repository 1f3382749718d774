//! Delete: one object, or all objects that a selector matches.

use super::{Call, admission::Question, decode::Part, read::select, select::Selection};
use crate::{
    Failure,
    answer::{Answer, List, Shown},
    builtin::edit::{child, set},
    collect::{Deleted, Deletion},
    request::{DeleteOptions, ListOptions, WriteOptions},
    state::State,
    storage::Image,
};

/// Kinds whose deletion is answered with the object instead of a `Status`.
const ANSWER_OBJECT: [&str; 8] = [
    "namespaces",
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "podtemplates",
    "resourcequotas",
    "serviceaccounts",
    "services",
];

/// Namespaces that cannot be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-public", "kube-system"];

/// Deletes an object, or marks it for deletion.
pub(super) fn delete(call: &mut Call<'_>) -> Result<Answer, Failure> {
    let options = DeleteOptions::of(call.request)?;
    if call.resource.is_namespace() && IMMORTAL.contains(&call.path.name.as_str()) {
        let named = call.named(&call.path.name);
        return Err(Failure::forbidden(named, "this namespace may not be deleted"));
    }
    let place = call.place();
    let mut state = call.shared.state.write();
    if let Some(image) = state.storage.get(&place).cloned() {
        ask_webhooks(call, &image, options.dry_run)?;
    }
    let deletion = Deletion { resource: call.resource, options: &options, now: call.now };
    let deleted = state.delete(&place, &deletion)?;
    let answer = match &deleted {
        Deleted::Gone(image) if answers_object(call) => {
            let mut object = State::view(call.resource, image)?;
            call.resource.complete(&mut object);
            if let Some(metadata) = child(&mut object, "metadata").filter(|_| !options.dry_run) {
                set(metadata, "resourceVersion", state.storage.revision().to_string());
            }
            Answer::object(200, Shown::Value(object))
        }
        Deleted::Gone(image) => Answer::deleted(call.resource, &image.head.name, &image.head.uid),
        Deleted::Kept(image) => {
            let code = if options.orphan_dependents == Some(false) { 202 } else { 200 };
            Answer::object(code, State::show(call.resource, image)?)
        }
    };
    state.settle(call.now);
    Ok(answer)
}

/// Deletes all objects that the selectors match; answers with the objects before deletion.
pub(super) fn delete_collection(call: &mut Call<'_>) -> Result<Answer, Failure> {
    let options = DeleteOptions::of(call.request)?;
    let list_options = ListOptions::of(&call.request.query, false)?;
    let selection = Selection::of(call.path, &list_options, call.resource)?;
    let mut state = call.shared.state.write();
    let mut items = Vec::new();
    for image in select(call, &state, &selection)? {
        let place = State::place_of(call.resource, image.head.namespace(), &image.head.name);
        items.push(State::show(call.resource, &image)?);
        ask_webhooks(call, &image, options.dry_run)?;
        let deletion = Deletion { resource: call.resource, options: &options, now: call.now };
        match state.delete(&place, &deletion) {
            Err(failure) if failure.code() != 404 => return Err(failure),
            _ => {}
        }
    }
    state.settle(call.now);
    let resource_version = state.storage.revision().to_string();
    Ok(Answer::list(List {
        items,
        resource_version,
        continue_token: String::new(),
        remaining: None,
    }))
}

/// Asks the webhooks about the deletion of an object. An object that cannot be converted is not
/// deleted in this version.
fn ask_webhooks(call: &mut Call<'_>, image: &Image, dry_run: bool) -> Result<(), Failure> {
    let resource = call.resource;
    if resource.webhooks.get().is_none() {
        return Ok(());
    }
    let object = State::view(resource, image)?;
    let (namespace, name) = (image.head.namespace(), image.head.name.as_str());
    let question = Question { resource, namespace, name, user: call.user.as_ref(), dry_run };
    call.warnings.append(&mut question.ask(None, Some(&object))?.warnings);
    Ok(())
}

fn answers_object(call: &Call<'_>) -> bool {
    call.resource.group.is_empty() && ANSWER_OBJECT.contains(&call.resource.plural.as_str())
}

/// Decodes an eviction, and the options of the deletion in it.
pub(super) fn eviction_options(
    call: &mut Call<'_>,
) -> Result<(serde_json::Value, DeleteOptions), Failure> {
    let options = WriteOptions::of(call.request, "CreateOptions", None)?;
    let eviction = call.decode_part(Part::EVICTION, options.field_validation)?;
    let mut deletion = match eviction.get("deleteOptions").filter(|options| !options.is_null()) {
        Some(options) => DeleteOptions::from_value(options)?,
        None => DeleteOptions::default(),
    };
    deletion.dry_run |= options.dry_run;
    Ok((eviction, deletion))
}
