//! Many similar APIRules, for tests and benchmarks with many objects, and the objects that a
//! cluster needs for them.

use std::path::Path;

use anyhow::{Error, Result};
use mortise::{files, local};
use mortise_core::{
    contract::Description,
    grant::{rights::Account, role::Roles},
};
use mortise_host::cluster::Cluster;
use serde_json::{Value, json};

/// The namespace of the rules.
pub const NAMESPACE: &str = "shop";

/// Returns the objects that the rules refer to: the guest's examples except its APIRules.
///
/// # Errors
///
/// Fails if the examples cannot be read.
pub fn surroundings() -> Result<Vec<Value>> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../guests/api-rule/examples"));
    let mut objects = files::load(folder)?;
    objects.retain(|object| object.get("kind").and_then(Value::as_str) != Some("APIRule"));
    Ok(objects)
}

/// Returns a rule with three paths, one of which accepts tokens in two ways. The processor creates
/// six objects for it: a `VirtualService`, a policy for each open path and each authorization, and
/// one for the tokens.
pub fn rule(index: usize) -> Value {
    written("v2", index, &spec(index))
}

fn written(version: &str, index: usize, spec: &Value) -> Value {
    json!({
        "apiVersion": format!("gateway.kyma-project.io/{version}"), "kind": "APIRule",
        "metadata": {"name": format!("shop-{index}"), "namespace": NAMESPACE}, "spec": spec,
    })
}

fn spec(index: usize) -> Value {
    let issuer = "https://id.example.com";
    let jwt = json!({
        "authentications": [{"issuer": issuer, "jwksUri": "https://id.example.com/.well-known/jwks.json"}],
        "authorizations": [{"requiredScopes": ["warehouse"]}, {"audiences": ["warehouse.example.com"]}],
    });
    json!({
        "hosts": [format!("shop-{index}.local.kyma.dev")], "gateway": "kyma-system/kyma-gateway",
        "service": {"name": "orders", "port": 8000},
        "rules": [
            {"path": "/catalogue/{*}", "methods": ["GET"], "noAuth": true},
            {"path": "/pictures/{**}", "methods": ["GET", "HEAD"], "noAuth": true},
            {"path": "/orders/{**}", "methods": ["POST", "PUT"], "jwt": jwt},
        ],
    })
}

/// Returns the same rule as [`rule`], written in v1beta1, v2alpha1 or v2, each in turn, as the API
/// server stores it.
///
/// # Errors
///
/// Fails if the rule cannot be converted.
pub fn rule_of_three_versions(index: usize) -> Result<Value> {
    let rule = match index % 3 {
        0 => written("v2", index, &spec(index)),
        1 => written("v2alpha1", index, &spec(index)),
        _ => written("v1beta1", index, &in_v1beta1(index)),
    };
    api_rule::conversion::convert(&rule, "v2alpha1").map_err(Error::msg)
}

fn in_v1beta1(index: usize) -> Value {
    let issuer = "https://id.example.com";
    let keys = format!("{issuer}/.well-known/jwks.json");
    let jwt = json!({
        "authentications": [{"issuer": issuer, "jwksUri": keys}],
        "authorizations": [{"requiredScopes": ["warehouse"]}, {"audiences": ["warehouse.example.com"]}],
    });
    let path = |path: &str, methods: &[&str], strategy: Value| json!({"path": path, "methods": methods, "accessStrategies": [strategy]});
    json!({
        "host": format!("shop-{index}.local.kyma.dev"), "gateway": "kyma-system/kyma-gateway",
        "service": {"name": "orders", "port": 8000},
        "rules": [
            path("/catalogue/.*", &["GET"], json!({"handler": "no_auth"})),
            path("/pictures/.*", &["GET", "HEAD"], json!({"handler": "no_auth"})),
            path("/orders/.*", &["POST", "PUT"], json!({"handler": "jwt", "config": jwt})),
        ],
    })
}

/// Returns a processor's account, which consents to every Processor, and the roles that
/// `mortise inspect --rbac` prints for it.
///
/// # Errors
///
/// Fails if the cluster does not report the kinds that it serves.
pub async fn rights(
    cluster: &Cluster,
    account: &Account,
    description: &Description,
) -> Result<Vec<Value>> {
    let known = cluster.resolve_all(&description.at_home().kinds()).await?;
    let Account { namespace, name } = account;
    let consent = json!({"mortise.dev/processor": "*"});
    let mut objects = vec![json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"namespace": namespace, "name": name, "annotations": consent},
    })];
    let roles = Roles::of(&description.at_home(), |kind| local::served(&known, kind));
    objects.extend(roles.objects(name, Some(account)));
    Ok(objects)
}
