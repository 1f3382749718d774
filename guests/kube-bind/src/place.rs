//! A consumer's place in a provider's cluster, and reads there.

use mortise_sdk::{
    ClusterName, Error, Host, Kind, Object, ObjectRef, Selection,
    kubernetes::{Namespace, Secret},
    object::OwnerReference,
};
use serde::de::DeserializeOwned;

use crate::{
    api::{Binding, Condition, ConsumerSecretRef, SecretRef, ServiceNamespace},
    kubeconfig, mark,
    valid::is_dns_label,
};

/// The name of the only `ClusterBinding` of a place.
pub(crate) const CLUSTER_BINDING: &str = "cluster";
/// The advice to people whose Secret is missing.
pub(crate) const HINT: &str = " Rerun kubectl bind for repair.";

/// A consumer's place in a provider's cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// The provider's cluster.
    pub(crate) cluster: ClusterName,
    /// The namespace in which the provider keeps the objects of this consumer.
    pub(crate) namespace: String,
    /// The address of the API server.
    pub(crate) server: String,
}

impl Place {
    /// Reads the place that a Secret of the home cluster leads to, or the condition that says what
    /// is wrong with the Secret.
    pub(crate) fn read(
        host: &Host,
        of: &SecretRef,
        hint: &str,
    ) -> Result<Result<Self, Box<Condition>>, Error> {
        let field = mark::path("data", &of.key);
        let secret: Option<Secret> = host.get(Some(&of.namespace), &of.name, &[&field])?;
        Ok(kubeconfig::place(of, secret.as_ref(), hint))
    }

    /// Reads the place of an object in a provider's cluster: `None` if the Secret leads there no
    /// longer. A kubeconfig that cannot be used leads nowhere.
    pub(crate) fn of_object(host: &Host, object: &ObjectRef) -> Result<Option<Self>, Error> {
        let Some(secret) = secret_of(&object.cluster) else { return Ok(None) };
        Ok(Self::read(host, &secret, "")?.ok())
    }

    /// Selects the objects of a kind in the namespace of this consumer.
    pub(crate) fn all<T: Object>(&self) -> Selection {
        Selection::of::<T>().namespace(&self.namespace).in_cluster(&self.cluster)
    }

    /// Refers to an object of the provider's cluster.
    pub(crate) fn object(&self, kind: Kind, namespace: Option<&str>, name: &str) -> ObjectRef {
        ObjectRef::new(kind, namespace, name).in_cluster(&self.cluster)
    }

    /// Reads an object in the namespace of this consumer.
    pub(crate) fn get<T: Object + DeserializeOwned>(
        &self,
        host: &Host,
        name: &str,
        fields: &[&str],
    ) -> Result<Option<T>, Error> {
        host.get_ref(&self.object(T::kind(), Some(&self.namespace), name), fields)
    }

    /// Reads what the provider has for a namespace of the consumer.
    pub(crate) fn service_namespace(
        &self,
        host: &Host,
        namespace: &str,
    ) -> Result<Option<ServiceNamespace>, Error> {
        self.get(host, namespace, &["status"])
    }

    /// Reads the consumer's namespace for one of the provider; `None` if there is none or several.
    pub(crate) fn mapped(&self, host: &Host, namespace: &str) -> Result<Option<String>, Error> {
        let of = self.all::<ServiceNamespace>().matching("status.namespace", namespace);
        let all: Vec<ServiceNamespace> = host.list(&of.fields(["status"]))?;
        let mut names = all.into_iter().map(|namespace| namespace.metadata.name);
        Ok(names.next().filter(|name| is_dns_label(name) && names.next().is_none()))
    }

    /// Reads the namespace of this consumer, as the owner of its cluster-scoped objects.
    pub(crate) fn owner(&self, host: &Host) -> Result<Option<OwnerReference>, Error> {
        let of = self.object(Namespace::kind(), None, &self.namespace);
        let namespace: Option<Namespace> = host.get_ref(&of, &["metadata.name"])?;
        Ok(namespace.map(|namespace| OwnerReference {
            controller: None,
            block_owner_deletion: None,
            ..OwnerReference::controller::<Namespace>(&namespace.metadata)
        }))
    }

    /// Returns whether two Secrets lead to one place.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (&self.namespace, &self.server) == (&other.namespace, &other.server)
    }

    /// Reads whether a Secret of another name, which a binding uses, leads to this place, too.
    pub(crate) fn is_shared_with(
        &self,
        host: &Host,
        other: &ConsumerSecretRef,
    ) -> Result<bool, Error> {
        if other.is(&self.secret()) {
            return Ok(false);
        }
        let bindings: Vec<Binding> = host.list(&Selection::of::<Binding>().fields(["spec"]))?;
        let mut used = bindings.into_iter().map(|binding| binding.spec.kubeconfig_secret_ref);
        let Some(of) = used.find(|of| other.is(of)) else { return Ok(false) };
        Ok(Self::read(host, &of, "")?.is_ok_and(|other| self.is_same(&other)))
    }

    /// Returns the Secret with the kubeconfig.
    pub(crate) fn secret(&self) -> SecretRef {
        secret_of(&self.cluster).unwrap_or_default()
    }
}

/// Returns the Secret that a cluster is named by.
pub(crate) fn secret_of(cluster: &str) -> Option<SecretRef> {
    let mut parts = cluster.splitn(3, '/').map(str::to_owned);
    Some(SecretRef { namespace: parts.next()?, name: parts.next()?, key: parts.next()? })
}
