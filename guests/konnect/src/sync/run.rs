//! One run for one object: what it knows, and how it ends.

use std::{collections::BTreeMap, time::Duration};

use mortise_sdk::{Error, Failure, Host, Outcome, Request, object::Metadata, outbound::CallError};
use serde_json::Value;

use super::{
    fault::{Fault, Operation, paused, until},
    note::Note,
    secret,
    session::Session,
    status::{PROGRAMMED, Status, reason},
};
use crate::{
    body::{self, Resolved},
    config::Config,
    kind::{Api, CLEANUP, Entity, Name, OLD_CLEANUP, Special},
};

/// The time after which a call is repeated that was not answered.
const REPEAT: Duration = Duration::from_millis(200);
/// The number of failures in a row after which that time is doubled with each further one.
const REPEATS: u32 = 5;
/// A pause that is shorter is not told in the status: it comes from the rate of the grant, not from
/// the API.
const SHORT_PAUSE: Duration = Duration::from_secs(2);

/// One run for one object.
pub(crate) struct Run<'a> {
    pub(crate) request: &'a Request,
    pub(crate) config: &'a Config,
    pub(crate) host: &'a Host,
    pub(crate) entity: &'static Entity,
    pub(crate) api: &'static Api,
    pub(crate) object: &'a Value,
    pub(crate) metadata: Metadata,
    pub(crate) status: Status<'a>,
    /// The values that the body takes from other objects.
    pub(crate) resolved: Resolved,
    /// IDs of other entities that the status keeps when the entity has been sent with them.
    pub(crate) pending: BTreeMap<&'static str, Option<Value>>,
    /// The note for the next run; none: the object is looked at anew.
    pub(crate) note: Option<Note>,
    /// The body that is sent, for what must not be in a message.
    pub(crate) body: Value,
    /// True if the run has found the entity gone, and creates it anew.
    pub(crate) is_created_anew: bool,
}

/// How a run ends.
#[derive(Debug)]
pub(crate) enum End {
    /// Nothing more is to be done until something changes, or until this time has passed.
    Done(Option<Duration>),
    /// The finalizer is to be stored; then calls may be made.
    Hold,
    /// The object needs no finalizer any more.
    Release,
    /// It failed: for this reason, to be tried again then.
    Failed(String, Again),
}

/// When a failed run is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    WithBackOff,
    After(Duration),
    OnChange,
}

// === impl Run ===

impl<'a> Run<'a> {
    pub(crate) fn new(
        request: &'a Request,
        config: &'a Config,
        host: &'a Host,
        entity: &'static Entity,
        api: &'static Api,
        object: &'a Value,
    ) -> Result<Self, Failure> {
        let metadata = object.get("metadata").cloned().unwrap_or_default();
        let metadata: Metadata = serde_json::from_value(metadata)
            .map_err(|error| Failure::new(format!("metadata cannot be read: {error}")))?;
        Ok(Self {
            request,
            config,
            host,
            entity,
            api,
            object,
            metadata,
            status: Status::of(entity, object, host),
            resolved: Resolved::default(),
            pending: BTreeMap::new(),
            note: request.note.as_deref().and_then(Note::parse),
            body: Value::Null,
            is_created_anew: false,
        })
    }

    /// Returns namespace and name, as messages show them.
    pub(crate) fn shown(&self) -> String {
        format!("{}/{}", self.namespace(), self.metadata.name)
    }

    pub(crate) fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    pub(crate) fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    pub(crate) fn is(&self, special: Special) -> bool {
        self.api.special.contains(&special)
    }

    /// Returns whether the object holds the finalizer without which no call is made.
    pub(crate) fn is_held(&self) -> bool {
        self.metadata.finalizers.iter().any(|finalizer| finalizer == CLEANUP)
    }

    /// Reads an object of a kind of the table. `None` if there is none.
    pub(crate) fn read(
        &self,
        entity: &Entity,
        name: &Name,
        fields: &[&str],
    ) -> Result<Option<Value>, Error> {
        // A reference without a namespace, from an object without one, leads nowhere.
        if name.namespace.is_empty() && !entity.is_cluster_scoped {
            return Ok(None);
        }
        self.host.get_ref(&entity.object(&name.namespace, &name.name), fields)
    }

    /// Returns the path of the collection, or the field of the ID that it needs and that is missing.
    pub(crate) fn path(&self, of: &str) -> Result<String, String> {
        body::collection(of, |field| self.id(field))
    }

    /// Returns an ID, as the entity is to have it.
    pub(crate) fn id(&self, field: &str) -> Option<&str> {
        match self.pending.get(field) {
            Some(value) => value.as_ref().and_then(Value::as_str),
            None => self.status.id(field),
        }
    }

    /// Sets `Programmed` to True, and notes what was sent; `hash` is none if it is not known.
    pub(crate) fn programmed(&mut self, session: &Session, id: &str, hash: Option<String>) -> End {
        self.status.set_id("id", Some(id));
        for (field, value) in std::mem::take(&mut self.pending) {
            self.status.set_field(field, value);
        }
        self.place(session);
        self.status.set(PROGRAMMED, true, reason::PROGRAMMED, "");
        self.note = Some(Note::sent(self.host.now(), hash.unwrap_or_default()));
        End::Done(Some(self.config.sync_period()))
    }

    /// Writes server and organization into the status.
    pub(crate) fn place(&mut self, session: &Session) {
        self.status.set_id("serverURL", Some(&session.url));
        self.status.set_id("organizationID", session.organization.as_deref());
    }

    /// Ends a run whose call failed.
    pub(crate) fn failed(&mut self, operation: Operation, fault: &Fault) -> End {
        let message = fault.message(operation, self.api, self.entity.kind, &self.shown());
        let reason = match operation {
            Operation::Create => reason::FAILED_TO_CREATE,
            Operation::Update => reason::FAILED_TO_UPDATE,
            Operation::Delete => reason::OPERATION_FAILED,
        };
        let is_repeated = match operation {
            Operation::Create => !matches!(fault.status(), Some(400 | 403 | 409)),
            // The referenced entity may come later, as all of a new control plane do.
            Operation::Update => {
                matches!(fault, Fault::Refused(refusal) if refusal.lacks_reference())
            }
            Operation::Delete => true,
        };
        self.failed_with(&[PROGRAMMED], reason, &message, fault, is_repeated)
    }

    /// Ends a run whose call failed, with a reason and a message for these conditions.
    /// `is_repeated`: a refusal is repeated with growing pauses, not only after a change or a period.
    pub(crate) fn failed_with(
        &mut self,
        conditions: &[&str],
        reason: &str,
        message: &str,
        fault: &Fault,
        is_repeated: bool,
    ) -> End {
        let message = secret::hide(message, &self.body);
        match fault {
            Fault::Call(error) => return self.unanswered(conditions, reason, message, error),
            Fault::Refused(refusal) => {
                if let Some(pause) = refusal.pause(self.host.now()) {
                    let until = until(self.host.now(), pause);
                    let message = format!("{message}; nothing is sent until {until}");
                    self.set_failed(conditions, reason, &message);
                    return End::Failed(message, Again::After(pause));
                }
            }
            Fault::NoEntity | Fault::Clash(_) => {}
        }
        self.set_failed(conditions, reason, &message);
        if is_repeated {
            return End::Failed(message, Again::WithBackOff);
        }
        // What a token is refused for is sent again with a change of anything: of the token, too.
        let is_of_token = fault.status() == Some(401);
        self.note = (!is_of_token).then(|| Note::refused(self.host.now(), self.refused()));
        End::Done(Some(self.config.sync_period()))
    }

    /// Ends a run whose call has no answer.
    fn unanswered(
        &mut self,
        conditions: &[&str],
        reason: &str,
        message: String,
        error: &CallError,
    ) -> End {
        match error {
            CallError::Paused(pause) => {
                let pause = (*pause).max(Duration::from_millis(1));
                if pause < SHORT_PAUSE {
                    return End::Failed(
                        "the rate of calls is reached".to_owned(),
                        self.spread(pause),
                    );
                }
                let message = paused(self.host.now(), pause);
                // An entity that is as it should be stays so.
                let is_as_wanted = self.status.is_programmed() && !self.has_change();
                if !is_as_wanted || self.metadata.is_deleted() {
                    self.set_failed(conditions, reason, &message);
                }
                End::Failed(message, Again::After(pause))
            }
            CallError::NotSent(_) | CallError::NoAnswer(_) => {
                let is_adoption = reason == reason::FAILED_TO_ADOPT;
                let reason = if is_adoption { reason } else { reason::OPERATION_FAILED };
                self.set_failed(conditions, reason, &message);
                let doubled = self.request.attempt.saturating_sub(REPEATS).min(8);
                End::Failed(message, Again::After(REPEAT * (1 << doubled)))
            }
            CallError::NotHeld => End::Failed(message, Again::After(REPEAT)),
            CallError::Denied(_)
            | CallError::Credential(_)
            | CallError::TooLarge
            | CallError::Invalid(_) => {
                self.set_failed(conditions, reason::OPERATION_FAILED, &message);
                End::Failed(message, Again::OnChange)
            }
        }
    }

    fn set_failed(&mut self, conditions: &[&str], reason: &str, message: &str) {
        for condition in conditions {
            self.status.set(condition, false, reason, message);
        }
    }

    /// Returns the next attempt after a short pause: later with each, so that ten thousand objects do
    /// not all ask again at once.
    fn spread(&self, pause: Duration) -> Again {
        Again::After(pause * (1 << self.request.attempt.min(8)))
    }

    /// Returns the hash of everything that a user may edit to have a refused entity sent again.
    pub(crate) fn edited(&self) -> String {
        let metadata = |field| self.object.pointer(field).cloned().unwrap_or_default();
        let groups = self.resolved.ids.get("consumerGroupIDs").cloned().unwrap_or_default();
        let parts = [
            self.body.clone(),
            metadata("/metadata/labels"),
            metadata("/metadata/annotations"),
            groups,
        ];
        body::hash(&Value::from(parts.to_vec()))
    }

    /// Returns the hash of all that must change for a refused entity to be sent again: what a user may
    /// edit, and the control plane, which may have been created anew.
    pub(crate) fn refused(&self) -> String {
        body::hash(&serde_json::json!([self.edited(), self.id("controlPlaneID")]))
    }

    /// Returns what the run writes, and when the object runs again.
    pub(crate) fn finish(self, end: End) -> Result<Outcome, Failure> {
        let status = self.status.to_json();
        let note = self.note.as_ref().map(Note::text);
        let outcome = Outcome::new().status(self.request, &status);
        let mut outcome = match end {
            End::Failed(message, again) => {
                let failure = Failure::new(message).status(self.request, &status);
                let mut failure = match again {
                    Again::WithBackOff => failure,
                    Again::After(after) => failure.retry_after(after),
                    Again::OnChange => failure.retry_on_change(),
                };
                failure.note = note;
                return Err(failure);
            }
            End::Done(None) => outcome.requeue_never(),
            End::Done(Some(after)) => outcome.requeue_after(after),
            End::Hold => {
                let is_old = |finalizer: &&String| *finalizer == OLD_CLEANUP;
                let old = self.metadata.finalizers.iter().find(is_old).map(String::as_str);
                let finalizers = [CLEANUP].into_iter().chain(old);
                outcome.finalizers(finalizers).requeue_after(Duration::from_millis(1))
            }
            End::Release => outcome.finalizers::<&str>([]).requeue_never(),
        };
        outcome.note = note;
        Ok(outcome)
    }
}
