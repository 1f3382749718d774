//! `mortise completion`: prints a script with which a shell completes the command line.

use std::{io::Write as _, process::ExitCode};

use anyhow::Context as _;
use clap::CommandFactory as _;

use crate::args::{Args, CompletionArgs};

/// Prints the completion script.
pub fn run(args: &CompletionArgs) -> anyhow::Result<ExitCode> {
    // The script is generated as a whole first: the generator takes a closed pipe for a fault of
    // its own.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "mortise", &mut script);
    std::io::stdout().write_all(&script).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}
