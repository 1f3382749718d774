//! Two keys of this host that want one object: which of them, and for what field, so that both can be told.
//!
//! A field manager's name holds a hash of the key; which key that is, is known of those that have run since the host started.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::{contention::Conflict, field_manager::parts, memory::Place};
use crate::{contract::ObjectRef, grant::display_ref, queue::Key};

/// All disputes that are not settled.
#[derive(Debug, Default)]
pub(super) struct Disputes(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// By what their managers have in common.
    keys: HashMap<String, Key>,
    /// By what was wanted and refused.
    open: HashMap<Place, Dispute>,
}

#[derive(Debug)]
struct Dispute {
    /// Who was refused.
    by: Key,
    /// Those who have what was wanted, by what their managers have in common.
    with: Vec<String>,
    object: String,
    fields: String,
    /// What the one was told that was refused.
    message: String,
}

// === impl Disputes ===

impl Disputes {
    /// A key's plan is carried out, under managers of this identity: what it was refused before is open no longer.
    pub(super) fn begin(&self, identity: &str, key: &Key) {
        let mut state = self.0.lock();
        if !state.keys.contains_key(identity) {
            state.keys.insert(identity.to_owned(), key.clone());
        }
        state.open.retain(|_, dispute| dispute.by != *key);
    }

    /// Forgets a key whose object is gone.
    pub(super) fn forget(&self, hash: &str) {
        let mut state = self.0.lock();
        if let Some(key) = state.keys.remove(hash) {
            state.open.retain(|_, dispute| dispute.by != key);
        }
    }

    /// Notes that a key was refused what others have; the message is for that key.
    pub(super) fn between<'a>(
        &self,
        by: &Key,
        wanted: Place,
        object: &ObjectRef,
        conflicts: impl Iterator<Item = &'a Conflict>,
    ) -> String {
        let mut state = self.0.lock();
        let (mut with, mut fields, mut names) = (Vec::new(), Vec::new(), Vec::new());
        for Conflict { field, manager } in conflicts {
            fields.push(format!("`{field}`"));
            let identity = parts(manager).map(|parts| parts.identity());
            let known = identity.as_ref().and_then(|of| state.keys.get(of));
            names.push(known.map_or_else(|| format!("`{manager}`"), |key| format!("`{key}`")));
            with.extend(identity);
        }
        let (object, fields, names) = (display_ref(object), listed(fields), listed(names));
        let message = format!(
            "two reconciles want one object: {names} has set {fields} of {object} otherwise, and what was there first stays"
        );
        let said = message.clone();
        state.open.insert(wanted, Dispute { by: by.clone(), with, object, fields, message: said });
        message
    }

    /// What keys of a processor want that others have, and what others want of that which they have.
    pub(super) fn of(&self, processor: &str) -> Vec<String> {
        let state = self.0.lock();
        let is_its = |key: &Key| &**key.processor() == processor;
        let has = |hash: &String| state.keys.get(hash).is_some_and(is_its);
        let told = state.open.values().filter_map(|dispute| {
            if is_its(&dispute.by) {
                return Some(dispute.message.clone());
            }
            dispute.with.iter().any(has).then(|| dispute.told())
        });
        let mut told: Vec<String> = told.collect();
        told.sort();
        told
    }

    /// What others want of that which this key has.
    pub(super) fn told_to(&self, hash: &str) -> Vec<String> {
        let state = self.0.lock();
        let concern = |dispute: &&Dispute| dispute.with.iter().any(|with| with == hash);
        let mut told: Vec<String> =
            state.open.values().filter(concern).map(Dispute::told).collect();
        told.sort();
        told
    }
}

// === impl Dispute ===

impl Dispute {
    /// What those are told who have what was wanted.
    fn told(&self) -> String {
        let Self { by, object, fields, .. } = self;
        format!(
            "two reconciles want one object: `{by}` wants {fields} of {object} otherwise, and is refused"
        )
    }
}

fn listed(mut texts: Vec<String>) -> String {
    texts.sort();
    texts.dedup();
    texts.join(", ")
}
