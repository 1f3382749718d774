//! The sidecar as it should be, from the Istio that is installed, and what the injector makes.

use istio::{
    api::{ISTIO_NAMESPACE, Istio, IstioSpec, MODULE_NAMESPACE},
    cluster::Size,
    features::{self, Features},
    installed,
    kubernetes::{ContainerResources, Node, Pod},
    last_applied::LastApplied,
    predicate::{self, Amount, Expected, SidecarResources},
    version::Version,
};
use mortise_sdk::{Error, Host, Selection, kubernetes::ConfigMap};
use serde_json::{Value, json};

use crate::{
    config::Config,
    record::{Cause, DEFAULT_STATUS_PORT, prometheus},
};

/// The names of Istio's `ConfigMap`s: the settings of the mesh, and those of the injector.
pub(crate) const MESH: &str = "istio";
pub(crate) const INJECTOR: &str = "istio-sidecar-injector";
pub(crate) const MESH_FIELD: &str = "data.mesh";
pub(crate) const INJECTOR_FIELD: &str = "data.values";
pub(crate) const FEATURES_FIELD: &str = "data.features";
pub(crate) const NODE_FIELDS: [&str; 2] = ["status.capacity.cpu", "status.capacity.memory"];
pub(crate) const OWN_PODS: &str = "kyma-project.io/module=istio";
pub(crate) const OWN_POD_FIELDS: [&str; 3] = [
    "metadata.labels[\"kyma-project.io/module\"]",
    "spec.containers[].name",
    "spec.containers[].image",
];

/// The sidecar as it should be.
#[derive(Debug, Clone, PartialEq)]
pub struct Mesh {
    /// The sidecar, by the original's rules.
    pub expected: Expected,
    /// The values of the settings that sidecars depend on.
    pub settings: Vec<(Cause, Value)>,
}

/// The reason why sidecars cannot be judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unknown {
    /// Istio is not installed as the resource asks for: the processor waits for a change.
    NotYet(String),
    /// An object cannot be read.
    Failed(String),
    /// A read failed.
    Read(Error),
}

impl From<Error> for Unknown {
    fn from(error: Error) -> Self {
        Self::Read(error)
    }
}

impl Mesh {
    /// Reads what decides on sidecars.
    ///
    /// # Errors
    ///
    /// Fails unless Istio is installed and its injector makes the sidecars that the resource asks
    /// for.
    pub fn read(istio: &Istio, config: &Config, host: &Host) -> Result<Self, Unknown> {
        let last = LastApplied::read(istio).map_err(Unknown::NotYet)?.unwrap_or_default();
        let version = Version::parse(&last.tag).map_err(Unknown::NotYet)?;
        let pods = Selection::of::<Pod>().namespace(ISTIO_NAMESPACE).labels(OWN_PODS);
        let pods: Vec<Pod> = host.list(&pods.fields(OWN_POD_FIELDS))?;
        installed::check_version(&pods, &version).map_err(Unknown::NotYet)?;
        let nodes: Vec<Node> = host.list(&Selection::of::<Node>().fields(NODE_FIELDS))?;
        let size = Size::of(&nodes).map_err(|error| Unknown::NotYet(error.to_string()))?;
        let map =
            |namespace, name, field: &str| host.get::<ConfigMap>(Some(namespace), name, &[field]);
        let features = map(MODULE_NAMESPACE, features::NAME, FEATURES_FIELD)?;
        let features = Features::read(features.as_ref()).map_err(Unknown::Failed)?;
        let mesh = map(ISTIO_NAMESPACE, MESH, MESH_FIELD)?;
        let mesh = mesh.as_ref().and_then(|mesh| mesh.data.get("mesh"));
        let injector = map(ISTIO_NAMESPACE, INJECTOR, INJECTOR_FIELD)?;
        let values = injector.as_ref().and_then(|injector| injector.data.get("values"));
        let values = values.and_then(|text| serde_json::from_str::<Value>(text).ok());
        let image = config
            .image(injected(values.as_ref()), istiod(&pods), &version)
            .map_err(Unknown::NotYet)?;
        let mesh = mesh.map(String::as_str);
        let input = predicate::Input { istio, size, features, image: &image, mesh };
        let expected = Expected::of(&input).map_err(Unknown::Failed)?;
        let mesh = mesh.and_then(|text| serde_saphyr::from_str::<Value>(text).ok());
        is_in_force(mesh.as_ref(), &istio.spec).map_err(Unknown::NotYet)?;
        injects(values.as_ref(), &expected, features).map_err(Unknown::NotYet)?;
        let settings = settings(&expected, istio, features, status_port(mesh.as_ref()));
        Ok(Self { expected, settings })
    }
}

/// Returns the image that the injector's values name. A name without a registry is completed by the
/// injector, so it tells nothing.
fn injected(values: Option<&Value>) -> Option<&str> {
    let image = values?.pointer("/global/proxy/image").and_then(Value::as_str);
    image.filter(|image| image.contains('/'))
}

/// Returns the image of istiod.
fn istiod(pods: &[Pod]) -> Option<&str> {
    let mut containers = pods.iter().flat_map(|pod| &pod.spec.containers);
    let istiod = containers.find(|container| container.name == "discovery")?;
    Some(&istiod.image)
}

fn settings(
    expected: &Expected,
    istio: &Istio,
    features: Features,
    port: i64,
) -> Vec<(Cause, Value)> {
    let SidecarResources { limits, requests } = expected.resources;
    let config = &istio.spec.config;
    let amount = |amount: Amount| json!({"cpu": amount.cpu.to_string(), "memory": amount.memory.to_string()});
    vec![
        (
            Cause::Sidecar,
            json!({"image": expected.image, "limits": amount(limits), "requests": amount(requests)}),
        ),
        (Cause::PrometheusMerge, prometheus(config, port)),
        (Cause::Cni, json!({"enabled": !features.disable_cni})),
        (Cause::DnsProxying, config.enable_dns_proxying.into()),
        (Cause::StatsMatcher, config.sorted_regexps().into()),
    ]
}

fn status_port(mesh: Option<&Value>) -> i64 {
    let port = mesh.and_then(|mesh| mesh.pointer("/defaultConfig/statusPort"));
    port.and_then(Value::as_i64).unwrap_or(DEFAULT_STATUS_PORT)
}

/// Checks that the settings of the mesh are those of the resource. Where there are none, or none
/// that can be read, nothing is known against it.
fn is_in_force(mesh: Option<&Value>, spec: &IstioSpec) -> Result<(), String> {
    let Some(mesh) = mesh.filter(|mesh| mesh.is_object()) else { return Ok(()) };
    let merge = mesh.pointer("/enablePrometheusMerge").and_then(Value::as_bool);
    let wanted = spec.config.telemetry.metrics.prometheus_merge;
    if merge.is_some_and(|merge| merge != wanted) {
        return Err("the mesh has another mode of metrics".to_owned());
    }
    let Some(proxy) = mesh.get("defaultConfig") else { return Ok(()) };
    let dns = proxy.pointer("/proxyMetadata/ISTIO_META_DNS_CAPTURE").and_then(Value::as_str);
    let wanted = spec.config.enable_dns_proxying.map(|enabled| enabled.to_string());
    if dns != wanted.as_deref() {
        return Err("the mesh has another mode of DNS proxying".to_owned());
    }
    let regexps = proxy.pointer("/proxyStatsMatcher/inclusionRegexps").and_then(Value::as_array);
    let mut regexps: Vec<&str> = regexps.into_iter().flatten().filter_map(Value::as_str).collect();
    regexps.sort_unstable();
    if regexps != spec.config.sorted_regexps() {
        return Err("the mesh has other additional metrics".to_owned());
    }
    Ok(())
}

/// Checks that the injector makes sidecars with the image and resources that are expected, and for
/// the wanted way of redirecting traffic, as far as its values tell.
fn injects(values: Option<&Value>, expected: &Expected, features: Features) -> Result<(), String> {
    let cni = values.and_then(|values| values.pointer("/pilot/cni/enabled"));
    if cni == Some(&features.disable_cni.into()) {
        return Err("the injector makes sidecars for the other mode of CNI".to_owned());
    }
    if injected(values).is_some_and(|image| image != expected.image) {
        return Err(format!(
            "the injector makes sidecars of another image than {}",
            expected.image
        ));
    }
    let resources = values.and_then(|values| values.pointer("/global/proxy/resources"));
    let Some(resources) = resources else { return Ok(()) };
    let Ok(resources) = serde_json::from_value::<ContainerResources>(resources.clone()) else {
        return Ok(());
    };
    if expected.resources.differs_from(&resources) {
        return Err("the injector makes sidecars with other resources".to_owned());
    }
    Ok(())
}
