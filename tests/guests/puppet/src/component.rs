//! The puppet as a component: the contract's exports and imports as they are.

use mortise_sdk::{
    Description, Failure, Level, ObjectRef, Outcome, Request, Selection,
    bindings::{
        self,
        exports::mortise::host::reconciliation::Guest,
        mortise::host::{
            clock, cluster, log,
            outbound::{self, Call},
            types::ReadError,
        },
    },
};

use crate::{Ask, Play, Puppet, json, play, reconcile};

struct Imports;

impl Guest for Puppet {
    fn describe(config: String) -> Result<Description, String> {
        let Play { description, call, .. } = play(&config)?;
        call.map_or(Ok(description), |call| Err(Imports.send(&call)))
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

    fn send(&self, call: &Call) -> String {
        json(&outbound::send(call))
    }

    fn seek(&self, parts: &[String]) -> usize {
        (1..memory()).filter(|at| holds(*at, parts)).count()
    }

    fn now(&self) -> u64 {
        clock::now()
    }

    fn say(&self, message: &str, answer: String) {
        log::write(Level::Info, message, &[("answer".to_owned(), answer)]);
    }
}

/// Returns the bytes of the linear memory.
fn memory() -> usize {
    const PAGE: usize = 64 << 10;
    core::arch::wasm32::memory_size::<0>() * PAGE
}

/// Returns whether the parts follow one another from an address on. The whole text is made nowhere.
fn holds(mut at: usize, parts: &[String]) -> bool {
    let length = parts.iter().map(String::len).sum::<usize>();
    at + length <= memory()
        && parts.iter().flat_map(|part| part.bytes()).all(|byte| {
            let is_it = byte_at(at) == byte;
            at += 1;
            is_it
        })
}

/// Reads a byte, whatever it belongs to: also freed memory, and the stack.
#[expect(unsafe_code, reason = "no safe code reads memory that it does not own")]
fn byte_at(at: usize) -> u8 {
    // SAFETY: the address is neither null nor beyond the linear memory, all of which is readable.
    unsafe { core::ptr::with_exposed_provenance::<u8>(at).read_volatile() }
}

#[allow(unsafe_code, unreachable_pub, clippy::pedantic, reason = "generated from wit/")]
const _: () = {
    bindings::export_component!(Puppet with_types_in bindings);
};
