//! The requests that a host makes with its own rights: a fixed list.
//!
//! Text of a guest, a Processor or an object that gets into a path must not turn into a request of
//! the host, which may read all `ServiceAccount`s and roles. So every request without impersonation
//! is compared with this list before it is sent.

use http::{HeaderMap, Method, Request, Uri, header::ACCEPT};
use kube::{Client, client::Body};
use mortise_core::{contract::bounds::text::is_label, key::NamespacedName};

use super::{impersonate::IMPERSONATE_USER, withheld::withheld};

/// The allowed methods and paths. A word in capitals stands for a segment of that form. A path with
/// `?` may have a query; so may a path with `#`, but only for metadata, or for one
/// `CustomResourceDefinition` by its name.
const ALLOWED: [(&[Method], &str); 27] = [
    (&[Method::GET], "/version"),
    (&[Method::GET], "/readyz"),
    (&[Method::GET], "/api"),
    (&[Method::GET], "/apis"),
    (&[Method::GET], "/api/v1"),
    (&[Method::GET], "/api/v1/namespaces/kube-system"),
    (&[Method::GET], "/apis/GROUP/VERSION"),
    (&[Method::POST], "/apis/authentication.k8s.io/v1/selfsubjectreviews"),
    (&[Method::POST], "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
    (&[Method::POST], "/apis/authorization.k8s.io/v1/subjectaccessreviews"),
    (&[Method::GET], "/apis/mortise.dev/v1alpha1/processors?"),
    (&[Method::GET], "/apis/mortise.dev/v1alpha1/namespaces/NAME/processors?"),
    (&[Method::GET, Method::PATCH], "/apis/mortise.dev/v1alpha1/namespaces/NAME/processors/NAME?"),
    (&[Method::PATCH], "/apis/mortise.dev/v1alpha1/namespaces/NAME/processors/NAME/status?"),
    (&[Method::GET], "/api/v1/serviceaccounts#"),
    (&[Method::GET], "/api/v1/namespaces/NAME/serviceaccounts#"),
    (&[Method::GET], "/apis/apiextensions.k8s.io/v1/customresourcedefinitions#"),
    (&[Method::GET], "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations?"),
    (&[Method::GET], "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations?"),
    (&[Method::GET], "/apis/rbac.authorization.k8s.io/v1/roles#"),
    (&[Method::GET], "/apis/rbac.authorization.k8s.io/v1/namespaces/NAME/roles#"),
    (&[Method::GET], "/apis/rbac.authorization.k8s.io/v1/clusterroles#"),
    (&[Method::GET], "/apis/rbac.authorization.k8s.io/v1/rolebindings#"),
    (&[Method::GET], "/apis/rbac.authorization.k8s.io/v1/namespaces/NAME/rolebindings#"),
    (&[Method::GET], "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings#"),
    (&[Method::GET, Method::POST], "/apis/coordination.k8s.io/v1/namespaces/NAME/leases?"),
    (&[Method::GET, Method::PUT], "/apis/coordination.k8s.io/v1/namespaces/NAME/leases/NAME?"),
];
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// The allowed query parameters of the host: those of lists and watches, and of patches.
const QUERY: [&str; 12] = [
    "allowWatchBookmarks",
    "continue",
    "fieldManager",
    "fieldSelector",
    "force",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
];
/// The longest DNS subdomain; Kubernetes accepts DNS subdomains as groups and names.
const MAX_NAME_BYTES: usize = 253;

/// A request with the host's own rights that is not on the list. It was not sent.
#[derive(Debug, thiserror::Error)]
#[error("this host makes no such request with its own rights: {method} {path}")]
pub(super) struct NotOwn {
    method: Method,
    path: String,
}

/// Returns a client for `mortise run`, which sends a request without impersonation only if it is on
/// the list.
#[must_use]
pub fn only_own(client: &Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let client = client.clone();
    let guarded = tower::service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move {
            let headers = request.headers();
            let is_allowed = headers.contains_key(IMPERSONATE_USER)
                || pattern_of(request.method(), request.uri()).is_some_and(|pattern| {
                    !pattern.ends_with('#')
                        || is_of_metadata(headers)
                        || is_one_definition(request.uri())
                });
            if !is_allowed {
                return Err(tower::BoxError::from(NotOwn::of(&request)));
            }
            client.send(request).await.map_err(told)
        }
    });
    Client::new(guarded, namespace)
}

/// Returns a client that lists and watches this Secret, and sends nothing else.
#[must_use]
pub fn only_secret(client: &Client, secret: &NamespacedName) -> Client {
    let namespace = client.default_namespace().to_owned();
    let (client, secret) = (client.clone(), secret.clone());
    let guarded = tower::service_fn(move |request: Request<Body>| {
        let client = client.clone();
        let is_allowed = request.method() == Method::GET && is_asked_for(&secret, request.uri());
        async move {
            if !is_allowed {
                return Err(tower::BoxError::from(NotOwn::of(&request)));
            }
            client.send(request).await.map_err(told)
        }
    });
    Client::new(guarded, namespace)
}

/// Returns an error of the client whose text holds no credentials.
fn told(error: kube::Error) -> tower::BoxError {
    withheld(&error).map_or_else(|| error.into(), Into::into)
}

/// Parses the name of a Secret, as `mortise/webhooks`.
pub fn secret_name(text: &str) -> Result<NamespacedName, String> {
    match text.split_once('/') {
        Some((namespace, name)) if is_label(namespace) && is_subdomain(name) => {
            Ok(NamespacedName::new(namespace, name))
        }
        _ => Err("NAMESPACE/NAME is expected, as `mortise/webhooks`".to_owned()),
    }
}

/// Returns whether this is a list or watch of this Secret alone.
fn is_asked_for(secret: &NamespacedName, uri: &Uri) -> bool {
    let selector = format!("fieldSelector=metadata.name%3D{}", secret.name);
    let pairs: Vec<&str> = uri.query().unwrap_or_default().split('&').collect();
    let selects = |pair: &&&str| pair.starts_with("fieldSelector=");
    uri.path() == format!("/api/v1/namespaces/{}/secrets", secret.namespace)
        && pairs.iter().filter(selects).all(|pair| *pair == selector)
        && pairs.contains(&selector.as_str())
}

/// Returns whether `mortise run` sends this request with the host's own rights.
pub fn is_own(method: &Method, uri: &Uri) -> bool {
    pattern_of(method, uri).is_some()
}

fn pattern_of(method: &Method, uri: &Uri) -> Option<&'static str> {
    let pairs = uri.query().into_iter().flat_map(|query| query.split('&'));
    let keys: Vec<&str> =
        pairs.map(|pair| pair.split_once('=').map_or(pair, |(key, _)| key)).collect();
    let is_fit = |pattern: &str| match pattern.strip_suffix(['?', '#']) {
        Some(path) => {
            let mut keys = keys.iter();
            fits(path, uri.path()) && keys.all(|key| key.is_empty() || QUERY.contains(key))
        }
        None => fits(pattern, uri.path()) && keys.iter().all(|key| key.is_empty()),
    };
    let found =
        ALLOWED.iter().find(|(methods, pattern)| methods.contains(method) && is_fit(pattern));
    found.map(|(_, pattern)| *pattern)
}

fn is_of_metadata(headers: &HeaderMap) -> bool {
    let accepts = headers.get(ACCEPT).and_then(|accepts| accepts.to_str().ok());
    accepts.is_some_and(|accepts| accepts.contains("as=PartialObjectMetadata"))
}

/// Returns whether this is a list of one `CustomResourceDefinition`, which names the conversion
/// webhook.
fn is_one_definition(uri: &Uri) -> bool {
    let name = uri.query().and_then(|query| query.strip_prefix("fieldSelector=metadata.name%3D"));
    uri.path() == DEFINITIONS && name.is_some_and(is_subdomain)
}

fn fits(pattern: &str, path: &str) -> bool {
    let (mut wanted, mut found) = (pattern.split('/'), path.split('/'));
    loop {
        let fits = match (wanted.next(), found.next()) {
            (None, None) => return true,
            (Some("VERSION"), Some(version)) => is_label(version),
            (Some("GROUP" | "NAME"), Some(name)) => is_subdomain(name),
            (Some(word), Some(segment)) => word == segment,
            _ => false,
        };
        if !fits {
            return false;
        }
    }
}

fn is_subdomain(text: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty() && part.split('-').all(|part| part.is_empty() || is_label(part))
    };
    text.len() <= MAX_NAME_BYTES && text.split('.').all(is_part)
}

// === impl NotOwn ===

impl NotOwn {
    fn of(request: &Request<Body>) -> Self {
        /// The number of characters of a path that are shown: a guest's text can make a path long.
        const MAX_SHOWN_CHARACTERS: usize = 200;
        let path = request.uri().path_and_query().map(http::uri::PathAndQuery::as_str);
        let path = path.unwrap_or_default().chars().take(MAX_SHOWN_CHARACTERS).collect();
        Self { method: request.method().clone(), path }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use mortise_core::contract::Kind;

    use super::*;
    use crate::cluster::{Cluster, Outgoing};

    /// Returns a cluster behind the list, and the number of requests that passed it.
    fn counted() -> (Cluster, Arc<AtomicUsize>) {
        let sent = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&sent);
        let service = tower::service_fn(move |_: Request<Body>| {
            counted.fetch_add(1, Ordering::Relaxed);
            let answer = http::Response::new(r#"{"resources": []}"#.to_owned());
            async move { Ok::<_, Infallible>(answer) }
        });
        (Cluster::new(only_own(&Client::new(service, "default"))), sent)
    }

    #[test]
    fn only_listed_requests_count_as_requests_of_the_host() {
        let cases = [
            (Method::GET, "/apis/apps/v1", true),
            (Method::GET, "/apis/apps/v1?", true),
            (Method::GET, "/apis/rules.example.com/v1beta1", true),
            (Method::GET, "/apis/apps/v1?watch=true", false),
            (Method::GET, "/apis/apps/v1/deployments", false),
            (Method::GET, "/apis/apps/v1/", false),
            (Method::GET, "/apis/apps%2fv1/v1", false),
            (Method::GET, "/apis/../v1", false),
            (Method::GET, "/apis//v1", false),
            (Method::GET, "/api/v1/secrets", false),
            (Method::GET, "/api/v1/namespaces/shop/secrets/a", false),
            (Method::GET, "/apis/rbac.authorization.k8s.io/v1/clusterroles?watch=true", true),
            (Method::GET, "/apis/rbac.authorization.k8s.io/v1/clusterroles?watch=true&x=", false),
            (Method::DELETE, "/apis/rbac.authorization.k8s.io/v1/clusterroles", false),
            (Method::GET, "/api/v1/serviceaccounts?watch=true", true),
            (Method::GET, "/api/v1/namespaces/shop/serviceaccounts/a", false),
            (Method::POST, "/api/v1/namespaces/shop/serviceaccounts/a/token", false),
            (
                Method::PATCH,
                "/apis/mortise.dev/v1alpha1/namespaces/a/processors/b/status?fieldManager=mortise&force=true",
                true,
            ),
            (Method::PUT, "/apis/mortise.dev/v1alpha1/namespaces/a/processors/b", false),
            (Method::POST, "/apis/mortise.dev/v1alpha1/namespaces/a/processors", false),
            (Method::PUT, "/apis/coordination.k8s.io/v1/namespaces/mortise/leases/mortise?", true),
            (Method::POST, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews?", true),
        ];
        for (method, path, expected) in cases {
            let uri: Uri = path.parse().unwrap();
            assert_eq!(is_own(&method, &uri), expected, "{method} {path}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_group_that_is_a_path_never_leaves_the_host() {
        let (cluster, sent) = counted();
        let group = "rbac.authorization.k8s.io/v1/clusterroles?watch=true&x=";
        let kind = Kind::home(group, "v1", "ClusterRole");
        assert_eq!(cluster.resolve(&kind).await.unwrap(), None);
        // Paths that no earlier check has rejected are refused too.
        for path in [
            "/apis/rbac.authorization.k8s.io/v1/clusterroles?watch=true&x=/v1",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles?watch=true&labelSelector=/v1",
            "/apis/apps/v1/deployments?watch=true&labelSelector=/v1",
        ] {
            let error = cluster.send(&Outgoing::get(path.to_owned())).await.unwrap_err();
            let said = format!("this host makes no such request with its own rights: GET {path}");
            assert!(error.to_string().contains(&said), "{error}");
        }
        assert_eq!(sent.load(Ordering::Relaxed), 0);
        let kind = Kind::home("apps", "v1", "Deployment");
        assert_eq!(cluster.resolve(&kind).await.unwrap(), None);
        assert_eq!(sent.load(Ordering::Relaxed), 1);
    }

    /// A list of all definitions is large; a single definition also names the conversion webhook.
    #[tokio::test]
    async fn definitions_are_read_one_by_one() {
        let (cluster, sent) = counted();
        let get = async |query: &str| {
            cluster.send(&Outgoing::get(format!("{DEFINITIONS}{query}"))).await.is_ok()
        };
        assert!(get("?fieldSelector=metadata.name%3Drules.example.com").await);
        assert_eq!(sent.load(Ordering::Relaxed), 1);
        for query in [
            "",
            "?limit=500",
            "?fieldSelector=metadata.name%3D",
            "?fieldSelector=metadata.name%3Da&fieldSelector=",
            "?fieldSelector=metadata.name%21%3Da",
            "?watch=true&fieldSelector=metadata.name%3Da",
        ] {
            assert!(!get(query).await, "{query}");
        }
        assert_eq!(sent.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn impersonated_requests_are_sent_and_unlisted_own_ones_refused() {
        let (cluster, sent) = counted();
        let acting = cluster.acting_as(&"shop/painter".parse().unwrap());
        let path = "/api/v1/namespaces/shop/secrets".to_owned();
        acting.send(&Outgoing::get(path.clone())).await.unwrap();
        assert_eq!(sent.load(Ordering::Relaxed), 1);
        let refused = cluster.send(&Outgoing::get(path)).await.unwrap_err();
        assert!(!refused.is_passing(), "it is not tried again: {refused}");
        assert_eq!(sent.load(Ordering::Relaxed), 1);
    }
}
