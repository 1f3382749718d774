//! Requests for control planes, and for the members of groups.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::{
    api::{Api, body},
    error::{Errors, problem},
    kind::Entity,
    list,
    message::{Answer, Request},
    plane::{GROUP, KIC, MAX_BYTES, Plane, SINGLE},
};

const TYPES: [&str; 6] = [
    SINGLE,
    KIC,
    GROUP,
    "CLUSTER_TYPE_SERVERLESS",
    "CLUSTER_TYPE_SERVERLESS_V1",
    "CLUSTER_TYPE_HYBRID",
];
const AUTH_TYPES: [&str; 2] = ["pinned_client_certs", "pki_client_certs"];
/// The most bytes of a control plane's name.
const MAX_NAME_BYTES: usize = 256;

/// Answers a request for all control planes of the region.
pub(crate) fn all(api: &mut Api<'_>, request: &Request) -> Result<Answer, Answer> {
    match request.method.as_str() {
        "GET" => list::planes(request, api.planes().map(|plane| &plane.shown)),
        "POST" => create(api, request),
        _ => Err(Errors::Problem.method_not_allowed()),
    }
}

/// Answers a request for one control plane.
pub(crate) fn one(api: &mut Api<'_>, request: &Request, id: &str) -> Result<Answer, Answer> {
    let plane = api.plane(id).ok_or_else(not_found)?;
    match request.method.as_str() {
        "GET" => Ok(Answer::json(200, &Value::Object(plane.shown.clone()))),
        "PATCH" => update(api, request, id),
        "DELETE" => {
            api.organization.remove_plane(id);
            Ok(Answer::empty(204))
        }
        _ => Err(Errors::Problem.method_not_allowed()),
    }
}

pub(crate) fn not_found() -> Answer {
    Errors::Problem.not_found("control plane")
}

fn create(api: &mut Api<'_>, request: &Request) -> Result<Answer, Answer> {
    let body = read(request)?;
    let name = body.get("name").and_then(Value::as_str).unwrap_or_default();
    if name.is_empty() {
        return Err(Errors::Problem.field("name", "is required"));
    }
    check_free(api, name, "")?;
    api.context.check_room(Errors::Problem)?;
    let id = api.context.ids.mint("control-planes");
    let shown = show(api, &id, &body);
    let answer = Answer::json(201, &Value::Object(shown.clone()));
    api.organization.planes.push(Plane::new(api.region, shown));
    Ok(answer)
}

fn update(api: &mut Api<'_>, request: &Request, id: &str) -> Result<Answer, Answer> {
    let body = read(request)?;
    if let Some(name) = body.get("name").and_then(Value::as_str) {
        check_free(api, name, id)?;
    }
    let now = api.context.time();
    let plane = api.organization.plane_mut(api.region, id).ok_or_else(not_found)?;
    for field in ["name", "description", "labels"] {
        if let Some(value) = body.get(field) {
            plane.shown.insert(field.to_owned(), value.clone());
        }
    }
    if let Some(config) = plane.shown.get_mut("config").and_then(Value::as_object_mut) {
        for field in ["auth_type", "proxy_urls"] {
            if let Some(value) = body.get(field) {
                config.insert(field.to_owned(), value.clone());
            }
        }
    }
    plane.shown.insert("updated_at".to_owned(), now.into());
    Ok(Answer::json(200, &Value::Object(plane.shown.clone())))
}

fn read(request: &Request) -> Result<Entity, Answer> {
    if request.body.len() > MAX_BYTES {
        return Err(Errors::Problem.too_large());
    }
    let body = body(request, Errors::Problem)?;
    check(&body)?;
    Ok(body)
}

/// Refuses a body with values that no control plane has.
fn check(body: &Entity) -> Result<(), Answer> {
    let refuse = |field, message: &str| Err(Errors::Problem.field(field, message));
    let is_one_of = |field: &str, values: &[&str]| {
        let value = body.get(field);
        value.is_none_or(|value| value.as_str().is_some_and(|value| values.contains(&value)))
    };
    let labels = body.get("labels").map(|labels| labels.as_object().cloned());
    match body.get("name") {
        Some(Value::String(name)) if name.is_empty() || name.len() > MAX_NAME_BYTES => {
            return refuse("name", "must have from 1 to 256 bytes");
        }
        None | Some(Value::String(_)) => {}
        Some(_) => return refuse("name", "must be a text"),
    }
    if !is_one_of("cluster_type", &TYPES) {
        return refuse("cluster_type", "is not a type of a control plane");
    }
    if !is_one_of("auth_type", &AUTH_TYPES) {
        return refuse("auth_type", "must be pinned_client_certs or pki_client_certs");
    }
    if labels
        .is_some_and(|labels| labels.is_none_or(|labels| !labels.values().all(Value::is_string)))
    {
        return refuse("labels", "must be an object of texts");
    }
    Ok(())
}

/// Refuses a name that another control plane of the organization has in the region.
fn check_free(api: &Api<'_>, name: &str, id: &str) -> Result<(), Answer> {
    if !api.planes().any(|plane| plane.name() == name && plane.id() != id) {
        return Ok(());
    }
    let organization = &api.organization.id;
    let detail = format!("Key (org_id, name)=({organization}, {name}) already exists.");
    Err(problem(409, "Conflict", &detail))
}

/// Returns a control plane as the API shows it, from the body of its creation.
pub(crate) fn show(api: &Api<'_>, id: &str, body: &Entity) -> Entity {
    let value = |field: &str, default: Value| body.get(field).cloned().unwrap_or(default);
    let short: String = id.chars().take(8).collect();
    let (region, domain, now) = (api.region, api.domain, api.context.time());
    let mut shown = Map::new();
    for (field, value) in [
        ("id", id.into()),
        ("name", value("name", "".into())),
        ("description", value("description", "".into())),
        ("labels", value("labels", json!({}))),
        ("created_at", now.clone().into()),
        ("updated_at", now.into()),
    ] {
        shown.insert(field.to_owned(), value);
    }
    let config = json!({
        "control_plane_endpoint": format!("https://{short}.{region}.cp0.{domain}"),
        "telemetry_endpoint": format!("https://{short}.{region}.tp0.{domain}"),
        "cluster_type": value("cluster_type", SINGLE.into()),
        "auth_type": value("auth_type", "pinned_client_certs".into()),
        "cloud_gateway": value("cloud_gateway", false.into()),
        "proxy_urls": value("proxy_urls", json!([])),
    });
    shown.insert("config".to_owned(), config);
    shown
}

/// Answers a request for the members of a group.
pub(crate) fn members(api: &mut Api<'_>, request: &Request, id: &str) -> Result<Answer, Answer> {
    let group = api.plane(id).ok_or_else(not_found)?;
    if group.cluster_type() != GROUP {
        return Err(problem(400, "Bad Request", "the control plane is not a group"));
    }
    match request.method.as_str() {
        "GET" => {
            let members = api.planes().filter(|plane| group.members.contains(plane.id()));
            list::planes(request, members.map(|plane| &plane.shown))
        }
        "PUT" => set_members(api, request, id),
        _ => Err(Errors::Problem.method_not_allowed()),
    }
}

fn set_members(api: &mut Api<'_>, request: &Request, id: &str) -> Result<Answer, Answer> {
    let body = body(request, Errors::Problem)?;
    let refuse = |message: &str| Errors::Problem.field("members", message);
    let unreadable = || refuse("must be a list of objects with `id`");
    let mut members = BTreeSet::new();
    for member in body.get("members").and_then(Value::as_array).ok_or_else(unreadable)? {
        let member = member.get("id").and_then(Value::as_str).ok_or_else(unreadable)?;
        match api.plane(member).map(Plane::cluster_type) {
            Some(SINGLE) => members.insert(member.to_owned()),
            Some(_) => return Err(refuse(&format!("{member} cannot be a member"))),
            None => return Err(refuse(&format!("there is no control plane {member}"))),
        };
    }
    api.organization.plane_mut(api.region, id).ok_or_else(not_found)?.members = members;
    Ok(Answer::empty(204))
}
