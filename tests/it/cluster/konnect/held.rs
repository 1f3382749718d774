//! The rule that nothing but GET is sent for an object that holds no finalizer in the cluster.
//!
//! Each request is held up by the fake, before it is answered, until the object that it is for was
//! read from the API server. Until the answer nothing can come of the run that sent the request, so
//! that the object is stored as it was when the request was sent.

use std::sync::Arc;

use konnect::kind::{self, Api, CLEANUP, Entity, text};
use konnect_fake::{Request, server::Observer};
use mortise_host::cluster::Cluster;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::{runtime::Handle, task::block_in_place};

use crate::cluster::side::list;

/// The requests that broke the rule.
#[derive(Clone, Default)]
pub(crate) struct Breaches(Arc<Mutex<Vec<String>>>);

/// Returns the row of the table whose entities a path is about, and the segments after the path of
/// its collection.
fn row(path: &str) -> Option<(&'static Entity, Vec<&str>)> {
    let segments: Vec<&str> = path.split('/').collect();
    let is_equal = |(of, segment): (&str, &&str)| of.starts_with('{') || of == *segment;
    let is_prefix = |api: &Api| {
        let of = api.collection.split('/');
        of.clone().count() <= segments.len() && of.zip(&segments).all(is_equal)
    };
    let rows = kind::entities().filter(|(_, api)| is_prefix(api));
    let length = |api: &Api| api.collection.split('/').count();
    let (entity, api) = rows.max_by_key(|(_, api)| length(api))?;
    Some((entity, segments[length(api)..].to_vec()))
}

/// Returns the uid that a body carries in its tags or labels.
fn uid(body: &Value) -> Option<&str> {
    let mut tags = body["tags"].as_array().into_iter().flatten().filter_map(Value::as_str);
    tags.find_map(|tag| tag.strip_prefix("k8s-uid:")).or(body["labels"]["k8s-uid"].as_str())
}

fn is_held(object: &Value) -> bool {
    let finalizers = object["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|all| all.iter().any(|one| one == CLEANUP))
}

/// Returns whether an object may be meant by the path of a collection: false if the path is in a stored
/// control plane, and the object refers to another one.
fn is_in(path: &str, (entity, object): (&Entity, &Value), planes: &[Value]) -> bool {
    let id = path.strip_prefix("/v2/control-planes/").and_then(|rest| rest.split('/').next());
    let has_id = |plane: &&Value| id.is_some() && text(plane, "status.id") == id;
    let Some(plane) = planes.iter().find(has_id) else { return true };
    let name = text(plane, "metadata.name");
    let parents = entity.parents().filter(|parent| parent.to == kind::CONTROL_PLANE.kind);
    let mut names = parents.flat_map(|parent| parent.names(object)).peekable();
    names.peek().is_none() || names.any(|parent| Some(parent.name.as_str()) == name)
}

/// Returns whether the object that a request is for holds the finalizer: by the uid in its body, or by
/// the ID in its path. Where neither leads to one, as the ID may not be stored yet and some kinds have
/// no place for the uid, each object of the kind in the control plane has to. `stored` returns those of
/// a kind.
fn is_for_held(request: &Request, stored: impl Fn(&Entity) -> Vec<Value>) -> bool {
    let Some((entity, rest)) = row(&request.path) else { return false };
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let all = stored(entity);
    let uid = uid(&body);
    let is_meant = |object: &&Value| match uid {
        Some(uid) => object["metadata"]["uid"] == uid,
        None => rest.first().is_some_and(|id| entity.id(object, "id") == Some(id)),
    };
    let mut meant: Vec<&Value> = all.iter().filter(is_meant).collect();
    if meant.is_empty() && uid.is_none() {
        let planes = stored(&kind::CONTROL_PLANE);
        let is_near = |object: &&Value| is_in(&request.path, (entity, object), &planes);
        meant = all.iter().filter(is_near).collect();
    }
    !meant.is_empty() && meant.into_iter().all(is_held)
}

// === impl Breaches ===

impl Breaches {
    /// Returns what a fake has to tell its requests to.
    pub(super) fn observer(&self, cluster: Cluster) -> Observer {
        let breaches = self.clone();
        Arc::new(move |request, _| {
            breaches.see(request, |entity| {
                let all = list(&cluster, (entity.group, entity.version, entity.kind));
                block_in_place(|| Handle::current().block_on(all))
            });
        })
    }

    /// Is told each request, while the objects of a kind are `stored` as they were when it was sent.
    pub(crate) fn see(&self, request: &Request, stored: impl Fn(&Entity) -> Vec<Value>) {
        if request.method != "GET" && !is_for_held(request, stored) {
            self.0.lock().push(format!("{} {}", request.method, request.path));
        }
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}
