//! Live reads of objects from the API server, and the paths of requests.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{MAX_FORBIDDEN, MAX_FORBIDDEN_BYTES, Run, Stop};
use crate::{
    api::{Answer, Method, Outgoing, Refusal},
    contract::{self, Kind, ObjectRef, Selection, Verbs, bounds::text::shortened, display_ref},
    grant::{
        Writable,
        rights::{Permit, ReadTarget},
    },
    resource::Resource,
    store::Known,
};

/// The bytes of the longest uid and version that are kept. Other clusters answer with any.
const MAX_IDENTITY_BYTES: usize = 256;

impl Run<'_> {
    /// Returns the resource of a kind: from this plan's own definitions, or from discovery. Fails
    /// if the kind is not served.
    pub(super) async fn resource(&self, of: &ObjectRef) -> Result<Arc<Resource>, Stop> {
        self.resource_of(&of.kind).await?.ok_or_else(|| {
            Stop::unsent(
                404,
                "NotFound",
                format!("the cluster does not know the kind of {}", display_ref(of)),
            )
        })
    }

    /// Returns the resource of a kind; `None` if the kind is not served.
    pub(super) async fn resource_of(&self, kind: &Kind) -> Result<Option<Arc<Resource>>, Stop> {
        if let Some(defined) = self.defined.get(kind) {
            return Ok(Some(Arc::clone(defined)));
        }
        self.api.resolve(kind).await.map_err(|error| Stop::unsent(0, "", error.to_string()))
    }

    /// Returns the stored state of an object; [`Known::Unwatched`] if the account may not read the
    /// object.
    pub(super) fn known(&self, of: &ObjectRef) -> Known {
        if self.may(&of.kind, ReadTarget::object(of.namespace.as_deref(), &of.name)) {
            self.writer.stores.known(of)
        } else {
            Known::Unwatched
        }
    }

    /// Returns whether the account may list a selection from the store.
    pub(super) fn may_list(&self, of: &Selection) -> bool {
        self.may(&of.kind, ReadTarget::list(of.namespace.as_deref(), of.name.as_deref()))
    }

    fn may(&self, kind: &Kind, target: ReadTarget<'_>) -> bool {
        self.context.rights.is_none_or(|rights| rights.known(kind, target) == Some(Permit::Stored))
    }

    pub(super) async fn send(&self, outgoing: Outgoing, of: &ObjectRef) -> Result<Answer, Refusal> {
        let retry_not_found = self.defined.contains_key(&of.kind);
        self.ask(Outgoing { retry_not_found, ..outgoing }, &of.kind).await
    }

    /// Sends a request that concerns objects of a kind to the kind's cluster. Records a 403.
    pub(super) async fn ask(&self, outgoing: Outgoing, kind: &Kind) -> Result<Answer, Refusal> {
        let outgoing = outgoing.to(&kind.cluster);
        let answer = self.api.send(&outgoing).await;
        if let Err(refusal) = &answer
            && refusal.code == 403
        {
            self.note_forbidden(kind, &refusal.message);
        }
        answer
    }

    /// Keeps one of the first requests that are answered with 403.
    pub(super) fn note_forbidden(&self, kind: &Kind, message: &str) {
        let mut forbidden = self.forbidden.lock();
        if forbidden.len() < MAX_FORBIDDEN {
            forbidden.push((kind.clone(), shortened(message, MAX_FORBIDDEN_BYTES)));
        }
    }

    /// Gets the whole object from the API server; `None` if it does not exist.
    pub(super) async fn live(
        &self,
        resource: &Resource,
        of: &ObjectRef,
    ) -> Result<Option<Value>, Stop> {
        let path = resource.path_of(of.namespace.as_deref(), &of.name);
        match self.ask(Outgoing::get(path), &of.kind).await {
            Ok(answer) => Ok(Some(answer.body)),
            Err(refusal) if refusal.code == 404 => Ok(None),
            Err(refusal) => Err(Stop::of(refusal, of)),
        }
    }

    /// Returns the uid of an object: from the store, else from a live GET; `None` if the object
    /// does not exist.
    pub(super) async fn uid(
        &self,
        resource: &Resource,
        of: &ObjectRef,
    ) -> Result<Option<String>, Stop> {
        if let Known::Present(entry) = self.known(of)
            && let Some(uid) = entry.uid()
        {
            return Ok(Some(uid.to_owned()));
        }
        Ok(self.live(resource, of).await?.as_ref().and_then(uid).map(str::to_owned))
    }

    /// Fails unless the declared rules allow this verb on the live object.
    pub(super) async fn check_within(
        &self,
        resource: &Resource,
        of: &ObjectRef,
        verb: Verbs,
        within: &Writable,
    ) -> Result<(), Stop> {
        let live = self.live(resource, of).await?.ok_or_else(|| Stop::not_found(of))?;
        if within.holds(verb, &live) {
            return Ok(());
        }
        Err(Stop::unsent(
            403,
            "Forbidden",
            format!("{} lies outside of what is declared; {}", display_ref(of), within.accepted()),
        ))
    }

    /// Returns a JSON patch under the manager of edits.
    pub(super) fn json_patch(
        &self,
        resource: &Resource,
        of: &ObjectRef,
        operations: Vec<Value>,
    ) -> Outgoing {
        let path = addressed(resource, of, "", &self.managers_in(&of.kind.cluster).edit, false);
        Outgoing::new(Method::JsonPatch, path, Some(Value::Array(operations)))
    }
}

/// Returns the path to an object or its subresource, with the field manager of a write.
pub(super) fn addressed(
    resource: &Resource,
    of: &ObjectRef,
    subresource: &str,
    manager: &str,
    force: bool,
) -> String {
    let mut path = resource.path_of(of.namespace.as_deref(), &of.name);
    if !subresource.is_empty() {
        path.push('/');
        path.push_str(subresource);
    }
    path.push_str("?fieldManager=");
    path.push_str(&crate::resource::encoded(manager));
    if force {
        path.push_str("&force=true");
    }
    path
}

/// Returns an object with only its apiVersion, kind, name, namespace and uid.
pub(super) fn named(of: &ObjectRef, uid: Option<&str>) -> Value {
    let text = |key: &str, held: Option<&str>| {
        held.map(|held| (key.to_owned(), Value::String(held.to_owned())))
    };
    let metadata: Map<String, Value> = [
        text("name", Some(&of.name)),
        text("namespace", of.namespace.as_deref()),
        text("uid", uid),
    ]
    .into_iter()
    .flatten()
    .collect();
    json!({"apiVersion": api_version(of), "kind": of.kind.kind, "metadata": metadata})
}

pub(super) fn api_version(of: &ObjectRef) -> String {
    contract::api_version(&of.kind)
}

/// Returns whether an answer is the object that a request was for.
pub(super) fn is_of(answer: &Value, of: &ObjectRef) -> bool {
    let text = |pointer: &str| answer.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    text("/metadata/name") == of.name
        && text("/metadata/namespace") == of.namespace.as_deref().unwrap_or_default()
}

/// Returns the uid of an object; `None` if it is longer than any of an API server.
pub(super) fn uid(object: &Value) -> Option<&str> {
    identity(object, "/metadata/uid")
}

/// Returns the version of an object; `None` if it is longer than any of an API server.
pub(super) fn resource_version(object: &Value) -> Option<&str> {
    identity(object, "/metadata/resourceVersion")
}

/// Returns a uid or a version; `None` if it is longer than any of an API server.
pub(super) fn identity<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    object.pointer(pointer)?.as_str().filter(|text| text.len() <= MAX_IDENTITY_BYTES)
}
