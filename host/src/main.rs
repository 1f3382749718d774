//! The program `mortise`: parses its arguments, runs, prints the error.

use std::process::ExitCode;

use clap::Parser as _;

/// The allocator of the static program only: see host/decisions/0030.
#[cfg(target_feature = "crt-static")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match mortise_host::args::Args::try_parse() {
        Ok(args) => mortise_host::cli::run(&args),
        Err(answer) => mortise_host::cli::print_usage(&answer),
    }
}
