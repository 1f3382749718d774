//! `evict`, `delete` and `prune`.

use serde_json::{Map, Value, json};

use super::{Run, Sent, Stop};
use crate::{
    Action, Deletion, ObjectRef, Propagation, Selection, Verbs,
    testing::{
        check::Plan,
        cluster::{Method, encoded},
        identity::{Identity, named, reference_of, text},
        known::Query,
        place::managers,
    },
};

impl Run<'_> {
    pub(super) fn evict(&mut self, eviction: &Deletion) {
        let of = &eviction.ref_;
        if let Err(stop) = self.try_evict(eviction) {
            self.stopped(Action::Evict, of, stop);
        }
    }

    fn try_evict(&mut self, eviction: &Deletion) -> Result<(), Stop> {
        let of = &eviction.ref_;
        let path = self.path(of, "/eviction", &self.managers.edit)?;
        let live = self.cluster.get(of);
        if live.as_ref().is_some_and(|live| !self.check.may_write(Verbs::EVICT, of, live)) {
            return Err(Stop::outside(of));
        }
        let body = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": of.name, "namespace": of.namespace},
            "deleteOptions": options(eviction, None),
        });
        match self.send(Method::Post, &path, &body, of) {
            Ok(_) => {
                self.changed("evict", live.unwrap_or_else(|| named(of, None)));
                self.written.sent.push(Sent::Deleted(of.clone()));
                Ok(())
            }
            Err(stop) => self.unless_gone(eviction, stop),
        }
    }

    pub(super) fn delete(&mut self, deletion: &Deletion) {
        let of = &deletion.ref_;
        // What the cluster does not know is gone.
        if self.cluster.resource(&of.kind).is_none() {
            return;
        }
        let live = self.cluster.get(of);
        let done =
            if live.as_ref().is_some_and(|live| !self.check.may_write(Verbs::DELETE, of, live)) {
                Err(Stop::outside(of))
            } else {
                self.send_delete(of, &options(deletion, None), live)
                    .or_else(|stop| self.unless_gone(deletion, stop))
            };
        if let Err(stop) = done {
            self.stopped(Action::Delete, of, stop);
        }
    }

    /// Takes a refusal for a failure, unless what was to go is not there: no such object, or one with another uid.
    fn unless_gone(&self, deletion: &Deletion, stop: Stop) -> Result<(), Stop> {
        let Stop::Failed(refusal) = &stop else { return Err(stop) };
        let is_gone = match (refusal.code, &deletion.uid) {
            (404, _) => true,
            (409, Some(wanted)) if refusal.reason == "Conflict" => {
                let live = self.cluster.get(&deletion.ref_);
                live.is_none_or(|live| text(&live, "/metadata/uid") != wanted)
            }
            _ => false,
        };
        if is_gone { Ok(()) } else { Err(stop) }
    }

    fn send_delete(
        &mut self,
        of: &ObjectRef,
        options: &Value,
        live: Option<Value>,
    ) -> Result<(), Stop> {
        let path = self.path(of, "", &self.managers.edit)?;
        self.send(Method::Delete, &path, options, of)?;
        self.changed("delete", live.unwrap_or_else(|| named(of, None)));
        self.written.sent.push(Sent::Deleted(of.clone()));
        Ok(())
    }

    // === prune ===

    pub(super) fn prune(&mut self, of: &Selection, plan: &Plan) {
        let place = ObjectRef::new(
            of.kind.clone(),
            of.namespace.as_deref(),
            of.name.clone().unwrap_or_default(),
        );
        let candidates = match self.candidates(of, &place) {
            Ok(candidates) => candidates,
            Err(stop) => return self.stopped(Action::Prune, &place, stop),
        };
        let kept: Vec<Identity> =
            plan.apply.iter().map(|planned| Identity::of_ref(&planned.to)).collect();
        for candidate in candidates {
            if kept.contains(&Identity::of(&candidate)) {
                continue;
            }
            let named = ObjectRef { kind: of.kind.clone(), ..reference_of(&candidate) };
            if let Err(stop) = self.prune_one(&named, &candidate) {
                self.stopped(Action::Prune, &named, stop);
            }
        }
    }

    /// All that matches and was applied for this object.
    fn candidates(&self, of: &Selection, place: &ObjectRef) -> Result<Vec<Value>, Stop> {
        let Some(resource) = self.cluster.resource(&of.kind) else { return Ok(Vec::new()) };
        let path = resource.path(of.namespace.as_deref());
        let path = format!("{path}?labelSelector={}", encoded(&of.labels));
        let list = self.cluster.send(Method::Get, &path, None);
        let list = list.map_err(|refusal| Stop::of(refusal, place))?.body;
        let query = Query::new(of).map_err(|error| Stop::unsent(400, "BadRequest", error))?;
        let mut found = list.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
        for item in &mut found {
            // What a list holds does not say of which kind it is.
            if let Some(item) = item.as_object_mut() {
                item.insert("apiVersion".to_owned(), of.kind.api_version().into());
                item.insert("kind".to_owned(), of.kind.kind.as_str().into());
            }
        }
        found.retain(|item| {
            query.matches(item) && managers(item).any(|(name, ..)| name == self.managers.apply)
        });
        Ok(found)
    }

    /// Deletes one object, or lets it go where others have applied it too.
    fn prune_one(&mut self, of: &ObjectRef, candidate: &Value) -> Result<(), Stop> {
        if managers(candidate).any(|(name, ..)| self.managers.is_other_apply(name)) {
            return self.let_go(of, candidate);
        }
        if candidate.pointer("/metadata/deletionTimestamp").is_some() {
            return Ok(());
        }
        let deletion = Deletion::new(of.clone()).uid(text(candidate, "/metadata/uid"));
        let version = text(candidate, "/metadata/resourceVersion");
        let options = options(&deletion, Some(version));
        match self.send_delete(of, &options, Some(candidate.clone())) {
            Err(Stop::Failed(refusal)) if refusal.code == 404 => Ok(()),
            done => done,
        }
    }

    /// Gives up our fields: what others have applied stays.
    fn let_go(&mut self, of: &ObjectRef, candidate: &Value) -> Result<(), Stop> {
        let object = named(of, Some(text(candidate, "/metadata/uid")));
        for manager in [self.managers.initial.clone(), self.managers.apply.clone()] {
            let has_applied = |(name, applied, subresource, _): (&str, bool, &str, &Value)| {
                name == manager && applied && subresource.is_empty()
            };
            if managers(candidate).any(has_applied) {
                let answer = self.apply_to(of, "", &manager, &object)?.body;
                self.changed("update", answer.clone());
                self.answered(of, object.clone(), &answer);
            }
        }
        Ok(())
    }
}

/// A `DeleteOptions`.
fn options(deletion: &Deletion, resource_version: Option<&str>) -> Value {
    let policy = match deletion.propagation {
        Propagation::Background => "Background",
        Propagation::Foreground => "Foreground",
        Propagation::Orphan => "Orphan",
    };
    let text = |key: &str, held: Option<&str>| Some((key.to_owned(), Value::from(held?)));
    let preconditions: Map<String, Value> =
        [text("uid", deletion.uid.as_deref()), text("resourceVersion", resource_version)]
            .into_iter()
            .flatten()
            .collect();
    let mut options =
        json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy});
    if let Some(options) = options.as_object_mut() {
        let grace = deletion.grace_period;
        options.extend(grace.map(|seconds| ("gracePeriodSeconds".to_owned(), seconds.into())));
        if !preconditions.is_empty() {
            options.insert("preconditions".to_owned(), Value::Object(preconditions));
        }
    }
    options
}
