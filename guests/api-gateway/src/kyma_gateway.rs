//! The default Gateway of the cluster, and what belongs to it.

use api_gateway_module::{
    ISTIO_NAMESPACE, MODULE_NAMESPACE, domain, gardener,
    ingress::{self, Families},
    object,
};
use mortise_sdk::{Error, Level, Manifest};
use serde_json::{Value, json};

use crate::{
    blocker, local_certificate, names,
    status::{Reason, Report},
    work::{Stop, Work, managed, unreadable},
};

/// The finalizer that holds an APIGateway until its Gateway is deleted.
pub(crate) const FINALIZER: &str = "gateways.operator.kyma-project.io/kyma-gateway";
const FAILED: &str = "Error during Kyma Gateway reconciliation";

/// Applies the default Gateway where it is wanted, and deletes it where it is not.
pub(crate) fn reconcile(work: &mut Work<'_>) -> Result<(), Stop> {
    let is_enabled = work.gateway.spec.enable_kyma_gateway == Some(true) && !work.is_deleted();
    if is_enabled && !work.has(FINALIZER) {
        work.finalizers.push(FINALIZER);
    }
    if !work.has(FINALIZER) {
        return Ok(());
    }
    if is_enabled {
        return apply(work);
    }
    blocker::of_kyma_gateway(work.host)?;
    delete(work).map_err(unreadable(Reason::KymaGatewayReconcileFailed, FAILED, work.host))?;
    work.finalizers.retain(|finalizer| *finalizer != FINALIZER);
    Ok(())
}

/// Returns the domain, and whether Gardener makes its record and its certificate.
fn surroundings(work: &Work<'_>) -> Result<(String, bool), Error> {
    let domain = domain::of_cluster(work.host)?;
    let kinds = || [names::dns(), names::certificate_of_gardener()].map(|of| names::selection(&of));
    let is_gardener = domain != domain::LOCAL && gardener::is_available(work.host, kinds())?;
    Ok((domain, is_gardener))
}

fn apply(work: &mut Work<'_>) -> Result<(), Stop> {
    let failed = unreadable(Reason::KymaGatewayReconcileFailed, FAILED, work.host);
    let (domain, is_gardener) = surroundings(work).map_err(&failed)?;
    if is_gardener {
        let ingress = ingress::read(work.host).map_err(&failed)?;
        let ingress = ingress.map_err(|missing| fault(work, &missing.to_string()))?;
        let host = format!("*.{domain}");
        replace(work, entry(work, &host, &ingress)).map_err(&failed)?;
        replace(work, certificate_object(work, &host)).map_err(&failed)?;
    } else {
        let data = local_certificate::data(names::SECRET, &domain, work.host).map_err(&failed)?;
        let data = data.map_err(|cause| fault(work, &cause))?;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": metadata(work, ISTIO_NAMESPACE, names::SECRET),
            "type": "Opaque", "data": data,
        });
        work.apply(Manifest::json(&managed(secret)));
    }
    replace(work, health_object(work, &domain)).map_err(&failed)?;
    for of in names::former() {
        work.delete_any(of).map_err(&failed)?;
    }
    replace(work, gateway_object(work, &domain)).map_err(&failed)
}

fn delete(work: &mut Work<'_>) -> Result<(), Error> {
    let (_, is_gardener) = surroundings(work)?;
    let of_certificate = if is_gardener {
        vec![names::dns(), names::certificate_of_gardener()]
    } else {
        vec![names::secret()]
    };
    for of in of_certificate.into_iter().chain([names::health(), names::default_gateway()]) {
        work.delete(of)?;
    }
    names::former().try_for_each(|of| work.delete_any(of))
}

/// Returns the report of a write that failed.
pub(crate) fn failed_write() -> Report {
    Report::error(Reason::KymaGatewayReconcileFailed, FAILED)
}

fn fault(work: &Work<'_>, cause: &str) -> Stop {
    work.host.log(Level::Warn, FAILED, &[("error", cause)]);
    Stop::Report(failed_write())
}

fn replace(work: &mut Work<'_>, object: Value) -> Result<(), Error> {
    let existing = object::Existing::read(work.host, &object::reference(&object))?;
    work.apply(object::replacing(&managed(object), existing.as_ref()));
    Ok(())
}

/// Returns the labels of the objects, without the module's.
fn labels(work: &Work<'_>) -> Value {
    json!({
        "app.kubernetes.io/name": "api-gateway-operator",
        "app.kubernetes.io/instance": "api-gateway-operator-default",
        "app.kubernetes.io/version": work.config.module_version,
        "app.kubernetes.io/component": "operator",
        "app.kubernetes.io/part-of": "api-gateway",
        "kyma-project.io/module": "api-gateway",
    })
}

fn metadata(work: &Work<'_>, namespace: &str, name: &str) -> Value {
    json!({"name": name, "namespace": namespace, "labels": labels(work)})
}

fn with_labels(work: &Work<'_>, mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("labels".to_owned(), labels(work));
    }
    object
}

fn entry(work: &Work<'_>, host: &str, ingress: &ingress::Ingress) -> Value {
    let entry = gardener::dns_entry_object((MODULE_NAMESPACE, names::NAME), host, &ingress.targets);
    let mut entry = with_labels(work, entry);
    let stack = match ingress.families {
        Families::V4 => return entry,
        Families::V6 => "ipv6",
        Families::Both => "dual-stack",
    };
    let annotations = entry.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    if let Some(annotations) = annotations {
        annotations.insert("dns.gardener.cloud/ip-stack".to_owned(), stack.into());
    }
    entry
}

fn certificate_object(work: &Work<'_>, host: &str) -> Value {
    let place = (ISTIO_NAMESPACE, names::CERTIFICATE);
    with_labels(work, gardener::certificate_object(place, host, (names::SECRET, &labels(work))))
}

fn health_object(work: &Work<'_>, domain: &str) -> Value {
    let service = "istio-ingressgateway.istio-system.svc.cluster.local";
    json!({
        "apiVersion": names::virtual_service().api_version(),
        "kind": names::virtual_service().kind,
        "metadata": metadata(work, ISTIO_NAMESPACE, names::HEALTH),
        "spec": {
            "hosts": [format!("healthz.{domain}")],
            "gateways": [names::FULL_NAME],
            "http": [{
                "match": [{"uri": {"exact": "/healthz/ready"}}],
                "route": [{"destination": {"host": service, "port": {"number": 15021}}}],
            }],
        },
    })
}

fn gateway_object(work: &Work<'_>, domain: &str) -> Value {
    let hosts = [format!("*.{domain}")];
    json!({
        "apiVersion": names::gateway().api_version(),
        "kind": names::gateway().kind,
        "metadata": metadata(work, MODULE_NAMESPACE, names::NAME),
        "spec": {
            "selector": {"app": "istio-ingressgateway", "istio": "ingressgateway"},
            "servers": [
                {
                    "port": {"number": 443, "name": "https", "protocol": "HTTPS"},
                    "hosts": hosts,
                    "tls": {"mode": "SIMPLE", "credentialName": names::SECRET},
                },
                {
                    "port": {"number": 80, "name": "http", "protocol": "HTTP"},
                    "hosts": hosts,
                    "tls": {"httpsRedirect": true},
                },
            ],
        },
    })
}

#[cfg(test)]
mod tests {
    use api_gateway_module::api::ApiGateway;
    use mortise_sdk::{Outcome, testing::Stub};

    use super::*;
    use crate::Config;

    #[test]
    fn a_record_tells_its_ip_stack_unless_it_is_ipv4() {
        let (gateway, config) = (ApiGateway::default(), Config::default());
        let work = Work {
            gateway: &gateway,
            config: &config,
            host: &Stub::new().host(),
            outcome: Outcome::new(),
            finalizers: Vec::new(),
        };
        let stack = |families| {
            let ingress = ingress::Ingress { targets: vec!["1.2.3.4".to_owned()], families };
            let annotations = entry(&work, "*.a", &ingress)["metadata"]["annotations"].clone();
            assert_eq!(annotations["dns.gardener.cloud/class"], "garden");
            annotations.get("dns.gardener.cloud/ip-stack").cloned()
        };
        assert_eq!(stack(Families::V4), None);
        assert_eq!(stack(Families::V6), Some(json!("ipv6")));
        assert_eq!(stack(Families::Both), Some(json!("dual-stack")));
    }
}
