//! A processor that is called as a native function, as the host calls a component.

use std::{cell::RefCell, marker::PhantomData, rc::Rc, sync::Arc};

use futures::future::{self, BoxFuture};
use mortise_core::{
    contract::{self, bounds},
    digest::ModuleDigest,
    outbound::{self as core, Sending},
    outcome,
    reads::View,
    reconcile::{self, Call, Called, Fault, Input, Outside, Usage},
};
use parking_lot::Mutex;

use super::{CallMade, Line, Read, outbound::Client, run::finished};
use crate::{
    Failure, Host, Level, ObjectRef, Outcome, Processor, Request, Selection,
    bindings::mortise::host::{
        cluster::Page,
        outbound::{Answer, Call as Outgoing, CallError},
        types::ReadError,
    },
    host::Source,
    processor,
};

/// The reads, the log and the answers of the calls of one stub.
#[derive(Debug, Default)]
pub(super) struct Journal {
    /// The reads of all calls.
    pub(super) reads: Vec<Read>,
    /// The log of all calls.
    pub(super) lines: Vec<Line>,
    /// The number of times that the clock was asked.
    pub(super) asked_clock: u32,
    /// The calls to systems outside of the cluster, of all calls.
    pub(super) calls: Vec<CallMade>,
    /// True if a call has left a note.
    pub(super) is_noted: bool,
    /// The answer to the first call of the last run.
    pub(super) outcome: Option<Result<Outcome, Failure>>,
}

/// A processor as a native function.
pub(super) struct Native<P> {
    pub(super) journal: Arc<Mutex<Journal>>,
    pub(super) client: Arc<Client>,
    /// The most objects of a page.
    pub(super) page: u32,
    pub(super) processor: PhantomData<fn() -> P>,
}

/// The imports of one call, answered from its view.
pub(super) struct Imports {
    pub(super) view: RefCell<View>,
    pub(super) sending: RefCell<Sending>,
    /// The client that calls are sent by; `None`: none is sent.
    pub(super) client: Option<Arc<Client>>,
    pub(super) journal: Arc<Mutex<Journal>>,
    /// The most objects of a page.
    pub(super) page: u32,
    /// The time of the call, in milliseconds of Unix time.
    pub(super) now: u64,
}

// === impl Native ===

impl<P: Processor> Call for Native<P> {
    fn digest(&self) -> ModuleDigest {
        ModuleDigest::of(std::any::type_name::<P>().as_bytes())
    }

    fn outcome_limit(&self) -> usize {
        outcome::Limits::default().outcome
    }

    fn call<'a>(&'a self, input: Input<'a>) -> BoxFuture<'a, Called> {
        let Input { outside: Outside { view, sending }, request, moment, .. } = input;
        let imports = Rc::new(Imports {
            view: RefCell::new(view),
            sending: RefCell::new(sending),
            client: Some(Arc::clone(&self.client)),
            journal: Arc::clone(&self.journal),
            page: self.page,
            now: moment.now_ms,
        });
        let host = Host::new(Rc::clone(&imports) as Rc<dyn Source>);
        let answer = processor::reconciled::<P>(&Request::from(request.clone()), &host);
        let note = match &answer {
            Ok(outcome) => &outcome.note,
            Err(failure) => &failure.note,
        };
        {
            let mut journal = self.journal.lock();
            journal.is_noted |= note.is_some();
            journal.outcome.get_or_insert_with(|| answer.clone());
        }
        let sending = imports.sending.take();
        let outcome = match sending.ended() {
            None => Ok(answer.map(Into::into).map_err(Into::into)),
            Some(_) => Err(too_many_calls()),
        };
        let outside = Outside { view: imports.view.take(), sending };
        Box::pin(future::ready(Called { outcome, outside, usage: Usage::default() }))
    }
}

/// Returns the error that ends a component's call at its limit of calls to the outside.
fn too_many_calls() -> reconcile::CallError {
    reconcile::CallError {
        fault: Fault::Processor,
        reason: "too-many-calls",
        message: format!("more than {} calls to the outside in one call", bounds::CALLS),
        backtrace: None,
    }
}

// === impl Imports ===

impl Source for Imports {
    fn get(&self, reference: &ObjectRef, fields: &[String]) -> Result<Option<String>, ReadError> {
        self.journal.lock().reads.push(Read::Get(reference.clone(), fields.to_vec()));
        let of = contract::ObjectRef::from(reference.clone());
        bounds::check_get(&of, fields).map_err(ReadError::Invalid)?;
        Ok(self.view.borrow_mut().get(&of, fields)?)
    }

    fn list(&self, of: &Selection, limit: u32, from: Option<&str>) -> Result<Page, ReadError> {
        self.journal.lock().reads.push(Read::List(of.clone()));
        let of = contract::Selection::from(of.clone());
        bounds::check_list(&of, from).map_err(ReadError::Invalid)?;
        let limit = if limit == 0 { self.page } else { limit.min(self.page) };
        Ok(self.view.borrow_mut().list(&of, limit, from)?.into())
    }

    fn send(&self, call: &Outgoing) -> Result<Answer, CallError> {
        let of = core::Call::from(call.clone());
        let result = finished(self.sending.borrow_mut().send(&mut self.view.borrow_mut(), of));
        let result: Result<Answer, CallError> = result.map(Into::into).map_err(Into::into);
        let sent = self.client.as_ref().and_then(|client| client.take_sent());
        let Outgoing { method, url, headers, body, .. } = call.clone();
        self.journal.lock().calls.push(CallMade {
            method,
            url,
            headers,
            body,
            is_sent: sent.is_some(),
            token: sent.and_then(|sent| sent.token),
            result: result.clone().map_err(Into::into),
        });
        result
    }

    fn now(&self) -> u64 {
        self.journal.lock().asked_clock += 1;
        self.now
    }

    fn log(&self, level: Level, message: &str, fields: &[(String, String)]) {
        let line = Line { level, message: message.to_owned(), fields: fields.to_vec() };
        self.journal.lock().lines.push(line);
    }
}
