//! `apply` and `patch`: server-side apply, first without force.

use std::{borrow::Cow, collections::BTreeSet};

use serde_json::{Value, json};

use super::{Run, Stop, Wrote, is_new, own};
use crate::{
    Action, ObjectRef, Verbs,
    testing::{
        check::{Planned, shown},
        cluster::{Answer, Method, Refusal, encoded},
        identity::{Identity, named, text},
        path::Path,
        place::{applied, only, sent_fields, without},
    },
};

impl Run<'_> {
    pub(super) fn apply(&mut self, planned: &Planned) {
        let manager = self.managers.apply.clone();
        let done = self.try_apply(planned, &manager);
        if let Some(live) = done.is_ok().then(|| self.cluster.get(&planned.to)).flatten() {
            let uid = text(&live, "/metadata/uid").to_owned();
            self.uids.insert(Identity::of_ref(&planned.to), uid);
        }
        let is_own = done.is_ok() && !planned.create_only;
        if let Err(stop) = done {
            self.stopped(Action::Apply, &planned.to, stop);
        }
        self.wrote(planned, manager, is_own);
    }

    fn wrote(&mut self, planned: &Planned, manager: String, is_own: bool) {
        let of = planned.to.clone();
        let (own, absent) = if is_own {
            (own(self.cluster, &of, &manager), planned.absent.clone())
        } else {
            (None, Vec::new())
        };
        self.written.wrote.push(Wrote { of, manager, own, absent });
    }

    fn try_apply(&mut self, planned: &Planned, manager: &str) -> Result<(), Stop> {
        let to = &planned.to;
        self.path(to, "", manager)?;
        let object = self.with_owners(planned)?.into_owned();
        let live = self.cluster.get(to);
        if planned.create_only {
            return if live.is_some() { Ok(()) } else { self.create(to, &object) };
        }
        if object.pointer("/metadata/resourceVersion").is_some() && live.is_none() {
            let message =
                format!("{} is not there with the resourceVersion that is asked for", shown(to));
            return Err(Stop::unsent(409, "Conflict", message));
        }
        let initial = &self.managers.initial;
        let may_hold = live.as_ref().is_some_and(|live| applied(live, initial).is_some());
        if planned.leave.is_empty() && !may_hold {
            if !self.is_so(to, "", manager, &object) {
                self.apply_and_note(to, manager, &object)?;
            }
        } else {
            self.apply_leaving(to, manager, &object, &planned.leave)?;
        }
        self.remove_absent(to, &planned.object, &planned.absent)
    }

    fn create(&mut self, to: &ObjectRef, object: &Value) -> Result<(), Stop> {
        let Some(resource) = self.cluster.resource(&to.kind) else { return Ok(()) };
        let manager = encoded(&self.managers.apply);
        let path = format!("{}?fieldManager={manager}", resource.path(to.namespace.as_deref()));
        let answer = self.send(Method::Post, &path, object, to)?.body;
        self.changed("create", answer.clone());
        self.answered(to, object.clone(), &answer);
        Ok(())
    }

    /// Applies an object, and notes what came of it.
    fn apply_and_note(
        &mut self,
        to: &ObjectRef,
        manager: &str,
        object: &Value,
    ) -> Result<Value, Stop> {
        let before = self.cluster.get(to);
        let Answer { created, body } = self.apply_to(to, "", manager, object)?;
        if is_new(before.as_ref(), &body) {
            self.changed(if created { "create" } else { "update" }, body.clone());
        }
        self.remember(to, "", manager, (object, &body));
        self.answered(to, object.clone(), &body);
        Ok(body)
    }

    /// First without force; on a conflict with people and other controllers, with it.
    pub(super) fn apply_to(
        &self,
        to: &ObjectRef,
        subresource: &str,
        manager: &str,
        object: &Value,
    ) -> Result<Answer, Stop> {
        let path = self.path(to, subresource, manager)?;
        match self.send(Method::Apply, &path, object, to) {
            Err(Stop::Failed(refusal)) => {
                let managers = refusal.conflicting_managers();
                let is_other = |manager: &String| self.managers.is_other(manager);
                if managers.iter().any(is_other) {
                    return Err(Stop::Failed(self.disputed(to, refusal)));
                }
                if managers.is_empty() {
                    return Err(Stop::Failed(refusal));
                }
                self.send(Method::Apply, &format!("{path}&force=true"), object, to)
            }
            answer => answer,
        }
    }

    /// Another key wants the same object: what is there stays.
    fn disputed(&self, to: &ObjectRef, refusal: Refusal) -> Refusal {
        let listed = |texts: BTreeSet<String>| texts.into_iter().collect::<Vec<_>>().join(", ");
        let others: Vec<(String, String)> = refusal
            .conflicts()
            .into_iter()
            .filter(|(manager, _)| self.managers.is_other(manager))
            .collect();
        let names = others.iter().map(|(manager, _)| {
            let known = self.managers.others.iter().find(|(mark, _)| manager.contains(*mark));
            format!("`{}`", known.map_or(manager, |(_, key)| key))
        });
        let (names, object) = (listed(names.collect()), shown(to));
        let fields = listed(others.iter().map(|(_, field)| format!("`{field}`")).collect());
        let message = format!(
            "two reconciles want one object: {names} has set {fields} of {object} otherwise, and what was there first stays"
        );
        Refusal { message, ..refusal }
    }

    /// Applies an object without the fields that are left alone, if it is there. What of them was ours goes to `/initial`, with
    /// the values that it has by now, so that our apply gives it up without removing it.
    fn apply_leaving(
        &mut self,
        to: &ObjectRef,
        manager: &str,
        object: &Value,
        leave: &[Path],
    ) -> Result<(), Stop> {
        let reduced = without(object.clone(), leave);
        if !leave.is_empty() && self.is_so(to, "", manager, &reduced) {
            return Ok(());
        }
        let live = match self.cluster.get(to) {
            Some(live) => live,
            None => self.apply_and_note(to, manager, object)?,
        };
        let initial = self.managers.initial.clone();
        let held_by = |live: &Value, manager: &str| {
            applied(live, manager).map_or_else(|| json!({}), |held| sent_fields(&held))
        };
        let held = held_by(&live, &initial);
        let grown = lay_over_maps(held.clone(), only(&held_by(&live, manager), leave));
        if grown != held {
            self.hold(to, &initial, &live, grown)?;
        }
        let answer = self.apply_and_note(to, manager, &reduced)?;
        let held = held_by(&answer, &initial);
        let kept = only(&held, leave);
        if kept != held {
            self.hold(to, &initial, &answer, kept)?;
        }
        Ok(())
    }

    /// Has `/initial` hold these fields and no others.
    fn hold(
        &mut self,
        to: &ObjectRef,
        initial: &str,
        live: &Value,
        fields: Value,
    ) -> Result<(), Stop> {
        let object = lay_over_maps(fields, named(to, Some(text(live, "/metadata/uid"))));
        let path = self.path(to, "", initial)?;
        let answer = self.send(Method::Apply, &path, &object, to)?.body;
        self.answered(to, object, &answer);
        Ok(())
    }

    /// Removes what must be absent, whoever owns it.
    fn remove_absent(
        &mut self,
        to: &ObjectRef,
        manifest: &Value,
        absent: &[Path],
    ) -> Result<(), Stop> {
        let Some(live) = self.cluster.get(to).filter(|_| !absent.is_empty()) else { return Ok(()) };
        let mut pointers: Vec<String> =
            absent.iter().flat_map(|path| path.pointers(&live)).collect();
        pointers.sort_by_key(|pointer| std::cmp::Reverse(order(pointer)));
        pointers.dedup();
        let all = pointers.clone();
        let is_within =
            |pointer: &String| all.iter().any(|other| pointer.starts_with(&format!("{other}/")));
        pointers.retain(|pointer| !is_within(pointer));
        if pointers.is_empty() {
            return Ok(());
        }
        let operations: Vec<Value> =
            pointers.iter().map(|pointer| json!({"op": "remove", "path": pointer})).collect();
        let path = self.path(to, "", &self.managers.edit)?;
        let answer = self.send(Method::JsonPatch, &path, &Value::Array(operations), to)?.body;
        self.changed("update", answer.clone());
        self.answered(to, manifest.clone(), &answer);
        Ok(())
    }

    /// The object with the uids of owners that this plan makes.
    fn with_owners<'b>(&self, planned: &'b Planned) -> Result<Cow<'b, Value>, Stop> {
        if planned.made_owners.is_empty() {
            return Ok(Cow::Borrowed(&planned.object));
        }
        let mut object = planned.object.clone();
        for (index, owner) in &planned.made_owners {
            let refuse = |why: &str| {
                let message = format!("the owner {} of {} {why}", shown(owner), shown(&planned.to));
                Stop::unsent(409, "Conflict", message)
            };
            let Some(uid) = self.uids.get(&Identity::of_ref(owner)) else {
                return Err(refuse("is written later than it"));
            };
            let pointer = format!("/metadata/ownerReferences/{index}");
            let Some(given) = object.pointer_mut(&pointer).and_then(Value::as_object_mut) else {
                continue;
            };
            match given.get("uid").and_then(Value::as_str) {
                None | Some("") => _ = given.insert("uid".to_owned(), uid.as_str().into()),
                Some(held) if held == uid => {}
                Some(_) => return Err(refuse("has another uid")),
            }
        }
        Ok(Cow::Owned(object))
    }

    // === patch ===

    pub(super) fn patch(&mut self, planned: &Planned) {
        let manager = self.managers.patch.clone();
        let done = self.try_patch(planned, &manager);
        let is_own = done.is_ok();
        if let Err(stop) = done {
            self.stopped(Action::Patch, &planned.to, stop);
        }
        self.wrote(planned, manager, is_own);
    }

    fn try_patch(&mut self, planned: &Planned, manager: &str) -> Result<(), Stop> {
        let to = &planned.to;
        self.path(to, "", manager)?;
        if self.is_so(to, "", manager, &planned.object) {
            return self.remove_absent(to, &planned.object, &planned.absent);
        }
        let live = self.cluster.get(to).ok_or_else(|| Stop::not_found(to))?;
        if !self.check.may_write(Verbs::UPDATE, to, &live) {
            return Err(Stop::outside(to));
        }
        // Without a uid, an apply would make the object.
        let mut object = planned.object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.entry("uid").or_insert_with(|| text(&live, "/metadata/uid").into());
        }
        self.apply_and_note(to, manager, &object)?;
        self.remove_absent(to, &planned.object, &planned.absent)
    }
}

impl Stop {
    /// Of an object that the declaration does not let be written as it is now.
    pub(super) fn outside(of: &ObjectRef) -> Self {
        let message = format!("{} lies outside of what is declared", shown(of));
        Self::unsent(403, "Forbidden", message)
    }
}

/// By depth and index, so that what is removed last does not move what is removed first.
fn order(pointer: &str) -> Vec<(Option<u64>, String)> {
    pointer.split('/').map(|token| (token.parse().ok(), token.to_owned())).collect()
}

/// Two parts of one object. Lists are taken whole, from `more`.
fn lay_over_maps(part: Value, more: Value) -> Value {
    match (part, more) {
        (Value::Object(mut part), Value::Object(more)) => {
            for (key, value) in more {
                let value = match part.remove(&key) {
                    Some(held) => lay_over_maps(held, value),
                    None => value,
                };
                part.insert(key, value);
            }
            Value::Object(part)
        }
        (_, more) => more,
    }
}
