//! The rules of the API, each by requests.

mod changes;
mod entities;
mod faults;
mod lists;
mod planes;
mod tenants;

use serde_json::{Value, json};

use super::{Config, Konnect, Limits};
use crate::{End, Reply, Request};

/// A caller with a Konnect of its own, and a control plane in it.
struct Caller {
    konnect: Konnect,
    token: &'static str,
    host: &'static str,
    /// The identifier of the control plane.
    plane: String,
}

/// Status and body of an answer.
type Got = (u16, Value);

// === impl Caller ===

impl Caller {
    fn new() -> Self {
        Self::with(Config::default())
    }

    fn with(config: Config) -> Self {
        let mut caller = Self {
            konnect: Konnect::new(config),
            token: "kpat_a",
            host: "eu.api.konghq.com",
            plane: String::new(),
        };
        caller.plane = caller.create("/v2/control-planes", &json!({"name": "cp"}));
        caller
    }

    fn reply(&mut self, method: &str, path: &str, body: &Value) -> Reply {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let absolute = match path.strip_prefix("/v") {
            Some(_) => path.to_owned(),
            None => format!("/v2/control-planes/{}{path}", self.plane),
        };
        self.konnect.answer(
            1_700_000_000_123,
            &Request {
                method: method.to_owned(),
                host: self.host.to_owned(),
                path: absolute,
                query: query.to_owned(),
                token: Some(self.token.to_owned()),
                headers: Vec::new(),
                body: if body.is_null() { Vec::new() } else { body.to_string().into_bytes() },
            },
        )
    }

    /// Sends a request. A path that does not begin with a version is in the control plane.
    fn send(&mut self, method: &str, path: &str, body: &Value) -> Got {
        match self.reply(method, path, body).end {
            End::Answer(answer) => (answer.status, answer.body_value().unwrap_or_default()),
            closed @ End::Closed { .. } => panic!("{method} {path}: {closed:?}"),
        }
    }

    fn get(&mut self, path: &str) -> Got {
        self.send("GET", path, &Value::Null)
    }

    fn post(&mut self, path: &str, body: &Value) -> Got {
        self.send("POST", path, body)
    }

    fn put(&mut self, path: &str, body: &Value) -> Got {
        self.send("PUT", path, body)
    }

    fn delete(&mut self, path: &str) -> u16 {
        self.send("DELETE", path, &Value::Null).0
    }

    /// Creates an entity, and returns its identifier.
    fn create(&mut self, path: &str, body: &Value) -> String {
        let (status, body) = self.post(path, body);
        assert_eq!(status, 201, "{path}: {body}");
        let id = body["id"].as_str().or(body["item"]["id"].as_str());
        id.unwrap_or_else(|| panic!("{path}: {body}")).to_owned()
    }

    /// Returns the identifiers of a list.
    fn ids(&mut self, path: &str) -> Vec<String> {
        let (status, body) = self.get(path);
        assert_eq!(status, 200, "{path}: {body}");
        let list = body["data"].as_array().or(body["items"].as_array()).unwrap();
        list.iter().map(|entity| entity["id"].as_str().unwrap().to_owned()).collect()
    }
}

/// The body of an entity's error with one detail.
fn refused(message: &str, of: &str, field: &str, detail: &str) -> Value {
    json!({"code": 3, "message": message, "details": [{
        "@type": "type.googleapis.com/kong.admin.model.v1.ErrorDetail",
        "type": of,
        "field": field,
        "messages": [detail],
    }]})
}

/// The answer to a value that another entity has.
fn clash(field: &str) -> Got {
    let detail = format!("{field} (type: unique) constraint failed");
    (400, refused("data constraint error", "ERROR_TYPE_REFERENCE", field, detail.trim_start()))
}

fn not_found() -> Got {
    (404, json!({"code": 5, "message": "Not found", "details": []}))
}

fn problem(status: u16, title: &str, detail: &str) -> Got {
    let instance = "kong:trace:1234567890123456789";
    let body = json!({"status": status, "title": title, "instance": instance, "detail": detail});
    (status, body)
}
