//! The labels and annotations that tell where an object comes from.

use mortise_sdk::object::Metadata;

/// The finalizer on objects of bound kinds, without the dash of the API group.
pub(crate) const FINALIZER: &str = "kubebind.io/syncer";
/// The label that tells who owns a shared object: [`PROVIDER`] or [`CONSUMER`].
pub(crate) const OWNER: &str = "kube-bind.io/owner";
/// The value of [`OWNER`] for objects of the provider.
pub(crate) const PROVIDER: &str = "provider";
/// The value of [`OWNER`] for objects of the consumer.
pub(crate) const CONSUMER: &str = "consumer";
/// The annotation of an object at the provider that names the consumer's namespace there.
pub(crate) const CLUSTER_NAMESPACE: &str = "kube-bind.io/cluster-namespace";
pub(crate) const CONSUMER_NAMESPACE: &str = "kube-bind.io/consumer-namespace";
pub(crate) const CONSUMER_UID: &str = "kube-bind.io/consumer-uid";
pub(crate) const PROVIDER_NAMESPACE: &str = "kube-bind.io/provider-namespace";
pub(crate) const PROVIDER_UID: &str = "kube-bind.io/provider-uid";

/// Returns the path of an annotation.
pub(crate) fn annotation(key: &str) -> String {
    path("metadata.annotations", key)
}

/// Returns the path of a key with any signs in a map.
pub(crate) fn path(map: &str, key: &str) -> String {
    format!("{map}[\"{}\"]", key.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Returns the annotations that lead from a copy at the provider to its source.
pub(crate) fn of_consumer(source: &Metadata) -> [(&'static str, String); 2] {
    [
        (CONSUMER_NAMESPACE, source.namespace.clone().unwrap_or_default()),
        (CONSUMER_UID, source.uid.clone().unwrap_or_default()),
    ]
}

/// Returns the annotations that lead from an object at the consumer to the one at the provider.
pub(crate) fn of_provider(source: &Metadata) -> [(&'static str, String); 2] {
    [
        (PROVIDER_NAMESPACE, source.namespace.clone().unwrap_or_default()),
        (PROVIDER_UID, source.uid.clone().unwrap_or_default()),
    ]
}

/// Returns the value of an annotation.
pub(crate) fn value<'a>(metadata: &'a Metadata, key: &str) -> Option<&'a str> {
    metadata.annotations.get(key).map(String::as_str)
}

/// Adds annotations to an object.
pub(crate) fn annotate<'a>(
    metadata: &mut Metadata,
    annotations: impl IntoIterator<Item = (&'a str, String)>,
) {
    metadata
        .annotations
        .extend(annotations.into_iter().map(|(key, value)| (key.to_owned(), value)));
}
