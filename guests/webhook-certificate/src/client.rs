//! The objects through which the API server calls the webhooks, and their `caBundle`.

use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mortise_sdk::{Error, Host, Kind, Manifest, ObjectRef};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Config, config::Name, store};

/// The fields that are read of the definition.
pub(crate) const DEFINITION_FIELDS: [&str; 2] = ["spec.conversion", "spec.names.kind"];
/// The fields that are read of a configuration.
pub(crate) const CONFIGURATION_FIELDS: [&str; 2] = ["webhooks[].name", "webhooks[].clientConfig"];
/// The field that is written in the definition.
pub(crate) const DEFINITION_BUNDLE: &str = "spec.conversion.webhook.clientConfig.caBundle";
/// The fields that are written in each webhook of a configuration: the name says which it is.
pub(crate) const CONFIGURATION_BUNDLE: [&str; 2] =
    ["webhooks[].clientConfig.caBundle", "webhooks[].name"];

pub(crate) fn definition() -> Kind {
    Kind::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
}

pub(crate) fn mutating() -> Kind {
    Kind::new("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration")
}

pub(crate) fn validating() -> Kind {
    Kind::new("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration")
}

/// The way in which the API server reaches a webhook.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ClientConfig {
    service: Option<Service>,
    ca_bundle: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
struct Service {
    namespace: String,
    name: String,
}

// === impl ClientConfig ===

impl ClientConfig {
    /// Returns whether the API server reaches the webhook through a Service.
    pub(crate) fn is_of_service(&self) -> bool {
        self.service.is_some()
    }

    fn service(&self) -> Option<Name> {
        let service = self.service.as_ref()?;
        Some(Name { namespace: service.namespace.clone(), name: service.name.clone() })
    }

    /// Returns whether the bundle holds an authority. A webhook without a Service is somebody
    /// else's, and needs none.
    fn holds(&self, authority: &str) -> bool {
        let bundle = || String::from_utf8(STANDARD.decode(self.ca_bundle.as_deref()?).ok()?).ok();
        !self.is_of_service() || bundle().is_some_and(|bundle| store::holds(&bundle, authority))
    }
}

/// The definition, as far as it matters.
#[derive(Debug, Deserialize)]
pub(crate) struct Definition {
    spec: Spec,
}

#[derive(Debug, Deserialize)]
struct Spec {
    conversion: Option<Conversion>,
    names: Names,
}

#[derive(Debug, Deserialize)]
struct Names {
    kind: String,
}

#[derive(Debug, Deserialize)]
struct Conversion {
    webhook: Option<ConversionWebhook>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConversionWebhook {
    client_config: Option<ClientConfig>,
}

// === impl Definition ===

impl Definition {
    /// Returns how the API server reaches the webhook that converts, or the original's message.
    pub(crate) fn client(&self) -> Result<&ClientConfig, String> {
        let missing = |what: &str| {
            let kind = &self.spec.names.kind;
            format!(
                "failed to update certificate into CRD: can not add certificate into CRD: \
                 {what} not found in {kind} CRD"
            )
        };
        let conversion = self.spec.conversion.as_ref().ok_or_else(|| missing("conversion"))?;
        let webhook = conversion.webhook.as_ref().ok_or_else(|| missing("conversion webhook"))?;
        let client = webhook.client_config.as_ref();
        client.ok_or_else(|| missing("client config for conversion webhook"))
    }
}

/// A configuration of admission webhooks, as far as it matters.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Configuration {
    webhooks: Vec<Webhook>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Webhook {
    name: String,
    #[serde(default)]
    client_config: ClientConfig,
}

// === impl Configuration ===

impl Configuration {
    fn read(host: &Host, kind: Kind, name: &str) -> Result<Self, Error> {
        let of = ObjectRef::new(kind, None, name);
        Ok(host.get_ref(&of, &CONFIGURATION_FIELDS)?.unwrap_or_default())
    }

    /// Returns the bundle for each webhook that names a Service; `None` if there is no such
    /// webhook.
    pub(crate) fn patch(&self, of: &ObjectRef, bundle: &str) -> Option<Manifest> {
        let of_service = self.webhooks.iter().filter(|of| of.client_config.is_of_service());
        let bundle = STANDARD.encode(bundle);
        let webhooks: Vec<Value> = of_service
            .map(|of| json!({"name": of.name, "clientConfig": {"caBundle": bundle}}))
            .collect();
        (!webhooks.is_empty()).then(|| patch(of, &json!({"webhooks": webhooks})))
    }
}

/// The clients that exist.
#[derive(Debug)]
pub(crate) struct Clients(Vec<ClientConfig>);

// === impl Clients ===

impl Clients {
    /// Reads the configurations. `of_definition` is how the webhook that converts is reached.
    pub(crate) fn read(
        definition: Option<ClientConfig>,
        config: &Config,
        host: &Host,
    ) -> Result<Self, Error> {
        let mutating = Configuration::read(host, mutating(), &config.mutating_configuration)?;
        let validating = Configuration::read(host, validating(), &config.validating_configuration)?;
        let webhooks = mutating.webhooks.into_iter().chain(validating.webhooks);
        Ok(Self(definition.into_iter().chain(webhooks.map(|of| of.client_config)).collect()))
    }

    /// Returns the Services that are named.
    pub(crate) fn services(&self) -> BTreeSet<Name> {
        self.0.iter().filter_map(ClientConfig::service).collect()
    }

    /// Returns whether the API server trusts an authority for each webhook.
    pub(crate) fn hold(&self, authority: &str) -> bool {
        self.0.iter().all(|client| client.holds(authority))
    }
}

/// Returns the bundle for the webhook that converts.
pub(crate) fn definition_patch(of: &ObjectRef, bundle: &str) -> Manifest {
    let bundle = STANDARD.encode(bundle);
    let webhook = json!({"clientConfig": {"caBundle": bundle}});
    patch(of, &json!({"spec": {"conversion": {"webhook": webhook}}}))
}

fn patch(of: &ObjectRef, fields: &Value) -> Manifest {
    let mut object = json!({
        "apiVersion": of.kind.api_version(), "kind": of.kind.kind, "metadata": {"name": of.name},
    });
    if let (Some(object), Some(fields)) = (object.as_object_mut(), fields.as_object()) {
        object.extend(fields.clone());
    }
    Manifest::json(&object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_is_held_if_each_webhook_of_a_service_has_it() {
        let chain = include_str!("../../certificate/src/chain/rsa.crt");
        let authority = certificate::Chain::read(chain).unwrap().authority().unwrap();
        let client = |bundle: Option<&str>| -> ClientConfig {
            let service = json!({"namespace": "a", "name": "b"});
            let bundle = bundle.map(|bundle| STANDARD.encode(bundle));
            serde_json::from_value(json!({"service": service, "caBundle": bundle})).unwrap()
        };
        let with = || client(Some(chain));
        let cases = [
            (vec![], true),
            (vec![with(), with()], true),
            (vec![with(), client(None)], false),
            (vec![with(), client(Some(""))], false),
            (vec![with(), client(Some("garbage"))], false),
            (vec![with(), ClientConfig::default()], true),
        ];
        for (clients, expected) in cases {
            assert_eq!(Clients(clients).hold(&authority), expected);
        }
        let not_text = ClientConfig { ca_bundle: Some("!".to_owned()), ..with() };
        assert!(!Clients(vec![not_text]).hold(&authority));
        assert!(!Clients(vec![with()]).hold(""));
    }
}
