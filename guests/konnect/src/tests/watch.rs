//! A watch of the cluster beside the calls: what no call may do, in any test.
//!
//! It sees each call before it is answered, and the objects as the API stores them, not as the
//! processor read them.

use std::collections::BTreeMap;

use konnect_fake::Konnect as Fake;
use mortise_embedded_api::{Change, News};
use mortise_sdk::{
    outbound::Method,
    testing::{OutboundRequest, cluster::Cluster},
};
use serde_json::Value;

use crate::{
    kind::{self, CLEANUP, Entity, OLD_CLEANUP, text},
    sync::find::marked_uid,
};

/// Namespace and name.
type Name = (String, String);

pub(super) struct Watch {
    cluster: Cluster,
    kinds: Vec<Watched>,
    /// The calls that should not have been made.
    pub(super) broken: Vec<String>,
}

struct Watched {
    entity: &'static Entity,
    revision: Option<u64>,
    objects: BTreeMap<Name, Value>,
}

// === impl Watch ===

impl Watch {
    pub(super) fn new(cluster: Cluster) -> Self {
        let watched =
            |(entity, _)| Watched { entity, revision: None, objects: BTreeMap::default() };
        Self { cluster, kinds: kind::entities().map(watched).collect(), broken: Vec::new() }
    }

    /// Looks at a call that is about to be answered.
    pub(super) fn see(&mut self, call: &OutboundRequest, fake: &Fake) {
        let rest = call.url.strip_prefix("https://").unwrap();
        let path = rest.split_once('/').unwrap().1.split('?').next().unwrap();
        if path.split('/').any(str::is_empty) {
            self.broken.push(format!("{call}: an empty segment"));
        }
        if call.method == Method::Get {
            return;
        }
        self.kinds.iter_mut().for_each(|kind| kind.follow(&self.cluster));
        let body = call.json();
        let objects = self.objects_of(path, &body, fake);
        if objects.is_empty() {
            self.broken.push(format!("{call}: for no object that is stored"));
        } else if !objects.iter().any(|object| is_held(object)) {
            self.broken.push(format!("{call}: {} has no finalizer", objects[0]["metadata"]));
        }
    }

    /// Returns the objects that a call may be for: by the mark in its body, by the ID in its path or,
    /// of entities without marks, by their content.
    fn objects_of(&self, path: &str, body: &Value, fake: &Fake) -> Vec<&Value> {
        let all = || self.kinds.iter().flat_map(|kind| kind.objects.values());
        let of_uid = |uid: &str| -> Vec<&Value> {
            all().filter(|object| text(object, "metadata.uid") == Some(uid)).collect()
        };
        if let Some(uid) = marked_uid(body) {
            return of_uid(uid);
        }
        let id = body["consumer"].as_str().or_else(|| path.rsplit('/').find(|it| it.len() == 36));
        let has_id = |object: &&Value| {
            ["status.id", "status.konnect.id"].iter().any(|at| text(object, at) == id)
        };
        let found: Vec<&Value> = all().filter(|object| id.is_some() && has_id(object)).collect();
        if !found.is_empty() {
            return found;
        }
        let stored = id.and_then(|id| stored(fake, id)).unwrap_or_default();
        if let Some(uid) = marked_uid(&stored) {
            return of_uid(uid);
        }
        let content = text(body, "cert").or_else(|| text(&stored, "cert"));
        all().filter(|object| content.is_some() && text(object, "spec.cert") == content).collect()
    }
}

// === impl Watched ===

impl Watched {
    fn follow(&mut self, cluster: &Cluster) {
        let Entity { group, version, kind, .. } = self.entity;
        let update = cluster.api().changes_since(group, version, kind, self.revision);
        let update = update.unwrap().unwrap();
        self.revision = Some(update.revision);
        match update.news {
            News::List(objects) => {
                self.objects = objects.into_iter().map(|object| (name(&object), object)).collect();
            }
            News::Changes(changes) => {
                for change in changes {
                    match change {
                        Change::Stored(object) => drop(self.objects.insert(name(&object), object)),
                        Change::Deleted(object) => drop(self.objects.remove(&name(&object))),
                    }
                }
            }
        }
    }
}

fn name(object: &Value) -> Name {
    let of = |at| text(object, at).unwrap_or_default().to_owned();
    (of("metadata.namespace"), of("metadata.name"))
}

/// Returns whether an object may have an entity.
pub(super) fn is_held(object: &Value) -> bool {
    let list = object["metadata"]["finalizers"].as_array().into_iter().flatten();
    list.filter_map(Value::as_str).any(|of| of == CLEANUP || of == OLD_CLEANUP)
}

/// Returns the collections of the API, as the fake names them.
pub(super) fn collections() -> impl Iterator<Item = &'static str> {
    kind::entities().map(|(_, api)| api.collection.rsplit('/').next().unwrap())
}

/// Returns the entity of an ID.
fn stored(fake: &Fake, id: &str) -> Option<Value> {
    let mut all = collections().flat_map(|collection| fake.entities(collection));
    all.find(|entity| entity["id"] == id)
}
