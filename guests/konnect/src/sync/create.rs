//! Creation: once, whatever becomes of the answer.

use mortise_sdk::{Error, outbound::Method};
use serde_json::Value;

use super::{
    adopt::ADOPTED,
    fault::{Fault, Operation},
    find::id_of,
    run::{Again, End, Run},
    session::Session,
    status::{PROGRAMMED, reason},
};
use crate::{
    body,
    kind::{CONTROL_PLANE, Create, Lookup, Special, at},
};

/// The IDs of parents below the control plane, and the names of these in messages.
const NEAR_PARENTS: [(&str, &str); 3] =
    [("upstreamID", "Upstream"), ("consumerID", "Consumer"), ("certificateID", "Certificate")];

impl Run<'_> {
    /// Creates the entity, or finds the one that was created before.
    pub(crate) fn create(&mut self, session: &Session) -> Result<End, Error> {
        let path = match self.path(self.api.collection) {
            Ok(path) => path,
            Err(field) => return Ok(self.without_parent(session, &field)),
        };
        if self.is_adopting() {
            return self.adopt(session, &path);
        }
        let at_uid = self.api.create == Create::PostOrPutAtUid
            && self.body.get("name").and_then(Value::as_str).is_none_or(str::is_empty);
        self.place(session);
        if at_uid {
            let path = format!("{path}/{}", self.uid());
            let answer = session.send(self.host, Method::Put, &path, &[], Some(&self.body));
            return self.created(session, answer);
        }
        if !body::is_unique(self.api, &self.body) {
            match self.find(session)? {
                Ok(found) if !found.is_empty() => return self.found(session, found),
                Ok(_) => {}
                Err(fault) => return Ok(self.not_looked_up(&fault)),
            }
        }
        let answer = session.send(self.host, Method::Post, &path, &[], Some(&self.body));
        match answer {
            Err(Fault::Refused(refusal)) if refusal.is_conflict() => {
                let fault = Fault::Refused(refusal);
                match self.find(session)? {
                    Ok(found) if !found.is_empty() => self.found(session, found),
                    Ok(_) => Ok(self.clashed(&fault)),
                    Err(of_list) => Ok(self.clashed_unfound(&fault, &of_list)),
                }
            }
            answer => self.created(session, answer),
        }
    }

    /// Ends a run without the ID of a parent: no call is made.
    fn without_parent(&mut self, session: &Session, field: &str) -> End {
        let is_adopting = self.is_adopting();
        let (operation, reason) = if is_adopting {
            ("adopt", reason::FAILED_TO_ADOPT)
        } else {
            ("create", reason::FAILED_TO_CREATE)
        };
        // An adoption names the nearest parent, a creation the first that the path lacks.
        let is_lacking = |&&(id, _): &&(&str, &str)| {
            let is_near = is_adopting && self.api.collection.contains(id);
            id == field || is_near && self.id(id).is_none()
        };
        let parent = NEAR_PARENTS.iter().find(is_lacking).map_or("ControlPlane", |(_, name)| name);
        let message = format!(
            "can't {operation} {} {} without a Konnect {parent} ID",
            self.entity.kind,
            self.shown()
        );
        // An object that names nothing but its control plane has no place until that has one.
        let mut parents = self.entity.parents().filter(|of| of.to != CONTROL_PLANE.kind);
        if parents.any(|parent| !parent.names(self.object).is_empty()) {
            self.place(session);
        }
        self.status.set(PROGRAMMED, false, reason, message.clone());
        if is_adopting {
            self.status.set(ADOPTED, false, reason, message.clone());
        }
        End::Failed(message, Again::OnChange)
    }

    fn created(&mut self, session: &Session, answer: Result<Value, Fault>) -> Result<End, Error> {
        let answer = answer.map(|answer| match self.api.item {
            "" => answer,
            item => answer.get(item).cloned().unwrap_or_default(),
        });
        match answer.and_then(|entity| Ok((id_of(&entity).ok_or(Fault::NoEntity)?, entity))) {
            Ok((id, entity)) => {
                if self.is(Special::Endpoints) {
                    self.set_cluster_type(&entity);
                }
                self.has_entity(session, &id)
            }
            Err(fault) => Ok(self.failed(Operation::Create, &fault)),
        }
    }

    /// Takes the first of the entities that were made for the object; the others are those of a host
    /// that was frozen while it created one.
    fn found(&mut self, session: &Session, found: Vec<(String, Value)>) -> Result<End, Error> {
        let mut found = found.into_iter();
        let Some((id, entity)) = found.next() else { return Ok(End::Done(None)) };
        self.status.set_id("id", Some(&id));
        for (surplus, _) in found.filter(|_| self.may_delete_surplus()) {
            if let Err(fault) = self.delete_entity(session, &surplus) {
                return Ok(self.failed(Operation::Create, &fault));
            }
        }
        if self.is_outdated(&entity) {
            return self.update(session, &id);
        }
        if self.is_without_groups() {
            // No call has put it into a group since.
            let hash = self.hash();
            return Ok(self.programmed(session, &id, Some(hash)));
        }
        self.has_entity(session, &id)
    }

    /// Returns whether a second entity that was found goes. One that has no more than the name of the
    /// object may be somebody else's.
    pub(crate) fn may_delete_surplus(&self) -> bool {
        !matches!(self.api.lookup, Lookup::Name(_))
    }

    /// Returns whether an entity was made from another generation of the object.
    fn is_outdated(&self, entity: &Value) -> bool {
        ["tags", "labels"].into_iter().any(|field| {
            let generation = |of: &Value| match at(of, field) {
                Some(Value::Array(tags)) => {
                    let of_tag = |tag: &Value| {
                        tag.as_str()?.strip_prefix("k8s-generation:").map(str::to_owned)
                    };
                    tags.iter().find_map(of_tag)
                }
                Some(labels) => {
                    labels.get("k8s-generation").and_then(Value::as_str).map(str::to_owned)
                }
                None => None,
            };
            generation(entity) != generation(&self.body)
        })
    }

    /// Ends the creation of an entity that could not be looked up before.
    pub(crate) fn not_looked_up(&mut self, fault: &Fault) -> End {
        let is_typed = matches!(fault, Fault::Refused(_)) && !fault.is_untyped(self.api);
        if !is_typed || !matches!(self.api.lookup, Lookup::AllTags(_)) {
            return self.failed(Operation::Create, fault);
        }
        // In the words of the original, which looks up no other kind.
        let message = format!("failed to list: {}", fault.text(Some(self.api)));
        self.failed_with(&[PROGRAMMED], reason::FAILED_TO_CREATE, &message, fault, true)
    }

    /// Ends the creation of an entity that the API refuses as a second one, when the first one could
    /// not be looked up.
    fn clashed_unfound(&mut self, fault: &Fault, of_list: &Fault) -> End {
        if matches!(of_list, Fault::Call(_)) {
            return self.failed(Operation::Create, of_list);
        }
        let message = if self.is(Special::Endpoints) {
            fault.message(Operation::Create, self.api, self.entity.kind, &self.shown())
        } else {
            let listed = words_of_list(self.entity.kind);
            let listed = format!("{listed}: {}", of_list.text(Some(self.api)));
            self.told_clash(&listed, fault)
        };
        self.failed_with(&[PROGRAMMED], reason::FAILED_TO_CREATE, &message, of_list, true)
    }

    /// Returns the message about a clash of which the entity was not found.
    fn told_clash(&self, why: &str, fault: &Fault) -> String {
        let original = fault.message(Operation::Create, self.api, self.entity.kind, &self.shown());
        let failed = format!("failed to create {} {}: ", self.entity.kind, self.shown());
        let failed = if original.starts_with(&failed) { "" } else { &failed };
        format!(
            "trying to find a matching Konnect entity matching the ID failed: {why}, {failed}{original}"
        )
    }

    /// Ends the creation of an entity of which nothing was found although the API refuses another.
    fn clashed(&mut self, fault: &Fault) -> End {
        // The condition of a control plane has the answer alone.
        let message = if self.is(Special::Endpoints) {
            fault.message(Operation::Create, self.api, self.entity.kind, &self.shown())
        } else {
            let (kind, name, uid) = (self.entity.kind, &self.metadata.name, self.uid());
            let why = format!("{kind} {name} (matching UID {uid}) not found on Konnect");
            self.told_clash(&why, fault)
        };
        self.failed_with(
            &[PROGRAMMED],
            reason::FAILED_TO_CREATE,
            &message,
            &Fault::Clash(message.clone()),
            false,
        )
    }

    /// Goes on when the entity is there: with what belongs to it, then its status.
    pub(crate) fn has_entity(&mut self, session: &Session, id: &str) -> Result<End, Error> {
        self.status.set_id("id", Some(id));
        self.place(session);
        if let Some(end) = self.relate(session, id, Operation::Create)? {
            return Ok(end);
        }
        let hash = self.hash();
        Ok(self.programmed(session, id, Some(hash)))
    }
}

/// Returns the words in which the original tells that entities could not be listed.
fn words_of_list(kind: &str) -> String {
    match kind {
        "KongKey" | "KongKeySet" | "KongVault" => format!("failed to list {kind}s"),
        "KongCertificate" | "KongCACertificate" => format!("failed to list {kind}"),
        _ => format!("failed listing {kind}"),
    }
}
