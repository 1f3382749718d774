//! The edge of the program: logs, the async runtime, the exit code.

use std::{io::Write as _, process::ExitCode};

use anyhow::Context as _;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

use crate::{
    args::{Args, Command},
    bench, completion, dev, inspect, log, new,
    print::RED,
    simulate, test,
};

/// Runs the command and prints what went wrong, once, as a chain of causes.
pub fn run(args: &Args) -> ExitCode {
    match try_run(args) {
        Ok(code) => code,
        Err(error) => {
            // Where standard error is gone there is nobody to tell.
            let _ = writeln!(anstream::stderr(), "{RED}error:{RED:#} {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Prints what the command line asks for, help for instance, or what is wrong with it. Bad input of any sort ends with 1.
pub fn print_usage(answer: &clap::Error) -> ExitCode {
    // Where the terminal is gone there is nobody to tell.
    let _ = answer.print();
    if answer.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn try_run(args: &Args) -> anyhow::Result<ExitCode> {
    let filter = EnvFilter::try_new(own_levels(&args.log))
        .with_context(|| format!("`--log {}` is no filter", args.log))?;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(log::Output).init();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start threads")?;
    let code = match &args.command {
        Command::Dev(dev) => runtime.block_on(dev::run(dev, args.cache().as_deref())),
        Command::Simulate(simulate) => {
            runtime.block_on(simulate::run(simulate, args.cache().as_deref()))
        }
        Command::Inspect(inspect) => {
            runtime.block_on(inspect::run(inspect, args.cache().as_deref()))
        }
        Command::Completion(completion) => completion::run(completion),
        Command::Bench(bench) => runtime.block_on(bench::run(bench, args.cache().as_deref())),
        Command::New(new) => runtime.block_on(new::run(new)),
        Command::Test(test) => runtime.block_on(test::run(test, args.cache().as_deref())),
    };
    // What is still being compiled or read need not be waited for: nothing that it does is kept.
    runtime.shutdown_background();
    code
}

/// The filter with each level that stands alone and says more than a warning taken for mortise's own crates: those below say so
/// much, and nothing that a user asked for.
fn own_levels(filter: &str) -> String {
    let directives =
        filter.split(',').map(|directive| match directive.trim().parse::<LevelFilter>() {
            Ok(level) if level > LevelFilter::WARN => format!("warn,mortise={level}"),
            _ => directive.to_owned(),
        });
    directives.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_alone_is_that_of_our_own_crates() {
        let cases = [
            ("debug", "warn,mortise=debug"),
            ("error", "error"),
            ("tower=debug", "tower=debug"),
            ("info,tower=debug", "warn,mortise=info,tower=debug"),
        ];
        for (given, filter) in cases {
            assert_eq!(own_levels(given), filter);
            EnvFilter::try_new(own_levels(given)).unwrap();
        }
        assert!(EnvFilter::try_new(own_levels("tower=loud")).is_err());
    }
}
