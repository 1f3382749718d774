//! The edge of the program: logs, the async runtime, the exit code.

use std::process::ExitCode;

use anyhow::Context as _;
use tracing::debug;

use crate::{
    args::{Args, Command},
    bench, check_config, compile, completion, dev, inspect, log, new,
    processor::Compiler,
    serve, simulate, test,
};

/// The number of threads that wait for disks, children and names: two for as many compilers and two
/// for checks of configurations (see `processor`), two that read the folder of modules (see
/// `supervisor`), and four for the code cache and for name servers. Each thread keeps memory of its
/// own; a thread for each module took more memory than the code of all modules.
const BLOCKING: usize = 10;

/// Runs the command and prints an error once, as an error chain.
pub fn run(args: &Args) -> ExitCode {
    let code = try_run(args).unwrap_or_else(|error| {
        // Readers of the log as JSON read this line too.
        log::write_error(&error, args.log_format());
        ExitCode::FAILURE
    });
    log::finish();
    code
}

/// Prints the answer of the argument parser: the help that was asked for, or a usage error. Bad
/// input of any sort exits with 1.
pub fn print_usage(answer: &clap::Error) -> ExitCode {
    // If the terminal is gone, nobody reads the answer.
    let _ = answer.print();
    if answer.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn try_run(args: &Args) -> anyhow::Result<ExitCode> {
    // These commands run before any thread is started.
    match &args.command {
        Command::Compile(args) => return compile::run(args),
        Command::CheckConfig(args) => return check_config::run(args),
        _ => {}
    }
    log::init(args.log_filter(), args.log_format())?;
    if let Command::Run(_) = &args.command {
        log::take_panics();
        keep_pages_small();
    }
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    if let Some(workers) = args.workers() {
        threads.worker_threads(workers);
    }
    threads.max_blocking_threads(BLOCKING);
    let runtime = threads.enable_all().build().context("cannot start threads")?;
    let code = match &args.command {
        Command::Run(run) => {
            let compiler = Compiler::this_program(run.compile_limits());
            runtime.block_on(serve::run(run, args.cache().as_deref(), compiler))
        }
        Command::Dev(dev) => runtime.block_on(dev::run(dev, args.cache().as_deref())),
        Command::Simulate(simulate) => {
            runtime.block_on(simulate::run(simulate, args.cache().as_deref()))
        }
        Command::Inspect(inspect) => {
            runtime.block_on(inspect::run(inspect, args.cache().as_deref()))
        }
        Command::Compile(compile) => compile::run(compile),
        Command::CheckConfig(check) => check_config::run(check),
        Command::Completion(completion) => completion::run(completion),
        Command::Bench(bench) => runtime.block_on(bench::run(bench, args.cache().as_deref())),
        Command::New(new) => runtime.block_on(new::run(new)),
        Command::Test(test) => runtime.block_on(test::run(test, args.cache().as_deref())),
    };
    // Nothing waits for compilations and reads that still run: their results are not kept.
    runtime.shutdown_background();
    code
}

/// Makes the kernel give this process its memory in small pages only, whoever asks for large ones.
/// A host keeps many small things, and gives back the memory that a load or a burst has taken; of a
/// page of 2 MiB nothing is given back while anything in it is in use (host/decisions/0030).
pub fn keep_pages_small() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        debug!(%error, "memory may come in huge pages");
    }
}
