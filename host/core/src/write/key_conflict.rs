//! Field conflicts between two keys of this host, recorded so that both keys get a message.
//!
//! A field manager's name holds only a hash of its key: a message can name the keys that have run
//! since the host started.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;

use super::{conflict::Conflict, memory::ManagedObject};
use crate::{
    applied_fields::manager::parts,
    contract::{ObjectRef, display_ref},
    queue::Key,
};

/// The open conflicts that are known of the processors of one namespace. A further write is refused
/// as well, but the other key gets no message.
const MAX_OF_NAMESPACE: usize = 256;
/// The fields and the keys that a message names.
const MAX_NAMED: usize = 8;

/// The open conflicts between keys.
#[derive(Debug, Default)]
pub(super) struct KeyConflicts(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The keys, by the identity of their field managers.
    keys: HashMap<String, Key>,
    /// The open conflicts, by the namespace of the Processor that was refused, and by the manager
    /// and the object of the refused write.
    open: BTreeMap<Box<str>, HashMap<ManagedObject, KeyConflict>>,
}

#[derive(Debug)]
struct KeyConflict {
    /// The key that was refused.
    by: Key,
    /// The keys that hold the fields, by the identity of their field managers.
    with: Vec<String>,
    object: String,
    fields: String,
    /// The message for the key that was refused.
    message: String,
}

// === impl KeyConflicts ===

impl KeyConflicts {
    /// Records a key whose plan is carried out, under the identity of its managers, and closes the
    /// conflicts in which the key was refused.
    pub(super) fn begin(&self, identity: &str, key: &Key) {
        self.know(identity, key);
        self.0.lock().close(key);
    }

    /// Records a key under the identity of its managers, before it writes.
    pub(super) fn know(&self, identity: &str, key: &Key) {
        let mut state = self.0.lock();
        if !state.keys.contains_key(identity) {
            state.keys.insert(identity.to_owned(), key.clone());
        }
    }

    /// Returns the key with this identity of field managers.
    pub(super) fn key_behind(&self, identity: &str) -> Option<Key> {
        self.0.lock().keys.get(identity).cloned()
    }

    /// Forgets a key whose object is gone.
    pub(super) fn forget(&self, hash: &str) {
        let mut state = self.0.lock();
        if let Some(key) = state.keys.remove(hash) {
            state.close(&key);
        }
    }

    /// Forgets these keys. Returns their identities.
    pub(super) fn forget_all(&self, which: impl Fn(&Key) -> bool) -> Vec<String> {
        let mut state = self.0.lock();
        let gone: HashMap<String, Key> = state.keys.extract_if(|_, key| which(key)).collect();
        for key in gone.values() {
            state.close(key);
        }
        gone.into_keys().collect()
    }

    /// Records that a key's write conflicts with fields of other keys. Returns the message for that
    /// key.
    pub(super) fn between<'a>(
        &self,
        by: &Key,
        wanted: ManagedObject,
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
            "field conflict: {names} has set other values in {fields} of {object}, which are kept"
        );
        let open = state.open.entry(by.tenant().into()).or_default();
        if open.len() < MAX_OF_NAMESPACE || open.contains_key(&wanted) {
            let (by, message) = (by.clone(), message.clone());
            open.insert(wanted, KeyConflict { by, with, object, fields, message });
        }
        message
    }

    /// Returns the messages for a processor: fields that its keys could not write, and fields of
    /// its keys that other keys want.
    pub(super) fn of(&self, processor: &str) -> Vec<String> {
        let state = self.0.lock();
        let is_its = |key: &Key| &**key.processor() == processor;
        let has = |hash: &String| state.keys.get(hash).is_some_and(is_its);
        let messages = state.open().filter_map(|conflict| {
            if is_its(&conflict.by) {
                return Some(conflict.message.clone());
            }
            conflict.with.iter().any(has).then(|| conflict.warning())
        });
        let mut messages: Vec<String> = messages.collect();
        messages.sort();
        messages
    }

    /// Returns the messages for a key that holds fields that others want.
    pub(super) fn warnings_for(&self, hash: &str) -> Vec<String> {
        let state = self.0.lock();
        let with_digest = |conflict: &&KeyConflict| conflict.with.iter().any(|with| with == hash);
        let mut messages: Vec<String> =
            state.open().filter(with_digest).map(KeyConflict::warning).collect();
        messages.sort();
        messages
    }
}

// === impl State ===

impl State {
    fn open(&self) -> impl Iterator<Item = &KeyConflict> {
        self.open.values().flat_map(HashMap::values)
    }

    /// Closes the conflicts in which a key was refused.
    fn close(&mut self, key: &Key) {
        if let Some(open) = self.open.get_mut(key.tenant()) {
            open.retain(|_, conflict| conflict.by != *key);
            if open.is_empty() {
                self.open.remove(key.tenant());
            }
        }
    }
}

// === impl KeyConflict ===

impl KeyConflict {
    /// Returns the message for the keys that hold the fields.
    fn warning(&self) -> String {
        let Self { by, object, fields, .. } = self;
        format!("field conflict: `{by}` wants other values in {fields} of {object}, and is refused")
    }
}

fn listed(mut texts: Vec<String>) -> String {
    texts.sort();
    texts.dedup();
    let more = texts.len().saturating_sub(MAX_NAMED);
    texts.truncate(MAX_NAMED);
    if more > 0 {
        texts.push(format!("{more} more"));
    }
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        applied_fields::manager::{FieldManagers, Owner},
        contract::SameObject,
        fixture::{kind, object_ref, reference},
    };

    #[test]
    fn a_namespace_with_many_conflicts_hides_none_of_others() {
        let (conflicts, mine) = (KeyConflicts::default(), reference("Thing", "mine"));
        let key = |of: &str| Key::new(&format!("{of}/p").into(), &"r".into(), None, "k");
        let owner =
            Owner { namespace: "shop", processor: "p", reconciler: "r", object: &mine, home: "" };
        let held = FieldManagers::new(&owner);
        conflicts.begin(held.identity(), &key("shop"));
        let between = |of: &str, name: &str, fields: usize| {
            let of_object = object_ref(kind("Thing"), None, name);
            let wanted = ManagedObject { manager: of.into(), of: SameObject(of_object.clone()) };
            let field = |at| Conflict { field: format!(".f{at}"), manager: held.apply.clone() };
            let all: Vec<Conflict> = (0..fields).map(field).collect();
            conflicts.between(&key(of), wanted, &of_object, all.iter())
        };
        for name in 0..2 * MAX_OF_NAMESPACE {
            between("evil", &name.to_string(), 1);
        }
        let told = between("good", "one", 64);
        assert!(told.contains("`.f16`, 56 more"), "{told}");
        let known = || conflicts.warnings_for(held.identity()).len();
        assert_eq!(known(), MAX_OF_NAMESPACE + 1);
        conflicts.begin("of-evil", &key("evil"));
        assert_eq!(known(), 1);
    }
}
