//! `mortise simulate`: reconciles objects from files in memory until they no longer change. No
//! server, no port.
//!
//! The same input gives the same output: the clock stands still, random numbers are derived from
//! its time and from the object, and keys run one after the other in the order of their names.

mod calls;
mod end;
mod missing;
mod only;
mod others;
mod progress;
mod world;

pub use calls::Calls;
pub(crate) use end::seconds;
pub use end::{Again, Called, Change, End, Failed, InVersion, WouldCall};
pub use missing::Missing;
pub use only::{Chosen, Only};
pub use others::OtherCluster;
pub use progress::Step;
pub use world::World;

use std::{
    collections::BTreeMap, io::Write as _, path::Path, process::ExitCode, str::FromStr as _,
    sync::Arc,
};

use anyhow::Context as _;
use jiff::Timestamp;
use mortise_core::{
    contract::{Description, Kind, ObjectRef, display_kind},
    outbound::Outbound,
    queue::{Key, Run},
    write::Clock,
};
use mortise_embedded_api::EmbeddedApi;
use mortise_host::{
    host::{Drive, Host, Loaded, Options},
    outbound,
};
use mortise_sdk::testing::case;
use serde_json::Value;

use self::progress::Progress;
use crate::{
    args::{Output, SimulateArgs},
    egress::{self, Grant},
    files,
    guest::Source,
    local::{self, Parts},
    print::{self, Secrets},
};

/// The exit code if a reconcile failed.
const FAILED_EXIT_CODE: u8 = 3;
/// The note about a call that was not made.
const NOT_CALLED: &str = "the simulation ends at a call that would change something outside of the cluster: --answers FILE answers it from a file";
/// The default limit of rounds. Some processors would change objects forever.
const DEFAULT_MAX_ROUNDS: u32 = 100;

/// The input of a simulation.
#[derive(Debug, Clone)]
pub struct Input {
    /// The objects that exist.
    pub objects: Vec<Value>,
    /// The CRDs that are installed, in each cluster.
    pub crds: Vec<Value>,
    /// The other clusters.
    pub clusters: Vec<OtherCluster>,
    /// The time of all calls.
    pub now: Timestamp,
    /// Kinds that are not served, as `plural.group`.
    pub missing_kinds: Vec<String>,
    /// True if the objects must be valid.
    pub validate: bool,
    /// The only object that is reconciled; `None` for all objects.
    pub only: Option<Only>,
    /// The most rounds; `None` for 100.
    pub rounds: Option<u32>,
}

/// A simulation in progress.
struct Simulation<'a> {
    host: &'a Host,
    world: &'a World,
    only: Option<Chosen>,
    calls: Arc<Calls>,
    failures: BTreeMap<Key, Failed>,
    requeues: BTreeMap<Key, Again>,
    end: End,
}

/// Runs the command.
///
/// # Errors
///
/// Fails for bad input: files that do not parse, a module that does not load, objects that the API
/// refuses.
pub async fn run(args: &SimulateArgs, cache: Option<&Path>) -> anyhow::Result<ExitCode> {
    let only = args.only.as_deref().map(Only::from_str).transpose()?;
    let engine = local::engine(cache, true)?;
    let config = local::config(args.config.as_deref())?;
    let source = Source::open(&args.module)?;
    let parts = Parts::of(&source, source.component()?, &args.with)?;
    let mut loaded = local::load_into(&engine, parts, config).await?;
    let credentials = loaded.description.credentials().cloned();
    let secrets = Secrets::new(args.show_secrets, credentials);
    let calls = calls(args, &mut loaded)?;
    let input = Input {
        objects: files::load_all(&args.objects)?,
        crds: files::load_all(&[source.crds(), &args.crds].concat())?,
        clusters: args.cluster.iter().map(OtherCluster::open).collect::<Result<_, _>>()?,
        now: args.now.unwrap_or_else(Timestamp::now),
        missing_kinds: args.missing_kind.clone(),
        validate: !args.no_validate,
        only,
        rounds: args.rounds,
    };
    let mut progress = Progress::on_stderr();
    let end = simulate_with_progress(loaded, input, calls, |step| progress.show(step)).await;
    progress.clear();
    let end = end?;
    end.untyped.iter().for_each(local::warn_untyped);
    for note in &end.notes {
        // There is nowhere to report a closed standard error.
        let _ = writeln!(std::io::stderr(), "{note}");
    }
    let text = match args.output {
        Some(Output::Json) => {
            print::json(&end.printable(&secrets)).context("the end is no JSON")?
        }
        None => end.for_people(&secrets),
    };
    anstream::stdout().write_all(text.as_bytes()).context("cannot write to standard output")?;
    Ok(if end.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(FAILED_EXIT_CODE) })
}

/// Grants a processor calls to systems outside of the cluster, and returns how they are answered.
fn calls(args: &SimulateArgs, loaded: &mut Loaded) -> anyhow::Result<Calls> {
    let given: anyhow::Result<Vec<Grant>> = args.egress.iter().map(Grant::given).collect();
    let given = given?;
    let grants = if given.is_empty() { Grant::declared(&loaded.description) } else { given };
    egress::grant(loaded, grants)?;
    if let Some(file) = &args.answers {
        let clock: Clock = match args.now {
            Some(now) => Arc::new(move || now),
            None => Options::default().now,
        };
        return Ok(Calls::answered(case::answers(file, clock).map_err(anyhow::Error::msg)?));
    }
    Ok(if args.call_safe {
        Calls::safe(egress::client(&Options::default()))
    } else {
        Calls::refused()
    })
}

/// Loads the objects and reconciles until they no longer change. Calls to systems outside of the
/// cluster are refused.
///
/// # Errors
///
/// Fails for objects that the API refuses, for an `only` that names no object, and for a missing
/// kind that is unknown or that every cluster has.
pub async fn simulate(loaded: Loaded, input: Input) -> anyhow::Result<End> {
    simulate_with_progress(loaded, input, Calls::refused(), |_| {}).await
}

/// Does what [`simulate`] does, with calls to systems outside of the cluster, and reports its
/// progress after each reconcile.
///
/// # Errors
///
/// Fails as [`simulate`] does.
pub async fn simulate_with_progress(
    loaded: Loaded,
    input: Input,
    calls: Calls,
    mut progress: impl FnMut(Step),
) -> anyhow::Result<End> {
    let now = input.now;
    let clock: Clock = Arc::new(move || now);
    let description = Arc::clone(&loaded.description);
    let (processor, hooks) = (loaded.name(), Arc::clone(&loaded.hooks));
    let world = World::load(&loaded, &input, &clock).await?;
    let (before, before_there) = (world.visible(), world.others.visible());
    let only = match &input.only {
        Some(only) => Some(only.find(&description, &world.cluster, &before).await?),
        None => None,
    };
    let calls = Arc::new(calls);
    let client = Some(Arc::clone(&calls) as Arc<dyn Outbound>);
    let outbound = outbound::Options { client, ..outbound::Options::default() };
    let (drive, clusters) = (Drive::Caller, world.others.remotes.options());
    let options = Options { now: clock, drive, outbound, clusters, ..Options::default() };
    let host = Host::start(&world.cluster, vec![loaded], &options)?;
    host.drive().stand_still();
    world.follow(&host, processor);
    let mut simulation = Simulation {
        host: &host,
        world: &world,
        only,
        calls,
        failures: BTreeMap::new(),
        requeues: BTreeMap::new(),
        end: End { before, before_there, untyped: world.untyped.clone(), ..End::default() },
    };
    let settled =
        simulation.reconcile(input.rounds.unwrap_or(DEFAULT_MAX_ROUNDS), &mut progress).await?;
    let mut end = simulation.finish();
    end.versions = world.in_other_versions(&hooks);
    end.notes.extend(world.notes.iter().cloned());
    end.notes.extend(waiting(&world.api, &description));
    if end.would_call.is_some() {
        end.notes.push(NOT_CALLED.to_owned());
    } else if !settled {
        end.notes.push(format!("not settled after {}: more is to run (--rounds)", end.rounds()));
    } else if let Some(only) = input.only.filter(|_| end.rounds == 0) {
        end.notes.push(format!("{only} was not run: no reconciler selects it"));
    }
    Ok(end)
}

/// Returns notes about the reconcilers at home whose kind is not served.
fn waiting(api: &EmbeddedApi, description: &Description) -> Vec<String> {
    let unserved = description.reconcilers.iter().filter(|reconciler| {
        let kind = &reconciler.of.kind;
        !reconciler.on_demand && !api.serves(&kind.group, &kind.version, &kind.kind)
    });
    unserved
        .map(|reconciler| {
            let kind = display_kind(&reconciler.of.kind);
            format!("the reconciler `{}` waits: {kind} is missing", reconciler.name)
        })
        .collect()
}

// === impl Simulation ===

impl Simulation<'_> {
    /// Runs rounds until no key is due, `most` rounds were run, or a call was not made. Returns
    /// whether no key is due.
    async fn reconcile(
        &mut self,
        most: u32,
        progress: &mut impl FnMut(Step),
    ) -> anyhow::Result<bool> {
        loop {
            self.caught_up().await?;
            let runs = self.ready();
            if runs.is_empty() {
                return Ok(true);
            }
            if self.end.rounds == most {
                return Ok(false);
            }
            self.end.rounds += 1;
            let of = runs.len();
            for (index, run) in runs.into_iter().enumerate() {
                self.run(run).await?;
                progress(Step { round: self.end.rounds, done: index + 1, of });
                if self.end.would_call.is_some() {
                    return Ok(false);
                }
            }
        }
    }

    async fn caught_up(&self) -> anyhow::Result<()> {
        self.world.others.remotes.caught_up(self.host, &self.world.api).await
    }

    /// Returns the number of changes in all clusters so far.
    fn revision(&self) -> u64 {
        let others = self.world.others.remotes.iter().map(|(_, api)| api.revision());
        self.world.api.revision() + others.sum::<u64>()
    }

    /// Returns the API of a cluster.
    fn api(&self, cluster: &str) -> Option<&EmbeddedApi> {
        match cluster {
            "" => Some(&self.world.api),
            other => self.world.others.remotes.api(other),
        }
    }

    /// Returns the due runs, in an order that does not depend on the speed of watches.
    fn ready(&self) -> Vec<Run> {
        let mut runs = self.host.drive().take_ready();
        runs.sort_by(|one, other| one.key.cmp(&other.key));
        runs.retain(|run| {
            let is_chosen = self.is_chosen(&run.key);
            if !is_chosen {
                self.host.drive().abandon(run);
            }
            is_chosen
        });
        runs
    }

    fn is_chosen(&self, key: &Key) -> bool {
        let is = |only: &Chosen| self.host.drive().object_of(key).is_some_and(|of| only.is(&of));
        self.only.as_ref().is_none_or(is)
    }

    async fn run(&mut self, run: Run) -> anyhow::Result<()> {
        let object = self.host.drive().object_of(&run.key);
        let before = self.revision();
        let report = tokio::select! {
            report = self.host.drive().run(run) => report,
            unmade = self.calls.unmade() => {
                // The run is dropped: none of its writes were made.
                let object = object.map(|object| self.preferred(object));
                let unmade = unmade.masked(&self.world.visible());
                self.end.would_call = object.map(|object| WouldCall::new(&object, unmade));
                return Ok(());
            }
        };
        let own = u64::try_from(report.changes.len()).unwrap_or(u64::MAX);
        if self.revision() - before > own {
            // The API changed more objects than were written (it deletes dependents with their
            // owner); the next run has to see that.
            self.caught_up().await?;
        }
        self.end.changes.extend(report.changes.iter().filter_map(Change::of));
        self.failures.remove(&report.key);
        self.requeues.remove(&report.key);
        let Some(object) = object.map(|object| self.preferred(object)) else { return Ok(()) };
        let calls = report.record.calls.iter();
        self.end.calls.extend(calls.map(|made| Called::new(&object, made)));
        if let Some(after) = report.again {
            self.requeues.insert(report.key.clone(), Again::new(&object, after));
        }
        if let Some(message) = report.failure {
            self.failures.insert(report.key, Failed::new(&object, message));
        }
        Ok(())
    }

    /// Returns the reference in the version in which its object is printed.
    fn preferred(&self, mut of: ObjectRef) -> ObjectRef {
        let Kind { cluster, group, kind, .. } = &*of.kind;
        let preferred = self.api(cluster).and_then(|api| api.preferred_version(group, kind));
        if let Some(version) = preferred {
            Arc::make_mut(&mut of.kind).version = version;
        }
        of
    }

    fn finish(self) -> End {
        let (mut end, world) = (self.end, self.world);
        let at_home = end.changes.iter_mut().filter(|change| change.cluster.is_empty());
        at_home.for_each(|change| world.in_preferred_version(&mut change.object));
        end.failures = self.failures.into_values().collect();
        end.requeues = self.requeues.into_values().collect();
        (end.objects, end.clusters) = (world.visible(), world.others.visible());
        let made = |object: &&Value| end::is_event(object) && !world.was_given(object);
        end.events = end.objects.iter().filter(made).cloned().collect();
        end
    }
}
