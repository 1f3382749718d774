//! The objects and the finalizers that a run wants so far, and how it ends.

use api_gateway_module::{MODULE_LABEL, api::ApiGateway, object::Existing};
use mortise_sdk::{Error, Host, Level, Manifest, ObjectRef, Outcome};
use serde_json::{Map, Value};

use crate::{
    Config,
    status::{Reason, Report},
};

/// The annotation that tells people not to change an object.
pub(crate) const DISCLAIMER: &str = "apigateways.operator.kyma-project.io/managed-by-disclaimer";
const DISCLAIMER_TEXT: &str = "DO NOT EDIT - This resource is managed by Kyma.\n\
     Any modifications are discarded and the resource is reverted to the original state.";

/// The objects and finalizers that a run wants so far.
pub(crate) struct Work<'a> {
    pub(crate) gateway: &'a ApiGateway,
    pub(crate) config: &'a Config,
    pub(crate) host: &'a Host,
    pub(crate) outcome: Outcome,
    /// The finalizers that the APIGateway should have.
    pub(crate) finalizers: Vec<&'static str>,
}

/// The end of a run before its last step.
pub(crate) enum Stop {
    /// The module is in this state.
    Report(Report),
    /// A read cannot be answered now.
    Unavailable(Error),
}

/// Returns the end of a run for which something cannot be read, with the original's description.
pub(crate) fn unreadable<'a>(
    reason: Reason,
    description: &'a str,
    host: &'a Host,
) -> impl Fn(Error) -> Stop + 'a {
    move |error| match error {
        Error::Unavailable { .. } => Stop::Unavailable(error),
        error => {
            host.log(Level::Warn, description, &[("error", &error.to_string())]);
            Stop::Report(Report::error(reason, description))
        }
    }
}

impl Work<'_> {
    pub(crate) fn is_deleted(&self) -> bool {
        self.gateway.metadata.is_deleted()
    }

    pub(crate) fn has(&self, finalizer: &str) -> bool {
        self.finalizers.contains(&finalizer)
    }

    pub(crate) fn apply(&mut self, manifest: impl Into<Manifest>) {
        let outcome = std::mem::take(&mut self.outcome);
        self.outcome = outcome.apply(manifest);
    }

    /// Deletes an object of the module, if it exists and has the module's label.
    pub(crate) fn delete(&mut self, of: ObjectRef) -> Result<(), Error> {
        let found = Existing::find(self.host, &of)?;
        let (key, module) = MODULE_LABEL;
        let is_own =
            |found: &Existing| found.metadata.labels.get(key).is_some_and(|label| label == module);
        self.delete_found(found.filter(is_own), of);
        Ok(())
    }

    /// Deletes an object, if it exists.
    pub(crate) fn delete_any(&mut self, of: ObjectRef) -> Result<(), Error> {
        let found = Existing::find(self.host, &of)?;
        self.delete_found(found, of);
        Ok(())
    }

    fn delete_found(&mut self, found: Option<Existing>, of: ObjectRef) {
        if let Some(deletion) = found.and_then(|found| found.deletion(of)) {
            let outcome = std::mem::take(&mut self.outcome);
            self.outcome = outcome.delete(deletion);
        }
    }
}

/// Adds the module's label and the disclaimer to an object.
pub(crate) fn managed(mut object: Value) -> Value {
    let (key, module) = MODULE_LABEL;
    for (pointer, key, value) in
        [("labels", key, module), ("annotations", DISCLAIMER, DISCLAIMER_TEXT)]
    {
        let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
        let Some(metadata) = metadata else { return object };
        let entries = metadata.entry(pointer).or_insert_with(|| Value::Object(Map::new()));
        if let Some(entries) = entries.as_object_mut() {
            entries.insert(key.to_owned(), value.into());
        }
    }
    object
}
