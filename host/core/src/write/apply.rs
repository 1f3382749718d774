//! Server-side apply of one object: skipped if it would change nothing, first sent without force.

use std::{borrow::Cow, sync::Arc};

use serde_json::Value;

use super::{
    Action, Run, Stop,
    conflict::{Conflict, MAX_TAKINGS, NotTaken, TAKINGS_PERIOD, conflicts},
    live::{addressed, resource_version, uid},
};
use crate::{
    api::{Answer, Method, Outgoing, Refusal},
    applied_fields::{self, Pair},
    contract::{self, ObjectRef, SameObject, display_ref},
    outcome::Manifest,
    resource::Resource,
    store::Known,
};

/// The object, the subresource and the field manager of an apply.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) resource: &'a Resource,
    pub(super) to: &'a ObjectRef,
    pub(super) manager: &'a str,
    pub(super) subresource: &'a str,
}

/// The digests of our own fields after an apply, and the API server's answer; no answer if the
/// apply was skipped.
pub(super) struct Applied {
    pub(super) own: Option<Pair>,
    pub(super) answer: Option<Value>,
}

impl Run<'_> {
    pub(super) async fn apply(&mut self, manifest: &Manifest) {
        let manager = self.managers_in(&manifest.to.kind.cluster).apply.clone();
        let own = match self.try_apply(manifest, &manager).await {
            Ok(own) => {
                self.remember_uid(&manifest.to);
                own
            }
            Err(stop) => {
                self.watch_absence(&manifest.to, &manager, &[]);
                let stop = self.stale(manifest, stop).await;
                self.stopped(contract::Action::Apply, &manifest.to, stop);
                None
            }
        };
        self.wrote(manifest, &manager, own);
    }

    async fn try_apply(
        &mut self,
        manifest: &Manifest,
        manager: &str,
    ) -> Result<Option<Pair>, Stop> {
        let resource = self.resource(&manifest.to).await?;
        let object = self.with_owners(manifest)?;
        if manifest.create_only {
            return self.create(&resource, manifest, &object).await.map(|()| None);
        }
        self.check_preconditions(&resource, manifest).await?;
        let target = Target { resource: &resource, to: &manifest.to, manager, subresource: "" };
        self.take_over(&target).await?;
        let applied = if manifest.leave.is_empty() && !self.may_hold_initial(&manifest.to) {
            self.apply_to(target, &object).await?
        } else {
            self.apply_leaving(target, &object, &manifest.leave).await?
        };
        self.remove_absent(&target, manifest, applied.answer).await?;
        Ok(applied.own)
    }

    /// Returns [`Stop::Stale`] if a write was refused because the object is no longer the one that
    /// the run has read.
    async fn stale(&self, manifest: &Manifest, stop: Stop) -> Stop {
        let Stop::Failed { refusal, managers } = &stop else { return stop };
        if !manifest.pinned || !matches!(refusal.code, 409 | 422) || !managers.is_empty() {
            return stop;
        }
        let Ok(resource) = self.resource(&manifest.to).await else { return stop };
        let read = uid(&manifest.object);
        match self.live(&resource, &manifest.to).await {
            Ok(live) if live.as_ref().and_then(uid) != read => Stop::Stale,
            _ => stop,
        }
    }

    /// Remembers the uid of a stored object whose apply was skipped: other uids come from answers.
    fn remember_uid(&mut self, of: &ObjectRef) {
        if let Known::Present(entry) = self.known(of)
            && let Some(uid) = entry.uid()
        {
            self.uids.insert(SameObject(of.clone()), uid.to_owned());
        }
    }

    /// Returns whether `/initial` owns fields that may have to be given up now.
    fn may_hold_initial(&self, of: &ObjectRef) -> bool {
        let initial = &self.managers_in(&of.kind.cluster).initial;
        matches!(self.known(of), Known::Present(entry) if entry.own().get(initial, "").is_some())
    }

    /// Applies an object or status, unless that would change nothing.
    pub(super) async fn apply_to(
        &mut self,
        target: Target<'_>,
        object: &Value,
    ) -> Result<Applied, Stop> {
        match self.skip(&target, object) {
            Some(skipped) => Ok(skipped),
            None => self.apply_now(target, object).await,
        }
    }

    /// Skips a manifest that would change nothing; `None` if the manifest has to be sent.
    pub(super) fn skip(&mut self, target: &Target<'_>, object: &Value) -> Option<Applied> {
        let managed = super::managed(target.manager, target.to);
        self.touched.insert(managed.clone());
        let Known::Present(entry) = self.known(target.to) else { return None };
        let held = |key: &str, held: Option<&str>| {
            object.pointer(key).and_then(Value::as_str).is_none_or(|wanted| held == Some(wanted))
        };
        if !held("/metadata/uid", entry.uid())
            || !held("/metadata/resourceVersion", Some(entry.resource_version()))
        {
            return None;
        }
        let own = entry.own().get(target.manager, target.subresource);
        let manifest = applied_fields::of_manifest(object);
        let is_same = own.is_some_and(|own| own.values == manifest);
        let is_so =
            is_same || self.writer.memory.led_to(self.managers.identity(), &managed, manifest, own);
        self.written.skipped += usize::from(is_so);
        is_so.then_some(Applied { own, answer: None })
    }

    /// Applies without checking whether that would change anything.
    pub(super) async fn apply_now(
        &mut self,
        target: Target<'_>,
        object: &Value,
    ) -> Result<Applied, Stop> {
        let before = self.known(target.to);
        let answer = self.apply_by_force_if_need_be(target, object).await?;
        let own = self.applied(&target, object, &answer.body);
        let answered = resource_version(&answer.body);
        let is_new = !matches!(
            &before,
            Known::Present(entry) if Some(entry.resource_version()) == answered
        );
        if is_new {
            let action = match (answer.created, target.subresource) {
                (true, _) => Action::Create,
                (false, "") => Action::Update,
                (false, _) => Action::Status,
            };
            self.changed(action, target.to, answer.body.clone());
        }
        Ok(Applied { own, answer: Some(answer.body) })
    }

    /// Records the result of an apply: in the store, in memory, among the uids.
    fn applied(&mut self, target: &Target<'_>, object: &Value, answer: &Value) -> Option<Pair> {
        let own = applied_fields::of(answer).get(target.manager, target.subresource);
        let managed = super::managed(target.manager, target.to);
        self.writer.memory.sent(
            self.managers.identity(),
            managed,
            applied_fields::of_manifest(object),
            own,
        );
        self.store(target.to, answer, &Arc::new(object.clone()));
        own
    }

    /// Applies without force first; on a conflict with people and other controllers, with force.
    async fn apply_by_force_if_need_be(
        &mut self,
        target: Target<'_>,
        object: &Value,
    ) -> Result<Answer, Stop> {
        let refusal = match self.send_apply(target, object, false).await {
            Ok(answer) => return Ok(answer),
            Err(refusal) => refusal,
        };
        let conflicts = conflicts(&refusal);
        if conflicts.is_empty() {
            return Err(Stop::of(refusal, target.to));
        }
        let cluster = &target.to.kind.cluster;
        for Conflict { manager, .. } in &conflicts {
            let is_other = self.managers_in(cluster).is_other(manager);
            if is_other && !self.is_gone(manager, cluster).await {
                return Err(self.key_conflict(&target, refusal, &conflicts));
            }
        }
        if let Err(why) = self.writer.takings.take(self.context.namespace, target.to, &conflicts) {
            return Err(self.not_taken(&target, &why, refusal, &conflicts));
        }
        let answer = self.send_apply(target, object, true).await;
        let answer = answer.map_err(|refusal| Stop::of(refusal, target.to))?;
        self.written.forced.push(Arc::clone(&target.to.kind));
        let managers = self.managers_in(cluster);
        for conflict in conflicts.iter().filter(|of| managers.is_other(&of.manager)) {
            tracing::info!(key = %self.context.key, object = display_ref(target.to), field = conflict.field, theirs = conflict.manager, "a field of a key that is gone was taken over");
        }
        Ok(answer)
    }

    /// Records a conflict with another key of this host: the first value stays, and both keys get a
    /// message.
    fn key_conflict(&self, target: &Target<'_>, refusal: Refusal, conflicts: &[Conflict]) -> Stop {
        let managed = super::managed(target.manager, target.to);
        let own = self.managers_in(&target.to.kind.cluster);
        let others = conflicts.iter().filter(|conflict| own.is_other(&conflict.manager));
        let message =
            self.writer.key_conflicts.between(self.context.key, managed, target.to, others);
        tracing::warn!(key = %self.context.key, object = display_ref(target.to), message, "field conflict between two reconciled objects");
        Stop::Failed { refusal: Refusal { message, ..refusal }, managers: managers(conflicts) }
    }

    fn not_taken(
        &mut self,
        target: &Target<'_>,
        why: &NotTaken,
        refusal: Refusal,
        conflicts: &[Conflict],
    ) -> Stop {
        let (object, minutes) = (display_ref(target.to), TAKINGS_PERIOD.as_secs() / 60);
        let message = match why {
            NotTaken::TooOften(Conflict { field, manager }) => {
                tracing::warn!(key = %self.context.key, object, field, theirs = manager, ours = target.manager, "two managers take a field from each other");
                format!(
                    "`{field}` of {object} was taken from `{manager}` by `{}` {MAX_TAKINGS} times within {minutes} minutes, and is not taken again for now",
                    target.manager,
                )
            }
            NotTaken::TooMany => format!(
                "fields of {object} are held by others, and not taken for now: the processors of namespace `{}` have taken too many fields within {minutes} minutes",
                self.context.namespace,
            ),
        };
        self.warn(message.clone());
        Stop::Failed { refusal: Refusal { message, ..refusal }, managers: managers(conflicts) }
    }

    pub(super) async fn send_apply(
        &self,
        target: Target<'_>,
        object: &Value,
        force: bool,
    ) -> Result<Answer, Refusal> {
        let path = addressed(target.resource, target.to, target.subresource, target.manager, force);
        self.send(Outgoing::new(Method::Apply, path, Some(object.clone())), target.to).await
    }

    /// Creates an object; if it exists, leaves it alone.
    async fn create(
        &mut self,
        resource: &Resource,
        manifest: &Manifest,
        object: &Value,
    ) -> Result<(), Stop> {
        let to = &manifest.to;
        if matches!(self.known(to), Known::Present(_)) {
            self.written.skipped += 1;
            return Ok(());
        }
        let path = format!(
            "{}?fieldManager={}",
            resource.path(to.namespace.as_deref()),
            crate::resource::encoded(&self.managers_in(&to.kind.cluster).apply)
        );
        match self.send(Outgoing::new(Method::Post, path, Some(object.clone())), to).await {
            Ok(answer) => {
                self.store(to, &answer.body, &Arc::new(object.clone()));
                self.changed(Action::Create, to, answer.body);
            }
            Err(refusal) if refusal.code == 409 && refusal.reason == "AlreadyExists" => {
                // We may have created it and lost the answer: later writes must see it.
                if let Some(live) = self.live(resource, to).await? {
                    self.store(to, &live, &Arc::new(object.clone()));
                }
                self.written.skipped += 1;
            }
            Err(refusal) => return Err(Stop::of(refusal, to)),
        }
        Ok(())
    }

    /// Fails if the manifest has a `resourceVersion` and the object does not exist: an apply would
    /// create it.
    async fn check_preconditions(
        &self,
        resource: &Resource,
        manifest: &Manifest,
    ) -> Result<(), Stop> {
        let has = |key: &str| manifest.object.pointer(key).is_some();
        if !has("/metadata/resourceVersion") || self.uid(resource, &manifest.to).await?.is_some() {
            return Ok(());
        }
        let message = format!(
            "{} is not there with the resourceVersion that is asked for",
            display_ref(&manifest.to)
        );
        Err(Stop::unsent(409, "Conflict", message))
    }

    /// Returns the object with the uids of owners that this plan creates.
    fn with_owners<'a>(&self, manifest: &'a Manifest) -> Result<Cow<'a, Value>, Stop> {
        if manifest.made_owners.is_empty() {
            return Ok(Cow::Borrowed(&manifest.object));
        }
        let mut object = manifest.object.clone();
        for (index, owner) in &manifest.made_owners {
            let refuse = |why: &str| {
                Stop::unsent(
                    409,
                    "Conflict",
                    format!(
                        "the owner {} of {} {why}",
                        display_ref(owner),
                        display_ref(&manifest.to)
                    ),
                )
            };
            let Some(uid) = self.uids.get(&SameObject(owner.clone())) else {
                return Err(refuse("is written later than it"));
            };
            let given = object
                .pointer_mut(&format!("/metadata/ownerReferences/{index}"))
                .and_then(Value::as_object_mut);
            let held =
                given.map(|given| given.entry("uid").or_insert_with(|| Value::String(uid.clone())));
            match held {
                Some(held) if held.as_str() == Some("") => *held = Value::String(uid.clone()),
                Some(held) if held.as_str() == Some(uid) => {}
                _ => return Err(refuse("has another uid")),
            }
        }
        Ok(Cow::Owned(object))
    }
}

fn managers(conflicts: &[Conflict]) -> Vec<String> {
    let mut managers: Vec<String> =
        conflicts.iter().map(|conflict| conflict.manager.clone()).collect();
    managers.sort();
    managers.dedup();
    managers
}
