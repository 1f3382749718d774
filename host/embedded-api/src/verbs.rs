//! The verbs: the operations on the objects of a resource.

mod absent;
mod admission;
mod controller;
mod create;
mod decode;
mod delete;
mod eviction;
mod metadata;
mod patch;
mod read;
mod review;
mod scale;
mod select;
#[cfg(test)]
mod tests;
mod token;
mod update;
mod watch;
mod write;

pub(crate) use controller::{internal_apply, internal_update, update_as};
pub(crate) use watch::{Lines, open as open_watch, refused as refuse_watch};

use std::sync::Arc;

use jiff::Timestamp;

use crate::{
    Failure, Shared,
    access::User,
    answer::Answer,
    kind::Resource,
    request::{Request, ResourcePath, Verb},
    state::State,
    status::Named,
};

/// A request for a resource.
pub(crate) struct Call<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) request: &'a Request,
    pub(crate) path: &'a ResourcePath,
    pub(crate) resource: &'a Arc<Resource>,
    /// The user that is impersonated, if any.
    pub(crate) user: Option<User>,
    pub(crate) now: Timestamp,
    /// Texts for `Warning` headers.
    pub(crate) warnings: Vec<String>,
}

/// Carries out a request for a resource, except for watches.
pub(crate) fn perform(call: &mut Call<'_>, verb: Verb) -> Result<Answer, Failure> {
    check_route(call, verb)?;
    match (call.path.subresource.as_str(), verb) {
        ("scale", _) => scale::perform(call, verb),
        ("eviction", Verb::Create) => eviction::create(call),
        ("token", Verb::Create) => token::create(call),
        (_, Verb::Get) => read::get(call),
        (_, Verb::List) => read::list(call),
        (_, Verb::Create) if !call.resource.is_stored() => review::create(call),
        (_, Verb::Create) => create::create(call),
        (_, Verb::Update) => update::update(call),
        (_, Verb::Patch) => patch::patch(call),
        (_, Verb::Delete) => delete::delete(call),
        (_, Verb::DeleteCollection) => delete::delete_collection(call),
        (_, Verb::Watch) => Err(Failure::method_not_allowed()),
    }
}

/// Fails if the path or the verb does not fit the resource.
pub(crate) fn check_route(call: &Call<'_>, verb: Verb) -> Result<(), Failure> {
    let Call { path, resource, .. } = call;
    let not_served = || {
        if resource.is_custom() { Failure::no_such_page() } else { Failure::no_such_resource() }
    };
    let reads_all = matches!(verb, Verb::List | Verb::Watch);
    let lacks_namespace = resource.namespaced && path.namespace.is_empty() && !reads_all;
    // The objects of a built-in kind in all namespaces have a path, which can only be read.
    let is_read_only = lacks_namespace && path.name.is_empty() && !resource.is_custom();
    let has_wrong_scope = !resource.namespaced && !path.namespace.is_empty();
    if has_wrong_scope || (lacks_namespace && !is_read_only) {
        return Err(not_served());
    }
    if let Some(refusal) = absent::refusal(path) {
        return Err(refusal);
    }
    let allowed = if path.subresource.is_empty() {
        resource.verbs
    } else {
        let found = resource.subresource(&path.subresource);
        let absent = || {
            if resource.is_custom() {
                Failure::not_found(call.named(&path.name))
            } else {
                not_served()
            }
        };
        found.ok_or_else(absent)?.verbs
    };
    let needs_name = matches!(verb, Verb::Update | Verb::Patch) || !path.subresource.is_empty();
    let at_collection = path.name.is_empty();
    let misplaced = match verb {
        Verb::Create => path.subresource.is_empty() && !at_collection,
        _ => needs_name && at_collection,
    };
    if misplaced || is_read_only || !allowed.contains(&verb.as_str()) {
        return Err(Failure::method_not_allowed());
    }
    Ok(())
}

// === impl Call ===

impl Call<'_> {
    /// Returns the object as failures name it: with the plural.
    pub(crate) fn named<'b>(&'b self, name: &'b str) -> Named<'b> {
        Named::new(&self.resource.group, &self.resource.plural, name)
    }

    /// Returns the place of the object that the path names.
    pub(crate) fn place(&self) -> crate::storage::Place {
        State::place_of(self.resource, &self.path.namespace, &self.path.name)
    }

    /// Returns the subresource, if the path names one.
    pub(crate) fn subresource(&self) -> Option<&str> {
        Some(self.path.subresource.as_str()).filter(|subresource| !subresource.is_empty())
    }
}
