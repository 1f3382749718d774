//! The entry points of the programs: logging, the async runtime, the exit code.

use std::process::ExitCode;

use anyhow::Context as _;
use tokio::runtime::Runtime;
use tracing::debug;

use crate::{
    args::{Args, ChildArgs, Command, GlobalArgs, RunArgs},
    serve,
    telemetry::{self, LogFormat},
    wasm::{
        Compiler,
        child::{check_config, compile},
    },
};

/// The number of threads for blocking work: two each for compilers and for checks of configurations
/// (see `wasm`), two that read the folder of modules (see `operator`), and four for the code cache
/// and for DNS. Each thread keeps memory of its own; a thread for each module took more memory than
/// the code of all modules.
const MAX_BLOCKING_THREADS: usize = 10;

/// Runs a command of `mortise-host`, and prints an error once, as an error chain.
pub fn run(args: &Args) -> ExitCode {
    match &args.command {
        Command::Run(run) => host(run, &args.global),
        Command::Compile(args) => compile(args),
        Command::CheckConfig(args) => check_config(args),
    }
}

/// Runs the Processors of a cluster: `run`.
pub fn host(args: &RunArgs, global: &GlobalArgs) -> ExitCode {
    let serve = || {
        telemetry::init(global.log.as_deref().unwrap_or("info"), args.log_format)?;
        telemetry::take_panics();
        keep_pages_small();
        let runtime = runtime(args.workers.map(usize::from))?;
        let compiler = Compiler::this_program(args.compile_limits());
        let code = runtime.block_on(serve::run(args, global.cache().as_deref(), compiler));
        // Compilations and reads in progress are abandoned: their results are not kept.
        runtime.shutdown_background();
        code
    };
    // Readers of the log as JSON expect errors as JSON too.
    finish(serve(), args.log_format)
}

/// Compiles a component: `compile`. Call this before any other part of the program.
pub fn compile(args: &ChildArgs) -> ExitCode {
    finish(compile::run(&args.limits()), LogFormat::Text)
}

/// Checks a configuration: `check-config`. Call this before any other part of the program.
pub fn check_config(args: &ChildArgs) -> ExitCode {
    finish(check_config::run(&args.limits()), LogFormat::Text)
}

/// Returns the exit code of a command. Prints an error once, as an error chain.
pub fn finish(result: anyhow::Result<ExitCode>, format: LogFormat) -> ExitCode {
    let code = result.unwrap_or_else(|error| {
        telemetry::write_error(&error, format);
        ExitCode::FAILURE
    });
    telemetry::finish();
    code
}

/// Prints the answer of the argument parser: the requested help, or a usage error. A usage error
/// exits with 1.
pub fn print_usage(answer: &clap::Error) -> ExitCode {
    // A closed terminal has no reader.
    let _ = answer.print();
    if answer.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Starts the async runtime, by default with a thread for each CPU.
///
/// # Errors
///
/// Fails if the system cannot start the threads.
pub fn runtime(workers: Option<usize>) -> anyhow::Result<Runtime> {
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    if let Some(workers) = workers {
        threads.worker_threads(workers);
    }
    threads.max_blocking_threads(MAX_BLOCKING_THREADS);
    threads.enable_all().build().context("cannot start threads")
}

/// Disables transparent huge pages for this process, whatever requests them. A host keeps many
/// small allocations, and frees the memory of a load or a burst; a page of 2 MiB is not freed while
/// any part of it is in use (host/decisions/0030).
pub fn keep_pages_small() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        debug!(%error, "cannot disable transparent huge pages");
    }
}
