//! A control plane with everything in it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{
    error,
    kind::{Deletion, Entity, Kind, Reference},
    message::Answer,
    table::{Table, id_of},
};

/// The type of a control plane of its own.
pub(crate) const SINGLE: &str = "CLUSTER_TYPE_CONTROL_PLANE";
/// The type of a group of control planes.
pub(crate) const GROUP: &str = "CLUSTER_TYPE_CONTROL_PLANE_GROUP";
/// The type of a control plane that an ingress controller fills.
pub(crate) const KIC: &str = "CLUSTER_TYPE_K8S_INGRESS_CONTROLLER";

/// The most bytes of the body of a control plane.
pub(crate) const MAX_BYTES: usize = 16 << 10;

/// A control plane.
#[derive(Debug)]
pub(crate) struct Plane {
    /// The region where it is found.
    pub(crate) region: String,
    /// The control plane as the API shows it.
    pub(crate) shown: Entity,
    /// Identifiers of the members of a group.
    pub(crate) members: BTreeSet<String>,
    /// The memberships of consumers: group, consumer.
    pub(crate) memberships: BTreeSet<(String, String)>,
    /// Tables by the segments of their kinds.
    tables: BTreeMap<&'static str, Table>,
}

// === impl Plane ===

impl Plane {
    pub(crate) fn new(region: &str, shown: Entity) -> Self {
        Self {
            region: region.to_owned(),
            shown,
            members: BTreeSet::new(),
            memberships: BTreeSet::new(),
            tables: BTreeMap::new(),
        }
    }

    pub(crate) fn id(&self) -> &str {
        id_of(&self.shown)
    }

    pub(crate) fn name(&self) -> &str {
        self.shown.get("name").and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn cluster_type(&self) -> &str {
        let found = self.shown.get("config").and_then(|config| config.get("cluster_type"));
        found.and_then(Value::as_str).unwrap_or(SINGLE)
    }

    /// Returns the number of entities, of memberships, and of the control plane itself.
    pub(crate) fn len(&self) -> usize {
        let entities: usize = self.tables.values().map(Table::len).sum();
        entities + self.memberships.len() + self.members.len() + 1
    }

    /// Returns the bytes of all entities, and the most of the control plane itself.
    pub(crate) fn bytes(&self) -> usize {
        self.tables.values().map(|table| table.bytes).sum::<usize>() + MAX_BYTES
    }

    /// Returns the entities of a kind; nothing if there never were any.
    pub(crate) fn table(&self, segment: &str) -> Option<&Table> {
        self.tables.get(segment)
    }

    pub(crate) fn table_mut(&mut self, kind: &'static Kind) -> &mut Table {
        self.tables.entry(kind.segment).or_insert_with(|| Table::new(kind))
    }

    pub(crate) fn get(&self, segment: &str, id: &str) -> Option<&Entity> {
        self.table(segment)?.get(id)
    }

    /// Refuses writes of core entities that the type of the control plane does not allow.
    pub(crate) fn check_write(&self) -> Result<(), Answer> {
        match self.cluster_type() {
            KIC => Err(error::not_permitted("operation not permitted on KIC cluster")),
            GROUP => Err(error::not_permitted("operation not permitted on control plane group")),
            _ => Ok(()),
        }
    }

    /// Refuses an entity that names others that are not there.
    pub(crate) fn check_references(&self, kind: &Kind, entity: &Entity) -> Result<(), Answer> {
        for reference in kind.references {
            let is_missing = |id: &String| self.get(reference.to, id).is_none();
            if reference.ids(entity).iter().any(is_missing) {
                return Err(no_such(reference));
            }
        }
        Ok(())
    }

    /// Returns a kind whose entities forbid the deletion of this one.
    pub(crate) fn referrer(&self, kind: &Kind, id: &str) -> Option<&'static str> {
        let mut referrers = self.referrers(kind, id, Deletion::Refused).into_iter();
        referrers.next().map(|(kind, _)| kind.singular())
    }

    /// Removes an entity and everything that goes with it; returns whether there was one.
    pub(crate) fn remove(&mut self, kind: &Kind, id: &str) -> bool {
        for (referrer, referrer_id) in self.referrers(kind, id, Deletion::Cascades) {
            self.remove(referrer, &referrer_id);
        }
        match kind.segment {
            "consumers" => self.memberships.retain(|(_, consumer)| consumer != id),
            "consumer_groups" => self.memberships.retain(|(group, _)| group != id),
            _ => {}
        }
        self.tables.get_mut(kind.segment).is_some_and(|table| table.remove(id))
    }

    /// Returns the entities that name another one, with the kind of each.
    fn referrers(&self, kind: &Kind, id: &str, deletion: Deletion) -> Vec<(&'static Kind, String)> {
        let mut found = Vec::new();
        for table in self.tables.values() {
            let applies = |of: &&Reference| of.to == kind.segment && of.deletion == deletion;
            for reference in table.kind.references.iter().filter(applies) {
                let key = reference.key(id);
                let entities = table.with_key(&key);
                found.extend(entities.map(|(_, entity)| (table.kind, id_of(entity).to_owned())));
            }
        }
        found
    }
}

fn no_such(reference: &Reference) -> Answer {
    let singular = Kind::find(reference.to).map_or("entity", |kind| kind.singular());
    let inner = if reference.field.contains('.') { "" } else { ".id" };
    let field = format!("{}{inner}", reference.field);
    error::no_such(&field, singular)
}
