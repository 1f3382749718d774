//! The command lines of the host: those of the program `mortise-host`, and the commands that
//! `mortise` has too. Nothing past here reads flags or the environment.

pub mod help;
mod registry;
mod run;
pub mod value;

pub use registry::RegistryArgs;
pub use run::{LeaseArgs, RunArgs};

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::wasm::{CompileLimits, child::OwnLimits};

/// A Kubernetes operator host whose reconciliation logic comes as WebAssembly components.
#[derive(Debug, Parser)]
#[command(name = "mortise-host", version, about, after_long_help = help::MORTISE_HOST)]
pub struct Args {
    /// The command of the program.
    #[command(subcommand)]
    pub command: Command,
    /// The options of every command.
    #[command(flatten)]
    pub global: GlobalArgs,
}

/// The command of the program.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Runs the Processors of a cluster.
    #[command(after_long_help = help::RUN)]
    Run(Box<RunArgs>),
    /// Compiles a component to machine code, within limits; `run` starts it for each module.
    #[command(after_long_help = help::COMPILE)]
    Compile(ChildArgs),
    /// Checks a configuration against a schema, within limits; `run` starts it for each processor
    /// that declares a schema.
    #[command(hide = true, after_long_help = help::CHECK_CONFIG)]
    CheckConfig(ChildArgs),
}

/// The options of every command.
#[derive(Debug, clap::Args)]
pub struct GlobalArgs {
    /// The filter of the log on standard error: `level` or `target=level`, separated by commas; a
    /// level alone applies to mortise's own lines. If absent `warn`, for `mortise run` `info`.
    #[arg(long, global = true, display_order = 100, env = "MORTISE_LOG", value_name = "FILTER")]
    pub log: Option<String>,
    /// The folder of compiled modules, and of those from registries; `mortise` in the
    /// user's cache folder if absent.
    #[arg(long, global = true, display_order = 100, env = "MORTISE_CACHE", value_name = "DIR")]
    pub cache: Option<PathBuf>,
}

/// `mortise compile` and `mortise check-config`: limits that the process sets itself.
#[derive(Debug, clap::Args)]
pub struct ChildArgs {
    /// The memory limit of the process, in MiB.
    #[arg(long, value_name = "N", default_value_t = CompileLimits::default().memory_mib, value_parser = value::mebibytes())]
    pub memory_mib: u32,
    /// The limit on CPU time of the process, in seconds, all threads together.
    #[arg(long, value_name = "N", default_value_t = CompileLimits::default().seconds, value_parser = value::compile_seconds())]
    pub seconds: u32,
    /// The parent process: the command ends when it ends.
    #[arg(long, value_name = "PROCESS", hide = true)]
    pub parent: Option<u32>,
}

// === impl ChildArgs ===

impl ChildArgs {
    /// Returns the limits that the process sets itself.
    pub(crate) fn limits(&self) -> OwnLimits {
        OwnLimits { memory_mib: self.memory_mib, seconds: self.seconds, parent: self.parent }
    }
}

// === impl GlobalArgs ===

impl GlobalArgs {
    /// Returns the folder of compiled modules: the one that was named, else that of the user's
    /// caches; `None` if there is no home.
    pub fn cache(&self) -> Option<PathBuf> {
        let in_home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
        let user = || std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(in_home);
        self.cache.clone().or_else(|| Some(user()?.join("mortise")))
    }
}
