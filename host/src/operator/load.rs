//! Loads the bytes of a module as a version that can be swapped in.

use mortise_core::error_chain;

use super::{
    fault::Fault,
    recipe::{Pace, Recipe},
};
use crate::{
    host::Loaded,
    reason::Reason,
    wasm::{self, Engine, LibraryModule, Processor, child::check_config::Verdict},
};

/// Loads a component with its libraries, asks it for its description, and checks its configuration
/// against the schema that it declares.
pub(super) async fn load(
    engine: &Engine,
    (module, libraries): (wasm::Module, Vec<LibraryModule>),
    recipe: &Recipe,
    (name, pace): (&str, Pace),
) -> Result<Loaded, Fault> {
    let tenant = Some(recipe.account.namespace.as_str());
    let processor = Processor::load_with(engine, tenant, module, libraries).await;
    let processor = processor.map_err(|error| Fault::of_load(&error))?;
    let settings = recipe.settings(name, pace);
    match Loaded::describe(processor.clone(), &recipe.config, settings).await {
        Ok(loaded) => {
            check_config(engine, loaded.description.config_schema.as_deref(), recipe).await?;
            Ok(loaded)
        }
        Err(error) => match error.downcast_ref::<wasm::Error>() {
            Some(error) => Err(refused(engine, &processor, error, recipe).await),
            None => Err(Fault::new(Reason::DescriptionInvalid, format!("{error:#}"))),
        },
    }
}

/// Returns the fault of a failed `describe` call. If the processor refused its configuration, a
/// check against its schema gives a better message; the schema is known if `describe` accepts an
/// empty configuration.
async fn refused(
    engine: &Engine,
    processor: &Processor,
    error: &wasm::Error,
    recipe: &Recipe,
) -> Fault {
    if matches!(error, wasm::Error::ConfigRefused { .. })
        && let Ok(description) = processor.describe("{}").await
        && let schema = description.config_schema.as_deref()
        && let Err(fault) = check_config(engine, schema, recipe).await
    {
        return fault;
    }
    Fault::of_describe(error)
}

/// Checks a configuration against the schema that the processor declares for it, if any.
async fn check_config(engine: &Engine, schema: Option<&str>, recipe: &Recipe) -> Result<(), Fault> {
    let Some(schema) = schema else { return Ok(()) };
    let tenant = recipe.account.namespace.as_str();
    match engine.check_config(Some(tenant), schema, &recipe.config).await {
        Ok(Verdict::Valid) => Ok(()),
        Ok(Verdict::Invalid(why)) => Err(Fault::new(
            Reason::ConfigInvalid,
            format!("spec.config breaks the schema that the processor declares: {why}"),
        )),
        Ok(Verdict::SchemaInvalid(why)) => Err(unusable(&why)),
        Err(error) if error.passes() => {
            let message = format!("spec.config is not checked yet: {}", error_chain::whole(&error));
            Err(Fault::passing(Reason::ConfigNotChecked, message))
        }
        Err(error) => Err(unusable(&error_chain::whole(&error))),
    }
}

fn unusable(why: &str) -> Fault {
    let message = format!(
        "the schema that the processor declares for its configuration cannot be used: {why}"
    );
    Fault::new(Reason::ConfigSchemaInvalid, message)
}
