//! Requests for the consumers of groups, and the groups of consumers.

use serde_json::{Value, json};

use crate::{
    api::{Context, body},
    error::Errors,
    kind::Entity,
    list,
    message::{Answer, Request},
    plane::Plane,
    table::id_of,
};

/// Answers a request for the consumers of a group.
pub(crate) fn consumers(
    context: &Context<'_>,
    plane: &mut Plane,
    request: &Request,
    group: &str,
) -> Result<Answer, Answer> {
    let found = plane.get("consumer_groups", group).ok_or_else(not_found)?;
    match request.method.as_str() {
        "GET" => list::wanted(request, plane.table("consumers"), |consumer| {
            plane.memberships.contains(&(group.to_owned(), id_of(consumer).to_owned()))
        }),
        "POST" => {
            plane.check_write()?;
            let body = body(request, Errors::Entity)?;
            let wanted = body.get("consumer").and_then(Value::as_str).unwrap_or_default();
            let consumer = consumer(plane, wanted).ok_or_else(not_found)?;
            context.check_room(Errors::Entity)?;
            let answer = json!({"consumer_group": found, "consumers": [consumer]});
            let membership = (group.to_owned(), id_of(consumer).to_owned());
            plane.memberships.insert(membership);
            Ok(Answer::json(201, &answer))
        }
        _ => Err(Errors::Entity.method_not_allowed()),
    }
}

/// Answers a request for one consumer of a group.
pub(crate) fn consumer_of(
    plane: &mut Plane,
    request: &Request,
    group: String,
    wanted: &str,
) -> Result<Answer, Answer> {
    if request.method != "DELETE" {
        return Err(Errors::Entity.method_not_allowed());
    }
    plane.check_write()?;
    let id = id_of(consumer(plane, wanted).ok_or_else(not_found)?).to_owned();
    let removed = plane.memberships.remove(&(group, id));
    if removed { Ok(Answer::empty(204)) } else { Err(not_found()) }
}

/// Answers a request for the groups of a consumer.
pub(crate) fn groups(plane: &Plane, request: &Request, wanted: &str) -> Result<Answer, Answer> {
    if request.method != "GET" {
        return Err(Errors::Entity.method_not_allowed());
    }
    let id = id_of(consumer(plane, wanted).ok_or_else(not_found)?);
    list::wanted(request, plane.table("consumer_groups"), |group| {
        plane.memberships.contains(&(id_of(group).to_owned(), id.to_owned()))
    })
}

fn not_found() -> Answer {
    Errors::Entity.not_found("entity")
}

/// Finds a consumer by identifier or user name.
fn consumer<'a>(plane: &'a Plane, wanted: &str) -> Option<&'a Entity> {
    let by_name = || {
        let named = |entity: &&Entity| entity.get("username").is_some_and(|name| name == wanted);
        plane.table("consumers")?.after(0).map(|(_, entity)| entity).find(named)
    };
    plane.get("consumers", wanted).or_else(by_name)
}
