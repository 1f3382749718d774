//! A processor that attacks the host: its configuration, a [`Play`], selects an action in
//! `describe` and one in `reconcile`.
//!
//! Hostile reconciles the `ConfigMaps` of one namespace with its own name in the label `hostile`,
//! and requests another run at once after each run, so that an attack lasts as long as its
//! Processor exists.

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

/// The attacking processor.
pub struct Hostile;

/// The configuration, which selects the attack.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Play {
    /// The value of the label, and the name in its description.
    name: String,
    /// The namespace of its objects.
    namespace: String,
    #[serde(default)]
    describe: Describe,
    #[serde(default)]
    reconcile: Reconcile,
    /// Number of repetitions of the action in a call, or of its parts.
    #[serde(default)]
    times: u32,
    /// Bytes of the texts that it passes to the host.
    #[serde(default)]
    bytes: usize,
}

/// The action in `describe`.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Describe {
    /// Declares its `ConfigMaps`, and reads and writes of `ConfigMaps`.
    #[default]
    Plain,
    /// Also declares reads of Deployments.
    Deployments,
    /// Also declares reads of the Secrets of its namespace.
    Secrets,
    /// Never returns.
    Loop,
    /// Declares a schema of the configuration whose cost doubles with each of its levels.
    Schema,
    /// Declares `times` selections to read.
    Selections,
    /// Declares `times` rules that it grants, each of many rights.
    Grants,
    /// Declares a version of `bytes` bytes.
    Version,
    /// Declares a version of several lines.
    ForgedVersion,
    /// Declares the finalizer of the benign neighbour.
    Finalizer,
    /// Asks for an index of its `ConfigMaps` by their finalizers.
    Index,
    /// Also reconciles the kind `Thing`, in all namespaces.
    Things,
    /// Also reconciles the kind `Thing`, in its namespace.
    ThingsWithin,
    /// Declares writes of a field within `times` nested lists.
    Nested,
}

/// The action in `reconcile`.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Reconcile {
    /// Returns at once.
    #[default]
    Nothing,
    /// Gets objects of an undeclared kind with long names.
    Names,
    /// Gets objects of a declared kind with long field paths.
    Fields,
    /// Gets objects with field paths of many brackets.
    Brackets,
    /// Lists with long label selectors and page tokens.
    Selectors,
    /// Lists by `times` paths of which most have no index, and waits for a change.
    Unindexed,
    /// Lists by `times` label selectors that no index serves, and waits for a change.
    InLabels,
    /// Lists its `ConfigMaps` by `times` paths and labels that no object has.
    Lists,
    /// Gets objects of `times` undeclared kinds.
    Kinds,
    /// Gets an object whose kind's group is a path with a query.
    Path,
    /// Gets a Deployment by the name of its subresource.
    Scale,
    /// Never returns.
    Loop,
    /// Allocates as much memory as it may, and holds it for ever.
    Memory,
    /// Panics.
    Trap,
    /// Writes as much log as it may.
    Log,
    /// Writes log lines that look like those of another source.
    Forge,
    /// Fails with a long text that contains a Secret's value.
    Failure,
    /// Applies an object with `times` nested levels.
    Deep,
    /// Applies an object with `times` fields.
    Wide,
    /// Applies an object with a list of `bytes` bytes of zeros within `times` nested lists.
    Nested,
    /// Applies an object with `times` labels.
    Labels,
    /// Applies an object with `times` owners, after many reads.
    Owners,
    /// Requests `times` finalizers.
    Finalizers,
    /// Reports `times` events.
    Events,
    /// Returns a status of `bytes` bytes.
    Status,
    /// Excludes fields with paths of many brackets from an apply.
    Leave,
    /// Changes the other one of two objects.
    Ping,
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
        Reconcile::Unindexed => return Ok(reads::unindexed(play)),
        Reconcile::InLabels => return Ok(reads::in_labels(play)),
        Reconcile::Lists => reads::lists(play),
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
        Reconcile::Nested => return Ok(outcomes::nested(play)),
        Reconcile::Labels => return Ok(outcomes::labels(play)),
        Reconcile::Owners => return Ok(outcomes::owners(play)),
        Reconcile::Finalizers => return Ok(outcomes::finalizers(play)),
        Reconcile::Events => return Ok(outcomes::events(play)),
        Reconcile::Status => return Ok(outcomes::status(play, request)),
        Reconcile::Leave => return Ok(outcomes::leave(play)),
        Reconcile::Ping => return Ok(outcomes::ping(play, request)),
        Reconcile::Delete => return Ok(outcomes::delete(play)),
    }
    Ok(outcomes::again())
}
