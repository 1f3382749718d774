//! The recorded applies, on functions alone: no server, no defaults, no validation.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
};

use super::*;
use crate::{patch, status::Failure};

/// The scenarios that field management decides, apart from defaults and preconditions.
const SCENARIOS: [&str; 21] = [
    "apply-atomic",
    "apply-conflict",
    "apply-containers",
    "apply-crd-itself",
    "apply-create",
    "apply-defaults",
    "apply-duplicate-keys",
    "apply-field-validation",
    "apply-finalizers",
    "apply-force-two",
    "apply-give-up",
    "apply-invalid-request",
    "apply-labels-generation",
    "apply-list-map",
    "apply-noop",
    "apply-rbac",
    "apply-reset-managed-fields",
    "apply-set-list",
    "apply-shared-owner",
    "apply-status",
    "apply-update-owner",
];

struct World {
    /// The schema, and whether status is a subresource, by `apiVersion` and kind.
    custom: HashMap<(String, String), (Schema, bool)>,
    objects: BTreeMap<String, Value>,
}

/// The parts of a request that matter here.
struct Request {
    /// The path of the object, without version, query and subresource.
    key: String,
    api_version: String,
    subresource: String,
    manager: Option<String>,
    force: bool,
}

impl Request {
    fn parse(step: &Value, body: &Value) -> Self {
        let (path, query) = {
            let whole = step["path"].as_str().unwrap();
            whole.split_once('?').unwrap_or((whole, ""))
        };
        let mut parts: Vec<&str> = path.split('/').skip(1).collect();
        let api_version = match parts.remove(0) {
            "api" => parts.remove(0).to_owned(),
            _ => [parts.remove(0), parts.remove(0)].join("/"),
        };
        let subresource = if parts.last() == Some(&"status") { parts.pop().unwrap() } else { "" };
        if step["method"] == "POST" {
            parts.push(body["metadata"]["name"].as_str().unwrap());
        }
        let option = |name: &str| {
            let mut options = query.split('&').filter_map(|option| option.split_once('='));
            options.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
        };
        let agent = step["headers"]["User-Agent"].as_str().unwrap_or("golden/1");
        let is_apply = step["contentType"] == "application/apply-patch+yaml";
        let agent = agent.split('/').next().filter(|_| !is_apply).map(str::to_owned);
        Self {
            key: parts.join("/"),
            api_version,
            subresource: subresource.to_owned(),
            manager: option("fieldManager").or(agent),
            force: option("force").is_some_and(|force| force != "false"),
        }
    }
}

impl World {
    fn schema(&self, api_version: &str, kind: &str) -> Option<(Schema, bool)> {
        let key = (api_version.to_owned(), kind.to_owned());
        let built_in = || {
            let schema = Schema::built_in(api_version, kind)?;
            let has_status = schema.root().map().is_some_and(|map| map.field("status").is_some());
            Some((schema, has_status))
        };
        self.custom.get(&key).cloned().or_else(built_in)
    }

    fn define(&mut self, crd: &Value) {
        let group = crd["spec"]["group"].as_str().unwrap();
        let kind = crd["spec"]["names"]["kind"].as_str().unwrap();
        for version in crd["spec"]["versions"].as_array().unwrap() {
            let api_version = format!("{group}/{}", version["name"].as_str().unwrap());
            let schema = Schema::custom(&version["schema"]["openAPIV3Schema"], false);
            let has_status = version["subresources"]["status"].is_object();
            self.custom.insert((api_version, kind.to_owned()), (schema, has_status));
        }
    }

    /// Returns the result of a step; `None` if it does not depend on field management.
    fn write(&mut self, step: &Value) -> Option<Result<Value, Failure>> {
        let body = &step["body"];
        let request = Request::parse(step, body);
        let live = self.objects.get(&request.key).cloned().map(|mut live| {
            live["apiVersion"] = json!(request.api_version);
            live
        });
        // Steps that create a status, or that need a version or a uid, are not covered here.
        let needs_more = !request.subresource.is_empty() && live.is_none();
        if needs_more || body["metadata"]["resourceVersion"].is_string() {
            return None;
        }
        let kind = live.as_ref().map_or(body, |live| live)["kind"].as_str().unwrap_or("ConfigMap");
        let (schema, has_status) = self.schema(&request.api_version, kind)?;
        let other_version = |version: &str| self.schema(version, kind).map(|(schema, _)| schema);
        let is_custom = kind != "Deployment";
        let target = Target {
            kind,
            schema: &schema,
            has_status,
            is_custom,
            is_converted: false,
            other_version: &other_version,
        };
        let writer = Writer {
            manager: request.manager.as_deref()?,
            api_version: &request.api_version,
            subresource: &request.subresource,
            now: NOW,
        };
        let before = live.as_ref();
        let patched = match step["contentType"].as_str()? {
            "application/apply-patch+yaml" => {
                apply(before, body, &target, &writer, request.force).map_err(Failure::from)
            }
            "application/json" => Ok(update(before, body.clone(), &target, &writer)),
            "application/merge-patch+json" => patch::merge(before?, body)
                .map(|new| update(before, new, &target, &writer))
                .map_err(Failure::from),
            _ => patch::json(before?, body)
                .map(|new| update(before, new, &target, &writer))
                .map_err(Failure::from),
        };
        Some(patched.map(|new| {
            let mut stored = strategy(tidy(new), before, &request, has_status);
            stored["metadata"]["uid"] = json!("uid");
            self.objects.insert(request.key, stored.clone());
            stored
        }))
    }
}

/// Keeps the live status in a write of the object, and everything else in a write of the status.
fn strategy(mut new: Value, live: Option<&Value>, request: &Request, has_status: bool) -> Value {
    let status = |object: Option<&Value>| object.and_then(|object| object.get("status")).cloned();
    match live {
        Some(live) if request.subresource == "status" => {
            let mut kept = live.clone();
            kept["status"] = status(Some(&new)).unwrap_or_default();
            kept["metadata"]["managedFields"] = new["metadata"]["managedFields"].take();
            new = kept;
        }
        live if has_status => new["status"] = status(live).unwrap_or_default(),
        _ => {}
    }
    new.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    new
}

/// Returns `managedFields` with one time, in one order.
fn normal(managed_fields: &Value) -> Value {
    let mut entries = managed_fields.as_array().cloned().unwrap_or_default();
    for entry in &mut entries {
        if let Some(time) = entry.get_mut("time") {
            *time = json!("TIME");
        }
    }
    let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    entries.sort_by_key(|entry| {
        ["operation", "manager", "apiVersion", "subresource"].map(|key| text(entry, key))
    });
    Value::Array(entries)
}

/// Returns the expected and the actual values in which a step differs.
fn differences(step: &Value, result: &Result<Value, Failure>) -> Vec<(String, Value, Value)> {
    let expected = &step["answer"]["body"];
    let selected = |pointer: &str| {
        let key = pointer.trim_start_matches('/');
        if step["select"].is_null() { expected.pointer(pointer) } else { expected.get(pointer) }
            .or_else(|| expected.get(key))
            .cloned()
            .unwrap_or_default()
    };
    let is_selected = |pointer: &str| {
        step["select"].as_array().is_none_or(|select| select.contains(&json!(pointer)))
    };
    let mut found = Vec::new();
    let mut compare = |what: &str, expected: Value, actual: Value| {
        if expected != actual {
            found.push((what.to_owned(), expected, actual));
        }
    };
    match result {
        Ok(object) => {
            let actual = normal(&object["metadata"]["managedFields"]);
            if is_selected("/metadata/managedFields") {
                compare("managedFields", normal(&selected("/metadata/managedFields")), actual);
            }
            let custom = object["apiVersion"].as_str().unwrap().contains("example.dev");
            let parts = if custom { &["/spec", "/status"][..] } else { &["/data"] };
            for part in parts.iter().filter(|part| is_selected(part)) {
                let actual = object.pointer(part).cloned().unwrap_or_default();
                compare(part, selected(part), actual);
            }
        }
        Err(failure) => {
            let body = failure.to_status();
            for part in
                ["/message", "/code", "/reason"].into_iter().filter(|part| is_selected(part))
            {
                let actual = body.pointer(part).cloned().unwrap_or_default();
                compare(part, selected(part), actual);
            }
        }
    }
    found
}

#[test]
fn recorded_applies_leave_the_recorded_fields() {
    let goldens = std::env::var_os("MORTISE_GOLDENS").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/goldens")),
        PathBuf::from,
    );
    let mut wrong = Vec::new();
    let mut compared = 0;
    for name in SCENARIOS {
        let text =
            std::fs::read_to_string(goldens.join(format!("kubernetes-api/{name}.yaml"))).unwrap();
        let scenario: Value = serde_saphyr::from_str(&text).unwrap();
        let mut world = World { custom: HashMap::new(), objects: BTreeMap::new() };
        for (number, step) in scenario["steps"].as_array().unwrap().iter().enumerate() {
            let status = step["answer"]["status"].as_u64().unwrap();
            if step["body"]["kind"] == "CustomResourceDefinition" {
                world.define(&step["body"]);
            }
            if step["body"].is_null()
                || step["path"] == "/api/v1/namespaces"
                || [404, 405, 422].contains(&status)
            {
                continue;
            }
            let Some(result) = world.write(step) else { continue };
            compared += 1;
            for (what, expected, actual) in differences(step, &result) {
                wrong.push(format!("{name} step {number} {what}:\n  {expected}\n  {actual}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared > 80, "only {compared} writes were compared");
}
