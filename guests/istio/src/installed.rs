//! The Istio that is installed: the version of its Pods, the labels of its objects, and webhooks
//! that a failed installation has left.

mod labels;
mod webhook;

pub use labels::{COMPONENT_LABEL, KINDS, NAMED, is_of_istio, label_patch};
pub use webhook::{MutatingWebhookConfiguration, stale_tags};

use crate::{kubernetes::Pod, predicate::MODULE_LABEL, version::Version};

/// The containers that tell the version.
const CONTAINERS: [&str; 3] = ["discovery", "istio-proxy", "install-cni"];

/// Checks that the Pods in `istio-system` run one version of Istio, which is the wanted one.
///
/// # Errors
///
/// Fails if they run others, or none, or if an image has no version.
pub fn check_version(pods: &[Pod], wanted: &Version) -> Result<(), String> {
    let version = version(pods)?;
    if version.numbers == wanted.numbers {
        return Ok(());
    }
    let wanted = wanted.clone().without_flavour();
    Err(format!("istio-system Pods version {version} do not match istio operator version {wanted}"))
}

/// Returns the version that Istio's Pods run, without its flavour.
fn version(pods: &[Pod]) -> Result<Version, String> {
    let mut first: Option<Version> = None;
    for pod in pods {
        let module = pod.metadata.labels.get(MODULE_LABEL);
        if pod.metadata.is_deleted() || module.is_none_or(|module| module != "istio") {
            continue;
        }
        let containers = pod.spec.containers.iter();
        for container in
            containers.filter(|container| CONTAINERS.contains(&container.name.as_str()))
        {
            let version = version_of(&container.image)?;
            match &first {
                None => first = Some(version),
                Some(first) if *first == version => {}
                Some(first) => {
                    return Err(format!(
                        "image version of Pod {} {version} do not match other Pods version {first}",
                        pod.metadata.name
                    ));
                }
            }
        }
    }
    first.ok_or_else(|| "unable to obtain installed Istio image version".to_owned())
}

fn version_of(image: &str) -> Result<Version, String> {
    let without_digest = image.split('@').next().unwrap_or_default();
    let name = without_digest.rsplit('/').next().unwrap_or_default();
    let Some((_, tag)) = name.split_once(':') else {
        return Err(format!("unable to parse container image reference: {image}"));
    };
    Ok(Version::parse(tag)?.without_flavour())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, container: &str, image: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {MODULE_LABEL: "istio"}},
            "spec": {"containers": [{"name": container, "image": image}]},
        }))
        .unwrap()
    }

    #[test]
    fn all_pods_run_the_wanted_version() {
        let wanted = Version::parse("1.30.2-distroless").unwrap();
        let none = "unable to obtain installed Istio image version";
        let cases = [
            (vec![("discovery", "r:5000/a/pilot:1.30.2-distroless")], ""),
            (vec![("discovery", "r/pilot:1.30.2"), ("install-cni", "r/cni:1.30.2-1@sha256:a")], ""),
            (
                vec![("discovery", "r/pilot:1.30.2"), ("istio-proxy", "r/proxyv2:1.29.0-x")],
                "image version of Pod p1 1.29.0 do not match other Pods version 1.30.2",
            ),
            (
                vec![("istio-proxy", "r/proxyv2:1.29.0-x")],
                "istio-system Pods version 1.29.0 do not match istio operator version 1.30.2",
            ),
            (vec![("other", "r/other:1.0.0")], none),
            (vec![], none),
            (vec![("discovery", "r/pilot:latest")], "latest is not in dotted-tri format"),
            (
                vec![("discovery", "r:5000/pilot")],
                "unable to parse container image reference: r:5000/pilot",
            ),
        ];
        for (containers, expected) in cases {
            let pods: Vec<Pod> = containers
                .iter()
                .enumerate()
                .map(|(index, (name, image))| pod(&format!("p{index}"), name, image))
                .collect();
            let error = check_version(&pods, &wanted).err().unwrap_or_default();
            assert_eq!(error, expected, "{containers:?}");
        }
    }

    #[test]
    fn terminating_and_foreign_pods_do_not_count() {
        let wanted = Version::parse("1.30.2").unwrap();
        let mut terminating = pod("old", "discovery", "r/pilot:1.29.0");
        terminating.metadata.deletion_timestamp = Some("2026-01-01T00:00:00Z".to_owned());
        let mut foreign = pod("foreign", "discovery", "r/pilot:1.29.0");
        foreign.metadata.labels.clear();
        let pods = [terminating, foreign, pod("new", "discovery", "r/pilot:1.30.2")];
        assert_eq!(check_version(&pods, &wanted), Ok(()));
    }
}
