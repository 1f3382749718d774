//! Limits the reads of a processor with an account to what the account may read.

use std::sync::Arc;

use serde_json::Value;

use super::{Cut, View};
use crate::access::{Denial, Permit, Place, Question, Rights, Unanswered};
use crate::cluster::Outgoing;
use crate::contract::{Kind, ObjectRef, Page, ReadError, Selection};
use crate::processor::bounds::text;
use crate::store::{Entry, Query, Rendered};

impl View {
    /// Reads one object, as [`View::get`] does if the account may watch it too.
    ///
    /// If the account may only get the object, the answer is the object as it is in the cluster
    /// now; a later change of it triggers nothing.
    pub async fn get_allowed(
        &mut self,
        of: &ObjectRef,
        fields: &[String],
    ) -> Result<Option<String>, ReadError> {
        let place = Place::object(of.namespace.as_deref(), &of.name);
        let readable = Arc::clone(&self.readable);
        let is_declared = || readable.get(of, fields).is_ok();
        match self.permit(&of.kind, place, is_declared).await {
            Ok(Permit::Stored) => self.get(of, fields),
            Ok(Permit::Live) => {
                let answer = Box::pin(self.find_live(of, fields)).await;
                let answer = self.record_get(of, fields, answer);
                self.reads.was_live();
                answer
            }
            refused => {
                let answer = self.declared("get", &of.kind, readable.get(of, fields).map(|_| ()));
                let answer = answer.and_then(|()| Err(self.refuse(&of.kind, place, refused)));
                self.record_get(of, fields, answer)
            }
        }
    }

    /// Reads a page of a list, as [`View::list`] does, if the account may list and watch these
    /// objects.
    pub async fn list_allowed(
        &mut self,
        of: &Selection,
        limit: u32,
        from: Option<&str>,
    ) -> Result<Page, ReadError> {
        let place = Place::list(of.namespace.as_deref(), of.name.as_deref());
        let readable = Arc::clone(&self.readable);
        let query = self.query(of);
        let declared = || readable.list(of, query.as_ref().map_err(ReadError::clone)?).map(|_| ());
        match self.permit(&of.kind, place, || declared().is_ok()).await {
            Ok(Permit::Stored) => self.list(of, limit, from),
            refused => {
                let answer = self.declared("list", &of.kind, declared());
                let answer = answer.and_then(|()| Err(self.refuse(&of.kind, place, refused)));
                self.record_list(of, limit, from, answer)
            }
        }
    }

    /// Returns whether it is known that a read may be answered from the store, without asking the
    /// API server.
    pub(crate) fn is_at_hand(&self, kind: &Kind, place: Place<'_>) -> bool {
        self.rights.as_ref().is_none_or(|rights| rights.known(kind, place) == Some(Permit::Stored))
    }

    /// Fails if the account may not read and watch the object that a call is about.
    pub(crate) async fn check_reconciled(&mut self, of: &ObjectRef) -> Result<(), ReadError> {
        let place = Place::reconciled(of.namespace.as_deref(), &of.name);
        match self.permit(&of.kind, place, || true).await {
            Ok(Permit::Stored) => Ok(()),
            refused => Err(self.refuse(&of.kind, place, refused)),
        }
    }

    /// Returns how a read may be answered. The API server is not asked about an undeclared read: it
    /// is refused anyway.
    async fn permit(
        &self,
        kind: &Kind,
        place: Place<'_>,
        is_declared: impl Fn() -> bool,
    ) -> Result<Permit, Unanswered> {
        let Some(rights) = &self.rights else { return Ok(Permit::Stored) };
        match rights.known(kind, place) {
            Some(known) => Ok(known),
            // Boxed: few reads ask the API server, and the future of every read would carry the
            // request.
            None if is_declared() => Box::pin(rights.permit(kind, place)).await,
            None => Ok(Permit::Stored),
        }
    }

    /// Returns the reason why a read is not answered, and notes it, since a change may remove the
    /// reason.
    fn refuse(
        &mut self,
        kind: &Kind,
        place: Place<'_>,
        permit: Result<Permit, Unanswered>,
    ) -> ReadError {
        match permit {
            Ok(Permit::Denied(question)) => self.deny(kind, question),
            Ok(Permit::Unserved) => {
                let kind = self.stores.shared_kind(kind);
                self.reads.waits_for(&kind, true);
                // A watch shows when the kind is served.
                let query = Query::within(place.namespace, place.name);
                self.reads.demands(self.readable.demand(&kind, &query));
                ReadError::UnknownKind
            }
            // A question that has no answer yet is asked again, and then all keys run.
            Err(unanswered) => ReadError::Unavailable(unanswered.to_string()),
            Ok(Permit::Stored | Permit::Live) => {
                ReadError::Unavailable("its rights have changed in between".to_owned())
            }
        }
    }

    fn deny(&mut self, kind: &Kind, question: Question) -> ReadError {
        let account = self.rights.as_ref().map(|rights| rights.account().to_string());
        let message = format!("`{}` may not {question}", account.unwrap_or_default());
        self.reads.denied(Denial::of_right(question, kind));
        ReadError::Denied(message)
    }

    async fn find_live(
        &mut self,
        of: &ObjectRef,
        fields: &[String],
    ) -> Result<Option<Rendered>, ReadError> {
        let readable = Arc::clone(&self.readable);
        let granted = self.declared("get", &of.kind, readable.get(of, fields))?;
        let Some(entry) = self.live(of).await? else { return Ok(None) };
        let selects = |part: Option<&Query>| part.is_none_or(|part| part.matches(&entry));
        let Some((_, fields)) = granted.into_iter().find(|(part, _)| selects(*part)) else {
            return Ok(None);
        };
        let kind = self.stores.shared_kind(&of.kind);
        self.reads.answered(&kind, &entry);
        Ok(Some(Cut::new(&fields).give(&entry)))
    }

    pub(super) async fn live(&mut self, of: &ObjectRef) -> Result<Option<Arc<Entry>>, ReadError> {
        if let Some(held) = self.live.get(of) {
            return Ok(held.clone());
        }
        // `d/scale` is not an object: the API server would answer with another kind.
        let mut names = [Some(of.name.as_str()), of.namespace.as_deref()].into_iter().flatten();
        if let Some(name) = names.find(|name| !text::is_name(name)) {
            return Err(ReadError::Invalid(format!("{} is not a name", text::quoted(name))));
        }
        let Some(rights) = self.rights.clone() else { return Ok(None) };
        let found = match ask(&rights, of).await {
            Ok(found) => found,
            Err(Live::Denied(question)) => return Err(self.deny(&of.kind, question)),
            Err(Live::Unserved) => {
                let place = Place::object(of.namespace.as_deref(), &of.name);
                return Err(self.refuse(&of.kind, place, Ok(Permit::Unserved)));
            }
            Err(Live::Failed(message)) => return Err(ReadError::Unavailable(message)),
        };
        let entry = found.and_then(|object| Entry::alone(&object)).map(Arc::new);
        // The object is kept whole, whichever of its fields are read.
        self.fetched += entry.as_ref().map_or(0, |entry| entry.json_bytes());
        self.live.insert(of.clone(), entry.clone());
        Ok(entry)
    }
}

/// The reason why an object could not be read live.
enum Live {
    Denied(Question),
    Unserved,
    Failed(String),
}

/// Gets the object as it is now from the API server; `None` if it does not exist.
async fn ask(rights: &Rights, of: &ObjectRef) -> Result<Option<Value>, Live> {
    let cluster = rights.cluster();
    let resource = cluster.resolve(&of.kind).await;
    let resource = resource.map_err(|error| Live::Failed(error.to_string()))?;
    let path = resource.ok_or(Live::Unserved)?.path_of(of.namespace.as_deref(), &of.name);
    match cluster.send(&Outgoing::get(path)).await {
        Ok(answer) => Ok(Some(answer.body)),
        Err(refusal) if refusal.code == 404 => Ok(None),
        Err(refusal) => match Question::refused(&refusal.message, rights.account()) {
            // The right was taken away since the API server was asked about it.
            Some(question) => {
                rights.relies_on(&question);
                Err(Live::Denied(question))
            }
            None => Err(Live::Failed(refusal.to_string())),
        },
    }
}
