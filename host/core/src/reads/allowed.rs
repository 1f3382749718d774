//! Limits the reads of a processor to the rights of its account.

use std::sync::Arc;

use super::{Cut, Pace, View};
use crate::{
    contract::{Kind, ObjectRef, Page, ReadError, Selection, bounds::text},
    grant::rights::{Denial, NotRead, Permit, Question, ReadTarget},
    store::{Entry, Query, Rendered},
};

impl View {
    /// Reads one object; from the store, as [`View::get`] does, if the account may watch it too.
    ///
    /// Reads the object from the API server if the account may only get it; a later change of it
    /// triggers no run.
    pub async fn get_allowed(
        &mut self,
        of: &ObjectRef,
        fields: &[String],
    ) -> Result<Option<String>, ReadError> {
        let target = ReadTarget::object(of.namespace.as_deref(), &of.name);
        let grant = Arc::clone(&self.grant);
        let is_declared = || grant.may_get(of, fields).is_ok();
        match self.permit(&of.kind, target, is_declared).await {
            Ok(Permit::Stored) => self.get(of, fields),
            Ok(Permit::Live) => {
                let answer = Box::pin(self.find_live(of, fields)).await;
                let answer = self.record_get(of, fields, answer);
                self.reads.was_live();
                answer
            }
            refused => {
                let answer = self.declared("get", &of.kind, grant.may_get(of, fields).map(|_| ()));
                let answer = answer.and_then(|()| Err(self.refuse(&of.kind, target, refused)));
                self.record_get(of, fields, answer)
            }
        }
    }

    /// Reads a page of a list, as [`View::list_paced`] does, if the account may list and watch these
    /// objects.
    pub async fn list_allowed<P: Pace>(
        &mut self,
        of: &Selection,
        limit: u32,
        from: Option<&str>,
        pace: &mut P,
    ) -> Result<Result<Page, ReadError>, P::Stop> {
        let target = ReadTarget::list(of.namespace.as_deref(), of.name.as_deref());
        let grant = Arc::clone(&self.grant);
        let query = self.query(of);
        let declared = || grant.may_list(of, query.as_ref().map_err(ReadError::clone)?).map(|_| ());
        match self.permit(&of.kind, target, || declared().is_ok()).await {
            Ok(Permit::Stored) => self.list_paced(of, limit, from, pace).await,
            refused => {
                let answer = self.declared("list", &of.kind, declared());
                let answer = answer.and_then(|()| Err(self.refuse(&of.kind, target, refused)));
                Ok(self.record_list(of, limit, from, answer))
            }
        }
    }

    /// Returns whether a read is known to be allowed from the store, without asking the API server.
    pub fn is_at_hand(&self, kind: &Kind, target: ReadTarget<'_>) -> bool {
        self.rights.as_ref().is_none_or(|rights| rights.known(kind, target) == Some(Permit::Stored))
    }

    /// Fails if the account may not read and watch the reconciled object.
    pub async fn check_reconciled(&mut self, of: &ObjectRef) -> Result<(), ReadError> {
        let target = ReadTarget::reconciled(of.namespace.as_deref(), &of.name);
        match self.permit(&of.kind, target, || true).await {
            Ok(Permit::Stored) => Ok(()),
            refused => Err(self.refuse(&of.kind, target, refused)),
        }
    }

    /// Returns how a read may be answered. The API server is not asked about an undeclared read: it
    /// is refused anyway.
    pub(super) async fn permit(
        &self,
        kind: &Kind,
        target: ReadTarget<'_>,
        is_declared: impl Fn() -> bool,
    ) -> Result<Permit, String> {
        let Some(rights) = &self.rights else { return Ok(Permit::Stored) };
        match rights.known(kind, target) {
            Some(known) => Ok(known),
            None if is_declared() => rights.permit(kind, target).await,
            None => Ok(Permit::Stored),
        }
    }

    /// Returns the error of a refused read, and records its cause, since a change may remove the
    /// cause.
    pub(super) fn refuse(
        &mut self,
        kind: &Kind,
        target: ReadTarget<'_>,
        permit: Result<Permit, String>,
    ) -> ReadError {
        match permit {
            Ok(Permit::Denied(question)) => self.deny(kind, question),
            Ok(Permit::Unserved) => {
                // A watch shows when the kind is served.
                self.wait_for(kind, target, true);
                ReadError::UnknownKind
            }
            Ok(Permit::Unreachable(why)) => {
                self.wait_for(kind, target, false);
                ReadError::Unavailable(why)
            }
            // An unanswered access review is retried; its answer queues all keys.
            Err(unanswered) => ReadError::Unavailable(unanswered),
            Ok(Permit::Stored | Permit::Live) => {
                ReadError::Unavailable("its rights have changed in between".to_owned())
            }
        }
    }

    /// Records that the run waits for a kind, and which watch it needs.
    fn wait_for(&mut self, kind: &Kind, target: ReadTarget<'_>, for_itself: bool) {
        let kind = self.stores.shared_kind(kind);
        self.reads.waits_for(&kind, for_itself);
        let query = Query::within(target.namespace, target.name);
        self.reads.demands(self.grant.demand(&kind, &query));
    }

    fn deny(&mut self, kind: &Kind, question: Question) -> ReadError {
        let who = match self.rights.as_ref().filter(|_| question.cluster.is_empty()) {
            Some(rights) => format!("`{}`", rights.account()),
            None => "the user of the kubeconfig".to_owned(),
        };
        let message = format!("{who} may not {question}");
        self.reads.denied(Denial::of_right(question, kind));
        ReadError::Denied(message)
    }

    async fn find_live(
        &mut self,
        of: &ObjectRef,
        fields: &[String],
    ) -> Result<Option<Rendered>, ReadError> {
        let grant = Arc::clone(&self.grant);
        let granted = self.declared("get", &of.kind, grant.may_get(of, fields))?;
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
        // `d/scale` is a subresource: the API server would answer with another kind.
        let mut names = [Some(of.name.as_str()), of.namespace.as_deref()].into_iter().flatten();
        if let Some(name) = names.find(|name| !text::is_name(name)) {
            return Err(ReadError::Invalid(format!("{} is not a name", text::quoted(name))));
        }
        let Some(rights) = self.rights.clone() else { return Ok(None) };
        let found = match rights.get(of).await {
            Ok(found) => found,
            Err(NotRead::Denied(question)) => return Err(self.deny(&of.kind, question)),
            Err(NotRead::Unserved) => {
                let target = ReadTarget::object(of.namespace.as_deref(), &of.name);
                return Err(self.refuse(&of.kind, target, Ok(Permit::Unserved)));
            }
            Err(NotRead::Failed(message)) => return Err(ReadError::Unavailable(message)),
        };
        let entry = found.map(|object| Arc::new(Entry::alone(&object)));
        // The object is kept whole, whichever of its fields are read.
        self.fetched += entry.as_ref().map_or(0, |entry| entry.json().len());
        self.live.insert(of.clone(), entry.clone());
        Ok(entry)
    }
}
