//! Deletes objects that were applied for this reconciled object before and are not in the plan.

use std::{collections::HashSet, sync::Arc, time::Duration};

use serde_json::Value;
use tokio::time::Instant;

use super::{
    Run, Stop,
    apply::Target,
    leave::MAX_ATTEMPTS,
    live::{named, resource_version, uid},
    removal::{Preconditions, delete_options, unreadable},
};
use crate::{
    api::Outgoing,
    applied_fields::{self, Digests, manager::FieldManagers},
    contract::{
        self, Kind, ObjectRef, SameObject,
        bounds::{
            ENTRY,
            text::{is_label, is_name},
        },
    },
    outcome::{Plan, Prune},
    reads::yield_now,
    resource::{Pages, Resource},
};

/// The account of the objects that one prune deletes without a store, some 20,000; and the time
/// after which their list is given up, as that of a watch is. The list of another cluster need not
/// end.
const MAX_CANDIDATE_BYTES: usize = 8 << 20;
const MAX_LIST_AGE: Duration = Duration::from_mins(15);

/// An object that may have to be deleted.
struct Candidate {
    of: ObjectRef,
    uid: String,
    resource_version: String,
    own: Digests,
    is_deleting: bool,
}

impl Run<'_> {
    pub(super) async fn prune(&mut self, prune: &Prune, plan: &Plan) {
        let named = ObjectRef {
            kind: prune.of.kind.clone(),
            namespace: prune.of.namespace.clone(),
            name: prune.of.name.clone().unwrap_or_default(),
        };
        // Each searches a store.
        yield_now().await;
        let kept: HashSet<SameObject<&ObjectRef>> =
            plan.apply.iter().map(|manifest| SameObject(&manifest.to)).collect();
        let (candidates, are_all) = match self.candidates(prune, &kept).await {
            Ok(candidates) => candidates,
            Err(stop) => return self.stopped(contract::Action::Prune, &named, stop),
        };
        if !are_all {
            let message = format!(
                "only the first {} objects are pruned at once: the next run prunes further ones",
                candidates.len()
            );
            let stop = Stop::unsent(413, "TooManyObjects", message);
            self.stopped(contract::Action::Prune, &named, stop);
        }
        for candidate in candidates {
            let of = candidate.of.clone();
            if let Err(stop) = self.prune_one(prune, candidate).await {
                self.stopped(contract::Action::Prune, &of, stop);
            }
        }
    }

    /// Returns the objects that match the selection, were applied before and are not `kept`, and
    /// whether these are all: from the store if it is complete, else from a list request, which
    /// ends when they are too many.
    async fn candidates(
        &self,
        prune: &Prune,
        kept: &HashSet<SameObject<&ObjectRef>>,
    ) -> Result<(Vec<Candidate>, bool), Stop> {
        let Some(resource) = self.resource_of(&prune.of.kind).await? else {
            return Ok((Vec::new(), true));
        };
        let manager = &self.managers_in(&prune.of.kind.cluster).apply;
        let is_one = |candidate: &Candidate| {
            !kept.contains(&SameObject(&candidate.of)) && candidate.own.holds(manager)
        };
        let stored = self
            .writer
            .stores
            .applied(&prune.of, manager)
            .map_err(|error| Stop::unsent(400, "BadRequest", error))?;
        if let Some(entries) = stored.filter(|_| self.may_list(&prune.of)) {
            let found = entries
                .iter()
                .filter_map(|entry| candidate(&prune.of.kind, &entry.value(), entry.own().clone()))
                .filter(is_one);
            return Ok((found.collect(), true));
        }
        self.list(&resource, prune, is_one).await
    }

    async fn list(
        &self,
        resource: &Resource,
        prune: &Prune,
        is_one: impl Fn(&Candidate) -> bool,
    ) -> Result<(Vec<Candidate>, bool), Stop> {
        let begun = Instant::now();
        let (mut found, mut bytes) = (Vec::new(), 0);
        let path = resource.path(prune.of.namespace.as_deref());
        let pages = Pages::of(&path, prune.of.name.as_deref());
        let mut pages = pages.with("labelSelector", &prune.of.labels);
        let named = ObjectRef {
            kind: prune.of.kind.clone(),
            namespace: prune.of.namespace.clone(),
            name: String::new(),
        };
        loop {
            let metadata_only = prune.matching.is_empty();
            let outgoing = Outgoing { metadata_only, ..Outgoing::get(pages.path()) };
            let list = match self.send(outgoing, &named).await {
                Ok(answer) => answer.body,
                // The kind is not served any more.
                Err(refusal) if refusal.code == 404 => return Ok((Vec::new(), true)),
                Err(refusal) => return Err(Stop::of(refusal, &named)),
            };
            let items = list.get("items").and_then(Value::as_array).into_iter().flatten();
            let items = items
                .filter(|item| matches(prune, item))
                .filter_map(|item| candidate(&prune.of.kind, item, applied_fields::of(item)));
            for item in items.filter(&is_one) {
                bytes += item.bytes();
                if bytes > MAX_CANDIDATE_BYTES {
                    return Ok((found, false));
                }
                found.push(item);
            }
            if !pages.turn(&list) {
                return Ok((found, true));
            }
            if begun.elapsed() > MAX_LIST_AGE {
                let message = format!("the list has not ended within {MAX_LIST_AGE:?}");
                return Err(Stop::unsent(0, "", message));
            }
        }
    }

    /// Deletes one object, or gives up its fields if others have applied it too.
    async fn prune_one(&mut self, prune: &Prune, mut candidate: Candidate) -> Result<(), Stop> {
        let resource = self.resource(&candidate.of).await?;
        for round in 1.. {
            if self.is_applied_by_others(&candidate).await {
                return self.release_fields(&resource, &candidate).await;
            }
            if candidate.is_deleting {
                return Ok(());
            }
            let preconditions = Preconditions {
                uid: Some(&candidate.uid),
                resource_version: Some(&candidate.resource_version),
            };
            let refusal = match self
                .send_delete(
                    &resource,
                    &candidate.of,
                    delete_options("Background", None, preconditions),
                )
                .await
            {
                Ok(()) => return Ok(()),
                Err(refusal) if refusal.code == 404 => return Ok(()),
                Err(refusal) => refusal,
            };
            if refusal.code != 409 || round == MAX_ATTEMPTS {
                return Err(Stop::of(refusal, &candidate.of));
            }
            // The object has changed since: check again whether it has to be deleted.
            let Some(live) = self.live(&resource, &candidate.of).await? else { return Ok(()) };
            let is_same = uid(&live) == Some(&candidate.uid) && matches(prune, &live);
            let of = candidate.of.clone();
            candidate = self::candidate(&of.kind, &live, applied_fields::of(&live))
                .ok_or_else(|| unreadable(&of))?;
            if !is_same || !candidate.own.holds(&self.managers_in(&of.kind.cluster).apply) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Returns whether another key has applied the object too. A key that is gone does not count.
    async fn is_applied_by_others(&mut self, candidate: &Candidate) -> bool {
        let cluster = &candidate.of.kind.cluster;
        let others = candidate.own.iter().map(|own| &*own.manager);
        let others = others.filter(|of| self.managers_in(cluster).is_other_apply(of));
        for manager in others.collect::<Vec<_>>() {
            if !self.is_gone(manager, cluster).await {
                return true;
            }
        }
        false
    }

    /// Gives up our fields of an object: the fields that others have applied stay.
    async fn release_fields(
        &mut self,
        resource: &Resource,
        candidate: &Candidate,
    ) -> Result<(), Stop> {
        let of = &candidate.of;
        let object = named(of, Some(&candidate.uid));
        let FieldManagers { initial, apply, .. } = self.managers_in(&of.kind.cluster).clone();
        for manager in [initial, apply] {
            if candidate.own.get(&manager, "").is_none() {
                continue;
            }
            let target = Target { resource, to: of, manager: &manager, subresource: "" };
            match self.apply_now(target, &object).await {
                Ok(_) => {}
                Err(Stop::Failed { refusal, managers })
                    if refusal.code == 409 && managers.is_empty() =>
                {
                    if self
                        .live(resource, of)
                        .await?
                        .is_some_and(|live| uid(&live) == Some(&candidate.uid))
                    {
                        return Err(Stop::Failed { refusal, managers });
                    }
                }
                Err(stop) => return Err(stop),
            }
        }
        Ok(())
    }
}

// === impl Candidate ===

impl Candidate {
    /// Returns the approximate bytes in memory.
    fn bytes(&self) -> usize {
        let managers = self.own.iter().map(|own| ENTRY + own.manager.len() + own.subresource.len());
        size_of::<Self>() + ENTRY + managers.sum::<usize>()
    }
}

fn candidate(kind: &Arc<Kind>, object: &Value, own: Digests) -> Option<Candidate> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    Some(Candidate {
        of: ObjectRef {
            kind: Arc::clone(kind),
            namespace: text("/metadata/namespace").filter(|namespace| is_label(namespace)),
            name: text("/metadata/name").filter(|name| is_name(name))?,
        },
        uid: uid(object)?.to_owned(),
        resource_version: resource_version(object)?.to_owned(),
        own,
        is_deleting: text("/metadata/deletionTimestamp").is_some(),
    })
}

fn matches(prune: &Prune, object: &Value) -> bool {
    prune.labels.matches_object(object)
        && prune.matching.iter().all(|(path, wanted)| path.holds(object, wanted))
}
