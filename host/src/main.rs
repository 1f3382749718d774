//! The program `mortise`: parses its arguments, runs, prints the error.

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    match mortise_host::args::Args::try_parse() {
        Ok(args) => mortise_host::cli::run(&args),
        Err(answer) => mortise_host::cli::print_usage(&answer),
    }
}
