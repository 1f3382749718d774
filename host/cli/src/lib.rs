//! The program `mortise`: the commands with which processors are written, tested and measured, and
//! those of the host.
//!
//! | module | holds |
//! | --- | --- |
//! | [`args`] | the command line |
//! | [`commands`] | the commands, one file each |
//! | [`registry`] | registries, with the developer's own credentials |
//! | [`egress`] | what processors may call outside of the cluster |
//! | [`guest`], [`files`] | a guest's folder; files of objects |
//! | [`hooks`] | the hooks of processors as webhooks of the API in memory |
//! | [`local`] | the host and the API in memory that commands start |
//! | [`print`](mod@print) | reports and differences, for people |

pub mod args;
pub mod commands;
pub mod egress;
pub mod files;
pub mod guest;
pub mod hooks;
pub mod local;
pub mod print;
pub mod registry;
pub mod remotes;

use std::{path::Path, process::ExitCode};

use mortise_host::{
    program,
    telemetry::{self, LogFormat},
};

use self::{
    args::{Args, Command},
    commands::{
        bench, completion, dev, diff, inspect, new, pull, push, sign, simulate, test, verify,
    },
};

/// Runs a command and prints an error once, as an error chain.
pub fn run(args: &Args) -> ExitCode {
    match &args.command {
        Command::Run(run) => program::host(run, &args.global),
        Command::Compile(compile) => program::compile(compile),
        Command::CheckConfig(check) => program::check_config(check),
        command => program::finish(run_locally(command, args), LogFormat::Text),
    }
}

fn run_locally(command: &Command, args: &Args) -> anyhow::Result<ExitCode> {
    telemetry::init(args.global.log.as_deref().unwrap_or("warn"), LogFormat::Text)?;
    let runtime = program::runtime(None)?;
    let cache = args.global.cache();
    let code = runtime.block_on(command_of(command, cache.as_deref()));
    // Compilations and reads in progress are abandoned: their results are not kept.
    runtime.shutdown_background();
    code
}

async fn command_of(command: &Command, cache: Option<&Path>) -> anyhow::Result<ExitCode> {
    match command {
        Command::Dev(args) => dev::run(args, cache).await,
        Command::Simulate(args) => simulate::run(args, cache).await,
        Command::Inspect(args) => inspect::run(args, cache).await,
        Command::Bench(args) => bench::run(args, cache).await,
        Command::New(args) => new::run(args).await,
        Command::Test(args) => test::run(args, cache).await,
        Command::Completion(args) => completion::run(args),
        Command::Push(args) => push::run(args, cache).await,
        Command::Pull(args) => pull::run(args).await,
        Command::Diff(args) => diff::run(args, cache).await,
        Command::Sign(args) => sign::run(args).await,
        Command::Verify(args) => verify::run(args).await,
        Command::Run(_) | Command::Compile(_) | Command::CheckConfig(_) => {
            unreachable!("the host's own commands run before")
        }
    }
}
