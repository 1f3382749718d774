//! The program `mortise-host`: parses its arguments, runs, prints the error.

use std::process::ExitCode;

use clap::Parser as _;
use mortise_host::{args::Args, program};

/// The allocator of the static program only: see host/decisions/0030.
#[cfg(target_feature = "crt-static")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match Args::try_parse() {
        Ok(args) => program::run(&args),
        Err(answer) => program::print_usage(&answer),
    }
}
