//! Control planes: their endpoints, groups of them, and mirrors.

use mortise_sdk::{Error, outbound::Method};
use serde_json::{Value, json};

use super::{
    fault::{Fault, Operation},
    find::id_of,
    reference::{GROUP, not_found},
    run::{Again, End, Run},
    session::Session,
    status::{PROGRAMMED, reason},
};
use crate::kind::{CONTROL_PLANE, Name, Special, at, text};

/// The condition of the members of a group.
const MEMBERS: &str = "MembersReferenceResolved";
/// The reason of `Programmed` while the members are not set.
const FAILED_TO_SET_MEMBERS: &str = "FailedToSetControlPlaneGroupMembers";
/// The condition of a mirror.
const MIRRORED: &str = "Mirrored";
/// The statuses that are typed in answers to a list.
const OF_LIST: [u16; 5] = [400, 401, 403, 500, 503];
/// The statuses that are typed in answers to a change of members.
const OF_MEMBERS: [u16; 5] = [400, 401, 403, 404, 503];

impl Run<'_> {
    /// Reads the entity of a control plane, and its endpoints into the status. An entity that is gone
    /// has no ID any more. Fails with the end of the run; of a refusal nothing is told, as with the
    /// original: what is known of the entity still holds.
    pub(crate) fn refresh(&mut self, session: &Session, id: &str) -> Result<(), End> {
        if !self.is(Special::Endpoints) {
            return Ok(());
        }
        match self.read_entity(session, id) {
            Ok(Some(entity)) => {
                self.set_endpoints(&entity);
                Ok(())
            }
            Ok(None) => {
                self.status.set_id("id", None);
                Ok(())
            }
            Err(fault) => Err(self.not_read(&fault)),
        }
    }

    fn not_read(&mut self, fault: &Fault) -> End {
        let is_told = match fault {
            Fault::Refused(refusal) => refusal.pause(self.host.now()).is_some(),
            fault => matches!(fault, Fault::Call(_)),
        };
        if is_told {
            return self.failed(Operation::Update, fault);
        }
        End::Failed(fault.text(Some(self.api)), Again::WithBackOff)
    }

    /// Reads the entity of an ID; `None` if there is none.
    fn read_entity(&self, session: &Session, id: &str) -> Result<Option<Value>, Fault> {
        let query = [("filter[id][eq]", id)];
        let found = session.list(self.host, self.api.collection, &query, self.api.items);
        let found = found.map_err(|fault| fault.typed_for(&OF_LIST))?;
        Ok(found.into_iter().find(|entity| id_of(entity).as_deref() == Some(id)))
    }

    fn set_endpoints(&mut self, entity: &Value) {
        let endpoints = [
            ("controlPlane", "config.control_plane_endpoint"),
            ("telemetry", "config.telemetry_endpoint"),
        ];
        let endpoints = endpoints
            .into_iter()
            .filter_map(|(field, path)| Some((field.to_owned(), text(entity, path)?.into())));
        self.status.set_field("konnectEndpoints", Some(Value::Object(endpoints.collect())));
    }

    pub(crate) fn set_cluster_type(&mut self, entity: &Value) {
        if let Some(of) = text(entity, "config.cluster_type") {
            self.status.set_id("clusterType", Some(of));
        }
    }

    /// Sets the members of a group; returns the end of the run if they are not set.
    pub(crate) fn set_members(
        &mut self,
        session: &Session,
        id: &str,
        operation: Operation,
    ) -> Result<Option<End>, Error> {
        if text(self.object, "spec.createControlPlaneRequest.cluster_type") != Some(GROUP) {
            return Ok(None);
        }
        let members = match self.members()? {
            Ok(members) => members,
            Err(message) => {
                self.status.set(MEMBERS, false, "SomeMemberNotResolved", message.clone());
                self.status.set(PROGRAMMED, false, FAILED_TO_SET_MEMBERS, message.clone());
                // The member is read, so it wakes the group when it is there.
                return Ok(Some(End::Failed(message, Again::OnChange)));
            }
        };
        let members: Vec<Value> = members.iter().map(|id| json!({"id": id})).collect();
        let path = format!("{}/{id}/group-memberships", self.api.collection);
        let body = json!({"members": members});
        let answer = session.send(self.host, Method::Put, &path, &[], Some(&body));
        if let Err(fault) = answer {
            let fault = fault.typed_for(&OF_MEMBERS);
            let text = fault.text(Some(self.api));
            let (reason, message) = self.without_members(id, operation, &fault);
            self.status.set(MEMBERS, false, "SetGroupMemberFailed", text);
            return Ok(Some(self.failed_with(&[PROGRAMMED], reason, &message, &fault, true)));
        }
        self.status.set(MEMBERS, true, "Resolved", "");
        Ok(None)
    }

    /// Returns reason and message of `Programmed` of a group whose members are not set.
    fn without_members(
        &self,
        id: &str,
        operation: Operation,
        fault: &Fault,
    ) -> (&'static str, String) {
        let text = fault.text(Some(self.api));
        if fault.is_untyped(self.api) {
            let is_new = operation == Operation::Create;
            let reason = if is_new { reason::FAILED_TO_CREATE } else { reason::FAILED_TO_UPDATE };
            return (reason, text);
        }
        if fault.is_document_alone(self.api) {
            return (FAILED_TO_SET_MEMBERS, text);
        }
        let failed =
            format!("failed to set members on control plane group {}: {text}", self.shown());
        let message = match operation {
            Operation::Create => failed,
            _ => format!(
                "Konnect entity (ID: {id}) created but relations failed: {FAILED_TO_SET_MEMBERS}: {failed}"
            ),
        };
        (FAILED_TO_SET_MEMBERS, message)
    }

    /// Returns the IDs of the members, sorted, or the message that says which one has none.
    fn members(&self) -> Result<Result<Vec<String>, String>, Error> {
        let mut ids = Vec::new();
        for member in
            at(self.object, "spec.members").and_then(Value::as_array).into_iter().flatten()
        {
            let name = member.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            let name = Name { namespace: self.namespace().to_owned(), name, is_foreign: false };
            let Some(found) = self.read(&CONTROL_PLANE, &name, &["status"])? else {
                return Ok(Err(format!(
                    "failed to get control plane group member : {}",
                    not_found(&CONTROL_PLANE, &name)
                )));
            };
            let Some(id) = CONTROL_PLANE.id(&found, "id") else {
                return Ok(Err(format!(
                    "control plane group {} member {} has no Konnect ID",
                    self.metadata.name, name.name
                )));
            };
            ids.push(id.to_owned());
        }
        ids.sort_unstable();
        ids.dedup();
        Ok(Ok(ids))
    }

    /// Reads the entity that a mirror shows. Nothing is ever sent.
    pub(crate) fn mirror(&mut self, session: &Session) -> End {
        let id = text(self.object, "spec.mirror.konnect.id").unwrap_or_default().to_owned();
        self.place(session);
        let fault = match self.read_entity(session, &id) {
            Ok(Some(entity)) => {
                self.set_endpoints(&entity);
                self.set_cluster_type(&entity);
                self.status.set(MIRRORED, true, MIRRORED, "");
                return self.programmed(session, &id, None);
            }
            Ok(None) => Fault::Clash(format!(
                "failed listing controlPlanes by id: entity with ID {id} not found on Konnect"
            )),
            Err(fault) => fault,
        };
        // The status keeps what is known of the entity.
        if self.status.id("id").is_some() && matches!(fault, Fault::Refused(_) | Fault::NoEntity) {
            return self.not_read(&fault);
        }
        let text = fault.text(Some(self.api));
        let message = match &fault {
            Fault::Clash(_) => text,
            fault if fault.is_untyped(self.api) || fault.is_document_alone(self.api) => text,
            _ => format!("failed listing for controlPlane with id {id}: {text}"),
        };
        let end = self.failed_with(&[PROGRAMMED], reason::FAILED_TO_CREATE, &message, &fault, true);
        if let Some(message) = self.status.message(PROGRAMMED) {
            self.status.set(MIRRORED, false, "Failed", message);
        }
        end
    }
}
