//! Answers: content negotiation, and the encoding of objects, lists and failures.

mod accept;
#[cfg(test)]
mod tests;

pub(crate) use accept::{Accept, Form};

use std::sync::Arc;

use axum::{body::Body, response::Response};
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WARNING};
use serde_json::{Map, Value, json};

use crate::{
    Failure,
    builtin::edit::set,
    kind::Resource,
    storage::{Image, json_text},
};

/// The media types of bodies, as messages list them.
pub(crate) const BODIES: &str =
    "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// An object in the requested version.
#[derive(Debug, Clone)]
pub(crate) enum Shown {
    /// The stored object.
    Image { image: Arc<Image>, resource: Arc<Resource> },
    /// An object built for the answer, with `apiVersion` and `kind`.
    Value(Value),
}

/// Objects in the requested version.
#[derive(Debug)]
pub(crate) struct List {
    pub(crate) items: Vec<Shown>,
    pub(crate) resource_version: String,
    pub(crate) continue_token: String,
    pub(crate) remaining: Option<usize>,
}

/// The content of an answer.
#[derive(Debug)]
pub(crate) enum Content {
    /// An object: written whole, as a table, or as metadata alone.
    Object(Shown),
    /// A list: written whole, as a table, or as metadata alone.
    List(List),
    /// A `Status`, a scale or another document: always written whole.
    Document(Value),
}

/// The HTTP status and the content of an answer, before encoding.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) content: Content,
}

/// The options for encoding an answer.
#[derive(Debug)]
pub(crate) struct Style {
    pub(crate) accept: Accept,
    pub(crate) pretty: bool,
    /// The parameter `includeObject` of tables.
    pub(crate) include_object: String,
    pub(crate) now: jiff::Timestamp,
}

// === impl Shown ===

impl Shown {
    /// Returns the whole object, with `apiVersion` and `kind`.
    pub(crate) fn into_value(self) -> Value {
        match self {
            Self::Image { image, resource } => image.value(&resource.api_version(), &resource.kind),
            Self::Value(value) => value,
        }
    }

    /// Appends the JSON text of the object.
    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        match self {
            Self::Image { image, resource } => {
                image.write(&resource.api_version(), &resource.kind, to);
            }
            Self::Value(value) => to.extend_from_slice(&json_text(value)),
        }
    }

    /// Returns the approximate size in bytes of the object as a list item; 0 for an object that is
    /// not serialized yet.
    fn size(&self) -> usize {
        match self {
            Self::Image { image, resource } => {
                image.body().len() + resource.group.len() + resource.kind.len() + 48
            }
            Self::Value(_) => 0,
        }
    }

    /// Appends the JSON text as an item of a list of built-in objects: without `apiVersion` and
    /// `kind`.
    fn write_bare(self, to: &mut Vec<u8>) {
        match self {
            Self::Image { image, .. } => to.extend_from_slice(image.body()),
            Self::Value(mut value) => {
                if let Some(fields) = value.as_object_mut() {
                    fields.remove("apiVersion");
                    fields.remove("kind");
                }
                to.extend_from_slice(&json_text(&value));
            }
        }
    }
}

// === impl List ===

impl List {
    /// Returns the metadata of the list. With `always_continue`, for lists of custom resources,
    /// `continue` is present even if empty.
    fn metadata(&self, always_continue: bool) -> Value {
        let mut metadata = Map::new();
        metadata.insert("resourceVersion".to_owned(), Value::from(self.resource_version.as_str()));
        if always_continue || !self.continue_token.is_empty() {
            metadata.insert("continue".to_owned(), Value::from(self.continue_token.as_str()));
        }
        if let Some(remaining) = self.remaining {
            metadata.insert("remainingItemCount".to_owned(), Value::from(remaining));
        }
        Value::Object(metadata)
    }

    /// Returns the JSON text of the whole list.
    fn into_json(self, resource: &Resource) -> Vec<u8> {
        let metadata = self.metadata(resource.is_custom());
        let (kind, api_version) = (&resource.list_kind, resource.api_version());
        let mut text = format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":[").into_bytes();
        text.reserve(self.items.iter().map(Shown::size).sum());
        for (index, item) in self.items.into_iter().enumerate() {
            if index > 0 {
                text.push(b',');
            }
            if resource.is_custom() { item.write(&mut text) } else { item.write_bare(&mut text) }
        }
        text.extend_from_slice(b"]}");
        text
    }
}

// === impl Answer ===

impl Answer {
    pub(crate) fn object(code: u16, shown: Shown) -> Self {
        Self { code, content: Content::Object(shown) }
    }

    pub(crate) fn list(list: List) -> Self {
        Self { code: 200, content: Content::List(list) }
    }

    pub(crate) fn document(code: u16, document: Value) -> Self {
        Self { code, content: Content::Document(document) }
    }

    /// Returns the answer to a deletion that removed the object.
    pub(crate) fn deleted(resource: &Resource, name: &str, uid: &str) -> Self {
        let details = [
            ("group", resource.group.as_str()),
            ("kind", &resource.plural),
            ("name", name),
            ("uid", uid),
        ];
        let details = details.into_iter().filter(|(_, text)| !text.is_empty());
        let details: Map<String, Value> =
            details.map(|(key, text)| (key.to_owned(), Value::from(text))).collect();
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details});
        Self::document(200, status)
    }

    /// Encodes the answer in the requested style.
    pub(crate) fn into_response(
        self,
        resource: Option<&Resource>,
        style: &Style,
    ) -> Result<Response, Failure> {
        let code = self.code;
        let (bytes, content_type) = match self.content {
            Content::Document(document) => style.write(json_text(&document)),
            Content::Object(shown) => match (style.accept.form, resource) {
                (Form::Whole, _) | (_, None) => {
                    let mut text = Vec::new();
                    shown.write(&mut text);
                    style.write(text)
                }
                (_, Some(resource)) => {
                    style.write(json_text(&style.object(shown, resource, true)?))
                }
            },
            Content::List(list) => {
                let Some(resource) = resource else {
                    return Err(Failure::internal("a list of nothing"));
                };
                match style.accept.form {
                    Form::Whole => style.write(list.into_json(resource)),
                    _ => style.write(json_text(&style.list(list, resource)?)),
                }
            }
        };
        Ok(respond(code, content_type, Body::from(bytes)))
    }
}

// === impl Style ===

impl Style {
    /// Fails if `includeObject` of a table is invalid, before anything is done.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.accept.form != Form::Table
            || matches!(self.include_object.as_str(), "" | "Metadata" | "Object" | "None")
        {
            return Ok(());
        }
        let value = &self.include_object;
        Err(Failure::bad_request(format!(
            "Unable to convert to Table as requested: includeObject: Invalid value: {value:?}: must be 'Metadata', 'Object', 'None', or empty"
        )))
    }

    /// Returns an object whole, as a table, or as metadata.
    pub(crate) fn object(
        &self,
        shown: Shown,
        resource: &Resource,
        with_columns: bool,
    ) -> Result<Value, Failure> {
        let mut shown = self.in_v1(shown.into_value(), resource, with_columns)?;
        if self.accept.beta {
            to_beta(&mut shown);
        }
        Ok(shown)
    }

    fn in_v1(
        &self,
        object: Value,
        resource: &Resource,
        with_columns: bool,
    ) -> Result<Value, Failure> {
        match self.accept.form {
            Form::Whole => Ok(object),
            Form::Metadata => Ok(metadata_only(&object)),
            Form::MetadataList => Err(Failure::generic(
                406,
                "NotAcceptable",
                "you requested PartialObjectMetadataList, but the requested object is not a list",
            )),
            Form::Table => {
                let version = object.pointer("/metadata/resourceVersion").cloned();
                let metadata = version
                    .map_or_else(|| json!({}), |version| json!({"resourceVersion": version}));
                crate::table::table(
                    resource,
                    &[object],
                    metadata,
                    &self.include_object,
                    with_columns,
                    self.now,
                )
            }
        }
    }

    fn list(&self, list: List, resource: &Resource) -> Result<Value, Failure> {
        let mut shown = self.list_in_v1(list, resource)?;
        if self.accept.beta {
            to_beta(&mut shown);
        }
        Ok(shown)
    }

    fn list_in_v1(&self, list: List, resource: &Resource) -> Result<Value, Failure> {
        let metadata = list.metadata(false);
        let objects: Vec<Value> = list.items.into_iter().map(Shown::into_value).collect();
        match self.accept.form {
            Form::MetadataList => {
                let items: Vec<Value> = objects.iter().map(metadata_only).collect();
                let kind = "PartialObjectMetadataList";
                Ok(
                    json!({"kind": kind, "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items}),
                )
            }
            Form::Table => crate::table::table(
                resource,
                &objects,
                metadata,
                &self.include_object,
                true,
                self.now,
            ),
            Form::Whole | Form::Metadata => Err(Failure::generic(
                406,
                "NotAcceptable",
                "you requested PartialObjectMetadata, but the requested object is a list",
            )),
        }
    }

    /// Encodes JSON text as the client requested: plain JSON, indented JSON, or YAML.
    fn write(&self, json: Vec<u8>) -> (Vec<u8>, &'static str) {
        if !self.accept.yaml && !self.pretty {
            return (json, "application/json");
        }
        let Ok(value) = serde_json::from_slice::<Value>(&json) else {
            return (json, "application/json");
        };
        if self.accept.yaml
            && let Ok(text) = serde_saphyr::to_string(&value)
        {
            return (text.into_bytes(), "application/yaml");
        }
        (serde_json::to_vec_pretty(&value).unwrap_or(json), "application/json")
    }
}

/// Changes the version of a table or of metadata, and of what is in them, to `v1beta1`.
fn to_beta(shown: &mut Value) {
    if shown["apiVersion"] != "meta.k8s.io/v1" {
        return;
    }
    set(shown, "apiVersion", "meta.k8s.io/v1beta1");
    for list in ["items", "rows"] {
        for item in shown.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            to_beta(if list == "rows" { &mut item["object"] } else { item });
        }
    }
}

fn metadata_only(object: &Value) -> Value {
    let metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
}

/// Returns the response for a failure: a `Status`, or plain text.
pub(crate) fn failure(failure: &Failure) -> Response {
    if failure.is_plain() {
        return respond(
            failure.code(),
            "text/plain; charset=utf-8",
            Body::from(failure.message().to_owned()),
        );
    }
    let mut response =
        respond(failure.code(), "application/json", Body::from(failure.to_status().to_string()));
    if let Some(seconds) = failure.retry_after() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

pub(crate) fn respond(code: u16, content_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() =
        http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Adds one `Warning` header for each distinct text.
pub(crate) fn warn(response: &mut Response, warnings: &[String]) {
    let mut seen: Vec<&str> = Vec::new();
    for warning in warnings {
        if seen.contains(&warning.as_str()) {
            continue;
        }
        seen.push(warning);
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
        let quoted: String = quoted.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()) {
            response.headers_mut().append(WARNING, value);
        }
    }
}
