//! Requests with the rights of a `ServiceAccount`.

use http::{HeaderValue, Request, header::HeaderName};
use kube::{Client, client::Body};
use mortise_core::grant::rights::Account;

/// The header that names the impersonated user; see Kubernetes' user impersonation.
pub(super) const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");

/// Returns a client that makes its requests as an account. It names no groups: the API server
/// adds those of a `ServiceAccount` by itself, and the host needs no right to impersonate
/// groups.
pub(super) fn acting_as(account: &Account, client: &Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let (client, user) = (client.clone(), account.user());
    let acting = tower::service_fn(move |mut request: Request<Body>| {
        let (client, user) = (client.clone(), user.clone());
        async move {
            request.headers_mut().insert(IMPERSONATE_USER, HeaderValue::try_from(user)?);
            Ok::<_, tower::BoxError>(client.send(request).await?)
        }
    });
    Client::new(acting, namespace)
}
