//! The `clientConfig`s by which the API server calls hooks of this host: in definitions of custom
//! resources, and in webhook configurations if the host may list them.

use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mortise_core::{
    api::{Outgoing, Refusal},
    contract::Kind,
};
use rustls::pki_types::CertificateDer;
use serde_json::Value;
use tracing::debug;

use super::{Paths, certificate};
use crate::{cluster::Cluster, host::Hooking};

/// The lists of webhook configurations. A cluster has some tens of them.
const CONFIGURATIONS: [(&str, &str); 2] = [
    ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
    ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
];
const CONFIGURATIONS_PATH: &str = "/apis/admissionregistration.k8s.io/v1";
const DEFINITIONS_PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const MAX_CONFIGURATIONS: usize = 500;
const FORBIDDEN: u16 = 403;

/// A `clientConfig` that names a hook of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClientConfig {
    /// The object that holds it, as messages show it.
    pub(super) of: String,
    /// The processor whose hook is called: `namespace/name`.
    pub(super) processor: String,
    /// The host for which a certificate is expected.
    pub(super) host: String,
    /// The certificates in `caBundle`; `None` if the API server uses the trusted CAs of its system.
    pub(super) bundle: Option<Vec<CertificateDer<'static>>>,
}

/// Reads the definitions of the kinds that this host converts, and the webhook configurations if
/// there are admission hooks.
///
/// # Errors
///
/// Fails if the API server does not answer.
pub(super) async fn read(
    cluster: &Cluster,
    hooks: &[Hooking],
    paths: &Paths,
) -> Result<Vec<ClientConfig>, String> {
    let mut found = Vec::new();
    for name in definitions(cluster, hooks).await? {
        let selected = format!("{DEFINITIONS_PATH}?fieldSelector=metadata.name%3D{name}");
        for definition in list(cluster, selected).await.map_err(|refusal| refusal.message)? {
            found.extend(of_definition(&definition, paths));
        }
    }
    if hooks.iter().all(|hooking| hooking.hooks().admission.is_empty()) {
        return Ok(found);
    }
    for (kind, plural) in CONFIGURATIONS {
        match list(cluster, format!("{CONFIGURATIONS_PATH}/{plural}?limit={MAX_CONFIGURATIONS}"))
            .await
        {
            Ok(configurations) => {
                let of = configurations.iter();
                found.extend(of.flat_map(|of| of_configuration(kind, of, paths)));
            }
            Err(refusal) if refusal.code == FORBIDDEN => {}
            Err(refusal) => return Err(refusal.message),
        }
    }
    Ok(found)
}

/// Returns the names of the definitions of the kinds that are converted. A kind that cannot be resolved
/// is left out; fails if none can be.
async fn definitions(cluster: &Cluster, hooks: &[Hooking]) -> Result<BTreeSet<String>, String> {
    let (mut names, mut failed) = (BTreeSet::new(), None);
    for of in hooks.iter().flat_map(|hooking| &hooking.hooks().conversions) {
        for version in &of.versions {
            let (group, version, kind) = (of.group.clone(), version.clone(), of.kind.clone());
            match cluster.resolve(&Kind::home(group, version, kind)).await {
                Ok(Some(resource)) => {
                    names.insert(format!("{}.{}", resource.plural, of.group));
                    break;
                }
                Ok(None) => {}
                Err(error) => {
                    debug!(of.group, of.kind, %error, "the definition of a converted kind is not known");
                    failed = Some(error.to_string());
                }
            }
        }
    }
    failed.filter(|_| names.is_empty()).map_or(Ok(names), Err)
}

async fn list(cluster: &Cluster, path: String) -> Result<Vec<Value>, Refusal> {
    let mut answer = cluster.send(&Outgoing::get(path)).await?;
    match answer.body.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => Ok(items),
        _ => Ok(Vec::new()),
    }
}

fn of_definition(definition: &Value, paths: &Paths) -> Option<ClientConfig> {
    let conversion = definition.pointer("/spec/conversion")?;
    if conversion.get("strategy")? != "Webhook" {
        return None;
    }
    let of = format!("CustomResourceDefinition `{}`", name_of(definition));
    ClientConfig::parse(of, conversion.pointer("/webhook/clientConfig")?, paths)
}

fn of_configuration(kind: &str, of: &Value, paths: &Paths) -> Vec<ClientConfig> {
    let webhooks = of.get("webhooks").and_then(Value::as_array).into_iter().flatten();
    let named = format!("{kind} `{}`", name_of(of));
    let configs = webhooks.filter_map(|webhook| webhook.get("clientConfig"));
    configs.filter_map(|config| ClientConfig::parse(named.clone(), config, paths)).collect()
}

fn name_of(object: &Value) -> &str {
    text(object, "/metadata/name")
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

// === impl ClientConfig ===

impl ClientConfig {
    /// Reads a `clientConfig`; `None` if its path is not that of a hook of this host.
    fn parse(of: String, config: &Value, paths: &Paths) -> Option<Self> {
        let is_service = config.get("service").is_some_and(Value::is_object);
        let (host, path) = if is_service {
            let part = |part: &str| text(config, &format!("/service/{part}"));
            (format!("{}.{}.svc", part("name"), part("namespace")), part("path").to_owned())
        } else {
            let url: http::Uri = text(config, "/url").parse().ok()?;
            (url.host()?.to_owned(), url.path().to_owned())
        };
        let processor = paths.resolve(&path).ok()?.processor();
        let bundle = text(config, "/caBundle");
        // No public CA certifies the name of a Service.
        let bundle = (is_service || !bundle.is_empty()).then(|| certificates(bundle));
        Some(Self { of, processor, host, bundle })
    }
}

/// Returns the certificates of a bundle; empty if it cannot be read.
fn certificates(bundle: &str) -> Vec<CertificateDer<'static>> {
    let pem = STANDARD.decode(bundle).unwrap_or_default();
    certificate::certificates(&pem).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn paths() -> Paths {
        Paths::new(vec!["/convert=/convert/shop/rules".parse().unwrap()]).unwrap()
    }

    fn definition(strategy: &str, config: &Value) -> Value {
        let conversion = json!({"strategy": strategy, "webhook": {"clientConfig": config}});
        json!({"metadata": {"name": "rules.example.com"}, "spec": {"conversion": conversion}})
    }

    fn service(path: &str) -> Value {
        json!({"service": {"name": "hooks", "namespace": "host", "path": path}})
    }

    #[test]
    fn configs_that_name_a_hook_of_this_host_are_found() {
        let cases = [
            (service("/convert/shop/rules"), Some(("shop/rules", "hooks.host.svc"))),
            (service("/convert"), Some(("shop/rules", "hooks.host.svc"))),
            (service("/other"), None),
            (json!({"service": {"name": "hooks", "namespace": "host"}}), None),
            (
                json!({"url": "https://a.example:9443/admit/shop/rules/mark"}),
                Some(("shop/rules", "a.example")),
            ),
            (json!({"url": "https://a.example/"}), None),
            (json!({"url": ""}), None),
            (json!({}), None),
        ];
        for (config, expected) in cases {
            let found = of_definition(&definition("Webhook", &config), &paths());
            let found = found.as_ref().map(|of| (of.processor.as_str(), of.host.as_str()));
            assert_eq!(found, expected, "{config}");
            assert_eq!(of_definition(&definition("None", &config), &paths()), None);
            let webhooks = json!([{"clientConfig": config}, {"clientConfig": config}, {}]);
            let of = json!({"metadata": {"name": "a"}, "webhooks": webhooks});
            let configs = of_configuration("MutatingWebhookConfiguration", &of, &paths());
            assert_eq!(configs.len(), if expected.is_some() { 2 } else { 0 }, "{config}");
        }
    }

    #[test]
    fn a_service_is_trusted_by_its_bundle_alone() {
        let bundle = |config: &Value, text: &str| {
            let mut config = config.clone();
            config["caBundle"] = text.into();
            ClientConfig::parse("a".into(), &config, &paths()).unwrap().bundle
        };
        let url = json!({"url": "https://a.example/convert"});
        for text in ["", "?", &STANDARD.encode("no certificate")] {
            assert_eq!(bundle(&service("/convert"), text), Some(Vec::new()), "{text}");
            assert_eq!(bundle(&url, text).is_none(), text.is_empty(), "{text}");
        }
    }
}
