//! Reads of the cluster that decide on the objects. Only those that matter are made, so that a
//! change of others triggers nothing.

use istio::{
    api::{ISTIO_NAMESPACE, MODULE_NAMESPACE},
    cluster::{
        Cluster, ELB_DEPRECATED, Flavour, INGRESS_GATEWAY, Objects, PROVISIONING_INFO, Provider,
    },
    features::{self, Features},
    kubernetes::{Node, Service},
};
use mortise_sdk::{Error, Host, Level, Selection, kubernetes::ConfigMap};

/// The fields that are read of Nodes. Their size does not matter here.
pub(crate) const NODE_FIELDS: [&str; 3] =
    ["spec.providerID", "status.nodeInfo.kubeletVersion", "status.nodeInfo.osImage"];
/// The fields that are read of the `ConfigMap` with features.
pub(crate) const FEATURES_FIELDS: [&str; 1] = ["data.features"];
/// The fields that are read of a `ConfigMap` of which only its existence matters.
pub(crate) const ELB_FIELDS: [&str; 1] = ["metadata.name"];
/// The fields that are read of the `ConfigMap` that describes the network.
pub(crate) const PROVISIONING_FIELDS: [&str; 1] = ["data.details"];
/// The fields that are read of the API server's Service.
pub(crate) const API_SERVER_FIELDS: [&str; 1] = ["spec.ports"];
/// The fields that are read of the ingress gateway's Service.
pub(crate) const GATEWAY_FIELDS: [&str; 1] =
    ["metadata.annotations[\"service.beta.kubernetes.io/aws-load-balancer-type\"]"];

/// Returns whether the load balancer speaks the PROXY protocol.
///
/// The outer error is that of a read, the inner one says why the cluster cannot be told.
pub(crate) fn needs_proxy_protocol(
    flavour: Flavour,
    host: &Host,
) -> Result<Result<bool, String>, Error> {
    let nodes: Vec<Node> = host.list(&Selection::of::<Node>().fields(NODE_FIELDS))?;
    let mut objects = Objects { nodes: &nodes, ..Objects::default() };
    let gateway: Option<Service>;
    let provisioning_info: Option<ConfigMap>;
    if Provider::of(&nodes) == Provider::Aws {
        let elb = host.get::<ConfigMap>(Some(ISTIO_NAMESPACE), ELB_DEPRECATED, &ELB_FIELDS)?;
        objects.elb_deprecated = elb.is_some();
    }
    if objects.elb_deprecated {
        gateway = host.get(Some(ISTIO_NAMESPACE), INGRESS_GATEWAY, &GATEWAY_FIELDS)?;
        objects.gateway = gateway.as_ref();
    }
    if flavour == Flavour::Experimental {
        let fields = &PROVISIONING_FIELDS;
        provisioning_info = host.get(Some(MODULE_NAMESPACE), PROVISIONING_INFO, fields)?;
        objects.provisioning_info = provisioning_info.as_ref();
    }
    Ok(Cluster::of(&objects, flavour).map(|cluster| cluster.needs_proxy_protocol))
}

/// Returns the features that are switched on. As in the original, a value that is no JSON switches
/// none on.
pub(crate) fn features(host: &Host) -> Result<Features, Error> {
    let map = host.get::<ConfigMap>(Some(MODULE_NAMESPACE), features::NAME, &FEATURES_FIELDS)?;
    Ok(Features::read(map.as_ref()).unwrap_or_else(|error| {
        let name = format!("{MODULE_NAMESPACE}/{}", features::NAME);
        let fields = [("configmap", name.as_str()), ("error", error.as_str())];
        host.log(Level::Warn, "cannot read the features, none is on", &fields);
        Features::default()
    }))
}

/// Returns the Service of the API server.
pub(crate) fn api_server(host: &Host) -> Result<Option<Service>, Error> {
    host.get(Some("default"), "kubernetes", &API_SERVER_FIELDS)
}
