//! The Pods whose sidecars must be replaced.

mod resources;

pub use resources::{Amount, SidecarResources};

use serde_json::Value;

use crate::{
    api::{Istio, MODULE_NAMESPACE},
    cluster::Size,
    features::Features,
    kubernetes::Pod,
    last_applied::LastApplied,
    yaml,
};

/// The name of the sidecar's container.
pub const SIDECAR: &str = "istio-proxy";
/// The label of objects of Kyma's modules.
pub const MODULE_LABEL: &str = "kyma-project.io/module";

const INJECTED: &str = "sidecar.istio.io/status";
const OWN_IMAGE: &str = "sidecar.istio.io/proxyImage";
const METRICS_PATH: &str = "/stats/prometheus";
const DEFAULT_STATUS_PORT: i64 = 15020;

/// The group of Pods that is restarted first or second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Pods of Kyma's modules.
    Kyma,
    /// All other Pods.
    Customer,
}

/// The sidecar as it should be, and the settings that changed since the last time.
#[derive(Debug, Clone, PartialEq)]
pub struct Expected {
    /// The reference of the image.
    pub image: String,
    pub resources: SidecarResources,
    prometheus_merge: bool,
    status_port: String,
    /// The init container of Pods that were started for the other way of redirecting traffic.
    other_init_container: &'static str,
    dns_proxying_changed: bool,
    regexps_changed: bool,
}

/// The settings of a mesh that sidecars depend on.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// The Istio resource.
    pub istio: &'a Istio,
    /// The size of the cluster.
    pub size: Size,
    /// The features that are on.
    pub features: Features,
    /// The reference of the proxy's image.
    pub image: &'a str,
    /// The value `mesh` of `ConfigMap` `istio-system/istio`.
    pub mesh: Option<&'a str>,
}

// === impl Expected ===

impl Expected {
    /// Returns the sidecar as it should be.
    ///
    /// # Errors
    ///
    /// Fails if the last applied configuration cannot be read, or if an amount of the resource is
    /// no quantity.
    pub fn of(input: &Input) -> Result<Self, String> {
        let spec = &input.istio.spec;
        let last = LastApplied::read(input.istio)?.unwrap_or_default().spec;
        Ok(Self {
            image: input.image.to_owned(),
            resources: SidecarResources::of(spec, input.size)?,
            prometheus_merge: spec.config.telemetry.metrics.prometheus_merge,
            status_port: status_port(input.mesh).to_string(),
            other_init_container: if input.features.disable_cni {
                "istio-validation"
            } else {
                "istio-init"
            },
            dns_proxying_changed: last.config.enable_dns_proxying
                != spec.config.enable_dns_proxying,
            regexps_changed: last.config.sorted_regexps() != spec.config.sorted_regexps(),
        })
    }

    /// Returns whether the Pod is restarted in a phase.
    pub fn selects(&self, pod: &Pod, phase: Phase) -> bool {
        is_candidate(pod) && Phase::of(pod) == phase && self.triggers(pod)
    }

    fn triggers(&self, pod: &Pod) -> bool {
        self.image_or_resources_differ(pod)
            || self.prometheus_merge_differs(pod)
            || self.compatibility_differs()
            || self.dns_proxying_changed()
            || self.regexps_changed()
            || self.cni_differs(pod)
    }

    /// Returns whether the sidecar has another image, or other resources than the Pod asks for or
    /// all Pods get.
    pub fn image_or_resources_differ(&self, pod: &Pod) -> bool {
        if pod.metadata.annotations.contains_key(OWN_IMAGE) {
            return false;
        }
        let sidecars = || pod.all_containers().filter(|container| container.name == SIDECAR);
        if sidecars().any(|sidecar| sidecar.image != self.image) {
            return true;
        }
        let Ok(expected) = self.resources.with_annotations(pod) else { return false };
        sidecars().any(|sidecar| expected.differs_from(&sidecar.resources))
    }

    /// Returns whether the annotations for Prometheus are not those of the wanted mode.
    pub fn prometheus_merge_differs(&self, pod: &Pod) -> bool {
        let path = pod.annotation("prometheus.io/path") == METRICS_PATH;
        let port = pod.annotation("prometheus.io/port") == self.status_port;
        if self.prometheus_merge { !path || !port } else { path || port }
    }

    /// Returns whether the compatibility mode changes anything for sidecars. In this version of
    /// Istio it does not.
    pub fn compatibility_differs(&self) -> bool {
        false
    }

    /// Returns whether the DNS proxying was switched.
    pub fn dns_proxying_changed(&self) -> bool {
        self.dns_proxying_changed
    }

    /// Returns whether the regular expressions for metrics changed.
    pub fn regexps_changed(&self) -> bool {
        self.regexps_changed
    }

    /// Returns whether the Pod was started for the other way of redirecting traffic.
    pub fn cni_differs(&self, pod: &Pod) -> bool {
        let mut containers = pod.spec.init_containers.iter();
        containers.any(|container| container.name == self.other_init_container)
    }
}

// === impl Phase ===

impl Phase {
    /// Returns the phase in which a Pod would be restarted.
    pub fn of(pod: &Pod) -> Self {
        let module = pod.metadata.labels.get(MODULE_LABEL);
        if pod.namespace() == MODULE_NAMESPACE || module.is_some_and(|module| !module.is_empty()) {
            Self::Kyma
        } else {
            Self::Customer
        }
    }
}

/// Returns whether a Pod has a sidecar and runs without any trouble.
pub fn is_candidate(pod: &Pod) -> bool {
    pod.status.phase == "Running"
        && !pod.metadata.is_deleted()
        && pod.status.conditions.iter().all(|condition| condition.status == "True")
        && pod.metadata.annotations.contains_key(INJECTED)
}

/// Returns whether a Pod is restarted once Istio is uninstalled: it still has a sidecar, and is no
/// gateway.
pub fn is_left_behind(pod: &Pod) -> bool {
    let gateway = pod.metadata.labels.get("istio").map(String::as_str);
    let is_gateway = matches!(gateway, Some("ingressgateway" | "egressgateway"));
    !is_gateway && pod.all_containers().any(|container| container.name == SIDECAR)
}

/// Returns the port on which proxies offer their metrics.
fn status_port(mesh: Option<&str>) -> i64 {
    let mesh = mesh.and_then(|text| yaml::parse(text).ok());
    let port = mesh.as_ref().and_then(|mesh| mesh.pointer("/defaultConfig/statusPort"));
    port.and_then(Value::as_i64).unwrap_or(DEFAULT_STATUS_PORT)
}

#[cfg(test)]
mod tests;
