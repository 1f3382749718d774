//! Requests and watches without HTTP and without an async runtime.

use std::sync::Arc;

use axum::body::Body;
use futures::FutureExt as _;
use http_body_util::BodyExt as _;
use serde_json::Value;
use tower::ServiceExt as _;

use crate::{
    EmbeddedApi, Failure,
    answer::Shown,
    state::State,
    storage::{Event, Image, Table, TableId},
};

/// The objects of a kind as a client that lists and then watches them sees them.
#[derive(Debug, PartialEq)]
pub struct Update {
    /// The revision to pass with the next call.
    pub revision: u64,
    /// The objects or their changes.
    pub news: News,
}

/// The objects of a kind, or the changes of them.
#[derive(Debug, PartialEq)]
pub enum News {
    /// The list of all objects, since there was no revision or the history since it is forgotten.
    List(Vec<Value>),
    /// The changes since the revision, in order.
    Changes(Vec<Change>),
}

/// A change of one object.
#[derive(Debug, PartialEq)]
pub enum Change {
    /// The object was created or modified.
    Stored(Value),
    /// The object was deleted; the value is its last state, with the revision of the deletion.
    Deleted(Value),
}

impl EmbeddedApi {
    /// Returns the objects of a kind in one of its versions or, given the revision of an earlier
    /// answer, the changes since then. `None` if the kind is not served in this version.
    ///
    /// # Errors
    ///
    /// Fails if the webhooks cannot convert an object to this version.
    pub fn changes_since(
        &self,
        group: &str,
        version: &str,
        kind: &str,
        revision: Option<u64>,
    ) -> Result<Option<Update>, Failure> {
        let state = self.shared.state.read();
        let Some(resource) = state.registry.find_kind(group, version, kind) else {
            return Ok(None);
        };
        let show = |image: &Arc<Image>| State::show(resource, image).map(Shown::into_value);
        let id = TableId::new(&resource.storage_group, &resource.plural);
        let table = state.storage.table(&id);
        let last = table.map_or(0, Table::last);
        let revision = revision.filter(|revision| *revision <= last);
        let events = revision.and_then(|revision| table?.events_after(revision).ok());
        let news = match events {
            None => {
                let images = table.into_iter().flat_map(Table::all);
                let images: Vec<Arc<Image>> = images.map(|(_, image)| image.clone()).collect();
                let shown = State::show_all(resource, &images)?.into_iter();
                News::List(shown.map(Shown::into_value).collect())
            }
            Some(events) => {
                let change = |event: &Event| match (&event.object, &event.previous) {
                    (Some(image), _) => Some(show(image).map(Change::Stored)),
                    (None, Some(previous)) => {
                        let last = Arc::new(previous.at_revision(event.revision));
                        Some(show(&last).map(Change::Deleted))
                    }
                    (None, None) => None,
                };
                News::Changes(events.filter_map(change).collect::<Result<_, _>>()?)
            }
        };
        Ok(Some(Update { revision: last, news }))
    }

    /// Answers one request at once: the HTTP status and the body, which is a text if it is not
    /// JSON. For callers that are not async.
    ///
    /// A lost answer ([`Fault::LostAnswer`](crate::Fault::LostAnswer)) has the status 0.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime if the request is a watch or meets
    /// [`Fault::Latency`](crate::Fault::Latency): both take time, and need a runtime.
    pub fn answer(&self, request: http::Request<String>) -> (u16, Value) {
        let router = self.router();
        let answering = async move {
            // The router cannot fail: its error type has no values.
            let Ok(response) = router.oneshot(request.map(Body::from)).await;
            let status = response.status().as_u16();
            Some((status, response.into_body().collect().await.ok()?.to_bytes()))
        };
        match answering.now_or_never().flatten() {
            None => (0, Value::Null),
            Some((status, bytes)) => {
                let text = || Value::from(String::from_utf8_lossy(&bytes));
                (status, serde_json::from_slice(&bytes).unwrap_or_else(|_| text()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Fault, Filter, Options};

    #[test]
    fn a_request_is_answered_without_a_runtime() {
        let api = EmbeddedApi::new(Options::default());
        let send = |method: &str, path: &str, body: &Value| {
            let request = http::Request::builder().method(method).uri(path);
            let request = request.header("content-type", "application/json");
            api.answer(request.body(body.to_string()).unwrap())
        };
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        let path = "/api/v1/namespaces/default/configmaps";
        let (status, made) = send("POST", path, &object);
        assert_eq!((status, &made["metadata"]["namespace"]), (201, &json!("default")));
        assert_eq!(send("POST", path, &object).0, 409);
        assert_eq!(send("GET", "/healthz", &Value::Null), (200, json!("ok")));
        api.faults().inject(Fault::LostAnswer, Filter::all(), 1);
        assert_eq!(send("GET", path, &Value::Null), (0, Value::Null));
    }

    #[test]
    fn changes_come_in_order_after_the_list() {
        let api = EmbeddedApi::new(Options::default());
        let since = |revision| api.changes_since("", "v1", "ConfigMap", revision).unwrap();
        let load = |name: &str| {
            let metadata = json!({"name": name, "namespace": "default"});
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
            api.load(object, true).unwrap();
        };
        load("a");
        let first = since(None).unwrap();
        let News::List(objects) = first.news else { panic!("{first:?}") };
        assert_eq!(objects[0]["metadata"]["name"], "a");
        assert_eq!(since(Some(first.revision)).unwrap().news, News::Changes(Vec::new()));

        load("b");
        let path = "/api/v1/namespaces/default/configmaps/a";
        let request = http::Request::builder().method("DELETE").uri(path);
        assert_eq!(api.answer(request.body(String::new()).unwrap()).0, 200);
        let second = since(Some(first.revision)).unwrap();
        let News::Changes(changes) = second.news else { panic!("{second:?}") };
        let [Change::Stored(stored), Change::Deleted(deleted)] = &changes[..] else {
            panic!("{changes:?}")
        };
        assert_eq!(
            (&stored["metadata"]["name"], &stored["kind"]),
            (&json!("b"), &json!("ConfigMap"))
        );
        let version = json!(second.revision.to_string());
        assert_eq!(
            (&deleted["metadata"]["name"], &deleted["metadata"]["resourceVersion"]),
            (&json!("a"), &version)
        );

        api.compact();
        assert!(matches!(since(Some(first.revision)).unwrap().news, News::List(_)), "forgotten");
        assert_eq!(api.changes_since("", "v1", "Nothing", None).unwrap(), None);
    }
}
