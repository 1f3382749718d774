//! Reconciles {{kind}} objects: the text of each is kept in a `ConfigMap`.
//!
//! The definition in `crds/` is made from the types here.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use mortise_sdk::{Description, Failure, Host, NoConfig, Object, Outcome, Processor, Reconciler, Request, Selection, Verbs, derived_name, kubernetes::ConfigMap, object::{Metadata, OwnerReference}};

/// A text that is kept in a ConfigMap.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct {{type}} {
    #[schemars(skip)]
    metadata: Metadata,
    spec: Spec,
    #[serde(default)]
    #[expect(dead_code, reason = "it is written and not looked at; the definition needs it")]
    status: Option<Status>,
}

/// The wanted state.
#[derive(Debug, Deserialize, JsonSchema)]
struct Spec {
    /// The text.
    text: String,
}

/// The observed state.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Status {
    /// The name of the ConfigMap that holds the text.
    config_map: String,
}

impl Object for {{type}} {
    const GROUP: &'static str = "{{group}}";
    const VERSION: &'static str = "{{version}}";
    const KIND: &'static str = "{{kind}}";
}

/// The processor.
pub struct {{processor}};

impl Processor for {{processor}} {
    type Config = NoConfig;

    /// Declares the objects that are read and written; all others are refused.
    fn describe(_config: &NoConfig) -> Result<Description, String> {
        Ok(Description::new("{{package}}", env!("CARGO_PKG_VERSION"))
            .reconciles(Reconciler::new("{{plural}}", Selection::of::<{{type}}>()))
            .writes(Selection::of::<ConfigMap>(), Verbs::CREATE | Verbs::UPDATE))
    }

    /// Returns the objects that should exist for one {{kind}}. Runs again when anything changes that
    /// it has read or written.
    fn reconcile(request: &Request, _config: &NoConfig, _host: &Host) -> Result<Outcome, Failure> {
        let Some(object) = request.object::<{{type}}>()? else { return Ok(Outcome::new()) };
        let metadata = Metadata::new(derived_name(&object.metadata.name, &["text"]))
            .namespace(object.metadata.namespace.as_deref().unwrap_or("default"))
            .owned_by(OwnerReference::controller::<{{type}}>(&object.metadata));
        let status = Status { config_map: metadata.name.clone() };
        let data = [("text".to_owned(), object.spec.text)].into();
        let map = ConfigMap { metadata, data, ..ConfigMap::default() };
        Ok(Outcome::new().apply(&map).status(request, &status))
    }
}

mortise_sdk::export!({{processor}});

#[cfg(test)]
mod tests;
