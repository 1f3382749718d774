//! `mortise test`: runs a guest's cases against its component, in parallel, each in an in-memory
//! cluster of its own.
//!
//! [`mortise_sdk::testing::case`] defines cases, reads them and compares their results; cases run
//! natively there too. This module runs the component: on a [`Host`] that runs one key at a time,
//! in the order of the keys, so that a case is deterministic.

mod hook;
mod junit;

pub use hook::ask;

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::Write as _,
    path::Path,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use mortise_core::{
    contract::{Description, ObjectRef, hooks::serve_converted},
    queue::Key,
    write::Clock,
};
use mortise_embedded_api::Webhooks;
use mortise_host::{
    cluster::Cluster,
    host::{Drive, Host, Loaded, Options},
    outbound,
    wasm::Processor,
};
use mortise_sdk::testing::{
    MAX_RUNS, Settled,
    case::{self, Case, Difference, HookCase, Remote, Stage, Step},
    identity::Identity,
    title,
};
use serde_json::Value;
use tokio::{sync::Semaphore, task::JoinSet};

use crate::{
    args::{TestArgs, TestOutput},
    files,
    guest::Source,
    hooks::Hooks,
    local::{self, Parts},
    print::{self, BOLD, DIM, GREEN, RED},
    remotes::Remotes,
};

/// The exit code if a case failed.
const FAILED_EXIT_CODE: u8 = 3;

/// The result of a case.
#[derive(Debug)]
pub struct Verdict {
    /// The name of the case.
    pub name: String,
    /// The differences between the expected and the actual result.
    pub differences: Vec<Difference>,
    /// The error that ended the case early, if any.
    pub error: Option<String>,
    /// True if the expected result was rewritten.
    pub updated: bool,
    /// The time that the case took.
    pub took: Duration,
}

/// The component to test, with its cases.
struct Target {
    name: String,
    parts: Parts,
    cases: Vec<Case>,
    hooks: Vec<HookCase>,
    crds: Vec<Value>,
}

/// Runs the command.
///
/// # Errors
///
/// Fails for bad input: a guest that does not build, a component that does not load, cases that
/// cannot be read.
pub async fn run(args: &TestArgs, cache: Option<&Path>) -> anyhow::Result<ExitCode> {
    let target = target(args)?;
    let processor = local::component(&local::engine(cache, true)?, target.parts).await?;
    let start = Instant::now();
    let crds = target.crds.into();
    let mut verdicts = all(&processor, target.cases, crds, args.update).await?;
    for case in &target.hooks {
        verdicts.push(hook::verdict(&processor, case, args.update).await?);
    }
    let took = start.elapsed();
    let text = match args.output {
        Some(TestOutput::Junit) => junit::report(&target.name, &verdicts, took)?,
        None => for_people(&verdicts, took),
    };
    match &args.output_file {
        Some(file) => std::fs::write(file, text).with_context(|| {
            format!("cannot write `{}`: name another with --output-file", file.display())
        })?,
        None => anstream::stdout()
            .write_all(text.as_bytes())
            .context("cannot write to standard output")?,
    }
    let all_passed = verdicts.iter().all(Verdict::passed);
    Ok(if all_passed { ExitCode::SUCCESS } else { ExitCode::from(FAILED_EXIT_CODE) })
}

/// Returns the target of the command. A guest is built; for a component `--cases` is required.
fn target(args: &TestArgs) -> anyhow::Result<Target> {
    let path = &args.target;
    let source = Source::open(path)?;
    let crds = files::load_all(&[source.crds(), &args.crds].concat())?;
    let own = source.guest().map(|guest| guest.cases.clone());
    let cases = args.cases.clone().or(own).with_context(|| {
        format!("`{}` is a component: say with --cases where its cases are", path.display())
    })?;
    // Errors in the cases are reported before the user waits for a build.
    let (cases, hooks) = chosen(&cases, args.filter.as_deref())?;
    let name = match source.guest() {
        Some(guest) => guest.package.clone(),
        None => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
    };
    let parts = Parts::of(&source, source.component()?, &args.with)?;
    Ok(Target { name, parts, cases, hooks, crds })
}

/// Returns the cases in a folder whose names contain the filter: those of reconciles, and those of
/// hooks.
fn chosen(folder: &Path, filter: Option<&str>) -> anyhow::Result<(Vec<Case>, Vec<HookCase>)> {
    let mut cases = case::all(folder).map_err(anyhow::Error::msg)?;
    let mut hooks = case::hooks(folder).map_err(anyhow::Error::msg)?;
    let Some(filter) = filter else { return Ok((cases, hooks)) };
    let names = cases.iter().map(|case| &case.name).chain(hooks.iter().map(|case| &case.name));
    let names: Vec<String> = names.cloned().collect();
    cases.retain(|case| case.name.contains(filter));
    hooks.retain(|case| case.name.contains(filter));
    anyhow::ensure!(
        !cases.is_empty() || !hooks.is_empty(),
        "`--filter {filter}` leaves no case of: {}",
        names.join(", ")
    );
    Ok((cases, hooks))
}

/// Runs cases in parallel, as many as the machine has CPUs. Returns their verdicts, sorted by name.
async fn all(
    processor: &Processor,
    cases: Vec<Case>,
    crds: Arc<[Value]>,
    update: bool,
) -> anyhow::Result<Vec<Verdict>> {
    let places = std::thread::available_parallelism().map_or(1, usize::from);
    let places = Arc::new(Semaphore::new(places));
    let mut running: JoinSet<anyhow::Result<Verdict>> = JoinSet::new();
    for case in cases {
        let (processor, crds, places) = (processor.clone(), Arc::clone(&crds), Arc::clone(&places));
        running.spawn(async move {
            let _place = places.acquire_owned().await.context("no place to run a case")?;
            one(processor, case, &crds, update).await
        });
    }
    let mut verdicts = Vec::new();
    while let Some(verdict) = running.join_next().await {
        verdicts.push(verdict.context("a case broke off")??);
    }
    verdicts.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(verdicts)
}

/// Runs a case, and writes its result as the expected one if requested.
async fn one(
    processor: Processor,
    case: Case,
    crds: &[Value],
    update: bool,
) -> anyhow::Result<Verdict> {
    let start = Instant::now();
    let (name, file) = (case.name.clone(), case.expected_file());
    let mut verdict = Verdict {
        name,
        differences: Vec::new(),
        error: None,
        updated: false,
        took: Duration::ZERO,
    };
    match run_once(processor.clone(), case.clone(), crds, Notes::Kept).await {
        Err(error) => verdict.error = Some(format!("{error:#}")),
        Ok((stage, is_noted)) => {
            verdict.differences = stage.differences();
            if update && !verdict.differences.is_empty() {
                let cannot = || format!("cannot write `{}`", file.display());
                std::fs::write(&file, stage.accepted()).with_context(cannot)?;
                verdict.updated = true;
            }
            let mut wrong = stage.wrong_calls();
            if wrong.is_empty() && verdict.passed() && (is_noted || !stage.egress().is_empty()) {
                match run_once(processor, case, crds, Notes::Forgotten).await {
                    Err(error) => verdict.error = Some(format!("{error:#}")),
                    Ok((forgetful, _)) => wrong = stage.differences_without_notes(&forgetful),
                }
            }
            // No update of expected.yaml makes a call right.
            verdict.updated &= wrong.is_empty();
            verdict.differences.extend(wrong);
        }
    }
    verdict.took = start.elapsed();
    Ok(verdict)
}

/// Whether the next run of an object has the note of the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Notes {
    Kept,
    /// All notes are forgotten before each run.
    Forgotten,
}

/// Runs a case to its end.
///
/// # Errors
///
/// Fails if the case cannot be run: the component refuses the configuration, the API refuses
/// objects, or a key never stops changing objects.
pub async fn run_case(processor: Processor, case: Case, crds: &[Value]) -> anyhow::Result<Stage> {
    Ok(run_once(processor, case, crds, Notes::Kept).await?.0)
}

/// Runs a case to its end. Returns whether a note was left, too.
async fn run_once(
    processor: Processor,
    case: Case,
    crds: &[Value],
    notes: Notes,
) -> anyhow::Result<(Stage, bool)> {
    let loaded = local::describe(processor, &case.config).await?;
    let webhooks = webhooks(&loaded)?;
    let mut crds = crds.to_vec();
    for definition in &mut crds {
        serve_converted(definition, &loaded.hooks);
    }
    let opened = Stage::open(case, &crds, &loaded.description, webhooks);
    let mut stage = opened.map_err(anyhow::Error::msg)?;
    let is_cut_off = |step: &Step| step.clusters.values().any(|of| of.unreachable == Some(true));
    anyhow::ensure!(
        !stage.case().steps.iter().any(is_cut_off),
        "a cluster that is unreachable is simulated natively only, by `cargo test`"
    );
    if notes == Notes::Forgotten {
        stage = stage.without_notes();
    }
    let run = CaseRun::start(&stage, loaded, notes)?;
    let (mut settled, mut is_noted) = (Settled::default(), false);
    loop {
        run.settle(&mut settled).await?;
        is_noted |= run.host.drive().has_notes();
        stage.settled(&settled);
        let Some(later) = stage.next_step().map_err(anyhow::Error::msg)? else { break };
        run.host.drive().advance(later);
    }
    run.host.stop().await?;
    Ok((stage, is_noted))
}

/// Returns the conversions of a processor, if it has some.
fn webhooks(loaded: &Loaded) -> anyhow::Result<Option<Arc<dyn Webhooks>>> {
    if loaded.hooks.conversions.is_empty() {
        return Ok(None);
    }
    let hooks = Hooks::converting_only()?;
    hooks.begin(loaded, &Options::default().now)?;
    Ok(Some(Arc::new(hooks)))
}

// === impl CaseRun ===

/// A case in progress, on a host that runs one key after the other.
struct CaseRun {
    host: Host,
    api: mortise_embedded_api::EmbeddedApi,
    remotes: Remotes,
    only: Option<mortise_sdk::testing::identity::Pattern>,
    description: Arc<Description>,
    notes: Notes,
}

impl CaseRun {
    fn start(stage: &Stage, mut loaded: Loaded, notes: Notes) -> anyhow::Result<Self> {
        let api = stage.cluster().api().clone();
        let description = Arc::clone(&loaded.description);
        let clock = stage.cluster().clone();
        let now: Clock = Arc::new(move || clock.now());
        let named = |of: &Remote| {
            let there = stage.clusters().get(&of.name).ok()?;
            Some((of.name.clone(), there.api().clone()))
        };
        let remotes: Remotes = stage.case().clusters.iter().filter_map(named).collect();
        let clusters = remotes.options();
        loaded.settings.egress = stage.egress().into();
        let client = Some(stage.outbound());
        let outbound = outbound::Options { client, ..outbound::Options::default() };
        let drive = Drive::Caller;
        let options = Options { now, drive, clusters, outbound, ..Options::default() };
        let cluster = Cluster::new(kube::Client::new(api.router(), "default"));
        let host = Host::start(&cluster, vec![loaded], &options)?;
        host.drive().stand_still();
        let only = stage.case().only.clone();
        Ok(Self { host, api, remotes, only, description, notes })
    }

    /// Runs keys until none is due.
    async fn settle(&self, settled: &mut Settled) -> anyhow::Result<()> {
        let (driver, mut runs) = (self.host.drive(), BTreeMap::<Key, usize>::new());
        loop {
            self.remotes.caught_up(&self.host, &self.api).await?;
            let Some((key, of)) = self.next() else { break };
            let of_key = runs.entry(key.clone()).or_default();
            anyhow::ensure!(
                *of_key < MAX_RUNS,
                "no rest: {key} is due again after {MAX_RUNS} runs"
            );
            *of_key += 1;
            if self.notes == Notes::Forgotten {
                driver.forget_notes();
            }
            let Some(run) = driver.take(&key) else { continue };
            let report = driver.run(run).await;
            let title = title(&of, key.reconciler().name(), &self.description);
            settled.ran(&title, report.again, report.failure);
        }
        settled.runs = runs.values().sum();
        Ok(())
    }

    /// Returns the first key that is due, with its object.
    fn next(&self) -> Option<(Key, ObjectRef)> {
        let driver = self.host.drive();
        let of = |key: Key| Some((key.clone(), driver.object_of(&key)?));
        let is_meant = |(_, of): &(Key, ObjectRef)| {
            let of = Identity::of_ref(&of.clone().into());
            self.only.as_ref().is_none_or(|only| only.matches(&of))
        };
        driver.ready().into_iter().filter_map(of).find(is_meant)
    }
}

// === impl Verdict ===

impl Verdict {
    /// Returns whether the case passed, or its expected result was updated.
    pub fn passed(&self) -> bool {
        self.error.is_none() && (self.differences.is_empty() || self.updated)
    }
}

fn for_people(verdicts: &[Verdict], took: Duration) -> String {
    let mut text = String::new();
    for verdict in verdicts {
        let (word, style) = match verdict {
            Verdict { updated: true, .. } => ("updated", BOLD),
            verdict if verdict.passed() => ("ok", GREEN),
            _ => ("FAILED", RED),
        };
        let _ = writeln!(
            text,
            "{style}{word:8}{style:#}{} {DIM}{:.0?}{DIM:#}",
            verdict.name, verdict.took
        );
        if let Some(error) = &verdict.error {
            let _ = writeln!(text, "  {RED}it could not be run:{RED:#} {error}");
        }
        for difference in &verdict.differences {
            let _ = writeln!(text, "  {} {DIM}(- expected, + now){DIM:#}", difference.title);
            print::lines(&mut text, &difference.expected, &difference.actual);
        }
    }
    let failed = verdicts.iter().filter(|verdict| !verdict.passed()).count();
    let updated = verdicts.iter().filter(|verdict| verdict.updated).count();
    let more = if updated > 0 { format!(", {updated} of them updated") } else { String::new() };
    let _ = writeln!(
        text,
        "{BOLD}{} passed{more}, {failed} failed, in {took:.1?}{BOLD:#}",
        verdicts.len() - failed
    );
    if verdicts.iter().any(|verdict| !verdict.passed() && verdict.error.is_none()) {
        let _ = writeln!(text, "{DIM}accept what is right with --update{DIM:#}");
    }
    text
}
