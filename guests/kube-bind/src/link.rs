//! The way from a bound kind to the export of a provider: definition, binding, Secret, export.

use mortise_sdk::{Error, Host, Kind};

use crate::{
    api::{Binding, BoundSchema, Condition, Export},
    definition::Definition,
    isolation::Isolation,
    place::{HINT, Place},
};

/// The annotation of a binding that lets it, and objects of its kinds, go although objects at the
/// provider cannot be deleted.
pub(crate) const WITHOUT_PROVIDER: &str = "kube-bind.mortise.dev/without-provider";

/// The fields that are read of bindings.
pub(crate) const BINDING_FIELDS: [&str; 2] = ["metadata.annotations", "spec"];

/// A bound kind.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) definition: Definition,
    pub(crate) binding: Binding,
    pub(crate) place: Result<Place, Box<Condition>>,
}

impl Link {
    /// Reads a binding that owns the definition of a kind; `None` if no binding does.
    pub(crate) fn of_kind(host: &Host, kind: &Kind) -> Result<Option<Self>, Error> {
        let Some(definition) = Definition::of_kind(host, kind)? else { return Ok(None) };
        let mut owning = None;
        for owner in definition.bindings() {
            let binding: Option<Binding> = host.get(None, &owner.name, &BINDING_FIELDS)?;
            owning = binding.filter(|binding| definition.owner_of(binding).is_some());
            if owning.is_some() {
                break;
            }
        }
        let Some(binding) = owning else { return Ok(None) };
        let place = Place::read(host, &binding.spec.kubeconfig_secret_ref, HINT)?;
        Ok(Some(Self { definition, binding, place }))
    }

    /// Returns whether objects are given up without a look at the provider.
    pub(crate) fn is_without_provider(&self) -> bool {
        is_without_provider(&self.binding)
    }

    /// Reads the export of the binding.
    pub(crate) fn export(&self, host: &Host, place: &Place) -> Result<Option<Export>, Error> {
        place.get(host, &self.binding.metadata.name, &["spec"])
    }

    /// Reads what the schema of the kind says of watches, if it is there.
    pub(crate) fn schema(&self, host: &Host, place: &Place) -> Result<Option<BoundSchema>, Error> {
        place.get(host, &self.definition.metadata.name, &["spec.informerScope"])
    }

    pub(crate) fn isolation(&self, export: &Export) -> Isolation {
        Isolation::of(self.definition.is_namespaced(), &export.spec)
    }
}

/// Returns whether a binding goes without a look at the provider.
pub(crate) fn is_without_provider(binding: &Binding) -> bool {
    binding.metadata.annotations.get(WITHOUT_PROVIDER).is_some_and(|value| value == "true")
}

/// Returns whether an export offers the resource of a definition.
pub(crate) fn offers(export: &Export, definition: &str) -> bool {
    export.spec.resources.iter().any(|resource| resource.schema_name() == definition)
}
