//! `mortise completion`: a script with which a shell completes the command line.

use std::{io::Write as _, process::ExitCode};

use anyhow::Context as _;
use clap::CommandFactory as _;

use crate::args::{Args, CompletionArgs};

/// Runs the command.
///
/// # Errors
///
/// Standard output cannot be written.
pub fn run(args: &CompletionArgs) -> anyhow::Result<ExitCode> {
    // Generated as a whole first: the generator takes a pipe that is closed for a fault of its own.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "mortise", &mut script);
    std::io::stdout().write_all(&script).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}
