//! A stored resource: its objects in the order of their keys, its last changes, and the signal for
//! its watches.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    sync::Arc,
};

use tokio::sync::watch;

use super::Image;

/// The objects of one resource.
#[derive(Debug)]
pub(crate) struct Table {
    objects: BTreeMap<Arc<str>, Arc<Image>>,
    events: VecDeque<Event>,
    /// The most events that are kept.
    limit: usize,
    /// The revision up to which events are forgotten.
    compacted: u64,
    /// The revision of the last event. The channel notifies watches; it closes when the table is
    /// dropped.
    last: watch::Sender<u64>,
}

/// A change of one object: created (`previous` is absent), changed, or deleted (`object` is
/// absent).
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) revision: u64,
    pub(crate) key: Arc<str>,
    pub(crate) object: Option<Arc<Image>>,
    pub(crate) previous: Option<Arc<Image>>,
}

/// An object with its key.
pub(crate) type Keyed = (Arc<str>, Arc<Image>);

/// The error of a request for a revision that is older than the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Compacted {
    /// The oldest available revision.
    pub(crate) oldest: u64,
}

// === impl Table ===

impl Table {
    pub(super) fn new(revision: u64, limit: usize) -> Self {
        Self {
            objects: BTreeMap::new(),
            events: VecDeque::new(),
            limit,
            compacted: revision,
            last: watch::Sender::new(revision),
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Arc<Image>> {
        self.objects.get(key)
    }

    /// Returns an object with its key.
    pub(crate) fn entry(&self, key: &str) -> Option<(&Arc<str>, &Arc<Image>)> {
        self.objects.get_key_value(key)
    }

    /// Returns the revision of the last change.
    pub(crate) fn last(&self) -> u64 {
        *self.last.borrow()
    }

    /// Returns a receiver that is notified of each change, and closed with the table.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    /// Returns all objects in order.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Image>)> {
        self.objects.iter()
    }

    /// Returns the objects of a namespace, or all for the empty namespace, in order, after the key
    /// `after`.
    pub(crate) fn list<'a>(
        &'a self,
        namespace: &str,
        after: Option<&str>,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a Arc<Image>)> + use<'a> {
        let prefix = prefix(namespace);
        let start: Arc<str> = match after {
            Some(after) if after >= prefix.as_str() => after.into(),
            _ => prefix.as_str().into(),
        };
        let from = if after.is_some() { Bound::Excluded(start) } else { Bound::Included(start) };
        self.objects
            .range::<Arc<str>, _>((from, Bound::Unbounded))
            .take_while(move |(key, _)| key.starts_with(&prefix))
    }

    /// Returns the objects of a namespace as they were at a revision, in order.
    pub(crate) fn list_at(&self, namespace: &str, revision: u64) -> Result<Vec<Keyed>, Compacted> {
        if revision < self.compacted {
            return Err(Compacted { oldest: self.compacted });
        }
        let prefix = prefix(namespace);
        let mut objects: BTreeMap<&Arc<str>, &Arc<Image>> = self.list(namespace, None).collect();
        let later = self.events.iter().rev().take_while(|event| event.revision > revision);
        for event in later.filter(|event| event.key.starts_with(&prefix)) {
            match &event.previous {
                Some(previous) => objects.insert(&event.key, previous),
                None => objects.remove(&event.key),
            };
        }
        Ok(objects.into_iter().map(|(key, image)| (key.clone(), image.clone())).collect())
    }

    /// Returns the events after a revision.
    pub(crate) fn events_after(
        &self,
        revision: u64,
    ) -> Result<impl Iterator<Item = &Event>, Compacted> {
        if revision < self.compacted {
            return Err(Compacted { oldest: self.compacted });
        }
        let start = self.events.partition_point(|event| event.revision <= revision);
        Ok(self.events.range(start..))
    }

    pub(super) fn put(
        &mut self,
        key: &Arc<str>,
        image: Arc<Image>,
        revision: u64,
    ) -> Option<Arc<Image>> {
        let previous = self.objects.insert(key.clone(), image.clone());
        self.remember(Event {
            revision,
            key: key.clone(),
            object: Some(image),
            previous: previous.clone(),
        });
        previous
    }

    pub(super) fn remove(&mut self, key: &Arc<str>, revision: u64) -> Option<Arc<Image>> {
        let previous = self.objects.remove(key)?;
        self.remember(Event {
            revision,
            key: key.clone(),
            object: None,
            previous: Some(previous.clone()),
        });
        Some(previous)
    }

    pub(super) fn compact(&mut self, revision: u64) {
        self.events.clear();
        self.compacted = revision;
    }

    fn remember(&mut self, event: Event) {
        let revision = event.revision;
        self.events.push_back(event);
        while self.events.len() > self.limit {
            if let Some(forgotten) = self.events.pop_front() {
                self.compacted = forgotten.revision;
            }
        }
        self.last.send_replace(revision);
    }
}

fn prefix(namespace: &str) -> String {
    if namespace.is_empty() { String::new() } else { format!("{namespace}/") }
}
