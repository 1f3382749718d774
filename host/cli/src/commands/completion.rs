//! `mortise completion`: prints a shell completion script for the command line.

use std::{io::Write as _, process::ExitCode};

use anyhow::Context as _;
use clap::CommandFactory as _;

use crate::args::{Args, CompletionArgs};

/// Prints the completion script.
pub fn run(args: &CompletionArgs) -> anyhow::Result<ExitCode> {
    // The whole script is generated first: the generator panics if writing fails.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "mortise", &mut script);
    std::io::stdout().write_all(&script).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}
