//! A real API server as a service like the embedded one, so that the same code can send requests to
//! both.

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    extract::Request,
    response::{IntoResponse as _, Response},
};
use http::StatusCode;

/// Forwards all requests unchanged, with the rights of the client. A missing answer becomes a 502
/// with the reason as its text.
pub(super) fn to(client: kube::Client) -> Router {
    let client = Arc::new(client);
    Router::new().fallback(move |request: Request| {
        let client = Arc::clone(&client);
        async move {
            forward(&client, request)
                .await
                .unwrap_or_else(|error| (StatusCode::BAD_GATEWAY, error).into_response())
        }
    })
}

async fn forward(client: &kube::Client, request: Request) -> Result<Response, String> {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.map_err(|error| error.to_string())?;
    let request = http::Request::from_parts(head, kube::client::Body::from(body.to_vec()));
    let answer = client.send(request).await.map_err(|error| format!("{error:?}"))?;
    Ok(answer.map(Body::new))
}
