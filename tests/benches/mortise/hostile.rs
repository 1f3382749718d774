//! A benign processor beside hostile neighbours, on a real control plane: response times of its
//! changes and of `/livez`, during each attack of `mortise_tests::hostile`. With `MORTISE_STATIC`
//! another program is measured, such as an earlier version.

use std::time::Duration;

use anyhow::Context as _;
use mortise_tests::hostile::{Form, Street, attack::ATTACKS, figures::Figures};

use crate::{calls::runtime, command::program, table::Table};

/// The duration of each attack, and of the quiet phase before them.
const PHASE_DURATION: Duration = Duration::from_secs(10);
const GOAL: &str = "p99 at most 3 × the quiet one, /livez in 100 ms";

/// Adds the measurements of a quiet host and of each attack.
///
/// # Errors
///
/// Fails without Go, which builds the control plane, or if a measurement does.
pub(crate) fn run(table: &mut Table) -> anyhow::Result<()> {
    table.columns(["changes", "p50", "p99", "/livez", "memory", "log"]);
    runtime(2, "hostile")?.block_on(async {
        let program = program::given().unwrap_or_else(program::built);
        let mut street = Street::open(&program).await?.context("there is no Go")?;
        let quiet = street.quiet(PHASE_DURATION).await?;
        table.figures("quiet", cells(&quiet), "");
        for attack in ATTACKS {
            let form = Form { lasting: PHASE_DURATION, after: Duration::ZERO, terminate: false };
            let seen = Box::pin(street.attacked(&[attack], form)).await?;
            table.figures(format!("{} {}", attack.row, attack.name), cells(&seen), GOAL);
        }
        Ok(())
    })
}

fn cells(seen: &Figures) -> [String; 6] {
    let millis = |time: Duration| format!("{:.0} ms", time.as_secs_f64() * 1e3);
    let lost = match (&seen.died, seen.answers.lost) {
        (Some(_), lost) => format!(", {lost} lost, the host ended"),
        (None, 0) => String::new(),
        (None, lost) => format!(", {lost} lost"),
    };
    let livez = millis(seen.livez.last().copied().unwrap_or_default());
    let silent =
        if seen.silent == 0 { String::new() } else { format!(", {} × silent", seen.silent) };
    let [quiet, most] = seen.memory.map(|bytes| bytes >> 20);
    [
        format!("{}{lost}", seen.answers.times.len()),
        millis(seen.answers.at(50)),
        millis(seen.answers.at(99)),
        format!("{livez}{silent}"),
        format!("{quiet} → {most} MiB"),
        format!("{} kB", seen.log / 1000),
    ]
}
