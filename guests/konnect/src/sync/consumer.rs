//! Consumers: their groups, and the Secrets of their credentials.

use std::{collections::BTreeSet, time::Duration};

use mortise_sdk::{Error, kubernetes::Secret, outbound::Method};
use serde_json::{Value, json};

use super::{
    fault::{Fault, Operation},
    find::id_of,
    reference::SECRET_LABEL,
    run::{End, Run},
    session::Session,
    status::{PROGRAMMED, reason},
};
use crate::kind::{self, Name, Reference, Shape, Special};

/// The condition of the groups.
const GROUPS_VALID: &str = "KongConsumerGroupRefsValid";
/// The reason of `Programmed` of a consumer that could not be added to its groups.
const FAILED_TO_ATTACH: &str = "FailedToAttachConsumerToConsumerGroup";
/// The most groups that a run joins and leaves. It makes 64 calls at most, and may need half of them
/// for the list of the groups that the consumer is in.
const MAX_CHANGES: usize = 24;

impl Run<'_> {
    /// Returns whether all Secrets that the object lists are there, and sets their condition.
    pub(crate) fn has_listed_secrets(&mut self) -> Result<bool, Error> {
        let is_list = |of: &&Reference| of.to == "Secret" && of.shape == Shape::Names;
        let Some(reference) = self.entity.references.iter().find(is_list) else { return Ok(true) };
        let mut missing = Vec::new();
        for name in reference.names(self.object) {
            let fields = ["metadata.labels"];
            let secret: Option<Secret> =
                self.host.get(Some(&name.namespace), &name.name, &fields)?;
            let (key, value) = SECRET_LABEL;
            let is_labelled =
                |secret: Secret| secret.metadata.labels.get(key).is_some_and(|of| of == value);
            if !secret.is_some_and(is_labelled) {
                missing.push(format!("Secret \"{}\" not found", name.name));
            }
        }
        if !missing.is_empty() {
            let message = missing.join("\n");
            self.status.set(reference.condition, false, reason::INVALID, message);
            self.status.set_false_exists();
            return Ok(false);
        }
        self.status.set(reference.condition, true, reason::VALID, "");
        Ok(true)
    }

    /// Finds the IDs of the groups of a consumer, in the order of its list. Those that are there
    /// count, whatever the others are.
    pub(crate) fn find_consumer_groups(&mut self) -> Result<(), Error> {
        let group = kind::find("KongConsumerGroup").filter(|_| self.is(Special::ConsumerGroups));
        let Some(group) = group else { return Ok(()) };
        let (mut ids, mut seen, mut missing) = (Vec::new(), BTreeSet::new(), Vec::new());
        let listed = self.object.get("consumerGroups").and_then(Value::as_array);
        for name in listed.into_iter().flatten().filter_map(Value::as_str) {
            let at = Name {
                namespace: self.namespace().to_owned(),
                name: name.to_owned(),
                is_foreign: false,
            };
            match self.read(group, &at, &["status"])? {
                None => missing.push(format!("{name}: NotFound")),
                Some(found) => match group.id(&found, "id") {
                    Some(id) if seen.insert(id.to_owned()) => ids.push(Value::from(id)),
                    Some(_) => {}
                    None => missing.push(format!("{name}: NotCreatedInKonnect")),
                },
            }
        }
        self.resolved.ids.insert("consumerGroupIDs".to_owned(), ids.into());
        self.resolved.missing_groups = missing;
        Ok(())
    }

    /// Sets the condition of the groups of a consumer: when the consumer is there, as they are of no
    /// use before.
    pub(crate) fn tell_consumer_groups(&mut self) {
        let missing = &self.resolved.missing_groups;
        if missing.is_empty() {
            self.status.set(GROUPS_VALID, true, reason::VALID, "");
        } else {
            let message = format!("Invalid ConsumerGroup references: {}", missing.join(", "));
            self.status.set(GROUPS_VALID, false, reason::INVALID, message);
        }
    }

    /// Returns whether a consumer is to be in no group.
    pub(crate) fn is_without_groups(&self) -> bool {
        let groups = self.object.get("consumerGroups").and_then(Value::as_array);
        self.is(Special::ConsumerGroups) && groups.is_none_or(Vec::is_empty)
    }

    /// Makes a consumer a member of its groups, and of no other; returns the end of the run if that
    /// fails.
    pub(crate) fn set_consumer_groups(
        &mut self,
        session: &Session,
        id: &str,
        operation: Operation,
    ) -> Option<End> {
        // Nothing is asked for while all groups of a new consumer are missing, as with the original.
        let is_left_alone = operation == Operation::Create
            && !self.resolved.missing_groups.is_empty()
            && self.wanted_groups().next().is_none();
        let changed = if is_left_alone { Ok(true) } else { self.change_groups(session, id) };
        let fault = match changed {
            Ok(true) => {
                return (!self.status.is_true(GROUPS_VALID)).then(|| self.without_some_groups(id));
            }
            Ok(false) => return Some(End::Done(Some(Duration::from_millis(1)))),
            Err(fault) => fault,
        };
        if operation == Operation::Update {
            return Some(self.failed(operation, &fault));
        }
        let message = fault.message(operation, self.api, self.entity.kind, &self.shown());
        let is_untyped = fault.is_untyped(self.api);
        let reason = if is_untyped { reason::FAILED_TO_CREATE } else { FAILED_TO_ATTACH };
        Some(self.failed_with(&[PROGRAMMED], reason, &message, &fault, true))
    }

    /// Ends the run of a consumer that is in all its groups but those that are not there.
    fn without_some_groups(&mut self, id: &str) -> End {
        let failed = format!("Konnect entity (ID: {id}) created but relations failed");
        let message = format!(
            "{failed}: {FAILED_TO_ATTACH}: {failed}: FailedToResolveConsumerGroupRefs: some \
             KongConsumerGroups couldn't be assigned to KongConsumer, see KongConsumer status for \
             details"
        );
        let fault = Fault::Clash(message.clone());
        self.failed_with(&[PROGRAMMED], FAILED_TO_ATTACH, &message, &fault, false)
    }

    /// Returns the IDs of the groups that are there.
    fn wanted_groups(&self) -> impl Iterator<Item = &str> {
        let wanted = self.resolved.ids.get("consumerGroupIDs").and_then(Value::as_array);
        wanted.into_iter().flatten().filter_map(Value::as_str)
    }

    /// Returns the IDs of the groups that a consumer is in; `consumers` is the path of the collection.
    fn present_groups(
        &self,
        session: &Session,
        consumers: &str,
        id: &str,
    ) -> Result<Vec<String>, Fault> {
        let path = format!("{consumers}/{id}/consumer_groups");
        let present = session.list(self.host, &path, &[("size", "100")], self.api.items)?;
        Ok(present.iter().filter_map(id_of).collect())
    }

    /// Returns whether a consumer is in all of its groups, and in no other.
    pub(crate) fn is_in_its_groups(&self, session: &Session, id: &str) -> Result<bool, Fault> {
        let Ok(consumers) = self.path(self.api.collection) else { return Ok(false) };
        if !self.resolved.missing_groups.is_empty() {
            return Ok(false);
        }
        let present = self.present_groups(session, &consumers, id)?;
        let present: BTreeSet<&str> = present.iter().map(String::as_str).collect();
        Ok(present == self.wanted_groups().collect())
    }

    /// Makes a consumer a member of its groups; returns whether nothing is left to be done.
    fn change_groups(&self, session: &Session, id: &str) -> Result<bool, Fault> {
        let Ok(consumers) = self.path(self.api.collection) else { return Ok(true) };
        let groups = consumers.replace("/consumers", "/consumer_groups");
        let present = self.present_groups(session, &consumers, id)?;
        let held: BTreeSet<&str> = present.iter().map(String::as_str).collect();
        let wanted: BTreeSet<&str> = self.wanted_groups().collect();
        let joined = self.wanted_groups().filter(|id| !held.contains(id));
        let joined = joined.filter(|id| crate::body::is_segment(id)).map(|id| (true, id));
        let left = present.iter().map(String::as_str).filter(|id| !wanted.contains(id));
        for (at, (is_joined, group)) in joined.chain(left.map(|id| (false, id))).enumerate() {
            if at == MAX_CHANGES {
                return Ok(false);
            }
            let path = format!("{groups}/{group}/consumers");
            let sent = if is_joined {
                session.send(self.host, Method::Post, &path, &[], Some(&json!({"consumer": id})))
            } else {
                session.send(self.host, Method::Delete, &format!("{path}/{id}"), &[], None)
            };
            match sent {
                Err(fault) if is_joined || fault.status() != Some(404) => return Err(fault),
                _ => {}
            }
        }
        Ok(true)
    }
}
