//! The puppet as a component: the contract's exports and imports as they are.

use mortise_sdk::{
    Description, Failure, Level, ObjectRef, Outcome, Request, Selection,
    bindings::{
        self,
        exports::mortise::host::reconciliation::Guest,
        mortise::host::{clock, cluster, log, types::ReadError},
    },
};

use crate::{Ask, Puppet, play, reconcile};

struct Imports;

impl Guest for Puppet {
    fn describe(config: String) -> Result<Description, String> {
        play(&config).map(|play| play.description)
    }

    fn reconcile(request: Request) -> Result<Outcome, Failure> {
        reconcile(&request, &Imports)
    }
}

impl Ask for Imports {
    fn get(&self, of: &ObjectRef, fields: &[String]) -> Result<Option<String>, ReadError> {
        cluster::get(of, fields)
    }

    fn list(&self, of: &Selection, limit: u32) -> Result<Vec<String>, ReadError> {
        let mut objects = Vec::new();
        let mut from: Option<String> = None;
        loop {
            let page = cluster::list(of, limit, from.as_deref())?;
            objects.extend(page.objects);
            let Some(next) = page.next else { return Ok(objects) };
            from = Some(next);
        }
    }

    fn now(&self) -> u64 {
        clock::now()
    }

    fn say(&self, message: &str, answer: String) {
        log::write(Level::Info, message, &[("answer".to_owned(), answer)]);
    }
}

#[allow(unsafe_code, unreachable_pub, clippy::pedantic, reason = "generated from wit/")]
const _: () = {
    bindings::export_component!(Puppet with_types_in bindings);
};
