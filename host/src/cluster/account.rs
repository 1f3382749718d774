//! With whose rights a request is made.

use std::fmt;

use http::{HeaderValue, Request, header::HeaderName};
use kube::{Client, client::Body};

/// Names who a request is to be judged as; see Kubernetes' user impersonation.
pub(super) const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");

/// A `ServiceAccount`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Account {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

// === impl Account ===

impl Account {
    /// The user that the API server knows it as.
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }

    /// The groups that the API server gives it: those of every `ServiceAccount`, of those in its namespace, of everybody known.
    pub fn groups(&self) -> [String; 3] {
        [
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{}", self.namespace),
            "system:authenticated".to_owned(),
        ]
    }

    /// A client that makes its requests as this account. No groups are named: the API server adds those of a `ServiceAccount` by
    /// itself, and a right to impersonate groups is not needed.
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
