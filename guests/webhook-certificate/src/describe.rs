//! The declaration of the objects that the processor reconciles, reads and writes.

use mortise_sdk::{Description, Kind, Reconciler, Selection, Verbs, kubernetes::Secret};

use crate::{Config, client, store};

/// The reconciler of the definition, which also keeps the Secret.
pub(crate) const DEFINITION: &str = "definition";
const MUTATING: &str = "mutating-configuration";
const VALIDATING: &str = "validating-configuration";

pub(crate) fn describe(config: &Config) -> Description {
    let named = |kind: Kind, name: &str| Selection::new(kind).name(name);
    let definition = named(client::definition(), &config.definition);
    let configurations = [
        (MUTATING, named(client::mutating(), &config.mutating_configuration)),
        (VALIDATING, named(client::validating(), &config.validating_configuration)),
    ];
    let secret =
        Selection::of::<Secret>().namespace(&config.secret.namespace).name(&config.secret.name);
    let description = Description::new("webhook-certificate", env!("CARGO_PKG_VERSION"))
        .reconciles(Reconciler::new(
            DEFINITION,
            definition.clone().fields(client::DEFINITION_FIELDS),
        ))
        .reads(secret.clone().fields(store::FIELDS))
        .writes_fields(secret, Verbs::CREATE | Verbs::UPDATE, store::WRITTEN)
        .writes_fields(definition, Verbs::UPDATE, [client::DEFINITION_BUNDLE]);
    configurations.into_iter().fold(description, |description, (name, of)| {
        description
            .reconciles(Reconciler::new(name, of.clone().fields(client::CONFIGURATION_FIELDS)))
            .writes_fields(of, Verbs::UPDATE, client::CONFIGURATION_BUNDLE)
    })
}
