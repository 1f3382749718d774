//! Requests for the entities of a control plane.

use serde_json::{Value, json};

use crate::{
    api::{Context, body},
    error::{self, Errors},
    kind::{Entity, Family, Kind},
    list,
    message::{Answer, Request},
    path::{Collection, Of},
    plane::Plane,
};

/// Answers a request for a collection.
pub(crate) fn all(
    context: &mut Context<'_>,
    plane: &mut Plane,
    request: &Request,
    of: &Collection,
) -> Result<Answer, Answer> {
    let errors = of.kind.errors();
    check_parent(plane, of)?;
    match (request.method.as_str(), &of.of) {
        ("GET", _) => {
            list::entities(request, errors, plane.table_mut(of.kind), of.key().as_deref())
        }
        ("POST", Of::ControlPlane | Of::Parent(_)) => create(context, plane, request, of),
        _ => Err(errors.method_not_allowed()),
    }
}

/// Answers a request for one entity.
pub(crate) fn one(
    context: &mut Context<'_>,
    plane: &mut Plane,
    request: &Request,
    of: &Collection,
    id: &str,
) -> Result<Answer, Answer> {
    let errors = of.kind.errors();
    check_parent(plane, of)?;
    match (request.method.as_str(), &of.of) {
        ("GET", _) => {
            let entity = stored(plane, of, id);
            let entity = entity.ok_or_else(|| errors.not_found(of.kind.singular()))?;
            Ok(show(of.kind, 200, entity))
        }
        ("PUT", Of::ControlPlane | Of::Parent(_)) if of.kind.family != Family::DataPlane => {
            replace(context, plane, request, of, id)
        }
        ("DELETE", Of::ControlPlane | Of::Parent(_)) => delete(context, plane, of, id),
        _ => Err(errors.method_not_allowed()),
    }
}

fn create(
    context: &mut Context<'_>,
    plane: &mut Plane,
    request: &Request,
    of: &Collection,
) -> Result<Answer, Answer> {
    let errors = of.kind.errors();
    check_write(plane, of.kind)?;
    let mut entity = body(request, errors)?;
    let own = entity.remove("id");
    if let Some(own) = &own {
        check_id(own.as_str().unwrap_or_default(), errors)?;
    }
    let own = own.as_ref().and_then(Value::as_str);
    if own.is_some_and(|own| plane.get(of.kind.segment, own).is_some()) {
        return Err(error::unique("id"));
    }
    complete(&mut entity, of);
    check(plane, of.kind, "", &entity)?;
    context.check_room(errors)?;
    let id = own.map_or_else(|| context.ids.mint(of.kind.segment), str::to_owned);
    Ok(show(of.kind, 201, store(context, plane, of.kind, &id, entity)))
}

fn replace(
    context: &Context<'_>,
    plane: &mut Plane,
    request: &Request,
    of: &Collection,
    id: &str,
) -> Result<Answer, Answer> {
    let errors = of.kind.errors();
    check_write(plane, of.kind)?;
    let mut entity = body(request, errors)?;
    check_id(id, errors)?;
    if entity.remove("id").is_some_and(|own| own != id) {
        return Err(errors.field("id", "differs from the one in the path"));
    }
    let is_known = plane.get(of.kind.segment, id).is_some();
    let may_create = !is_known && of.kind.family == Family::Core;
    if !may_create && stored(plane, of, id).is_none() {
        return Err(errors.not_found(of.kind.singular()));
    }
    complete(&mut entity, of);
    check(plane, of.kind, id, &entity)?;
    if may_create || context.room.bytes == 0 {
        context.check_room(errors)?;
    }
    Ok(show(of.kind, 200, store(context, plane, of.kind, id, entity)))
}

fn delete(
    context: &Context<'_>,
    plane: &mut Plane,
    of: &Collection,
    id: &str,
) -> Result<Answer, Answer> {
    check_write(plane, of.kind)?;
    if stored(plane, of, id).is_none() {
        return match (of.kind.family, context.delete_unknown) {
            (Family::Core, 204) => Ok(Answer::empty(204)),
            _ => Err(of.kind.errors().not_found(of.kind.singular())),
        };
    }
    if let Some(referrer) = plane.referrer(of.kind, id) {
        return Err(error::foreign(referrer));
    }
    plane.remove(of.kind, id);
    Ok(Answer::empty(204))
}

/// Stores an entity whatever it lacks, and returns it as it is stored.
pub(crate) fn store<'a>(
    context: &Context<'_>,
    plane: &'a mut Plane,
    kind: &'static Kind,
    id: &str,
    mut entity: Entity,
) -> &'a Entity {
    let now = match kind.family {
        Family::Config => context.time().into(),
        Family::Core | Family::DataPlane => Value::from(context.now / 1000),
    };
    let table = plane.table_mut(kind);
    let created = table.get(id).and_then(|entity| entity.get("created_at")).unwrap_or(&now);
    entity.insert("created_at".to_owned(), created.clone());
    entity.insert("updated_at".to_owned(), now);
    entity.insert("id".to_owned(), id.into());
    if kind.unique.iter().any(|unique| unique.1 == ["key"]) {
        // A key that is left out is chosen by the API.
        entity.entry("key").or_insert_with(|| id.replace('-', "").into());
    }
    table.put(id, entity)
}

fn show(kind: &Kind, status: u16, entity: &Entity) -> Answer {
    let body = match kind.family {
        Family::DataPlane => json!({"item": entity}),
        Family::Core | Family::Config => json!(entity),
    };
    Answer::json(status, &body)
}

/// Returns an entity, if it is one of the collection.
fn stored<'a>(plane: &'a Plane, of: &Collection, id: &str) -> Option<&'a Entity> {
    let entity = plane.get(of.kind.segment, id)?;
    let (Of::Parent(parent), Some(reference)) = (&of.of, of.kind.parent_reference()) else {
        return Some(entity);
    };
    reference.ids(entity).contains(parent).then_some(entity)
}

fn check_parent(plane: &Plane, of: &Collection) -> Result<(), Answer> {
    let (Of::Parent(parent), Some(reference)) = (&of.of, of.kind.parent_reference()) else {
        return Ok(());
    };
    let found = plane.get(reference.to, parent);
    found.map(|_| ()).ok_or_else(|| of.kind.errors().not_found(reference.field))
}

fn check_write(plane: &Plane, kind: &Kind) -> Result<(), Answer> {
    if kind.family == Family::Core { plane.check_write() } else { Ok(()) }
}

fn check_id(id: &str, errors: Errors) -> Result<(), Answer> {
    let refused = |_| errors.field("id", "must be a UUID");
    uuid::Uuid::try_parse(id).map(|_| ()).map_err(refused)
}

/// Fills in what the path and the kind say.
fn complete(entity: &mut Entity, of: &Collection) {
    entity.retain(|_, value| !value.is_null());
    of.kind.fill(entity);
    if let (Of::Parent(parent), Some(field)) = (&of.of, of.kind.parent) {
        entity.insert(field.to_owned(), json!({"id": parent}));
    }
}

/// Refuses an entity that breaks a rule of its kind.
fn check(plane: &Plane, kind: &Kind, id: &str, entity: &Entity) -> Result<(), Answer> {
    if let Some(field) = kind.missing(entity) {
        return Err(kind.errors().field(field, "required field missing"));
    }
    let are_texts =
        |tags: &Value| tags.as_array().is_some_and(|tags| tags.iter().all(Value::is_string));
    if !entity.get("tags").is_none_or(are_texts) {
        return Err(kind.errors().field("tags", "must be a list of texts"));
    }
    plane.check_references(kind, entity)?;
    let clash = plane.table(kind.segment).and_then(|table| table.clash(id, entity));
    clash.map_or(Ok(()), |field| Err(error::unique(field)))
}

// === impl Kind ===

impl Kind {
    fn errors(&self) -> Errors {
        match self.family {
            Family::Core | Family::DataPlane => Errors::Entity,
            Family::Config => Errors::Problem,
        }
    }
}

// === impl Collection ===

impl Collection {
    /// Returns the index key of the entities of one parent.
    fn key(&self) -> Option<String> {
        match (&self.of, self.kind.parent_reference()) {
            (Of::Parent(parent), Some(reference)) => Some(reference.key(parent)),
            _ => None,
        }
    }
}
