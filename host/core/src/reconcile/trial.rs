//! Tries a new version of a processor with a dry run, before it is swapped in for one that works.

use std::sync::Arc;

use super::{
    Input, Occasion, Outside, Reconciler, Turn, UNDECLARED, object, removal::Decision,
    report::masked,
};
use crate::{contract::Kind, error_chain, outbound::Sending, outcome::Reconciled, queue::Key};

/// The result of a trial with one object.
#[derive(Debug)]
pub enum Tried {
    /// The processor returned a valid outcome, or a failure of its own.
    Well,
    /// The processor trapped, passed a limit, or returned an outcome that is not valid; the text
    /// says which.
    Broke(String),
    /// The object or the cluster prevents a trial with this object, or the processor called a system
    /// outside of the cluster, which says nothing about the version.
    Not,
}

impl Reconciler {
    /// Returns the kinds of the objects that the processor is called for.
    pub fn reconciled_kinds(&self) -> Vec<Kind> {
        self.reconcilers.declared().iter().map(|of| Kind::clone(&of.spec.of.kind)).collect()
    }

    /// Calls the processor for a key and checks the answer, as a run would.
    ///
    /// Nothing is written, recorded, counted, logged or waited for. The trial ends at its first call
    /// to a system outside of the cluster, and then says nothing about the version.
    pub async fn try_out(&self, key: &Key) -> Tried {
        let Some(declared) = self.reconciler(key) else { return Tried::Not };
        let (declared, mut view) = (&*declared, self.view());
        let reference = object(declared, key);
        let known = self.read_object(&mut view, declared, &reference).await;
        let Ok(known) = known else { return Tried::Not };
        let Decision::Call(object, value) = self.decide(key, known) else { return Tried::Not };
        let request = self.request(key, &reference, object, 0);
        let calls_out = self.version.grant.calls_out();
        let sending = if calls_out { Sending::trial() } else { Sending::closed(UNDECLARED) };
        let (outside, moment) = (Outside { view, sending }, self.moment());
        let input = Input { outside, request: &request, moment, occasion: Occasion::Trial };
        let called = self.version.call.call(input).await;
        if called.outside.sending.ended().is_some() {
            return Tried::Not;
        }
        let reconciled = Reconciled { reference, object: value };
        let turn = Turn {
            key,
            declared,
            reconciled: &reconciled,
            reads: called.outside.view.finish(),
            api: Arc::clone(&self.version.api),
        };
        match self.plan(called.outcome, &turn).await.1 {
            Err(error) if error.is_processors() => {
                Tried::Broke(masked(error_chain::whole(&error), &turn.reads))
            }
            Err(_) => Tried::Not,
            Ok(_) => Tried::Well,
        }
    }
}
