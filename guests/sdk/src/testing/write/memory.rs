//! What was sent before and led to what is there: it is not sent again.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Run, place::Own};
use crate::{
    ObjectRef,
    testing::{
        identity::Identity,
        place::{own, sent_fields},
    },
};

/// A field manager and an object.
pub(super) type Place = (String, Identity);

/// What each manager sent of each object, and what was its own then.
#[derive(Debug, Default)]
pub(in crate::testing) struct Memory(BTreeMap<Place, (Value, Option<Own>)>);

// === impl Memory ===

impl Memory {
    /// Forgets the managers with this mark.
    pub(in crate::testing) fn forget(&mut self, mark: &str) {
        self.0.retain(|place, _| !place.0.contains(mark));
    }

    /// Of the managers with this mark, forgets what a run did not touch.
    pub(super) fn keep_only(&mut self, mark: &str, touched: &BTreeSet<Place>) {
        self.0.retain(|place, _| !place.0.contains(mark) || touched.contains(place));
    }
}

// === impl Run ===

impl Run<'_> {
    /// Whether all is so already: what is the manager's is the manifest, or what the manifest led to before.
    pub(super) fn is_so(
        &mut self,
        of: &ObjectRef,
        subresource: &str,
        manager: &str,
        manifest: &Value,
    ) -> bool {
        let place = (manager.to_owned(), Identity::of_ref(of));
        self.touched.insert(place.clone());
        let Some(live) = self.cluster.get(of) else { return false };
        let is_met = |pointer: &str| {
            manifest.pointer(pointer).is_none_or(|wanted| live.pointer(pointer) == Some(wanted))
        };
        if !is_met("/metadata/uid") || !is_met("/metadata/resourceVersion") {
            return false;
        }
        let own = own(&live, manager, subresource);
        let sent = sent_fields(manifest);
        let is_same = own.as_ref().is_some_and(|own| own.values.as_ref() == Some(&sent));
        is_same || self.memory.0.get(&place) == Some(&(sent, own))
    }

    /// Remembers what a manifest led to.
    pub(super) fn remember(
        &mut self,
        of: &ObjectRef,
        subresource: &str,
        manager: &str,
        (manifest, answer): (&Value, &Value),
    ) {
        let place = (manager.to_owned(), Identity::of_ref(of));
        self.memory.0.insert(place, (sent_fields(manifest), own(answer, manager, subresource)));
    }
}
