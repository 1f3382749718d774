//! The keys behind field managers: which processors may own fields, and whether their keys are
//! alive.

use std::{collections::BTreeSet, sync::Arc};

use mortise_core::{applied_fields::manager, write::FieldOwners};

use super::Host;

impl Host {
    /// Sets `owners`, which decides whether the key behind another field manager is gone. Until
    /// then every key counts as alive.
    pub(crate) fn ask_about_managers(&self, owners: Arc<dyn FieldOwners>) {
        self.shared.parts.writer.ask(owners);
    }

    /// Returns the processors whose field managers' names contain this owner, including removed
    /// processors with unfinished runs.
    pub(crate) fn processors_of(&self, owner: &str) -> BTreeSet<Arc<str>> {
        let is_owner = |name: &&Arc<str>| {
            let parts = name.split_once('/');
            parts.is_some_and(|(namespace, name)| manager::owner_of(namespace, name) == owner)
        };
        self.shared.registry.lock().names().filter(is_owner).cloned().collect()
    }

    /// Returns whether a processor may have the key behind a field manager. Only `false` is
    /// certain: the processor runs here, and none of its keys and objects has that field manager.
    pub(crate) async fn may_own(&self, processor: &str, of: &manager::Parts<'_>) -> bool {
        let active = {
            let registry = self.shared.registry.lock();
            // Runs of a former version may be about to write.
            let active = registry.get(processor).filter(|_| registry.on_former(processor) == 0);
            active.cloned()
        };
        let Some(active) = active else { return true };
        if self.shared.is_alive(&of.identity()) {
            return true;
        }
        active.reconciler.may_own(of).await
    }
}

impl super::work::HostState {
    /// Returns whether the key with this identity in field managers has run on this host and still
    /// exists.
    fn is_alive(&self, identity: &str) -> bool {
        let key = self.parts.writer.key_behind(identity);
        key.is_some_and(|key| self.parts.dispatch.knows(&key))
    }
}
