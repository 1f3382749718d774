//! Adoption: an object takes over an entity that is there already.

use mortise_sdk::{Error, outbound::Method};
use serde_json::Value;

use super::{
    fault::{Fault, Operation},
    find::{id_of, marked_uid},
    run::{End, Run},
    session::Session,
    status::{PROGRAMMED, reason},
};
use crate::{
    body::{is_empty, is_segment, parse},
    kind::{Adopt, Matched, Special, at, text},
};

/// The condition that says whether the entity was taken over.
pub(crate) const ADOPTED: &str = "Adopted";

impl Run<'_> {
    /// Returns whether the object is to take over an entity in place of a creation.
    pub(crate) fn is_adopting(&self) -> bool {
        self.object.pointer("/spec/adopt/konnect/id").is_some()
    }

    /// Takes over the entity that the object names. `path` is that of the collection.
    pub(crate) fn adopt(&mut self, session: &Session, path: &str) -> Result<End, Error> {
        let id = text(self.object, "spec.adopt.konnect.id").unwrap_or_default().to_owned();
        let mode = match text(self.object, "spec.adopt.mode") {
            Some("match") => Adopt::Match,
            // The default of a kind that only matches is that.
            None | Some("") if !self.api.adopt.contains(&Adopt::Override) => Adopt::Match,
            _ => Adopt::Override,
        };
        if !self.api.adopt.contains(&mode) {
            let message = "failed to adopt: adopt mode \"override\" not supported";
            return Ok(self.not_adopted("FailedToAdopt", message, &Fault::Clash(message.into())));
        }
        if !is_segment(&id) {
            let message = format!("spec.adopt.konnect.id `{id}` is not an ID");
            return Ok(self.not_adopted("FetchFailed", &message, &Fault::Clash(message.clone())));
        }
        let path = format!("{path}/{id}");
        let found = match session.get(self.host, &path, &[]) {
            Ok(answer) => self.unwrapped(answer),
            Err(fault) => return Ok(self.not_fetched(&id, &fault)),
        };
        if id_of(&found).as_deref() != Some(&*id) {
            return Ok(self.not_fetched(&id, &Fault::NoEntity));
        }
        if let Some(message) = self.of_other_service(&found) {
            return Ok(self.not_adopted("FailedToAdopt", message, &Fault::Clash(message.into())));
        }
        if let Some(uid) = marked_uid(&found).filter(|uid| *uid != self.uid()) {
            let message = format!(
                "Konnect entity (ID: {id}) is managed by another k8s object with UID {uid}"
            );
            return Ok(self.not_adopted("UIDConflict", &message, &Fault::Clash(message.clone())));
        }
        match mode {
            Adopt::Match => return Ok(self.adopt_matching(session, &id, &found)),
            Adopt::Override => {
                let sent = session.send(self.host, Method::Put, &path, &[], Some(&self.body));
                if let Err(fault) = sent {
                    let (kind, shown) = (self.entity.kind, self.shown());
                    let message = fault.message(Operation::Update, self.api, kind, &shown);
                    return Ok(self.not_adopted("FailedToAdopt", &message, &fault));
                }
            }
        }
        self.status.set(ADOPTED, true, ADOPTED, "");
        self.has_entity(session, &id)
    }

    /// Takes over an entity as it is, if it is as the object says.
    fn adopt_matching(&mut self, session: &Session, id: &str, found: &Value) -> End {
        let mut is_matching = is_matching(self.api.matched, &self.body, found);
        if is_matching && self.is(Special::ConsumerGroups) {
            self.tell_consumer_groups();
            is_matching = match self.is_in_its_groups(session, id) {
                Ok(is_in) => is_in,
                Err(fault) => return self.not_fetched(id, &fault),
            };
        }
        if !is_matching {
            let message = format!(
                "Konnect entity (ID: {id}) does not match the spec of the object when adopting in \
                 match mode"
            );
            return self.not_adopted("NotMatch", &message, &Fault::Clash(message.clone()));
        }
        self.status.set(ADOPTED, true, ADOPTED, "");
        let hash = self.hash();
        self.programmed(session, id, Some(hash))
    }

    /// Returns what is wrong with the service of an entity that is to be taken over.
    fn of_other_service(&self, found: &Value) -> Option<&'static str> {
        let (own, found) = (at(&self.body, "service.id"), at(found, "service.id"));
        if !self.is(Special::SameService) || own == found {
            return None;
        }
        Some(match (own, found) {
            (Some(_), None) => "failed to adopt: existing route does not have service reference",
            (None, Some(_)) => {
                "failed to adopt: KongRoute has no service reference but existing route has service \
                 reference"
            }
            _ => "failed to adopt: reference service ID does not match",
        })
    }

    fn not_fetched(&mut self, id: &str, fault: &Fault) -> End {
        let message = format!(
            "failed to fetch Konnect entity (ID: {id}) for adoption: {}",
            fault.text(Some(self.api))
        );
        self.not_adopted("FetchFailed", &message, fault)
    }

    fn not_adopted(&mut self, adopted: &str, message: &str, fault: &Fault) -> End {
        let is_repeated = !matches!(fault.status(), Some(400 | 403 | 404));
        let end =
            self.failed_with(&[PROGRAMMED], reason::FAILED_TO_ADOPT, message, fault, is_repeated);
        // Both conditions have the same words, also those that tell of a pause.
        if let Some(message) = self.status.message(PROGRAMMED) {
            self.status.set(ADOPTED, false, adopted, message);
        }
        end
    }

    /// Returns the entity in an answer.
    pub(crate) fn unwrapped(&self, answer: Value) -> Value {
        match self.api.item {
            "" => answer,
            item => answer.get(item).cloned().unwrap_or_default(),
        }
    }
}

/// Returns whether an entity is as a body has it, in the fields that count.
fn is_matching(fields: &[(&str, Matched)], body: &Value, found: &Value) -> bool {
    fields.iter().all(|(field, how)| {
        let is_given = |value: &&Value| value.is_boolean() || !is_empty(value);
        let [wanted, held] = [body, found].map(|of| at(of, field).filter(is_given));
        match how {
            Matched::Or(default) => {
                let default = parse(default);
                wanted.unwrap_or(&default) == held.unwrap_or(&default)
            }
            Matched::Unordered => wanted.map(sorted) == held.map(sorted),
            Matched::Given => wanted.is_none() || wanted == held,
            Matched::Shared => wanted.is_none() || held.is_none() || wanted == held,
        }
    })
}

/// Returns a value with all its lists in one order.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Array(list) => {
            let mut list: Vec<Value> = list.iter().map(sorted).collect();
            list.sort_by_cached_key(Value::to_string);
            Value::Array(list)
        }
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (name.clone(), sorted(value))).collect()
        }
        value => value.clone(),
    }
}
