//! An entity whose ID is not known: it is found by the mark of its object.

use mortise_sdk::{Error, Host, time};
use serde_json::Value;

use super::{fault::Fault, run::Run, session::Session};
use crate::{
    body::is_segment,
    kind::{Lookup, at, text},
    tag,
};

/// How much older than its object an entity may seem that was made for it, in milliseconds: two
/// clocks tell the times, and whole seconds.
const SKEW: u64 = 5_000;
/// The size of a page.
const PAGE: (&str, &str) = ("size", "100");

impl Run<'_> {
    /// Returns the entities that carry the mark of the object, with their IDs. More than one can only
    /// be where the API takes equal entities.
    ///
    /// The outer error is that of a read of the cluster.
    pub(crate) fn find(
        &self,
        session: &Session,
    ) -> Result<Result<Vec<(String, Value)>, Fault>, Error> {
        let list = match self.api.lookup {
            Lookup::Tags(path) | Lookup::AllTags(path) => self.find_tagged(session, path),
            Lookup::Labels => self.find_labelled(session),
            Lookup::Content(field) | Lookup::Name(field) => {
                return self.find_equal(session, field);
            }
        };
        Ok(list.map(with_ids))
    }

    fn find_tagged(&self, session: &Session, path: &str) -> Result<Vec<Value>, Fault> {
        let Ok(path) = self.path(path) else { return Ok(Vec::new()) };
        let tag = tag::uid_tag(self.object).unwrap_or_default();
        let tags = self.tags_to_find(&tag);
        let mut found = session.list(self.host, &path, &[PAGE, ("tags", &tags)], self.api.items)?;
        // A list that was not filtered must not lead to the entity of another object.
        found.retain(|entity| is_tagged(entity, &tag));
        Ok(found)
    }

    /// Returns the tags by which the entity is found: its uid or, of a kind that the original finds
    /// by all tags, these, as long as they cannot have changed since the entity was created.
    fn tags_to_find(&self, uid: &str) -> String {
        let tags = self.body.get("tags").and_then(Value::as_array);
        let is_unchanged = self.metadata.generation == Some(1)
            && !self.metadata.annotations.contains_key(tag::ANNOTATION);
        match tags {
            Some(tags) if is_unchanged && matches!(self.api.lookup, Lookup::AllTags(_)) => {
                tags.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",")
            }
            _ => uid.to_owned(),
        }
    }

    fn find_labelled(&self, session: &Session) -> Result<Vec<Value>, Fault> {
        let label = format!("{}:{}", tag::UID, self.uid());
        let query = [("labels", label.as_str())];
        let mut found = session.list(self.host, self.api.collection, &query, self.api.items)?;
        found.retain(|entity| text(entity, "labels.k8s-uid") == Some(self.uid()));
        Ok(found)
    }

    /// Finds entities without marks by what they hold. One that another object has is not found, and
    /// none that is older than the object: that is somebody else's.
    fn find_equal(
        &self,
        session: &Session,
        field: &str,
    ) -> Result<Result<Vec<(String, Value)>, Fault>, Error> {
        let Ok(path) = self.path(self.api.collection) else { return Ok(Ok(Vec::new())) };
        let found = match session.list(self.host, &path, &[], self.api.items) {
            Ok(found) => found,
            Err(fault) => return Ok(Err(fault)),
        };
        let wanted = self.wanted(field);
        let equal = found.into_iter().filter(|entity| {
            wanted.is_some()
                && entity.get(field).and_then(Value::as_str) == wanted
                && self.may_be_made_for_it(entity)
        });
        let equal = with_ids(equal.collect());
        let taken = if equal.is_empty() { Vec::new() } else { self.taken(self.host)? };
        Ok(Ok(equal.into_iter().filter(|(id, _)| !taken.contains(id)).collect()))
    }

    /// Returns whether an entity is not older than the object. One without a time counts as older.
    fn may_be_made_for_it(&self, entity: &Value) -> bool {
        let made = match entity.get("created_at") {
            Some(Value::String(made)) => time::parse(made),
            made => made.and_then(Value::as_u64).and_then(|seconds| seconds.checked_mul(1_000)),
        };
        let stored = self.metadata.creation_timestamp.as_deref().and_then(time::parse);
        made.zip(stored).is_some_and(|(made, stored)| made.saturating_add(SKEW) >= stored)
    }

    /// Returns the text of a field of the body; of an object that is deleted, of its spec.
    fn wanted(&self, field: &str) -> Option<&str> {
        let of_body = self.body.get(field).and_then(Value::as_str);
        of_body.or_else(|| text(self.object, &format!("spec.{field}")))
    }

    /// Returns the IDs that other objects of the kind have.
    fn taken(&self, host: &Host) -> Result<Vec<String>, Error> {
        let objects: Vec<Value> = host.list(&self.entity.selection().fields(["status"]))?;
        let others =
            objects.iter().filter(|object| text(object, "metadata.uid") != Some(self.uid()));
        Ok(others.filter_map(|object| self.entity.id(object, "id").map(str::to_owned)).collect())
    }
}

/// Returns entities with their IDs. Those without an ID that can be used are left out.
fn with_ids(entities: Vec<Value>) -> Vec<(String, Value)> {
    entities.into_iter().filter_map(|entity| Some((id_of(&entity)?, entity))).collect()
}

/// Returns the ID of an entity. It goes into paths, so it must be one segment of a path.
pub(crate) fn id_of(entity: &Value) -> Option<String> {
    entity.get("id").and_then(Value::as_str).filter(|id| is_segment(id)).map(str::to_owned)
}

/// Returns whether an entity has a tag.
fn is_tagged(entity: &Value, tag: &str) -> bool {
    let tags = at(entity, "tags").and_then(Value::as_array);
    tags.is_some_and(|tags| tags.iter().any(|found| found.as_str() == Some(tag)))
}

/// Returns the uid of the object that an entity is marked with.
pub(crate) fn marked_uid(entity: &Value) -> Option<&str> {
    let tags = at(entity, "tags").and_then(Value::as_array).into_iter().flatten();
    let prefix = format!("{}:", tag::UID);
    let mut of_tags = tags.filter_map(|tag| tag.as_str()?.strip_prefix(&prefix));
    of_tags.next().or_else(|| text(entity, "labels.k8s-uid"))
}
