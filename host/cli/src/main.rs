//! The program `mortise`: parses its arguments, runs, prints the error.

use std::process::ExitCode;

use clap::Parser as _;
use mortise::args::Args;

/// The allocator of the static program only: see host/decisions/0030.
#[cfg(target_feature = "crt-static")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match Args::try_parse() {
        Ok(args) => mortise::run(&args),
        Err(answer) => mortise_host::program::print_usage(&answer),
    }
}
