//! The `ServiceAccount` whose rights a request has.

use std::fmt;

use http::{HeaderValue, Request, header::HeaderName};
use kube::{Client, client::Body};

/// The header that names the user whose rights a request has; see Kubernetes' user impersonation.
pub(super) const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");

/// The namespace and name of a `ServiceAccount`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Account {
    /// The namespace of the account.
    pub namespace: String,
    /// The name of the account.
    pub name: String,
}

// === impl Account ===

impl Account {
    /// Returns the user name of the account at the API server.
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }

    /// Returns the groups that the API server gives the account: all `ServiceAccount`s, those in
    /// its namespace, and all authenticated users.
    pub fn groups(&self) -> [String; 3] {
        [
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{}", self.namespace),
            "system:authenticated".to_owned(),
        ]
    }

    /// Returns a client that makes its requests as this account. It names no groups: the API server
    /// adds those of a `ServiceAccount` by itself, and the host needs no right to impersonate
    /// groups.
    pub(super) fn client(&self, client: &Client) -> Client {
        let namespace = client.default_namespace().to_owned();
        let (client, user) = (client.clone(), self.user());
        let acting = tower::service_fn(move |mut request: Request<Body>| {
            let (client, user) = (client.clone(), user.clone());
            async move {
                request.headers_mut().insert(IMPERSONATE_USER, HeaderValue::try_from(user)?);
                Ok::<_, tower::BoxError>(client.send(request).await?)
            }
        });
        Client::new(acting, namespace)
    }
}

impl std::str::FromStr for Account {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match text.split_once('/') {
            Some((namespace, name))
                if !namespace.is_empty() && !name.is_empty() && !name.contains('/') =>
            {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => anyhow::bail!("`{text}` names no ServiceAccount: NAMESPACE/NAME is expected"),
        }
    }
}

impl fmt::Display for Account {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}
