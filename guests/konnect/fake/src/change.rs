//! Changes of stored data behind the caller's back.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    api::Api,
    control_plane, entity,
    error::Errors,
    kind::{Entity, Kind},
    plane::Plane,
    table::id_of,
};

/// One operation of `konnectData`: exactly one of `put`, `remove`, `edit`, `putControlPlane`,
/// `removeControlPlane`, `revoke` and `restore` is given.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Change {
    /// Stores `entity` in this collection, whatever it lacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub put: Option<String>,
    /// Removes the entity `name` from this collection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remove: Option<String>,
    /// Sets the fields `set` of the entity `name` in this collection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edit: Option<String>,
    /// Stores this control plane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub put_control_plane: Option<Map<String, Value>>,
    /// Removes the control plane of this name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remove_control_plane: Option<String>,
    /// Makes this token unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoke: Option<String>,
    /// Takes a `revoke` back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore: Option<String>,
    /// The entity of `put`. A field for the parent (`upstream`, `consumer`, `certificate`) holds
    /// an object with its `id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entity: Option<Map<String, Value>>,
    /// The name (or unique field, or identifier) of the entity of `remove` and `edit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The fields of `edit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set: Option<Map<String, Value>>,
    /// A token of the organization. Absent: the one that was seen first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The name or identifier of the control plane. Absent: the oldest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<String>,
    /// The host of the region. Absent: `eu.api.konghq.com`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// Why a change is refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Invalid {
    #[error(
        "a change needs exactly one of `put`, `remove`, `edit`, `putControlPlane`, \
         `removeControlPlane`, `revoke` and `restore`"
    )]
    Operation,
    #[error("the change needs `{0}`")]
    Missing(&'static str),
    #[error("no organization has been seen yet, or `token` belongs to none")]
    Organization,
    #[error("there is no collection `{0}`")]
    Collection(String),
    #[error("there is no {kind} `{name}`")]
    NotFound { kind: String, name: String },
    #[error("the `id` of the entity must be a UUID")]
    Id,
    #[error("the most entities are stored")]
    Full,
}

/// Fields by which a change names an entity.
const NAMES: [&str; 8] =
    ["id", "name", "username", "custom_id", "target", "prefix", "key", "group"];

// === impl Change ===

impl Change {
    /// Refuses a change without or with several operations.
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        let texts = [
            &self.put,
            &self.remove,
            &self.edit,
            &self.remove_control_plane,
            &self.revoke,
            &self.restore,
        ];
        let given = texts.into_iter().flatten().count();
        let given = given + usize::from(self.put_control_plane.is_some());
        if given == 1 { Ok(()) } else { Err(Invalid::Operation) }
    }
}

/// Changes stored data, whatever the rules of the API are.
pub(crate) fn apply(api: &mut Api<'_>, change: &Change) -> Result<(), Invalid> {
    if let Some(entity) = &change.put_control_plane {
        return put_plane(api, entity);
    }
    if let Some(name) = &change.remove_control_plane {
        let id = plane(api, Some(name))?.id().to_owned();
        api.organization.remove_plane(&id);
        return Ok(());
    }
    if let Some(collection) = &change.put {
        let entity = change.entity.as_ref().ok_or(Invalid::Missing("entity"))?;
        return put(api, change, collection, entity);
    }
    let collection = change.edit.as_ref().or(change.remove.as_ref()).ok_or(Invalid::Operation)?;
    let (plane, kind, mut entity) = find(api, change, collection)?;
    let id = id_of(&entity).to_owned();
    if change.remove.is_some() {
        api.organization.plane_mut(api.region, &plane).map(|plane| plane.remove(kind, &id));
        return Ok(());
    }
    entity.extend(change.set.clone().ok_or(Invalid::Missing("set"))?);
    store(api, &plane, kind, &id, entity)
}

fn put_plane(api: &mut Api<'_>, entity: &Entity) -> Result<(), Invalid> {
    check_room(api)?;
    let id = match given_id(entity)? {
        Some(id) => id.to_owned(),
        None => api.context.ids.mint("control-planes"),
    };
    let mut body = entity.clone();
    if let Some(Value::Object(config)) = body.remove("config") {
        body.extend(config);
    }
    let shown = control_plane::show(api, &id, &body);
    match api.organization.plane_mut(api.region, &id) {
        Some(plane) => plane.shown = shown,
        None => api.organization.planes.push(Plane::new(api.region, shown)),
    }
    Ok(())
}

fn put(
    api: &mut Api<'_>,
    change: &Change,
    collection: &str,
    entity: &Entity,
) -> Result<(), Invalid> {
    check_room(api)?;
    let kind = kind(collection)?;
    let plane = plane(api, change.control_plane.as_deref())?.id().to_owned();
    let id = match given_id(entity)? {
        Some(id) => id.to_owned(),
        None => api.context.ids.mint(kind.segment),
    };
    store(api, &plane, kind, &id, entity.clone())
}

fn store(
    api: &mut Api<'_>,
    plane: &str,
    kind: &'static Kind,
    id: &str,
    entity: Entity,
) -> Result<(), Invalid> {
    let found = api.organization.plane_mut(api.region, plane);
    let found = found.ok_or_else(|| not_found("control plane", plane))?;
    entity::store(&api.context, found, kind, id, entity);
    Ok(())
}

fn check_room(api: &Api<'_>) -> Result<(), Invalid> {
    api.context.check_room(Errors::Problem).map_err(|_| Invalid::Full)
}

fn given_id(entity: &Entity) -> Result<Option<&str>, Invalid> {
    let Some(id) = entity.get("id") else { return Ok(None) };
    let id = id.as_str().filter(|id| uuid::Uuid::try_parse(id).is_ok());
    id.map(Some).ok_or(Invalid::Id)
}

fn kind(collection: &str) -> Result<&'static Kind, Invalid> {
    let kind = Kind::find(collection).or_else(|| Kind::find_flat(collection));
    kind.ok_or_else(|| Invalid::Collection(collection.to_owned()))
}

/// Returns the control plane of this name or identifier; without one, the oldest.
fn plane<'a>(api: &'a Api<'_>, name: Option<&str>) -> Result<&'a Plane, Invalid> {
    let is_meant =
        |plane: &&Plane| name.is_none_or(|name| plane.name() == name || plane.id() == name);
    let missing = || not_found("control plane", name.unwrap_or_default());
    api.planes().find(is_meant).ok_or_else(missing)
}

/// Returns the entity that a change names, with the identifier of its control plane, and its kind.
fn find(
    api: &Api<'_>,
    change: &Change,
    collection: &str,
) -> Result<(String, &'static Kind, Entity), Invalid> {
    let name = change.name.as_deref().ok_or(Invalid::Missing("name"))?;
    let kind = kind(collection)?;
    let plane = plane(api, change.control_plane.as_deref())?;
    let is_meant = |entity: &&Entity| {
        NAMES.iter().any(|field| entity.get(*field).is_some_and(|own| own == name))
    };
    let entities = plane.table(kind.segment).into_iter().flat_map(|table| table.after(0));
    let entity = entities.map(|(_, entity)| entity).find(is_meant);
    let entity = entity.ok_or_else(|| not_found(kind.singular(), name))?;
    Ok((plane.id().to_owned(), kind, entity.clone()))
}

fn not_found(kind: &str, name: &str) -> Invalid {
    Invalid::NotFound { kind: kind.to_owned(), name: name.to_owned() }
}
