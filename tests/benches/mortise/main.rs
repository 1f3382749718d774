//! What calls, reads, stores and whole reconciles cost: `cargo bench -p mortise-tests`. It prints a table and judges nothing;
//! the budgets are for who reads it. Everything runs in this process, no port is opened.

#![expect(clippy::print_stdout, reason = "the table is the product")]

mod calls;
mod process;
mod reads;
mod rules;
mod samples;
mod table;

use table::Table;

fn main() -> anyhow::Result<()> {
    let mut table = Table::default();
    // First, while the process holds no memory that it no longer uses.
    samples::memory(&mut table)?;
    calls::run(&mut table)?;
    reads::run(&mut table)?;
    for rules in [1_000, 4_000] {
        rules::run(rules, &mut table)?;
    }
    println!("{table}");
    Ok(())
}
