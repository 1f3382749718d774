//! Deletion: the entity goes before the finalizer.

use mortise_sdk::{Error, outbound::Method};
use serde_json::Value;

use super::{
    fault::{Fault, Operation},
    reference::is_group,
    run::{Again, End, Run},
    session::Session,
    status::{PROGRAMMED, reason},
};
use crate::{
    binding,
    body::body,
    kind::{self, CONTROL_PLANE, Entity, OLD_CLEANUP, Special, text},
};

/// The annotation, with the value `true`, by which a deletion gives the entity up: when there is no
/// token any more to delete it with.
pub const ABANDON: &str = "mortise.dev/konnect-abandon-entity";

impl Run<'_> {
    /// Deletes the entity of an object that is being deleted.
    ///
    /// References are not checked, and no grant of them is asked for: the entity is there, and goes
    /// with what the status says of it. The grant of the token's Secret is: whoever owns the Secret
    /// may take it back, and then there is no token.
    pub(crate) fn delete(&mut self) -> Result<End, Error> {
        let is_held = self.is_held() || self.metadata.finalizers.iter().any(|of| of == OLD_CLEANUP);
        if !is_held {
            return Ok(End::Release);
        }
        // The bindings that were made for the object go first, and take their finalizer along.
        if self.metadata.finalizers.iter().any(|of| of == binding::CLEANUP) {
            return Ok(End::Done(None));
        }
        if self.metadata.annotations.get(ABANDON).is_some_and(|value| value == "true") {
            return Ok(End::Release);
        }
        let Some(control_plane) = self.control_plane_to_delete_in()? else {
            // A control plane takes along what is in it, a parent what hangs on it.
            return Ok(End::Release);
        };
        if !self.entity.is_native() && self.status.id("controlPlaneID").is_none() {
            let id = CONTROL_PLANE.id(&control_plane, "id").map(str::to_owned);
            let is_attached = self.is(Special::AttachesToGroups) || !is_group(&control_plane);
            if id.is_none() || !is_attached {
                return Ok(End::Release);
            }
            self.status.set_id("controlPlaneID", id.as_deref());
        }
        self.find_parent_ids()?;
        self.confirm_control_plane();
        let Some(session) = self.find_session(&control_plane)? else {
            let message = format!(
                "the entity cannot be deleted without its token; the annotation {ABANDON}: \"true\" gives \
                 it up"
            );
            self.status.set(PROGRAMMED, false, reason::OPERATION_FAILED, message.clone());
            return Ok(End::Failed(message, Again::OnChange));
        };
        self.delete_with(&session)
    }

    fn delete_with(&mut self, session: &Session) -> Result<End, Error> {
        if self.is_mirror() && self.status.id("id").is_some() {
            return Ok(End::Release);
        }
        let ids: Vec<String> = match self.status.id("id") {
            Some(id) => vec![id.to_owned()],
            None => match self.find(session)? {
                Ok(found) => found.into_iter().map(|(id, _)| id).collect(),
                Err(fault) => {
                    self.find_secrets()?;
                    return Ok(self.failed(Operation::Delete, &fault));
                }
            },
        };
        for id in ids {
            if let Err(fault) = self.delete_entity(session, &id) {
                self.find_secrets()?;
                if fault.status() == Some(400) {
                    self.wait_for_children()?;
                }
                return Ok(self.failed(Operation::Delete, &fault));
            }
        }
        Ok(End::Release)
    }

    /// Builds the body as far as what it is made of is still there: the API may quote it.
    fn find_secrets(&mut self) -> Result<(), Error> {
        self.resolve_values()?;
        self.body = body(self.entity, self.api, self.object, &self.resolved);
        Ok(())
    }

    /// Deletes an entity. One that is gone already is as good.
    pub(crate) fn delete_entity(&self, session: &Session, id: &str) -> Result<(), Fault> {
        // Without the ID of a parent there is no entity.
        let Ok(path) = self.path(self.api.collection) else { return Ok(()) };
        if !crate::body::is_segment(id) {
            return Ok(());
        }
        let path = format!("{path}/{id}");
        let query: Vec<(&str, &str)> = self.api.delete.split_once('=').into_iter().collect();
        match session.send(self.host, Method::Delete, &path, &query, None) {
            Err(fault) if fault.status() != Some(404) => Err(fault),
            _ => Ok(()),
        }
    }

    /// Finds the IDs of parents that the status does not have yet: of an entity whose creation was not
    /// answered.
    fn find_parent_ids(&mut self) -> Result<(), Error> {
        for reference in self.entity.parents() {
            if reference.id == "controlPlaneID" || self.status.id(reference.id).is_some() {
                continue;
            }
            let Some(name) = reference.names(self.object).into_iter().next() else { continue };
            let Some(target) = kind::find(reference.to) else { continue };
            let found = self.read(target, &name, &["status"])?;
            let id = found.as_ref().and_then(|found| target.id(found, "id"));
            self.pending.insert(reference.id, id.map(Into::into));
        }
        Ok(())
    }

    /// Returns the control plane through which the entity is deleted; `None` if the entity is gone
    /// with a parent.
    fn control_plane_to_delete_in(&self) -> Result<Option<Value>, Error> {
        if self.is(Special::Endpoints) {
            return Ok(Some(self.object.clone()));
        }
        if self.is_gone_with_parent()? {
            return Ok(None);
        }
        if let Some((_, found)) = self.control_plane_of(self.entity, self.object)? {
            return Ok(Some(found));
        }
        // The chain of references is broken, but not the place of the entity.
        let Some(id) = self.status.id("controlPlaneID") else { return Ok(None) };
        let of = CONTROL_PLANE.selection().matching("status.id", id).fields(["spec", "status"]);
        let found: Vec<Value> = self.host.list(&of)?;
        Ok(found.into_iter().next())
    }

    /// Returns whether a parent that takes its children along is gone.
    fn is_gone_with_parent(&self) -> Result<bool, Error> {
        for reference in self.entity.parents().filter(|reference| reference.to != "KongService") {
            let Some(name) = reference.names(self.object).into_iter().next() else { continue };
            let Some(target) = kind::find(reference.to) else { continue };
            let found: Option<Value> = self.read(target, &name, &["metadata.name"])?;
            if found.is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads the objects that refer to this one as their parent: the deletion is tried again when one
    /// of them goes.
    fn wait_for_children(&self) -> Result<(), Error> {
        let is_child = |entity: &&&'static Entity| {
            entity.parents().any(|reference| reference.to == self.entity.kind)
        };
        for child in kind::ALL.iter().filter(is_child) {
            for reference in child.parents().filter(|reference| reference.to == self.entity.kind) {
                let of = child.selection().matching(reference.name_path(), &self.metadata.name);
                let _: Vec<Value> = self.host.list(&of.fields(["metadata.name"]))?;
            }
        }
        Ok(())
    }

    /// Returns whether the object is a mirror of an entity that is managed elsewhere.
    pub(crate) fn is_mirror(&self) -> bool {
        self.is(Special::Mirror) && text(self.object, "spec.source") == Some("Mirror")
    }
}
