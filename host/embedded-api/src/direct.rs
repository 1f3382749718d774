//! Requests without HTTP and without an async runtime.

use axum::body::Body;
use futures::FutureExt as _;
use http_body_util::BodyExt as _;
use serde_json::Value;
use tower::ServiceExt as _;

use crate::EmbeddedApi;

impl EmbeddedApi {
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
}
