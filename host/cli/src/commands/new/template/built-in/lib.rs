//! Looks after {{kind}} objects that carry the label `{{package}}=yes`: each gets a `ConfigMap`.

use serde::Deserialize;
use mortise_sdk::{Description, Failure, Host, NoConfig, Object, Outcome, Processor, Reconciler, Request, Selection, Verbs, derived_name, kubernetes::ConfigMap, object::{Metadata, OwnerReference}};

/// The part of a {{kind}} that is looked at.
#[derive(Debug, Deserialize)]
pub struct {{type}} {
    metadata: Metadata,
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
        let of = Selection::of::<{{type}}>().labels("{{package}}=yes").fields(["metadata"]);
        Ok(Description::new("{{package}}", env!("CARGO_PKG_VERSION"))
            .reconciles(Reconciler::new("{{plural}}", of))
            .writes(Selection::of::<ConfigMap>(), Verbs::CREATE | Verbs::UPDATE))
    }

    /// Returns the objects that should exist for one {{kind}}. Runs again when anything changes that
    /// it has read or written.
    fn reconcile(request: &Request, _config: &NoConfig, _host: &Host) -> Result<Outcome, Failure> {
        let Some(object) = request.object::<{{type}}>()? else { return Ok(Outcome::new()) };
        let metadata = Metadata::new(derived_name(&object.metadata.name, &["text"]))
            .namespace(object.metadata.namespace.as_deref().unwrap_or("default"))
            .owned_by(OwnerReference::controller::<{{type}}>(&object.metadata));
        let text = format!("This is {}", object.metadata.name);
        let data = [("text".to_owned(), text)].into();
        Ok(Outcome::new().apply(&ConfigMap { metadata, data, ..ConfigMap::default() }))
    }
}

mortise_sdk::export!({{processor}});

#[cfg(test)]
mod tests;
