//! Updates: at once where what is sent has changed, and once a period.

use std::time::Duration;

use mortise_sdk::{Error, outbound::Method};
use serde_json::json;

use super::{
    fault::Operation,
    note::Note,
    run::{Again, End, Run},
    session::Session,
};
use crate::{
    body,
    config::Labels,
    kind::{Special, Update},
};

impl Run<'_> {
    /// Returns how long nothing is to be sent; `None` if the entity is to be sent now.
    pub(crate) fn rest(&mut self) -> Option<Duration> {
        let (now, period) = (self.host.now(), self.config.sync_period());
        // Another condition that was False meanwhile hides the refusal: it is told anew.
        if self.status.is_hidden() {
            return None;
        }
        if !self.status.is_programmed() {
            let refused = self.refused();
            let note = self.note.as_ref().filter(|note| note.refused == refused)?;
            return note.rest(now, period);
        }
        let hash = self.hash();
        let note = match self.note.clone() {
            Some(note)
                if note.refused.is_empty() && (note.sent == hash || note.sent.is_empty()) =>
            {
                note
            }
            // Kept until the change is sent: without it, the change would count as sent.
            Some(_) => return None,
            None => Note::of_start(now, period, self.uid(), hash.clone()),
        };
        let rest = note.rest(now, period);
        self.note = Some(Note { sent: hash, ..note });
        rest
    }

    /// Returns whether a change of what is sent waits, although the object is programmed: one of a
    /// plugin or a Secret.
    pub(crate) fn has_change(&self) -> bool {
        let is_other = |note: &Note| !note.sent.is_empty() && note.sent != self.hash();
        self.note.as_ref().is_some_and(is_other)
    }

    /// Returns the hash of what is sent at once when it changes. Tags and labels that metadata makes
    /// are not part of it, unless the configuration says so: with the spec they change anyway.
    pub(crate) fn hash(&self) -> String {
        if self.config.labels == Labels::AtOnce {
            return self.edited();
        }
        let mut sent = self.body.clone();
        if let Some(sent) = sent.as_object_mut() {
            sent.remove("tags");
            sent.remove("labels");
        }
        body::hash(&json!([sent, self.resolved.ids.get("consumerGroupIDs"), self.parents()]))
    }

    /// Returns the IDs of parents, but for the control plane: when that is created anew, its entities
    /// follow within the period.
    fn parents(&self) -> Vec<Option<&str>> {
        let parents = self.entity.parents().filter(|reference| reference.id != "controlPlaneID");
        parents.map(|reference| self.id(reference.id)).collect()
    }

    /// Sends the entity.
    pub(crate) fn update(&mut self, session: &Session, id: &str) -> Result<End, Error> {
        let Ok(path) = self.path(self.api.collection) else { return Ok(End::Done(None)) };
        if let Some(end) = self.delete_surplus(session, id)? {
            return Ok(end);
        }
        let method = match self.api.update {
            Update::Put | Update::PutExisting => Method::Put,
            Update::Patch(_) => Method::Patch,
            Update::Never => {
                let hash = self.hash();
                return Ok(self.programmed(session, id, Some(hash)));
            }
        };
        self.place(session);
        let path = format!("{path}/{id}");
        let sent = body::for_update(self.api, &self.body);
        let answer = session.send(self.host, method, &path, &[], Some(&sent));
        match answer {
            Err(fault) if fault.status() == Some(404) && self.may_create() => {
                self.status.set_id("id", None);
                self.is_created_anew = true;
                self.create(session)
            }
            Err(fault) => Ok(self.failed(Operation::Update, &fault)),
            Ok(_) => {
                if let Some(end) = self.relate(session, id, Operation::Update)? {
                    return Ok(end);
                }
                let hash = self.hash();
                Ok(self.programmed(session, id, Some(hash)))
            }
        }
    }

    /// Returns whether an entity that is gone is created anew: once in a run, as a list may still have
    /// what an update does not find.
    fn may_create(&self) -> bool {
        self.api.update != Update::Put && !self.is_created_anew
    }

    /// Does what belongs to an entity beside its body; `None` if all of it is done.
    pub(crate) fn relate(
        &mut self,
        session: &Session,
        id: &str,
        operation: Operation,
    ) -> Result<Option<End>, Error> {
        if self.is(Special::ConsumerGroups) {
            self.tell_consumer_groups();
            return Ok(self.set_consumer_groups(session, id, operation));
        }
        if self.is(Special::Members)
            && let Some(end) = self.set_members(session, id, operation)?
        {
            return Ok(Some(end));
        }
        if self.is(Special::Endpoints) && operation == Operation::Create {
            return Ok(self.refresh(session, id).err().map(|end| self.unread(session, id, end)));
        }
        Ok(None)
    }

    /// Ends a run that created an entity and could not read it: it is there all the same.
    fn unread(&mut self, session: &Session, id: &str, end: End) -> End {
        if matches!(end, End::Failed(_, Again::WithBackOff)) {
            let hash = self.hash();
            self.programmed(session, id, Some(hash));
        }
        end
    }

    /// Deletes entities that a frozen host may have left, of kinds of which the API takes several
    /// equal ones: once a period, not with a change.
    fn delete_surplus(&mut self, session: &Session, id: &str) -> Result<Option<End>, Error> {
        let is_change = self.note.as_ref().is_none_or(|note| note.sent != self.hash());
        let is_single = body::is_unique(self.api, &self.body) || self.is_at_uid(id);
        if is_change || is_single || !self.may_delete_surplus() {
            return Ok(None);
        }
        let found = match self.find(session)? {
            Ok(found) => found,
            Err(fault) => return Ok(Some(self.failed(Operation::Update, &fault))),
        };
        for (surplus, _) in found.into_iter().filter(|(found, _)| found != id) {
            if let Err(fault) = self.delete_entity(session, &surplus) {
                return Ok(Some(self.failed(Operation::Update, &fault)));
            }
        }
        Ok(None)
    }

    /// Returns whether an entity was put at the uid of its object, where there is only one.
    fn is_at_uid(&self, id: &str) -> bool {
        id == self.uid()
    }
}
