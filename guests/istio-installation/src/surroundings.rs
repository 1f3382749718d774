//! Reads about the cluster: its size, its provider, and the features that are on.

use istio::{
    api::{ISTIO_NAMESPACE, MODULE_NAMESPACE},
    cluster::{Cluster, ELB_DEPRECATED, Flavour, INGRESS_GATEWAY, Objects, PROVISIONING_INFO},
    features::{self, Features},
    kubernetes::{Node, Service},
};
use mortise_sdk::{Error, Host, Level, Selection, kubernetes::ConfigMap};

use crate::bindings::istio::client::renderer;

pub(crate) const NODE_FIELDS: [&str; 4] = [
    "spec.providerID",
    "status.capacity",
    "status.nodeInfo.kubeletVersion",
    "status.nodeInfo.osImage",
];
pub(crate) const SERVICE_FIELDS: [&str; 1] = ["metadata.annotations"];
pub(crate) const FEATURE_FIELDS: [&str; 1] = ["data.features"];
pub(crate) const PROVISIONING_FIELDS: [&str; 1] = ["data.details"];

/// The facts about a cluster that an installation depends on.
#[derive(Debug)]
pub(crate) struct Surroundings {
    pub(crate) cluster: Cluster,
    pub(crate) features: Features,
    /// The version of Kubernetes as the charts see it.
    pub(crate) version: Option<renderer::Cluster>,
}

/// Reads the facts. The inner error is a fact that cannot be understood.
pub(crate) fn read(host: &Host, flavour: Flavour) -> Result<Result<Surroundings, String>, Error> {
    let nodes: Vec<Node> = host.list(&Selection::of::<Node>().fields(NODE_FIELDS))?;
    let elb: Option<ConfigMap> =
        host.get(Some(ISTIO_NAMESPACE), ELB_DEPRECATED, &["metadata.name"])?;
    let gateway: Option<Service> =
        host.get(Some(ISTIO_NAMESPACE), INGRESS_GATEWAY, &SERVICE_FIELDS)?;
    let info: Option<ConfigMap> = match flavour {
        Flavour::Regular => None,
        Flavour::Experimental => {
            host.get(Some(MODULE_NAMESPACE), PROVISIONING_INFO, &PROVISIONING_FIELDS)?
        }
    };
    let objects = Objects {
        nodes: &nodes,
        elb_deprecated: elb.is_some(),
        gateway: gateway.as_ref(),
        provisioning_info: info.as_ref(),
    };
    let features = read_features(host)?;
    let cluster = Cluster::of(&objects, flavour);
    let version = version(&nodes);
    Ok(cluster.map(|cluster| Surroundings { cluster, features, version }))
}

/// Reads the features. As in the original, none are on if they cannot be understood.
fn read_features(host: &Host) -> Result<Features, Error> {
    let config_map: Option<ConfigMap> =
        host.get(Some(MODULE_NAMESPACE), features::NAME, &FEATURE_FIELDS)?;
    Ok(Features::read(config_map.as_ref()).unwrap_or_else(|error| {
        host.log(Level::Warn, "cannot read the features, none are on", &[("error", &error)]);
        Features::default()
    }))
}

/// Returns the oldest version of a Node: a processor does not see the API server's own, which is at
/// least as new, and a cluster of Google Kubernetes Engine is told by either.
fn version(nodes: &[Node]) -> Option<renderer::Cluster> {
    let versions = nodes.iter().map(|node| node.status.node_info.kubelet_version.as_str());
    let parsed = versions.filter_map(|text| Some((numbers(text)?, text)));
    let ((major, minor, _), text) = parsed.min()?;
    Some(renderer::Cluster {
        git_version: text.to_owned(),
        major: major.to_string(),
        minor: minor.to_string(),
        cilium_config: None,
        felix_configuration: None,
    })
}

/// Returns the numbers of a version such as `v1.34.3-gke.1`.
fn numbers(text: &str) -> Option<(u32, u32, u32)> {
    let mut numbers = text.strip_prefix('v')?.splitn(3, '.');
    let (major, minor, rest) = (numbers.next()?, numbers.next()?, numbers.next()?);
    let patch = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((major.parse().ok()?, minor.parse().ok()?, patch.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn charts_see_the_oldest_version_of_a_node() {
        let node = |version: &str| {
            let info = json!({"kubeletVersion": version});
            serde_json::from_value::<Node>(json!({"status": {"nodeInfo": info}})).unwrap()
        };
        let cases = [
            (vec![], None),
            (vec!["new"], None),
            (vec!["v1.34.3-gke.100"], Some(("v1.34.3-gke.100", "1", "34"))),
            (vec!["v1.34.10", "v1.34.9", "other", "v1.35.0"], Some(("v1.34.9", "1", "34"))),
            (vec!["v1.100.0+k3s1", "v1.34.3+k3s1"], Some(("v1.34.3+k3s1", "1", "34"))),
        ];
        for (versions, expected) in cases {
            let nodes: Vec<Node> = versions.iter().map(|version| node(version)).collect();
            let version = version(&nodes);
            let seen = version.as_ref().map(|version| {
                (version.git_version.as_str(), version.major.as_str(), version.minor.as_str())
            });
            assert_eq!(seen, expected, "{versions:?}");
        }
    }
}
