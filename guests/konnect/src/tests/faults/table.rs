//! Shapes of entities, and faults of the API.

use std::time::Duration;

use mortise_sdk::time;
use serde_json::{Value, json};

use super::super::fixture::{NAMESPACE, World, control_plane, in_cp, merge, object, service};
use crate::sync::fault::until;

/// The methods of a creation, an update and a deletion, without those of lookups.
pub(super) const WRITES: &[&str] = &["POST", "PUT", "PATCH", "DELETE"];
/// The faults of all shapes: one of each class. A service meets the others too.
pub(super) const ONE_OF_EACH: [&str; 6] =
    ["429 with seconds", "500", "403", "refused connection", "a lost answer", "201 with nothing"];
/// Longer than all cells together.
pub(super) const PERIOD: u32 = 86_400;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Create,
    Update,
    Delete,
}

use Operation::{Create, Delete, Update};

/// An entity.
pub(super) struct Shape {
    /// The objects that it refers to.
    pub(super) parents: Vec<Value>,
    pub(super) object: Value,
    pub(super) collection: &'static str,
    /// The requests of a creation, up to the one that the fault meets.
    pub(super) create: &'static [&'static str],
    pub(super) update: &'static [&'static str],
    /// The requests that find the entity of a creation without an answer.
    pub(super) found: &'static [&'static str],
    /// The requests once the entity is there.
    pub(super) then: &'static [&'static str],
    /// The requests after an update.
    pub(super) after: &'static [&'static str],
    /// A change of the spec.
    pub(super) change: fn(usize) -> Value,
}

/// The classes of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// A pause of so many milliseconds after the request.
    Pause(u64),
    /// A pause up to this time.
    PauseUntil(u64),
    /// The entity is refused.
    Refused,
    /// The API fails.
    Failing,
    /// There is no answer.
    Lost,
    /// An answer of success without an entity, to what was done.
    Nothing,
}

/// The time at which a failed operation is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    After(u64),
    BackOff,
}

pub(super) struct Fault {
    pub(super) name: &'static str,
    pub(super) class: Class,
    /// The keys of the fake's fault; null: connections are refused.
    pub(super) keys: Value,
    /// The words of the fault.
    pub(super) text: String,
    /// The request is carried out all the same.
    pub(super) is_done: bool,
}

// === impl Fault ===

impl Fault {
    fn new(name: &'static str, class: Class, keys: Value) -> Self {
        let text = match (class, &keys["status"]) {
            (Class::Nothing, _) => "response from Konnect is nil".to_owned(),
            (Class::Lost, _) => "no answer to what was sent: EOF".to_owned(),
            (_, status) => {
                let body = &keys["body"];
                let body = if body.is_null() { String::new() } else { format!("\n{body}") };
                format!("API error occurred: Status {status}{body}")
            }
        };
        Self { name, class, is_done: keys["act"] == true, keys, text }
    }

    fn telling(self, text: &str) -> Self {
        Self { text: text.to_owned(), ..self }
    }

    pub(super) fn is_pause(&self) -> bool {
        matches!(self.class, Class::Pause(_) | Class::PauseUntil(_))
    }

    /// Begins the fault for requests of these methods.
    pub(super) fn begin(&self, world: &World, methods: &[&str]) {
        if self.keys.is_null() {
            return world.set_down(true);
        }
        let faults = methods.iter().map(|method| {
            let mut fault = self.keys.clone();
            merge(&mut fault, json!({"method": method, "path": "^/v2/", "times": -1}));
            fault
        });
        world.faults(faults.collect());
    }

    pub(super) fn end(world: &World) {
        world.set_down(false);
        world.faults(json!([]));
    }

    /// Returns the reason of `Programmed`, and when the operation is tried again that was sent at a
    /// time; nothing if it is as good as without the fault.
    pub(super) fn expected(&self, of: Operation, at: u64) -> Option<(&'static str, Again)> {
        let (reason, of_refusal) = match of {
            Create => ("FailedToCreate", Again::BackOff),
            Update => ("FailedToUpdate", Again::After(u64::from(PERIOD) * 1_000)),
            Delete => ("KonnectAPIOpFailed", Again::BackOff),
        };
        match self.class {
            Class::Pause(pause) => Some((reason, Again::After(pause))),
            Class::PauseUntil(end) => Some((reason, Again::After(end - at))),
            Class::Refused if of == Create => {
                Some((reason, Again::After(u64::from(PERIOD) * 1_000)))
            }
            Class::Refused | Class::Failing => Some((reason, of_refusal)),
            Class::Lost => Some(("KonnectAPIOpFailed", Again::After(200))),
            Class::Nothing if of == Create => Some((reason, of_refusal)),
            Class::Nothing => None,
        }
    }

    /// Returns the message of `Programmed`.
    pub(super) fn message(&self, of: Operation, object: &Value, at: u64) -> String {
        let (kind, name) = (&object["kind"], &object["metadata"]["name"]);
        let (kind, name) = (kind.as_str().unwrap(), name.as_str().unwrap());
        // The errors of this collection are typed.
        let is_typed = self.class == Class::Refused && kind == "KongDataPlaneClientCertificate";
        let is_alone = !is_typed && !matches!(self.class, Class::Lost | Class::Nothing);
        let text = if is_typed {
            json!({"message": self.keys["body"]["message"]}).to_string()
        } else if kind.starts_with("Konnect")
            && matches!(self.class, Class::Refused | Class::Failing)
        {
            // As are these, by a content type that the fake does not answer with.
            let unknown = "unknown content-type received: application/json";
            self.text.replace("API error occurred", unknown)
        } else {
            self.text.clone()
        };
        let text = match of {
            Delete => format!("failed to delete {kind} on Konnect: {text}"),
            _ if is_alone => text,
            Create => format!("failed to create {kind} {NAMESPACE}/{name}: {text}"),
            Update => format!("failed to update {kind} {NAMESPACE}/{name}: {text}"),
        };
        let end = match self.class {
            Class::Pause(pause) => at + pause,
            Class::PauseUntil(end) => end,
            _ => return text,
        };
        format!("{text}; nothing is sent until {}", until(end, Duration::ZERO))
    }
}

/// Returns the faults of a cell that begins at a time.
pub(super) fn faults(now: u64) -> Vec<Fault> {
    let limited = |name, retry_after: Option<&str>, class| {
        let body = json!({"message": "API rate limit exceeded"});
        let headers = retry_after.map_or_else(|| json!({}), |of| json!({"Retry-After": of}));
        let keys = json!({"status": 429, "body": body, "headers": headers});
        Fault::new(name, class, keys)
    };
    // The clock starts on this day, and no cell is on the next one.
    let end = (now + 7_000).div_ceil(1_000) * 1_000;
    let date = time::rfc3339(end);
    let date = format!("Thu, 01 Jan 2026 {} GMT", &date[11..19]);
    let status = |name, class, status: u16, body| {
        Fault::new(name, class, json!({"status": status, "body": body}))
    };
    let field = json!({"code": 3, "message": "validation error", "details": [{"type": "ERROR_TYPE_FIELD", "field": "f", "messages": ["m"]}]});
    let forbidden = json!({"code": 7, "message": "usage constraint error"});
    let done = |name, keys: Value| {
        let mut keys = keys;
        merge(&mut keys, json!({"act": true}));
        let class = if keys.get("status").is_some() { Class::Nothing } else { Class::Lost };
        Fault::new(name, class, keys)
    };
    vec![
        limited("429 with seconds", Some("7"), Class::Pause(7_000)),
        limited("429 with a date", Some(&date), Class::PauseUntil(end)),
        limited("429 without a time", None, Class::Pause(15_000)),
        limited("429 with zero", Some("0"), Class::Pause(15_000)),
        limited("429 with a negative time", Some("-7"), Class::Pause(15_000)),
        limited("429 with another text", Some("soon"), Class::Pause(15_000)),
        status("500", Class::Failing, 500, json!({"message": "internal"})),
        status("503", Class::Failing, 503, json!({"message": "away"})),
        status("401", Class::Failing, 401, json!("Unauthorized"))
            .telling("API error occurred: Status 401\nUnauthorized"),
        status("403", Class::Refused, 403, forbidden),
        status("400 of a field", Class::Refused, 400, field),
        Fault::new("refused connection", Class::Lost, Value::Null)
            .telling("nothing was sent: connection refused"),
        Fault::new("closed connection", Class::Lost, json!({"drop": true})),
        Fault::new("reset connection", Class::Lost, json!({"reset": true})),
        Fault::new("no answer in time", Class::Lost, json!({"drop": true, "delaySeconds": 11.0}))
            .telling("no answer to what was sent: timed out"),
        done("a lost answer", json!({"drop": true})),
        done("an answer that is too late", json!({"delaySeconds": 11.0}))
            .telling("no answer to what was sent: timed out"),
        done("201 with nothing", json!({"status": 201})),
        done(
            "201 with a text",
            json!({"status": 201, "body": "made", "headers": {"content-type": "text/plain"}}),
        ),
        done("201 without an ID", json!({"status": 201, "body": {"name": "x"}})),
    ]
}

fn shape(object: Value, collection: &'static str, change: fn(usize) -> Value) -> Shape {
    Shape {
        parents: Vec::new(),
        object,
        collection,
        create: &[],
        update: &[],
        found: &[],
        then: &[],
        after: &[],
        change,
    }
}

fn host(to: usize) -> Value {
    json!({"spec": {"host": format!("{to}.example")}})
}

fn tags(to: usize) -> Value {
    json!({"spec": {"tags": [to.to_string()]}})
}

fn description(to: usize) -> Value {
    json!({"spec": {"createControlPlaneRequest": {"description": to.to_string()}}})
}

pub(super) fn control_planes() -> Shape {
    let mut object = control_plane();
    object["spec"]["createControlPlaneRequest"]["name"] = "x".into();
    object["metadata"]["name"] = "x".into();
    Shape {
        create: &["POST control-planes"],
        update: &["GET control-planes", "PATCH control-planes/ID"],
        found: &["POST control-planes", "GET control-planes"],
        then: &["GET control-planes"],
        ..shape(object, "control-planes", description)
    }
}

pub(super) fn groups() -> Shape {
    let mut group = control_planes();
    let request = json!({"cluster_type": "CLUSTER_TYPE_CONTROL_PLANE_GROUP"});
    let spec = json!({"createControlPlaneRequest": request, "members": [{"name": "cp"}]});
    merge(&mut group.object["spec"], spec);
    Shape {
        then: &["PUT control-planes/ID/group-memberships", "GET control-planes"],
        after: &["PUT control-planes/ID/group-memberships"],
        ..group
    }
}

pub(super) fn services() -> Shape {
    Shape {
        create: &["POST services"],
        update: &["PUT services/ID"],
        found: &["POST services", "GET services"],
        ..shape(service("x"), "services", host)
    }
}

pub(super) fn unnamed() -> Shape {
    Shape {
        create: &["PUT services/ID"],
        update: &["PUT services/ID"],
        found: &["PUT services/ID"],
        ..shape(in_cp("KongService", "x", json!({"host": "h"})), "services", host)
    }
}

pub(super) fn routes() -> Shape {
    let of = json!({"type": "namespacedRef", "namespacedRef": {"name": "parent"}});
    let spec = json!({"name": "x", "paths": ["/x"], "serviceRef": of});
    let object = object("KongRoute", "x", json!({"spec": spec}));
    Shape {
        parents: vec![service("parent")],
        create: &["POST routes"],
        update: &["PUT routes/ID"],
        found: &["POST routes", "GET routes"],
        ..shape(object, "routes", |to| json!({"spec": {"paths": [format!("/{to}")]}}))
    }
}

/// A consumer in a group.
pub(super) fn consumers() -> Shape {
    let mut object = in_cp("KongConsumer", "x", json!({}));
    merge(&mut object, json!({"username": "x", "consumerGroups": ["parent"]}));
    Shape {
        parents: vec![in_cp("KongConsumerGroup", "parent", json!({"name": "parent"}))],
        create: &["POST consumers"],
        update: &["PUT consumers/ID"],
        found: &["POST consumers", "GET consumers"],
        then: &["GET consumers/ID/consumer_groups", "POST consumers"],
        after: &["GET consumers/ID/consumer_groups"],
        ..shape(object, "consumers", |to| json!({"custom_id": to.to_string()}))
    }
}

pub(super) fn bindings() -> Shape {
    let spec = json!({"pluginRef": {"name": "parent"}, "scope": "GlobalInControlPlane"});
    Shape {
        parents: vec![object("KongPlugin", "parent", json!({"plugin": "key-auth"}))],
        create: &["POST plugins"],
        update: &["PUT plugins/ID"],
        found: &["POST plugins", "GET plugins"],
        ..shape(in_cp("KongPluginBinding", "x", spec), "plugins", tags)
    }
}

/// Credentials, of which the API takes equal ones twice.
pub(super) fn credentials() -> Shape {
    let mut consumer = in_cp("KongConsumer", "parent", json!({}));
    consumer["username"] = "parent".into();
    let spec = json!({"consumerRef": {"name": "parent"}, "group": "g"});
    let object = object("KongCredentialACL", "x", json!({"spec": spec}));
    Shape {
        parents: vec![consumer],
        create: &["GET acls", "POST acls"],
        update: &["PUT acls/ID"],
        found: &["GET acls"],
        ..shape(object, "acls", |to| json!({"spec": {"group": format!("g{to}")}}))
    }
}

pub(super) fn stores() -> Shape {
    let of = json!({"type": "namespacedRef", "namespacedRef": {"name": "cp"}});
    let spec = json!({"controlPlaneRef": of, "apiSpec": {"name": "x"}});
    let object = object("KonnectConfigStore", "x", json!({"spec": spec}));
    Shape {
        create: &["GET config-stores", "POST config-stores"],
        update: &["PUT config-stores/ID"],
        found: &["GET config-stores"],
        ..shape(
            object,
            "config-stores",
            |to| json!({"spec": {"apiSpec": {"name": format!("x{to}")}}}),
        )
    }
}

pub(super) fn without_unique_field() -> Shape {
    Shape {
        create: &["GET ca_certificates", "POST ca_certificates"],
        update: &["PUT ca_certificates/ID"],
        found: &["GET ca_certificates"],
        ..shape(
            in_cp("KongCACertificate", "x", json!({"cert": "c"})),
            "ca_certificates",
            |to| json!({"spec": {"cert": format!("c{to}")}}),
        )
    }
}

pub(super) fn without_update() -> Shape {
    Shape {
        create: &["GET dp-client-certificates", "POST dp-client-certificates"],
        found: &["GET dp-client-certificates"],
        ..shape(
            in_cp("KongDataPlaneClientCertificate", "x", json!({"cert": "c"})),
            "dp-client-certificates",
            |to| json!({"metadata": {"labels": {"l": to.to_string()}}}),
        )
    }
}
