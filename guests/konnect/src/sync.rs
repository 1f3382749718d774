//! The loop: one run keeps the entity of one object as the object says.
//!
//! References, token, finalizer, then calls: an object that holds no finalizer in the cluster has no
//! entity. Whatever a run sees first ends it: each condition that is not met is told in the status,
//! and what was read wakes the object again.
//!
//! | module | holds |
//! | --- | --- |
//! | `run` | what a run knows, and how it ends |
//! | `reference`, `grant`, `credential` | what an object refers to, up to the token |
//! | `session`, `server`, `fault`, `secret` | calls, and what is told of those that fail |
//! | `create`, `find`, `update`, `delete`, `adopt` | the life of an entity |
//! | `control_plane`, `consumer`, `binding` | what does not fit the table of kinds |
//! | `status`, `note` | what is kept from run to run |

mod adopt;
mod binding;
mod consumer;
mod control_plane;
mod create;
pub(crate) mod credential;
pub(crate) mod delete;
pub(crate) mod fault;
pub(crate) mod find;
pub(crate) mod grant;
mod note;
pub(crate) mod reference;
mod run;
mod secret;
pub(crate) mod server;
pub(crate) mod session;
pub(crate) mod status;
mod update;

use mortise_sdk::{Error, Failure, Host, Outcome, Request};
use serde_json::Value;

use self::{
    fault::{Fault, Operation},
    reference::Check,
    run::{End, Run},
    session::Session,
    status::{PROGRAMMED, reason},
};
use crate::{
    body::body,
    config::Config,
    kind::{self, Lookup, Special},
};

/// Reconciles an object of a kind that has entities. The reconciler has the name of the kind.
pub(crate) fn reconcile(
    request: &Request,
    config: &Config,
    host: &Host,
) -> Result<Outcome, Failure> {
    let row = kind::entities().find(|(entity, _)| entity.plural == request.reconciler);
    let Some((entity, api)) = row else {
        return Err(Failure::new(format!("`{}` names no kind", request.reconciler)));
    };
    let Some(object) = request.object::<Value>()? else { return Ok(Outcome::new()) };
    // No call is possible now, and without one nothing new is known.
    if !request.failed_writes.is_empty() {
        return Ok(Outcome::new());
    }
    let mut run = Run::new(request, config, host, entity, api, &object)?;
    match run.pass()? {
        Some(end) => run.finish(end),
        None => Ok(Outcome::new().requeue_never()),
    }
}

impl Run<'_> {
    /// Does what there is to do. `None`: the object is not synchronised, and its status stays as it
    /// is.
    fn pass(&mut self) -> Result<Option<End>, Error> {
        if self.metadata.is_deleted() {
            return self.delete().map(Some);
        }
        let is_ours = self.entity.parents().any(|parent| !parent.names(self.object).is_empty());
        if !is_ours {
            return Ok(None);
        }
        match self.check_references()? {
            Check::Go => {}
            Check::Silent => return Ok(None),
            Check::Release if self.is_held() => return Ok(Some(End::Release)),
            Check::Stop | Check::Release => return Ok(Some(End::Done(None))),
        }
        let Some((_, control_plane)) = self.control_plane_of(self.entity, self.object)? else {
            // The control plane of a parent is gone, and the entity with it.
            return Ok(Some(if self.is_held() { End::Release } else { End::Done(None) }));
        };
        // One that is being deleted takes its entities along, or has done so.
        if control_plane.pointer("/metadata/deletionTimestamp").is_some() {
            return Ok(Some(End::Done(None)));
        }
        let Some(session) = self.find_session(&control_plane)? else {
            return Ok(Some(End::Done(None)));
        };
        // An ID of a control plane that is made anew: nothing is sent to the one before.
        let id = kind::CONTROL_PLANE.id(&control_plane, "id");
        if self.status.id("controlPlaneID").is_some_and(|held| Some(held) != id) {
            return Ok(Some(End::Done(None)));
        }
        if !self.is_held() {
            return Ok(Some(End::Hold));
        }
        if !self.has_listed_secrets()? {
            return Ok(Some(End::Done(None)));
        }
        self.synchronise(&session).map(Some)
    }

    /// Keeps the entity as the object says.
    fn synchronise(&mut self, session: &Session) -> Result<End, Error> {
        if self.is_mirror() {
            return Ok(self.mirror(session));
        }
        if let Err(message) = self.build()? {
            return self.without_body(session, message);
        }
        if let Some(id) = self.status.id("id").map(str::to_owned) {
            self.place(session);
            if let Err(end) = self.refresh(session, &id) {
                return Ok(end);
            }
        }
        let Some(id) = self.status.id("id").map(str::to_owned) else {
            return match self.rest() {
                Some(rest) if !self.status.is_programmed() => Ok(End::Done(Some(rest))),
                _ => self.create(session),
            };
        };
        if !crate::body::is_segment(&id) {
            let message = format!("status has `{id}` as an ID");
            return Ok(self.failed(Operation::Update, &Fault::Clash(message)));
        }
        match self.rest() {
            Some(rest) => Ok(End::Done(Some(rest))),
            None => self.update(session, &id),
        }
    }

    /// Builds the body, or returns the message that says what it lacks.
    fn build(&mut self) -> Result<Result<(), String>, Error> {
        self.find_consumer_groups()?;
        if self.is(Special::Plugin)
            && let Err(message) = self.find_targets()?
        {
            return Ok(Err(message));
        }
        self.body = body(self.entity, self.api, self.object, &self.resolved);
        Ok(self.resolved.lacking.take().map_or(Ok(()), Err))
    }

    /// Ends a run of an object whose body cannot be built. An entity that is there stays as it is
    /// until it would be sent again.
    fn without_body(&mut self, session: &Session, message: String) -> Result<End, Error> {
        self.place(session);
        let is_new = self.status.id("id").is_none();
        if !is_new && self.status.is_programmed() {
            let now = self.host.now();
            let rest =
                self.note.as_ref().and_then(|note| note.rest(now, self.config.sync_period()));
            if let Some(rest) = rest {
                return Ok(End::Done(Some(rest)));
            }
        }
        // The original looks for the entity before it builds the body.
        if is_new
            && matches!(self.api.lookup, Lookup::AllTags(_))
            && let Err(fault) = self.find(session)?
        {
            return Ok(self.not_looked_up(&fault));
        }
        let reason = if is_new { reason::FAILED_TO_CREATE } else { reason::FAILED_TO_UPDATE };
        self.status.set(PROGRAMMED, false, reason, message);
        Ok(End::Done(None))
    }
}
