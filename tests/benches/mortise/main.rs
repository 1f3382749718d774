//! The costs of calls, reads, stores, whole reconciles, Istio's renderer, the embedded API, the
//! developer commands, swaps, registries, webhooks, starts, a host on a real control plane,
//! `mortise run` on one, a host between two clusters, calls to the outside, and hostile neighbours:
//! `cargo bench -p mortise-tests`, or only some parts: `cargo bench -p mortise-tests -- api rules`.
//! Prints a table for each part. Budgets are for the reader: a figure over its budget fails
//! nothing, but a part that does not do what it measures fails (such as a restart that runs a key).
//! Servers listen on free ports of the loopback interface.
//!
//! With `--profile release` the host is built as it is installed, with link-time optimisation: a
//! quarter of an hour of building, and a fifth less CPU time where the host's own code dominates.
//!
//! `command` starts a program that is built with the benchmarks. With `MORTISE_STATIC=FILE` it
//! starts that program instead: the static one, made as `deploy/Dockerfile` makes it.

#![expect(clippy::print_stdout, reason = "the table is the product")]

mod api;
mod calls;
mod cluster;
#[expect(clippy::indexing_slicing, reason = "objects of the benchmarks have what they index")]
mod clusters;
mod command;
mod dev;
mod hostile;
mod istio;
mod outbound;
mod process;
mod reads;
#[expect(clippy::indexing_slicing, reason = "objects of the benchmarks have what they index")]
mod registry;
mod restart;
mod rules;
mod running;
mod samples;
mod settle;
mod start;
mod swap;
mod table;
#[expect(clippy::indexing_slicing, reason = "objects of the benchmarks have what they index")]
mod webhooks;

use std::process::Command;

use self::table::Table;

/// The allocator that the program in the image uses.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Part = fn(&mut Table) -> anyhow::Result<()>;

const PARTS: [(&str, Part); 17] = [
    ("memory", samples::memory),
    ("calls", calls::run),
    ("reads", reads::run),
    ("rules", rules::run),
    ("istio", istio::run),
    ("restart", restart::run),
    ("api", api::run),
    ("dev", dev::run),
    ("swap", swap::run),
    ("registry", registry::run),
    ("webhooks", webhooks::run),
    ("start", start::run),
    ("command", command::run),
    ("cluster", cluster::run),
    ("clusters", clusters::run),
    ("outbound", outbound::run),
    ("hostile", hostile::run),
];

fn main() -> anyhow::Result<()> {
    // As `mortise run` does.
    mortise_host::program::keep_pages_small();
    // Cargo adds `--bench`.
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    if let [part] = wanted.as_slice() {
        return run(part);
    }
    let all = PARTS.map(|(name, _)| name.to_owned());
    let parts = if wanted.is_empty() { all.as_slice() } else { wanted.as_slice() };
    parts.iter().try_for_each(|part| in_a_process_of_its_own(part))
}

fn run(part: &str) -> anyhow::Result<()> {
    let Some((_, run)) = PARTS.iter().find(|(name, _)| *name == part) else {
        let known = PARTS.map(|(name, _)| name).join(", ");
        anyhow::bail!("no part is called `{part}`: there are {known}");
    };
    let mut table = Table::default();
    run(&mut table)?;
    println!("{table}");
    Ok(())
}

/// Runs a part in its own process, so that the memory of earlier parts does not count.
fn in_a_process_of_its_own(part: &str) -> anyhow::Result<()> {
    let status = Command::new(std::env::current_exe()?).arg(part).status()?;
    anyhow::ensure!(status.success(), "the part `{part}` failed");
    Ok(())
}
