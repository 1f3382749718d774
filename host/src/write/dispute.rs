//! Conflicts between two keys of this host over one object: which keys, and which fields, so that
//! both get a message.
//!
//! A field manager's name holds a hash of its key; the key itself is known only of keys that have
//! run or were introduced since the host started.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::{contention::Conflict, field_manager::parts, memory::Place};
use crate::{contract::ObjectRef, grant::display_ref, queue::Key};

/// The open conflicts between keys.
#[derive(Debug, Default)]
pub(super) struct Disputes(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The keys, by the identity of their field managers.
    keys: HashMap<String, Key>,
    /// The open conflicts, by the manager and the object of the refused write.
    open: HashMap<Place, Dispute>,
}

#[derive(Debug)]
struct Dispute {
    /// The key that was refused.
    by: Key,
    /// The keys that hold the fields, by the identity of their field managers.
    with: Vec<String>,
    object: String,
    fields: String,
    /// The message for the key that was refused.
    message: String,
}

// === impl Disputes ===

impl Disputes {
    /// Records a key whose plan is carried out, under the identity of its managers, and closes the
    /// conflicts in which the key was refused.
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

    /// Records that a key was refused fields that others hold. Returns the message for that key.
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

    /// Returns the messages for a processor: fields that its keys are refused, and fields of its
    /// keys that others want.
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

    /// Returns the messages for a key that holds fields that others want.
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
    /// Returns the message for the keys that hold the fields.
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
