//! The steps up to the first fault, and the objects that they need.

use std::collections::BTreeMap;

use api_gateway_module::{domain, object};
use mortise_sdk::{
    Error, Host, Kind, Manifest, ObjectRef, Selection, kubernetes::Secret, object::Metadata,
};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    api::ExternalGateway,
    authority, gardener,
    names::Names,
    object::{
        authorities, envoy_filter, forwarding, gateway as gateway_object, gateway_kind, validation,
    },
    owned, region,
    status::{Conditions, Fault, Of, reason},
};

/// The longest common name of a certificate.
const MAX_COMMON_NAME_BYTES: usize = 64;
/// The longest value of a label.
const MAX_LABEL_BYTES: usize = 63;
/// The attempt with each object, as messages name it.
pub(crate) const FORWARDING: &str = "failed to reconcile XFCC sanitization filter";
pub(crate) const VALIDATION: &str = "failed to reconcile certificate validation filter";
pub(crate) const GATEWAY: &str = "failed to reconcile Gateway";
pub(crate) const AUTHORITIES: &str = "failed to reconcile CA Secret";

/// The objects that an ExternalGateway needs, up to the first fault.
#[derive(Default)]
pub(crate) struct Steps {
    pub(crate) apply: Vec<Manifest>,
    pub(crate) conditions: Conditions,
    /// Gardener is not ready yet.
    pub(crate) is_pending: bool,
    /// The filters are not there yet, and so the `Gateway` is not among the objects.
    pub(crate) waits_for_filters: bool,
    pub(crate) fault: Option<Fault>,
}

/// Returns the objects that an ExternalGateway needs.
pub(crate) fn steps(gateway: &ExternalGateway, host: &Host) -> Result<Steps, Error> {
    let mut steps = Steps::default();
    match steps.all(gateway, host) {
        Ok(()) => Ok(steps),
        Err(Stop::Fault(fault)) => {
            steps.fault = Some(fault);
            Ok(steps)
        }
        Err(Stop::Read(error @ Error::Unavailable { .. })) => Err(error),
        Err(Stop::Read(error)) => {
            steps.fault = Some(Fault::new(reason::FAILED, error.to_string()));
            Ok(steps)
        }
    }
}

enum Stop {
    Fault(Fault),
    Read(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Read(error)
    }
}

impl Steps {
    fn all(&mut self, gateway: &ExternalGateway, host: &Host) -> Result<(), Stop> {
        check_name(gateway)?;
        check_domain(gateway, host)?;
        let domain = internal_domain(gateway, host)?;
        let names = Names::of(gateway);
        self.gardener(gateway, (&names, &domain), host)?;
        self.authorities(gateway, &names, host)?;
        self.traffic(gateway, (&names, &domain), host)
    }

    fn gardener(
        &mut self,
        gateway: &ExternalGateway,
        of: (&Names, &str),
        host: &Host,
    ) -> Result<(), Stop> {
        if !gardener::is_available(host)? {
            gardener::skip(&mut self.conditions);
            return Ok(());
        }
        let made = gardener::make(gateway, of, &mut self.conditions, host)?;
        self.apply.extend(made.apply);
        self.is_pending = made.is_pending;
        let messages: Vec<String> = made.faults.into_iter().map(|fault| fault.message).collect();
        if messages.is_empty() {
            return Ok(());
        }
        Err(Stop::Fault(Fault::new(reason::FAILED, messages.join("\n"))))
    }

    /// Copies the bundle of authorities into the Secret from which Istio reads it.
    fn authorities(
        &mut self,
        gateway: &ExternalGateway,
        names: &Names,
        host: &Host,
    ) -> Result<(), Stop> {
        let bundle = authority::read(gateway, host)?;
        let bundle = self.configured(AUTHORITIES, bundle)?;
        let secret = authorities(gateway, names, &bundle);
        let existing: Option<Secret> =
            host.get_ref(&object::reference(&secret), &authority::FIELDS)?;
        let metadata = existing.as_ref().map(|secret| &secret.metadata);
        self.configured(AUTHORITIES, owned::check(metadata, gateway, host)?)?;
        let mut manifest = Manifest::json(&secret);
        let data: BTreeMap<String, String> = existing.map(|secret| secret.data).unwrap_or_default();
        let foreign = data.keys().filter(|key| *key != authority::KEY);
        manifest.absent.extend(foreign.take(100).map(|key| format!("data[\"{key}\"]")));
        self.apply.push(manifest);
        Ok(())
    }

    /// Adds the filters and, once they are there, the `Gateway`: else requests would get through
    /// unfiltered.
    fn traffic(
        &mut self,
        gateway: &ExternalGateway,
        (names, domain): (&Names, &str),
        host: &Host,
    ) -> Result<(), Stop> {
        let subjects = region::subjects(gateway, host)?;
        let subjects = self.configured("failed to resolve certificate subjects", subjects)?;
        let forwarding = forwarding(gateway, names);
        let validation = validation(gateway, names, &subjects);
        let mut are_there = self.add(FORWARDING, &forwarding, gateway, host)?;
        are_there &= self.add(VALIDATION, &validation, gateway, host)?;
        if !are_there {
            self.waits_for_filters = true;
            return Ok(());
        }
        self.add(GATEWAY, &gateway_object(gateway, names, domain), gateway, host)?;
        let message = "Istio Gateway and EnvoyFilters configured successfully";
        self.conditions.set(Of::Gateway, true, reason::READY, message);
        Ok(())
    }

    /// Adds an object; returns whether it is there already with this spec.
    fn add(
        &mut self,
        attempt: &str,
        desired: &Value,
        gateway: &ExternalGateway,
        host: &Host,
    ) -> Result<bool, Stop> {
        let existing = match object::Existing::read(host, &object::reference(desired)) {
            Err(error @ Error::Unavailable { .. }) => return Err(error.into()),
            Err(error) => Err(Fault::new(reason::FAILED, error.to_string())),
            Ok(existing) => Ok(existing),
        };
        let existing = self.configured(attempt, existing)?;
        let metadata = existing.as_ref().map(|existing| &existing.metadata);
        self.configured(attempt, owned::check(metadata, gateway, host)?)?;
        self.apply.push(object::replacing(desired, existing.as_ref()));
        let spec = desired.get("spec").unwrap_or(&Value::Null);
        Ok(existing.is_some_and(|existing| existing.holds(spec)))
    }

    /// Notes a fault for the condition `GatewayConfigured`.
    fn configured<T>(&mut self, attempt: &str, result: Result<T, Fault>) -> Result<T, Stop> {
        result.map_err(|fault| {
            self.conditions.fail(Of::Gateway, &fault);
            Stop::Fault(fault.while_doing(attempt))
        })
    }
}

fn check_name(gateway: &ExternalGateway) -> Result<(), Stop> {
    if gateway.metadata.name.len() <= MAX_LABEL_BYTES {
        return Ok(());
    }
    let message = format!(
        "the name is longer than {MAX_LABEL_BYTES} characters, which is the most that a label holds"
    );
    Err(Stop::Fault(Fault::new(reason::FAILED, message)))
}

/// Fails if another ExternalGateway has the same external domain.
fn check_domain(gateway: &ExternalGateway, host: &Host) -> Result<(), Stop> {
    #[derive(Deserialize)]
    struct Named {
        metadata: Metadata,
    }
    let domain = &gateway.spec.external_domain;
    if domain.is_empty() {
        return Ok(());
    }
    let same = Selection::of::<ExternalGateway>()
        .matching("spec.externalDomain", domain)
        .fields(["spec.externalDomain"]);
    let own = (gateway.metadata.namespace.as_deref(), gateway.metadata.name.as_str());
    let is_other =
        |of: &Named| (of.metadata.namespace.as_deref(), of.metadata.name.as_str()) != own;
    let Some(other) = host.list::<Named>(&same)?.into_iter().find(is_other) else { return Ok(()) };
    let namespace = other.metadata.namespace.unwrap_or_default();
    let message = format!(
        "externalDomain {domain:?} is also used by ExternalGateway {namespace}/{}",
        other.metadata.name
    );
    Err(Stop::Fault(Fault::new(reason::DOMAIN_CONFLICT, message)))
}

/// Returns the domain within that of the cluster.
fn internal_domain(gateway: &ExternalGateway, host: &Host) -> Result<String, Stop> {
    const ATTEMPT: &str = "failed to build internal domain";
    let of_cluster = match domain::of_gardener(host)? {
        None => domain::LOCAL.to_owned(),
        Some(Some(domain)) => domain,
        Some(None) => {
            let message =
                "failed to get Gardener cluster domain: domain not found in shoot-info ConfigMap";
            return Err(Stop::Fault(Fault::new(reason::FAILED, message).while_doing(ATTEMPT)));
        }
    };
    let domain = format!("{}.{of_cluster}", gateway.spec.internal_domain.kyma_subdomain);
    if domain.len() <= MAX_COMMON_NAME_BYTES {
        return Ok(domain);
    }
    let (length, excess) = (domain.len(), domain.len() - MAX_COMMON_NAME_BYTES);
    let message = format!(
        "internal domain {domain:?} is {length} chars; X.509 CommonName limit is {MAX_COMMON_NAME_BYTES}. \
         Shorten spec.internalDomain.kymaSubdomain by {excess} chars."
    );
    Err(Stop::Fault(Fault::new(reason::DOMAIN_TOO_LONG, message).while_doing(ATTEMPT)))
}

/// Returns the references to the objects of an ExternalGateway: the `Gateway` first, then those
/// that are always made, then those of Gardener with the Secret that it makes.
pub(crate) fn references(gateway: &ExternalGateway) -> (ObjectRef, Vec<ObjectRef>, Vec<ObjectRef>) {
    use api_gateway_module::{
        ISTIO_NAMESPACE,
        gardener::{certificate, dns_entry},
    };
    let names = Names::of(gateway);
    let of = |kind: Kind, name: String| ObjectRef::new(kind, Some(ISTIO_NAMESPACE), name);
    let secret = || Kind::new("", "v1", "Secret");
    (
        ObjectRef::new(gateway_kind(), Some(gateway.namespace()), names.gateway),
        vec![
            of(envoy_filter(), names.forwarding),
            of(envoy_filter(), names.validation),
            of(secret(), names.authorities),
        ],
        vec![
            of(dns_entry(), names.dns),
            of(certificate(), names.certificate),
            of(secret(), names.tls),
        ],
    )
}
