//! The usual answer to a request of one organization.

use crate::{
    api::Api,
    control_plane, entity,
    error::Errors,
    membership,
    message::{Answer, Request},
    path::{self, Target, Within},
};

/// Answers a request.
pub(crate) fn answer(api: &mut Api<'_>, request: &Request) -> Answer {
    let errors = path::errors(&request.path);
    if request.body.len() > api.body {
        return errors.too_large();
    }
    let answer = match path::parse(&request.path) {
        None => Err(errors.not_found("path")),
        Some(Target::Organization) => organization(api, request),
        Some(Target::ControlPlanes) => control_plane::all(api, request),
        Some(Target::ControlPlane(id)) => control_plane::one(api, request, &id),
        Some(Target::Members(id)) => control_plane::members(api, request, &id),
        Some(Target::Within(plane, within)) => answer_within(api, request, &plane, within),
    };
    answer.unwrap_or_else(|refusal| refusal)
}

fn answer_within(
    api: &mut Api<'_>,
    request: &Request,
    plane: &str,
    within: Within,
) -> Result<Answer, Answer> {
    let plane = api.organization.plane_mut(api.region, plane);
    let missing = || path::errors(&request.path).not_found("control plane");
    let (context, plane) = (&mut api.context, plane.ok_or_else(missing)?);
    match within {
        Within::Entities(of) => entity::all(context, plane, request, &of),
        Within::Entity(of, id) => entity::one(context, plane, request, &of, &id),
        Within::GroupConsumers(group) => membership::consumers(context, plane, request, &group),
        Within::GroupConsumer(group, consumer) => {
            membership::consumer_of(plane, request, group, &consumer)
        }
        Within::ConsumerGroups(consumer) => membership::groups(plane, request, &consumer),
    }
}

fn organization(api: &Api<'_>, request: &Request) -> Result<Answer, Answer> {
    match request.method.as_str() {
        "GET" => Ok(Answer::json(200, &api.organization.show(api.is_second))),
        _ => Err(Errors::Problem.method_not_allowed()),
    }
}
