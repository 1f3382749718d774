//! Adoption: an object takes over an entity that is there already.

use mortise_sdk::{Error, outbound::Method};
use serde_json::{Value, json};

use super::{
    fault::{Fault, Operation},
    find::{id_of, marked_uid},
    run::{End, Run},
    session::Session,
    status::{PROGRAMMED, reason},
};
use crate::{
    body::{Resolved, body, is_segment},
    kind::{Adopt, Special, at, text},
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
            Adopt::Match => {
                let defaults =
                    body(self.entity, self.api, &json!({"spec": {}}), &Resolved::default());
                if !is_equal(&self.body, &found, &defaults) {
                    let message = format!(
                        "Konnect entity (ID: {id}) does not match the spec of the object when \
                         adopting in match mode"
                    );
                    let fault = Fault::Clash(message.clone());
                    return Ok(self.not_adopted("NotMatch", &message, &fault));
                }
            }
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
        let is_repeated = fault.status().is_some_and(|status| status >= 500 || status == 401);
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

/// Returns whether an entity has all fields of a body, but for its marks. A field that is absent from
/// the entity is as good as one that is empty, or has its default.
fn is_equal(body: &Value, found: &Value, defaults: &Value) -> bool {
    let fields = body.as_object().into_iter().flatten();
    let is_plain = |value: &Value| matches!(value, Value::Null) || value == &Value::from("");
    fields.filter(|(field, _)| *field != "tags").all(|(field, value)| match found.get(field) {
        Some(found) => found == value || (is_plain(found) && is_plain(value)),
        None => is_plain(value) || defaults.get(field) == Some(value),
    })
}
