//! The program `mortise`: parses its arguments, runs, prints the error.

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    mortise_host::cli::run(&mortise_host::args::Args::parse())
}
