//! A processor that is called as a native function, as the host calls a component.

use std::{cell::RefCell, marker::PhantomData, rc::Rc, sync::Arc};

use futures::future::{self, BoxFuture};
use mortise_core::{
    contract::{self, bounds},
    digest::ModuleDigest,
    outbound::Sending,
    outcome,
    reads::View,
    reconcile::{Call, Called, Input, Outside, Usage},
};
use parking_lot::Mutex;

use super::{Line, Read};
use crate::{
    Failure, Host, Level, ObjectRef, Outcome, Processor, Request, Selection,
    bindings::mortise::host::{cluster::Page, types::ReadError},
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
    /// The answer to the first call of the last run.
    pub(super) outcome: Option<Result<Outcome, Failure>>,
}

/// A processor as a native function.
pub(super) struct Native<P> {
    pub(super) journal: Arc<Mutex<Journal>>,
    /// The most objects of a page.
    pub(super) page: u32,
    pub(super) processor: PhantomData<fn() -> P>,
}

/// The imports of one call, answered from its view.
pub(super) struct Imports {
    pub(super) view: RefCell<View>,
    pub(super) sending: RefCell<Sending>,
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
            journal: Arc::clone(&self.journal),
            page: self.page,
            now: moment.now_ms,
        });
        let host = Host::new(Rc::clone(&imports) as Rc<dyn Source>);
        let answer = processor::reconciled::<P>(&Request::from(request.clone()), &host);
        self.journal.lock().outcome.get_or_insert_with(|| answer.clone());
        let called = Called {
            outcome: Ok(answer.map(Into::into).map_err(Into::into)),
            outside: Outside { view: imports.view.take(), sending: imports.sending.take() },
            usage: Usage::default(),
        };
        Box::pin(future::ready(called))
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

    fn now(&self) -> u64 {
        self.journal.lock().asked_clock += 1;
        self.now
    }

    fn log(&self, level: Level, message: &str, fields: &[(String, String)]) {
        let line = Line { level, message: message.to_owned(), fields: fields.to_vec() };
        self.journal.lock().lines.push(line);
    }
}
