//! The types of the Istio resource. The CRD is made from these types.
//!
//! The order of the fields is the order in the annotation of the last applied configuration, where
//! Go's rules hold: an empty list is left out, and a field that the original always writes is
//! written.

mod affinity;
#[cfg(not(target_family = "wasm"))]
mod crd;
mod schema;
mod status;

pub use affinity::Affinity;
#[cfg(not(target_family = "wasm"))]
pub use crd::definition;
pub use status::{IstioStatus, State};

use std::collections::BTreeMap;

use mortise_sdk::{Object, object::Metadata};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The namespace in which the Istio resource is.
pub const MODULE_NAMESPACE: &str = "kyma-system";
/// The namespace in which Istio is installed.
pub const ISTIO_NAMESPACE: &str = "istio-system";
/// The finalizer that holds an Istio resource until Istio is uninstalled.
pub const FINALIZER: &str = "istios.operator.kyma-project.io/istio-installation";

/// Describes the Istio of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Istio {
    /// Standard object's metadata.
    #[schemars(skip)]
    pub metadata: Metadata,
    /// The desired Istio.
    #[serde(deserialize_with = "null_is_default")]
    pub spec: IstioSpec,
    /// The state of the installation.
    pub status: Option<IstioStatus>,
}

impl Object for Istio {
    const GROUP: &'static str = "operator.kyma-project.io";
    const VERSION: &'static str = "v1alpha2";
    const KIND: &'static str = "Istio";
}

/// The desired Istio.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct IstioSpec {
    /// The settings of the whole mesh.
    #[serde(deserialize_with = "null_is_default")]
    pub config: Config,
    /// The settings of single components.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub components: Option<Components>,
    /// Experimental features.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experimental: Option<Experimental>,
    /// Behaves like the previous minor version of Istio.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_false")]
    pub compatibility_mode: bool,
    /// Installs the module's network policies.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_false")]
    pub network_policies_enabled: bool,
}

/// The settings of the whole mesh.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Config {
    /// The number of trusted proxies in front of the ingress gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::trusted_proxies)]
    pub num_trusted_proxies: Option<i64>,
    /// The handling of the header `X-Forwarded-Client-Cert` in gateway proxies.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::forward_client_cert_details)]
    pub forward_client_cert_details: Option<String>,
    /// External authorization providers.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub authorizers: Vec<Option<Authorizer>>,
    /// The external traffic policy of the ingress gateway's Service.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::traffic_policy)]
    pub gateway_external_traffic_policy: Option<String>,
    /// The settings of telemetry.
    #[serde(deserialize_with = "null_is_default")]
    pub telemetry: Telemetry,
    /// The trust domain of the mesh.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::trust_domain)]
    pub trust_domain: Option<String>,
    /// Makes sidecars answer DNS queries; without a value Istio's default holds.
    #[serde(rename = "enableDNSProxying", skip_serializing_if = "Option::is_none")]
    pub enable_dns_proxying: Option<bool>,
    /// The additional metrics of proxies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_stats_matcher: Option<ProxyStatsMatcher>,
}

/// An external authorization provider, which is asked over HTTP.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["name", "port"]))]
pub struct Authorizer {
    /// The name of the provider, unique within the resource.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// The service to ask, as `[namespace/]host`.
    #[serde(deserialize_with = "null_is_default")]
    pub service: String,
    /// The port of the service.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(transform = schema::int32)]
    pub port: i64,
    /// The headers that pass between the parties.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<Headers>,
    /// The prefix of the path of requests to the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_prefix: Option<String>,
    /// The time to wait for an answer, such as `2s`; fractions of a second are cut off.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "canonical_duration")]
    pub timeout: Option<String>,
}

/// The headers that pass between client, service and authorization provider.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Headers {
    /// The headers of a request to the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_check: Option<InCheck>,
    /// The headers that the service gets from the provider's answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_upstream: Option<ToUpstream>,
    /// The headers that the client gets from the provider's answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_downstream: Option<ToDownstream>,
}

/// The headers of a request to the authorization provider.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct InCheck {
    /// The headers of the client's request that are passed on.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<String>,
    /// The headers that are added.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub add: BTreeMap<String, String>,
}

/// The headers that the service gets from the provider's answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ToUpstream {
    /// The headers if the request is allowed.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub on_allow: Vec<String>,
}

/// The headers that the client gets from the provider's answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ToDownstream {
    /// The headers if the request is allowed.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub on_allow: Vec<String>,
    /// The headers if the request is denied.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub on_deny: Vec<String>,
}

/// The settings of telemetry.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Telemetry {
    /// The settings of metrics.
    #[serde(deserialize_with = "null_is_default")]
    pub metrics: Metrics,
}

/// The settings of metrics.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Metrics {
    /// Offers the metrics of a workload and its proxy together.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_false")]
    pub prometheus_merge: bool,
}

/// The additional metrics of proxies.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyStatsMatcher {
    /// Regular expressions in RE2's syntax, for names of metrics.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub inclusion_regexps: Vec<String>,
}

/// The settings of single components.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Components {
    /// The control plane, istiod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pilot: Option<Component>,
    /// The ingress gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ingress_gateway: Option<Component>,
    /// The CNI plugin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cni: Option<Cni>,
    /// The sidecar.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<Proxy>,
    /// The egress gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress_gateway: Option<EgressGateway>,
}

/// The settings of a component.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["k8s"]))]
pub struct Component {
    /// The Kubernetes settings of the component.
    pub k8s: Option<Workload>,
}

/// The settings of the egress gateway.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct EgressGateway {
    /// The Kubernetes settings of the egress gateway.
    pub k8s: Option<Workload>,
    /// Installs the egress gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// The settings of the CNI plugin.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["k8s"]))]
pub struct Cni {
    /// The Kubernetes settings of the CNI plugin.
    pub k8s: Option<CniWorkload>,
}

/// The settings of the sidecar.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["k8s"]))]
pub struct Proxy {
    /// The Kubernetes settings of the sidecar.
    pub k8s: Option<ProxyContainer>,
}

/// The Kubernetes settings of a component.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Workload {
    /// The bounds of automatic scaling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hpa_spec: Option<HpaSpec>,
    /// The strategy of rolling updates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    /// The resources of the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
}

/// The Kubernetes settings of the CNI plugin.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CniWorkload {
    /// The rules of scheduling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// The resources of the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
}

/// The Kubernetes settings of the sidecar.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ProxyContainer {
    /// The resources of the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
}

/// The bounds of automatic scaling.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct HpaSpec {
    /// The highest number of replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::replicas)]
    pub max_replicas: Option<i64>,
    /// The lowest number of replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::replicas)]
    pub min_replicas: Option<i64>,
}

/// The strategy of rolling updates.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["rollingUpdate"]))]
pub struct Strategy {
    /// The bounds of rolling updates.
    pub rolling_update: Option<RollingUpdate>,
}

/// The bounds of rolling updates.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct RollingUpdate {
    /// How many Pods there may be above the wanted number: a number or a percentage.
    #[schemars(transform = schema::max_surge)]
    pub max_surge: Option<IntOrString>,
    /// How many Pods may be unavailable: a number or a percentage.
    #[schemars(transform = schema::max_unavailable)]
    pub max_unavailable: Option<IntOrString>,
}

/// A number, or a text such as a percentage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum IntOrString {
    /// A number.
    Int(i64),
    /// A text.
    Text(String),
}

/// The resources of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Resources {
    /// The most that the container gets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<Claims>,
    /// The resources that the container is sure of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<Claims>,
}

/// Amounts of CPU and memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Claims {
    /// The CPU, in cores or thousandths.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::cpu)]
    pub cpu: Option<String>,
    /// The memory, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::memory)]
    pub memory: Option<String>,
}

/// Experimental features, which only the experimental flavour accepts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Experimental {
    /// The features of istiod.
    #[serde(deserialize_with = "null_is_default")]
    pub pilot: PilotFeatures,
    /// Installs Istio's ambient mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_ambient: Option<bool>,
}

/// The experimental features of istiod.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PilotFeatures {
    /// Serves the alpha kinds of the Gateway API.
    #[serde(rename = "enableAlphaGatewayAPI", deserialize_with = "null_is_default")]
    pub enable_alpha_gateway_api: bool,
    /// Finds gateways of other networks through the Gateway API.
    #[serde(rename = "enableMultiNetworkDiscoverGatewayAPI", deserialize_with = "null_is_default")]
    pub enable_multi_network_discover_gateway_api: bool,
}

impl Config {
    /// Returns the authorizers that are not null.
    pub fn authorizers(&self) -> impl Iterator<Item = &Authorizer> {
        self.authorizers.iter().flatten()
    }

    /// Returns the regular expressions for metrics of proxies, in order of the alphabet.
    pub fn sorted_regexps(&self) -> Vec<&str> {
        let matcher = self.proxy_stats_matcher.iter();
        let mut regexps: Vec<&str> =
            matcher.flat_map(|matcher| &matcher.inclusion_regexps).map(String::as_str).collect();
        regexps.sort_unstable();
        regexps
    }
}

/// Deserializes a field so that null counts as absent.
pub(crate) fn null_is_default<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_false(value: &bool) -> bool {
    !value
}

/// Writes a duration as Go does. A text that is no duration stays as it is.
#[expect(clippy::ref_option, reason = "the signature that serde asks for")]
fn canonical_duration<S: serde::Serializer>(
    duration: &Option<String>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let canonical = |text: &String| match mortise_sdk::duration::parse(text) {
        Ok(nanoseconds) => mortise_sdk::duration::format(nanoseconds),
        Err(_) => text.clone(),
    };
    duration.as_ref().map(canonical).serialize(serializer)
}

#[cfg(test)]
mod tests;
