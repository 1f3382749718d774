//! The rules that the processor grants: those of all roles that the library can make.

use istio::{
    api::IstioSpec,
    cluster::{Cluster, Provider, Size},
    features::Features,
    merge::{self, Input},
};
use mortise_sdk::GrantedRule;
use serde_json::{Value, json};

use crate::{
    Rendering,
    config::Config,
    render::{self, kind_of},
};

/// Returns the rules. The library itself says which ones it needs: they differ from version to
/// version, and a version that needs more is compared with the former one before it runs.
///
/// # Errors
///
/// Fails if the library renders nothing.
pub(crate) fn all<R: Rendering>(
    config: &Config,
    release: &str,
) -> Result<Vec<GrantedRule>, String> {
    let images = config.images(release)?;
    let cluster = Cluster {
        size: Size::Production,
        provider: Provider::Unknown,
        dual_stack: false,
        needs_proxy_protocol: false,
        overrides: json!({}),
    };
    let input = Input {
        spec: &everything(config)?,
        cluster: &cluster,
        flavour: config.flavour(),
        features: Features::default(),
        images: &images,
        pull_secret: None,
    };
    let components = render::render::<R>(&merge::merge(&input)?, None, release)?;
    let objects = components.iter().flat_map(|component| &component.objects);
    let roles = objects.filter(|object| is_role(object));
    let mut granted: Vec<GrantedRule> = Vec::new();
    for rule in roles.flat_map(GrantedRule::of_role) {
        if !granted.contains(&rule) {
            granted.push(rule);
        }
    }
    Ok(granted)
}

/// Returns a spec with which all components are installed that may be.
fn everything(config: &Config) -> Result<IstioSpec, String> {
    let mut spec = json!({"components": {"egressGateway": {"enabled": true}}});
    if config.experimental {
        let pilot = json!({
            "enableAlphaGatewayAPI": true, "enableMultiNetworkDiscoverGatewayAPI": true,
        });
        let experimental = json!({"enableAmbient": true, "pilot": pilot});
        render::add(&mut spec, json!({"experimental": experimental}));
    }
    serde_json::from_value(spec).map_err(|error| error.to_string())
}

fn is_role(object: &Value) -> bool {
    let kind = kind_of(object);
    kind.group == "rbac.authorization.k8s.io"
        && matches!(kind.kind.as_str(), "Role" | "ClusterRole")
}
