//! A processor that attacks the host: its configuration, a [`Play`], says what it does in `describe` and in `reconcile`.
//!
//! It reconciles the `ConfigMaps` of one namespace with the label `hostile=` and its own name, and runs again at once after each
//! run, so that an attack lasts for as long as its Processor is there.

mod calls;
mod describe;
mod outcomes;
mod output;
mod reads;

use mortise_sdk::{
    Description, Failure, Outcome, Request, Retry,
    bindings::exports::mortise::host::reconciliation::Guest,
};
use serde::Deserialize;

/// The processor.
pub struct Hostile;

/// All that it does: its configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Play {
    /// The value of the label, and the name in its description.
    name: String,
    /// Where its objects are.
    namespace: String,
    #[serde(default)]
    describe: Describe,
    #[serde(default)]
    reconcile: Reconcile,
    /// How often it does it in a call, or of how many parts.
    #[serde(default)]
    times: u32,
    /// How long the texts are that it hands over.
    #[serde(default)]
    bytes: usize,
}

/// What it does in `describe`.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Describe {
    /// Declares its `ConfigMaps`, and that it reads and writes such.
    #[default]
    Plain,
    /// Declares also that it reads Deployments.
    Deployments,
    /// Declares also that it reads the Secrets of its namespace.
    Secrets,
    /// Never returns.
    Loop,
    /// A schema of the configuration that doubles its work with each of its levels.
    Schema,
    /// So many selections to read.
    Selections,
    /// A version that is so long.
    Version,
    /// The finalizer of somebody else: the benign neighbour's.
    Finalizer,
}

/// What it does in `reconcile`.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Reconcile {
    /// It returns.
    #[default]
    Nothing,
    /// Gets objects of an undeclared kind, by long names.
    Names,
    /// Gets objects of a declared kind, with long paths of fields.
    Fields,
    /// Gets objects with paths of many brackets.
    Brackets,
    /// Lists with long label selectors and page tokens.
    Selectors,
    /// Gets objects of so many undeclared kinds.
    Kinds,
    /// Gets an object whose kind's group is a path with a query.
    Path,
    /// Gets a Deployment by the name of its subresource.
    Scale,
    /// Never returns.
    Loop,
    /// Takes all memory that it may, and holds it for ever.
    Memory,
    /// Panics.
    Trap,
    /// Writes as much log as it may.
    Log,
    /// Writes lines that look like another's.
    Forge,
    /// Fails with a long text in which a Secret's value is.
    Failure,
    /// Wants an object deep in itself.
    Deep,
    /// Wants an object with so many fields.
    Wide,
    /// Wants an object with so many labels.
    Labels,
    /// Wants objects with so many owners, after it has read much.
    Owners,
    /// Wants so many finalizers.
    Finalizers,
    /// Reports so many events.
    Events,
    /// Returns a status that is so long.
    Status,
    /// Wants to leave alone fields with paths of many brackets.
    Leave,
    /// Deletes an object whose kind's group is a path with a query.
    Delete,
}

impl Guest for Hostile {
    fn describe(config: String) -> Result<Description, String> {
        Ok(describe::description(&play(&config)?))
    }

    fn reconcile(request: Request) -> Result<Outcome, Failure> {
        let play =
            play(&request.config).map_err(|message| output::failure(message, Retry::OnChange))?;
        attack(&play, &request)
    }
}

#[cfg(target_family = "wasm")]
#[allow(unsafe_code, unreachable_pub, clippy::pedantic, reason = "generated from wit/")]
const _: () = {
    mortise_sdk::bindings::export_component!(Hostile with_types_in mortise_sdk::bindings);
};

fn play(config: &str) -> Result<Play, String> {
    serde_json::from_str(config).map_err(|error| format!("the play cannot be read: {error}"))
}

fn attack(play: &Play, request: &Request) -> Result<Outcome, Failure> {
    match play.reconcile {
        Reconcile::Nothing => {}
        Reconcile::Names => reads::names(play),
        Reconcile::Fields => reads::fields(play),
        Reconcile::Brackets => reads::brackets(play),
        Reconcile::Selectors => reads::selectors(play),
        Reconcile::Kinds => reads::kinds(play),
        Reconcile::Path => reads::path(play),
        Reconcile::Scale => reads::scale(play),
        Reconcile::Loop => calls::endless(),
        Reconcile::Memory => calls::memory(play),
        Reconcile::Trap => panic!("told to panic"),
        Reconcile::Log => output::log(play),
        Reconcile::Forge => output::forge(play),
        Reconcile::Failure => return Err(output::fail(play)),
        Reconcile::Deep => return Ok(outcomes::deep(play)),
        Reconcile::Wide => return Ok(outcomes::wide(play)),
        Reconcile::Labels => return Ok(outcomes::labels(play)),
        Reconcile::Owners => return Ok(outcomes::owners(play)),
        Reconcile::Finalizers => return Ok(outcomes::finalizers(play)),
        Reconcile::Events => return Ok(outcomes::events(play)),
        Reconcile::Status => return Ok(outcomes::status(play, request)),
        Reconcile::Leave => return Ok(outcomes::leave(play)),
        Reconcile::Delete => return Ok(outcomes::delete(play)),
    }
    Ok(outcomes::again())
}
