//! Evictions and deletions.

use serde_json::{Map, Value, json};

use super::{
    Action, Run, Stop,
    live::{addressed, identity, named, uid},
};
use crate::{
    api::{Method, Outgoing, Refusal},
    contract::{self, ObjectRef, Propagation, Verbs, display_ref},
    outcome::Deletion,
    resource::Resource,
    store::Known,
};

/// The preconditions of a deletion, which identify the object to delete.
#[derive(Clone, Copy, Default)]
pub(super) struct Preconditions<'a> {
    pub(super) uid: Option<&'a str>,
    pub(super) resource_version: Option<&'a str>,
}

impl Run<'_> {
    pub(super) async fn evict(&mut self, eviction: &Deletion) {
        if let Err(stop) = self.try_evict(eviction).await {
            let was_failed = self.failed;
            let is_refused =
                matches!(&stop, Stop::Failed { refusal, .. } if refusal.is_of_budget());
            self.stopped(contract::Action::Evict, &eviction.of, stop);
            if is_refused {
                self.failed = was_failed;
                self.written.refused_evictions += 1;
            }
        }
    }

    async fn try_evict(&mut self, eviction: &Deletion) -> Result<(), Stop> {
        let of = &eviction.of;
        let resource = self.resource(of).await?;
        if let Some(within) = &eviction.within
            && self.live(&resource, of).await?.is_some()
        {
            self.check_within(&resource, of, Verbs::EVICT, within).await?;
        }
        let body = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": of.name, "namespace": of.namespace},
            "deleteOptions": options(eviction, Preconditions { uid: eviction.uid.as_deref(), ..Preconditions::default() }),
        });
        let path =
            addressed(&resource, of, "eviction", &self.managers_in(&of.kind.cluster).edit, false);
        match self.send(Outgoing::new(Method::Post, path, Some(body)), of).await {
            Ok(_) => {
                let known = self.last_known(of);
                self.changed(Action::Evict, of, known);
                Ok(())
            }
            Err(refusal) => self.unless_gone(&resource, eviction, refusal).await,
        }
    }

    pub(super) async fn delete(&mut self, deletion: &Deletion) {
        if let Err(stop) = self.try_delete(deletion).await {
            self.stopped(contract::Action::Delete, &deletion.of, stop);
        }
    }

    async fn try_delete(&mut self, deletion: &Deletion) -> Result<(), Stop> {
        let of = &deletion.of;
        // An object of a kind that the cluster does not serve is gone.
        let Some(resource) = self.resource_of(&of.kind).await? else { return Ok(()) };
        if let Some(within) = &deletion.within
            && self.live(&resource, of).await?.is_some()
        {
            self.check_within(&resource, of, Verbs::DELETE, within).await?;
        }
        let preconditions =
            Preconditions { uid: deletion.uid.as_deref(), ..Preconditions::default() };
        match self.send_delete(&resource, of, options(deletion, preconditions)).await {
            Err(refusal) => self.unless_gone(&resource, deletion, refusal).await,
            Ok(()) => Ok(()),
        }
    }

    /// Returns a refusal as a failure, unless the object to be deleted is gone: there is none, or
    /// one with another uid. A 409 alone does not prove that: the API server also answers 409 for
    /// an object that has changed.
    async fn unless_gone(
        &self,
        resource: &Resource,
        deletion: &Deletion,
        refusal: Refusal,
    ) -> Result<(), Stop> {
        let of = &deletion.of;
        let is_gone = match (refusal.code, deletion.uid.as_deref()) {
            (404, _) => true,
            (409, Some(wanted)) if refusal.reason == "Conflict" => {
                let live = self.live(resource, of).await?;
                live.is_none_or(|live| uid(&live) != Some(wanted))
            }
            _ => false,
        };
        if is_gone { Ok(()) } else { Err(Stop::of(refusal, of)) }
    }

    /// Sends a DELETE and records its result in the store and in the changes.
    pub(super) async fn send_delete(
        &mut self,
        resource: &Resource,
        of: &ObjectRef,
        options: Value,
    ) -> Result<(), Refusal> {
        let known = self.last_known(of);
        let path = resource.path_of(of.namespace.as_deref(), &of.name);
        let answer = self.send(Outgoing::new(Method::Delete, path, Some(options)), of).await?.body;
        // An object in the answer is still being deleted; a `Status` says that it is gone.
        if answer.get("kind").and_then(Value::as_str) == Some("Status") {
            let gone = identity(&answer, "/details/uid").or_else(|| uid(&known));
            self.writer.stores.deleted(
                &of.kind,
                of.namespace.as_deref(),
                &of.name,
                gone,
                self.context.key,
            );
        }
        self.changed(Action::Delete, of, known);
        Ok(())
    }

    /// Returns the object as the store has it, else only the fields that name it.
    fn last_known(&self, of: &ObjectRef) -> Value {
        if let Known::Present(entry) = self.known(of) {
            return entry.value();
        }
        named(of, None)
    }
}

fn options(deletion: &Deletion, preconditions: Preconditions<'_>) -> Value {
    let policy = match deletion.propagation {
        Propagation::Background => "Background",
        Propagation::Foreground => "Foreground",
        Propagation::Orphan => "Orphan",
    };
    delete_options(policy, deletion.grace_period, preconditions)
}

pub(super) fn delete_options(
    policy: &str,
    grace_period: Option<u32>,
    preconditions: Preconditions<'_>,
) -> Value {
    let mut options =
        json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy});
    let mut given = Map::new();
    given.extend(preconditions.uid.map(|uid| ("uid".to_owned(), Value::String(uid.to_owned()))));
    given.extend(
        preconditions
            .resource_version
            .map(|version| ("resourceVersion".to_owned(), Value::String(version.to_owned()))),
    );
    if let Some(options) = options.as_object_mut() {
        options.extend(
            grace_period.map(|seconds| ("gracePeriodSeconds".to_owned(), Value::from(seconds))),
        );
        if !given.is_empty() {
            options.insert("preconditions".to_owned(), Value::Object(given));
        }
    }
    options
}

/// Returns the failure for a candidate of a prune that has no uid.
pub(super) fn unreadable(of: &ObjectRef) -> Stop {
    Stop::unsent(0, "", format!("{} has no uid", display_ref(of)))
}
