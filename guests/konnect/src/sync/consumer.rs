//! Consumers: their groups, and the Secrets of their credentials.

use std::collections::BTreeSet;

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

impl Run<'_> {
    /// Returns whether all Secrets that the object lists are there, and sets their condition.
    pub(crate) fn has_listed_secrets(&mut self) -> Result<bool, Error> {
        let is_list = |of: &&Reference| of.to == "Secret" && of.shape == Shape::Names;
        let Some(reference) = self.entity.references.iter().find(is_list) else { return Ok(true) };
        for name in reference.names(self.object) {
            let fields = ["metadata.labels"];
            let secret: Option<Secret> =
                self.host.get(Some(&name.namespace), &name.name, &fields)?;
            let (key, value) = SECRET_LABEL;
            let is_labelled =
                |secret: Secret| secret.metadata.labels.get(key).is_some_and(|of| of == value);
            if !secret.is_some_and(is_labelled) {
                let message = format!("Secret \"{}\" not found", name.name);
                self.status.set(reference.condition, false, reason::INVALID, message);
                self.status.set_false_exists();
                return Ok(false);
            }
        }
        self.status.set(reference.condition, true, reason::VALID, "");
        Ok(true)
    }

    /// Finds the IDs of the groups of a consumer, and sets their condition. Those that are there
    /// count, whatever the others are.
    pub(crate) fn find_consumer_groups(&mut self) -> Result<(), Error> {
        if !self.is(Special::ConsumerGroups) {
            return Ok(());
        }
        let Some(group) = kind::find("KongConsumerGroup") else { return Ok(()) };
        let (mut ids, mut invalid) = (BTreeSet::new(), Vec::new());
        let listed = self.object.get("consumerGroups").and_then(Value::as_array);
        for name in listed.into_iter().flatten().filter_map(Value::as_str) {
            let at = Name {
                namespace: self.namespace().to_owned(),
                name: name.to_owned(),
                is_foreign: false,
            };
            match self.read(group, &at, &["status"])? {
                None => invalid.push(format!("{name}: NotFound")),
                Some(found) => match group.id(&found, "id") {
                    Some(id) => drop(ids.insert(id.to_owned())),
                    None => invalid.push(format!("{name}: NotCreatedInKonnect")),
                },
            }
        }
        if invalid.is_empty() {
            self.status.set(GROUPS_VALID, true, reason::VALID, "");
        } else {
            let message = format!("Invalid ConsumerGroup references: {}", invalid.join(", "));
            self.status.set(GROUPS_VALID, false, reason::INVALID, message);
        }
        let ids: Vec<Value> = ids.into_iter().map(Value::from).collect();
        self.resolved.ids.insert("consumerGroupIDs".to_owned(), ids.into());
        Ok(())
    }

    /// Makes a consumer a member of its groups, and of no other; returns the end of the run if that
    /// fails.
    pub(crate) fn set_consumer_groups(
        &mut self,
        session: &Session,
        id: &str,
        operation: Operation,
    ) -> Option<End> {
        let fault = self.change_groups(session, id).err()?;
        if operation == Operation::Update {
            return Some(self.failed(operation, &fault));
        }
        let message = fault.message(operation, self.api, self.entity.kind, &self.shown());
        Some(self.failed_with(&[PROGRAMMED], FAILED_TO_ATTACH, &message, &fault, true))
    }

    fn change_groups(&self, session: &Session, id: &str) -> Result<(), Fault> {
        let Ok(consumers) = self.path(self.api.collection) else { return Ok(()) };
        let groups = consumers.replace("/consumers", "/consumer_groups");
        let path = format!("{consumers}/{id}/consumer_groups");
        let present = session.list(self.host, &path, &[("size", "100")], self.api.items)?;
        let present: BTreeSet<String> = present.iter().filter_map(id_of).collect();
        let wanted = self.resolved.ids.get("consumerGroupIDs").and_then(Value::as_array);
        let wanted: BTreeSet<String> =
            wanted.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
        for group in wanted.difference(&present).filter(|id| crate::body::is_segment(id)) {
            let path = format!("{groups}/{group}/consumers");
            let body = json!({"consumer": id});
            session.send(self.host, Method::Post, &path, &[], Some(&body))?;
        }
        for group in present.difference(&wanted) {
            let path = format!("{groups}/{group}/consumers/{id}");
            match session.send(self.host, Method::Delete, &path, &[], None) {
                Err(fault) if fault.status() != Some(404) => return Err(fault),
                _ => {}
            }
        }
        Ok(())
    }
}
