//! The program `mortise`, built together with the tests that start it, so that it is never
//! outdated: cargo does not build the programs of other packages for a test. Its `main` is that of
//! `host/src/main.rs`.

use std::process::ExitCode;

use clap::Parser as _;

/// The allocator that the program in the image uses.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match mortise::args::Args::try_parse() {
        Ok(args) => mortise::run(&args),
        Err(answer) => mortise_host::program::print_usage(&answer),
    }
}
