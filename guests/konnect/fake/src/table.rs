//! The entities of one kind in one control plane, with their indexes.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use crate::kind::{Entity, Kind};

/// The entities of one kind in one control plane.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) kind: &'static Kind,
    /// Entities by place, which grows with each creation.
    rows: BTreeMap<u64, Row>,
    places: HashMap<String, u64>,
    /// Places by the keys of [`Kind::index_keys`].
    index: HashMap<String, BTreeSet<u64>>,
    next: u64,
    /// The bytes of all entities, as JSON.
    pub(crate) bytes: usize,
}

#[derive(Debug)]
struct Row {
    entity: Entity,
    bytes: usize,
}

// === impl Table ===

impl Table {
    pub(crate) fn new(kind: &'static Kind) -> Self {
        let (rows, places, index) = (BTreeMap::new(), HashMap::new(), HashMap::new());
        Self { kind, rows, places, index, next: 1, bytes: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn get(&self, id: &str) -> Option<&Entity> {
        self.rows.get(self.places.get(id)?).map(|row| &row.entity)
    }

    /// Returns entities after a place, oldest first, each with its place.
    pub(crate) fn after(&self, place: u64) -> impl Iterator<Item = (u64, &Entity)> {
        self.rows.range(place.saturating_add(1)..).map(|(place, row)| (*place, &row.entity))
    }

    /// Returns the entities with this index key, oldest first, each with its place.
    pub(crate) fn with_key(&self, key: &str) -> impl Iterator<Item = (u64, &Entity)> {
        let places = self.index.get(key).into_iter().flatten();
        places.filter_map(|place| Some((*place, &self.rows.get(place)?.entity)))
    }

    /// Returns the number of entities with this index key.
    pub(crate) fn count(&self, key: &str) -> usize {
        self.index.get(key).map_or(0, BTreeSet::len)
    }

    /// Returns the field of a unique constraint that an entity would break.
    pub(crate) fn clash(&self, id: &str, entity: &Entity) -> Option<&'static str> {
        let own = self.places.get(id);
        let is_taken = |key: String| {
            let places = self.index.get(&key).into_iter().flatten();
            places.into_iter().any(|place| Some(place) != own)
        };
        let unique = self.kind.unique.iter();
        let broken = unique.into_iter().find(|unique| unique.key(entity).is_some_and(is_taken));
        broken.map(|unique| unique.0)
    }

    /// Stores an entity, in place of the one with its `id`; returns it.
    pub(crate) fn put(&mut self, id: &str, entity: Entity) -> &Entity {
        let place = match self.places.get(id) {
            Some(place) => *place,
            None => self.next,
        };
        self.next = self.next.max(place.saturating_add(1));
        self.take(place);
        for key in self.kind.index_keys(&entity) {
            self.index.entry(key).or_default().insert(place);
        }
        self.places.insert(id.to_owned(), place);
        let bytes = serde_json::to_vec(&entity).map_or(0, |text| text.len());
        self.bytes += bytes;
        &self.rows.entry(place).or_insert(Row { entity, bytes }).entity
    }

    /// Removes an entity; returns whether there was one.
    pub(crate) fn remove(&mut self, id: &str) -> bool {
        let Some(place) = self.places.remove(id) else { return false };
        self.take(place)
    }

    /// Takes an entity out of rows and index; returns whether there was one.
    fn take(&mut self, place: u64) -> bool {
        let Some(Row { entity, bytes }) = self.rows.remove(&place) else { return false };
        self.bytes -= bytes;
        for key in self.kind.index_keys(&entity) {
            if let Some(places) = self.index.get_mut(&key) {
                places.remove(&place);
                if places.is_empty() {
                    self.index.remove(&key);
                }
            }
        }
        true
    }
}

/// Returns an entity's identifier.
pub(crate) fn id_of(entity: &Entity) -> &str {
    entity.get("id").and_then(Value::as_str).unwrap_or_default()
}
