//! Settled APIRules: a resync of all of them, and a new host, beside the first run. On the embedded
//! API.

use std::time::{Duration, Instant};

use mortise_host::host::{Host, Options};

use crate::{
    calls::runtime,
    process::{self, API_THREAD},
    rules::{Setting, Written},
    settle,
    table::Table,
};

/// The time after which every rule has had a resync.
pub(crate) const PAST_RESYNC: Duration = Duration::from_mins(31);
pub(crate) const RESYNC_BUDGET: &str = "no run, no write, < 2.5 s of CPU for 5,000";
pub(crate) const START_BUDGET: &str = "no write, < 2 ms of CPU a rule";

/// Number of starts, of which the median counts.
const RESTARTS: usize = 5;

/// The cost until nothing was left to do.
struct Took {
    wall: Duration,
    cpu: Duration,
    runs: u64,
    writes: u64,
}

/// Adds the cost of restarts and resyncs with 1,000 and 5,000 rules.
///
/// # Errors
///
/// Fails if rules do not become ready, or a host fails.
pub(crate) fn run(table: &mut Table) -> anyhow::Result<()> {
    let all = [(1_000, Written::Alike), (5_000, Written::Alike), (5_000, Written::InThreeVersions)];
    all.into_iter().try_for_each(|(rules, written)| restarts(rules, written, table))
}

fn restarts(count: usize, written: Written, table: &mut Table) -> anyhow::Result<()> {
    let rules = match written {
        Written::Alike => count.to_string(),
        Written::InThreeVersions => format!("{count} mixed"),
    };
    let serving = runtime(2, API_THREAD)?;
    let hosting = runtime(2, "host")?;
    let result = hosting.block_on(async {
        let setting = Setting::new(count, written, serving.handle().clone()).await?;
        let (host, first) = start(&setting).await?;
        setting.check()?;
        first.row(table, format!("{rules} rules, first time"), "");
        // A run that wrote something is no proof that the next one would write nothing.
        let after_writes = resync(&setting, &host).await?;
        after_writes.row(table, format!("{rules} rules, a resync after writes"), START_BUDGET);
        after_writes.ensure(u64::try_from(count)?)?;
        let resync = resync(&setting, &host).await?;
        resync.row(table, format!("{rules} rules, a later resync"), RESYNC_BUDGET);
        resync.ensure(0)?;
        host.stop().await?;

        let mut restarts = Vec::new();
        for _ in 0..RESTARTS {
            let (host, again) = start(&setting).await?;
            again.ensure(u64::try_from(count)?)?;
            restarts.push(again);
            host.stop().await?;
        }
        median(restarts, table, &rules);
        setting.check()?;
        setting.api.stop();
        anyhow::Ok(())
    });
    serving.shutdown_background();
    result
}

/// Starts a host, and waits until it has checked every rule and nothing is left to do.
async fn start(setting: &Setting) -> anyhow::Result<(Host, Took)> {
    setting.api.reset_requests();
    let (cpu, start) = (process::cpu()?, Instant::now());
    let options = Options { skips: true, ..Options::default() };
    let host = Host::start(&setting.cluster, Vec::new(), &options)?;
    host.swap(setting.loaded.clone()).await?;
    let took = settled(setting, &host, 0, start, cpu).await?;
    Ok((host, took))
}

/// Advances the time until every rule has a resync.
async fn resync(setting: &Setting, host: &Host) -> anyhow::Result<Took> {
    setting.api.reset_requests();
    let before = host.status().first().map_or(0, |status| status.runs);
    host.drive().stand_still();
    let (cpu, start) = (process::cpu()?, Instant::now());
    host.drive().advance(PAST_RESYNC);
    settled(setting, host, before, start, cpu).await
}

async fn settled(
    setting: &Setting,
    host: &Host,
    before: u64,
    start: Instant,
    cpu: process::Cpu,
) -> anyhow::Result<Took> {
    let end = settle::settled(host, setting.rules, || Ok((start.elapsed(), process::cpu()?)));
    let (wall, used) = end.await?.end;
    let cpu = (used - cpu).host;
    let runs = host.status().first().map_or(0, |status| status.runs) - before;
    let reads = ["get", "list", "watch"];
    let mut requests = setting.requests();
    requests.retain(|verb, _| !reads.contains(&verb.as_str()));
    Ok(Took { wall, cpu, runs, writes: requests.values().sum() })
}

/// Adds the measurement with the median of CPU time.
fn median(mut all: Vec<Took>, table: &mut Table, rules: &str) {
    all.sort_by_key(|took| took.cpu);
    let (least, most) = (all.first().map(|took| took.cpu), all.last().map(|took| took.cpu));
    let seconds = |time: Option<Duration>| time.unwrap_or_default().as_secs_f64();
    let (least, most) = (seconds(least), seconds(most));
    let middle = all.swap_remove(all.len() / 2);
    middle.row(table, format!("{rules} rules, a new host"), START_BUDGET);
    table.row(format!("  the middle of {RESTARTS}"), format!("CPU {least:.2} to {most:.2} s"), "");
}

// === impl Took ===

impl Took {
    /// Checks the number of runs, and that nothing was written: no object has changed.
    fn ensure(&self, runs: u64) -> anyhow::Result<()> {
        let told = (self.runs, self.writes);
        anyhow::ensure!(told == (runs, 0), "runs and writes are {told:?}, not {:?}", (runs, 0));
        Ok(())
    }

    fn row(&self, table: &mut Table, what: String, budget: &str) {
        let Self { wall, cpu, runs, writes } = self;
        let (wall, cpu) = (wall.as_secs_f64(), cpu.as_secs_f64());
        let figure = format!("CPU {cpu:.2} s, {wall:.2} s, {runs} runs, {writes} writes");
        table.row(what, figure, budget);
    }
}
