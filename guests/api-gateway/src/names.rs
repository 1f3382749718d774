//! The kinds and the names of the default Gateway, and of what belongs to it.

use api_gateway_module::{
    ISTIO_NAMESPACE, MODULE_NAMESPACE,
    gardener::{certificate, dns_entry},
};
use mortise_sdk::{
    Kind, ObjectRef, Selection,
    kubernetes::{ConfigMap, Secret},
    object::Metadata,
};

/// The Gateway as other objects name it.
pub(crate) const FULL_NAME: &str = "kyma-system/kyma-gateway";
pub(crate) const NAME: &str = "kyma-gateway";
pub(crate) const HEALTH: &str = "istio-healthz";
pub(crate) const CERTIFICATE: &str = "kyma-tls-cert";
pub(crate) const SECRET: &str = "kyma-gateway-certs";
/// The names of `ConfigMap`s of former versions of the original, which are deleted.
const FORMER: [&str; 2] = [
    "api-gateway-apirule-v1beta1-ui.operator.kyma-project.io",
    "api-gateway-apirule-v2alpha1-ui.operator.kyma-project.io",
];

pub(crate) fn gateway() -> Kind {
    Kind::new("networking.istio.io", "v1alpha3", "Gateway")
}

pub(crate) fn virtual_service() -> Kind {
    Kind::new("networking.istio.io", "v1beta1", "VirtualService")
}

/// Returns whether this is the `VirtualService` that answers checks of the Gateway's health.
pub(crate) fn is_health(of: &Metadata) -> bool {
    of.name == HEALTH && of.namespace.as_deref() == Some(ISTIO_NAMESPACE)
}

fn reference(kind: Kind, namespace: &str, name: &str) -> ObjectRef {
    ObjectRef::new(kind, Some(namespace), name)
}

pub(crate) fn dns() -> ObjectRef {
    reference(dns_entry(), MODULE_NAMESPACE, NAME)
}

pub(crate) fn certificate_of_gardener() -> ObjectRef {
    reference(certificate(), ISTIO_NAMESPACE, CERTIFICATE)
}

pub(crate) fn health() -> ObjectRef {
    reference(virtual_service(), ISTIO_NAMESPACE, HEALTH)
}

pub(crate) fn secret() -> ObjectRef {
    ObjectRef::of::<Secret>(Some(ISTIO_NAMESPACE), SECRET)
}

pub(crate) fn default_gateway() -> ObjectRef {
    reference(gateway(), MODULE_NAMESPACE, NAME)
}

pub(crate) fn former() -> impl Iterator<Item = ObjectRef> {
    FORMER.iter().map(|name| ObjectRef::of::<ConfigMap>(Some(MODULE_NAMESPACE), *name))
}

/// Returns the objects whose labels and spec are written.
pub(crate) fn replaced() -> [ObjectRef; 4] {
    [dns(), certificate_of_gardener(), health(), default_gateway()]
}

/// Returns the selection of an object, as it is declared.
pub(crate) fn selection(of: &ObjectRef) -> Selection {
    let selection = Selection::new(of.kind.clone()).name(&of.name);
    match &of.namespace {
        Some(namespace) => selection.namespace(namespace),
        None => selection,
    }
}
