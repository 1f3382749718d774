//! `mortise bench`: measures the cost of a processor's calls, on the author's own objects.
//!
//! The objects are loaded into an API in memory, and each call reads them in that state: outcomes
//! are not written, so that every call of an object does the same work. The measured call is the
//! host's own, with a fresh instance and all its reads. Two modules take turns, call by call, so
//! that other load of the machine affects both.

mod figures;

pub use figures::{Figures, Key, Pace, Table};

use std::{
    io::Write as _, path::Path, process::ExitCode, str::FromStr as _, sync::Arc, time::Duration,
};

use anyhow::Context as _;
use jiff::Timestamp;
use mortise_core::{
    contract::{ObjectRef, Request, display_kind},
    grant::Grant,
    outbound::Sending,
    reads::{PAGE_BYTES, View},
    write::Clock,
};
use mortise_host::{
    host::{Drive, Host, Loaded, Options},
    wasm::{self, Called, Moment},
};
use tokio::{task::JoinSet, time::Instant};

use crate::{
    args::{BenchArgs, Output},
    commands::simulate::{Chosen, Input, Only, World},
    files,
    guest::Source,
    local::{self, Parts},
    print,
};

/// The exit code if a reconcile failed.
const FAILED_EXIT_CODE: u8 = 3;
/// The number of parts into which the time is divided: one thread, then all threads.
const PHASES: u32 = 2;

/// The reason why calls to systems outside of the cluster are refused.
const SENDS_NOTHING: &str = "`mortise bench` sends nothing: it measures the processor alone";

/// The warning of a development build.
const UNOPTIMISED: &str = "this mortise is built for development: its own part of a call is many times slower than in a release build; ratios of modules hold less, figures do not (cargo build --release)";

/// A processor with the objects that it reconciles.
struct Callee {
    loaded: Loaded,
    /// The host, which keeps the stores filled.
    host: Host,
    grant: Arc<Grant>,
    requests: Vec<Request>,
    now: Timestamp,
}

/// Runs the command.
///
/// # Errors
///
/// Fails for bad input: files that do not parse, a module that does not load, objects that the API
/// refuses, nothing to reconcile.
pub async fn run(args: &BenchArgs, cache: Option<&Path>) -> anyhow::Result<ExitCode> {
    let engine = local::engine(cache, false)?;
    let config = local::config(args.config.as_deref())?;
    let sources = args.modules.iter().map(|module| Source::open(module));
    let sources: Vec<Source> = sources.collect::<Result<_, _>>()?;
    let crds = sources.iter().flat_map(Source::crds).chain(&args.crds).cloned();
    let input = Input {
        objects: files::load_all(&args.objects)?,
        crds: files::load_all(&crds.collect::<Vec<_>>())?,
        clusters: Vec::new(),
        now: args.now.unwrap_or_else(Timestamp::now),
        missing_kinds: Vec::new(),
        validate: !args.no_validate,
        only: args.only.as_deref().map(Only::from_str).transpose()?,
        rounds: None,
    };
    let mut callees = Vec::new();
    for source in &sources {
        let parts = Parts::of(source, source.component()?, &args.with)?;
        let loaded = local::load_into(&engine, parts, config.clone()).await?;
        callees.push(Arc::new(Callee::new(loaded, &input).await?));
    }
    if cfg!(debug_assertions) {
        // There is nowhere to report a closed standard error.
        let _ = writeln!(std::io::stderr(), "{UNOPTIMISED}");
    }
    let table = measure(&callees, Duration::from_secs(args.seconds.into())).await?;
    let text = match args.output {
        Some(Output::Json) => print::json(&table)?,
        None => table.for_people(),
    };
    anstream::stdout().write_all(text.as_bytes()).context("cannot write to standard output")?;
    for failure in table.failures() {
        // There is nowhere to report a closed standard error.
        let _ = writeln!(std::io::stderr(), "failed: {}", print::guest_text(&failure));
    }
    Ok(if table.failures().next().is_none() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FAILED_EXIT_CODE)
    })
}

/// Calls each object once to measure its reads, then all objects in turn: in one thread, then in as
/// many threads as the machine has CPUs.
async fn measure(callees: &[Arc<Callee>], time: Duration) -> anyhow::Result<Table> {
    let mut table = Table::default();
    for callee in callees {
        table.modules.push(callee.measure().await);
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    for threads in [1, threads].iter().take(if threads == 1 { 1 } else { 2 }) {
        let mut tasks = JoinSet::new();
        for thread in 0..*threads {
            tasks.spawn(take_turns(callees.to_vec(), thread, time / PHASES));
        }
        let mut took = vec![Vec::new(); callees.len()];
        while let Some(ended) = tasks.join_next().await {
            let ended = ended.context("a thread of the benchmark failed")?;
            took.iter_mut().zip(ended).for_each(|(all, more)| all.extend(more));
        }
        for (figures, took) in table.modules.iter_mut().zip(took) {
            figures.paces.push(Pace::new(*threads, took));
        }
    }
    Ok(table)
}

/// Calls one object after the other, each with every module, until the time is over, but each
/// object at least once. Threads begin at different objects. Returns the durations of each module's
/// calls.
async fn take_turns(
    callees: Vec<Arc<Callee>>,
    thread: usize,
    time: Duration,
) -> Vec<Vec<Duration>> {
    let end = Instant::now() + time;
    let count = callees.iter().map(|callee| callee.requests.len()).max().unwrap_or_default();
    let mut took = vec![Vec::new(); callees.len()];
    for turn in 0.. {
        if turn >= count && Instant::now() >= end {
            break;
        }
        for (callee, took) in callees.iter().zip(&mut took) {
            took.push(callee.call(turn + thread).await.took);
        }
    }
    took
}

// === impl Callee ===

impl Callee {
    async fn new(loaded: Loaded, input: &Input) -> anyhow::Result<Self> {
        let now = input.now;
        let clock: Clock = Arc::new(move || now);
        let world = World::load(&loaded, input, &clock).await?;
        let only = match &input.only {
            Some(only) => {
                let objects = world.visible();
                Some(only.find(&loaded.description, &world.cluster, &objects).await?)
            }
            None => None,
        };
        let options = Options { now: clock, drive: Drive::Caller, ..Options::default() };
        let host = Host::start(&world.cluster, vec![loaded.clone()], &options)?;
        host.drive().caught_up(|| world.api.objects()).await?;
        let grant = Arc::new(Grant::new(&loaded.description)?);
        let mut callee = Self { loaded, host, grant, requests: Vec::new(), now };
        callee.requests = callee.requests(only.as_ref());
        anyhow::ensure!(
            !callee.requests.is_empty(),
            "`{}` reconciles none of the objects; it reconciles {}",
            callee.loaded.description.name,
            callee.reconciled_kinds()
        );
        Ok(callee)
    }

    fn reconciled_kinds(&self) -> String {
        let reconcilers = self.loaded.description.reconcilers.iter();
        let kinds: Vec<String> =
            reconcilers.map(|reconciler| display_kind(&reconciler.of.kind)).collect();
        kinds.join(", ")
    }

    /// Returns the requests that a host would make, in the order of their keys.
    fn requests(&self, only: Option<&Chosen>) -> Vec<Request> {
        let driver = self.host.drive();
        let mut keys: Vec<_> = driver.take_ready().into_iter().map(|run| run.key).collect();
        keys.sort();
        let of =
            keys.iter().filter_map(|key| Some((key.reconciler().name(), driver.object_of(key)?)));
        of.filter(|(_, of)| only.is_none_or(|only| only.is(of)))
            .filter_map(|(reconciler, of)| self.request(reconciler, of))
            .collect()
    }

    /// Returns the request for an object; `None` if the reconciler does not select the object.
    fn request(&self, reconciler: &str, of: ObjectRef) -> Option<Request> {
        let declared = self.grant.reconciler(reconciler)?;
        let known = self.view().reconciled(&of, declared).ok()?;
        Some(Request {
            reconciler: reconciler.to_owned(),
            ref_: of,
            object: Some(known.json.filter(|_| known.selected || known.held)?),
            config: self.loaded.config.to_string(),
            attempt: 0,
            failed_writes: Vec::new(),
            note: None,
        })
    }

    fn view(&self) -> View {
        View::new(self.host.drive().stores().clone(), Arc::clone(&self.grant), PAGE_BYTES)
    }

    /// Calls the processor with the object of this turn.
    async fn call(&self, turn: usize) -> Called {
        let now = u64::try_from(self.now.as_millisecond()).unwrap_or_default();
        let moment = Moment { now_ms: now, seed: now };
        let count = self.requests.len();
        let request = self.requests.get(turn % count).expect("there is a request at least");
        let mut input = wasm::Input::new(self.view(), request, moment);
        input.outside.sending = Sending::closed(SENDS_NOTHING);
        self.loaded.processor.call(input).await
    }

    /// Calls each object once, and returns the reads and the memory of each call.
    async fn measure(&self) -> Figures {
        let processor = &self.loaded.processor;
        let mut figures = Figures::new(processor.name(), processor.digest());
        for (turn, request) in self.requests.iter().enumerate() {
            figures.keys.push(Key::new(&request.ref_, &self.call(turn).await));
        }
        figures
    }
}

/// Returns the error of a call that did not reconcile its object.
fn failure_of(called: &Called) -> Option<String> {
    match &called.outcome {
        Ok(Ok(_)) => None,
        Ok(Err(failure)) => Some(failure.message.clone()),
        Err(error) => Some(error.to_string()),
    }
}

/// Formats an object as `--only` names it.
fn address(of: &ObjectRef) -> String {
    format!("{}/{}/{}", of.kind.kind, of.namespace.as_deref().unwrap_or_default(), of.name)
}
