//! The domain of the cluster.

use mortise_sdk::{Error, Host, Selection, kubernetes::ConfigMap};

/// The domain of a cluster that is not Gardener's.
pub const LOCAL: &str = "local.kyma.dev";
/// Namespace and name of the `ConfigMap` in which Gardener describes the cluster.
pub const SHOOT_INFO: (&str, &str) = ("kube-system", "shoot-info");
/// The fields that are read of that `ConfigMap`.
const FIELDS: [&str; 1] = ["data.domain"];

/// Selects the `ConfigMap` in which Gardener describes the cluster.
pub fn selection() -> Selection {
    let (namespace, name) = SHOOT_INFO;
    Selection::of::<ConfigMap>().namespace(namespace).name(name).fields(FIELDS)
}

/// Returns the domain that Gardener gave to the cluster. The outer `None`: there is no description;
/// the inner one: it names no domain.
///
/// # Errors
///
/// Fails if the `ConfigMap` cannot be read.
pub fn of_gardener(host: &Host) -> Result<Option<Option<String>>, Error> {
    let (namespace, name) = SHOOT_INFO;
    let info = host.get::<ConfigMap>(Some(namespace), name, &FIELDS)?;
    Ok(info.map(|info| info.data.get("domain").filter(|domain| !domain.is_empty()).cloned()))
}

/// Returns the domain of the cluster: Gardener's, or else the local one.
///
/// # Errors
///
/// Fails if the `ConfigMap` cannot be read.
pub fn of_cluster(host: &Host) -> Result<String, Error> {
    Ok(of_gardener(host)?.flatten().unwrap_or_else(|| LOCAL.to_owned()))
}

#[cfg(test)]
mod tests {
    use mortise_sdk::testing::Stub;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cluster_without_a_domain_is_local() {
        let cases = [
            (None, LOCAL, None),
            (Some(json!({})), LOCAL, Some(None)),
            (Some(json!({"domain": ""})), LOCAL, Some(None)),
            (
                Some(json!({"domain": "a.example.com"})),
                "a.example.com",
                Some(Some("a.example.com")),
            ),
        ];
        for (data, expected, of_shoot) in cases {
            let info = data.map(|data| {
                json!({
                    "apiVersion": "v1", "kind": "ConfigMap", "data": data,
                    "metadata": {"name": "shoot-info", "namespace": "kube-system"},
                })
            });
            let host = Stub::new().objects(info).host();
            assert_eq!(of_cluster(&host).unwrap(), expected);
            let of_shoot = of_shoot.map(|domain| domain.map(str::to_owned));
            assert_eq!(of_gardener(&host).unwrap(), of_shoot);
        }
    }
}
