//! The work of `dev`: builds the guests, starts the host with them, and swaps a processor when its
//! sources are saved.
//!
//! *Guarantees*: at most one build runs at a time. The latest save wins: a save during a build
//! cancels that build, unless that build has itself replaced a cancelled one; so continuous saves
//! still let some versions run. A version that fails to build, load or take over leaves the former
//! one running.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::Duration};

use futures::future::{self, BoxFuture};
use mortise_core::reconcile::Report;
use mortise_embedded_api::EmbeddedApi;
use mortise_host::{
    cluster::Cluster,
    host::{Host, Loaded, Options},
    operator::admin::Admin,
    wasm::Engine,
};
use tokio::{
    net::TcpListener,
    time::{Interval, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;

use super::{
    change::{Changes, Sources},
    companion::Companion,
    input::Input,
    message::{Message, Ran, Running, Sender, short},
    objects, ready,
    remote::Shown,
    renewal::{Renewal, Renewed, Version},
};
use crate::{
    egress::Grant,
    guest::Guest,
    hooks::{self, Hooks},
    local,
    print::Secrets,
    remotes::Remotes,
};

/// The interval at which the processors' state is sent.
const STATUS_INTERVAL: Duration = Duration::from_millis(500);

/// The parts of a session.
pub(super) struct Session {
    pub(super) input: Input,
    pub(super) api: Arc<EmbeddedApi>,
    pub(super) engine: Engine,
    /// The listener on which the host's metrics are served, if any.
    pub(super) admin: Option<TcpListener>,
    pub(super) messages: Sender,
    /// True if a user is present who can fix a failing first build.
    pub(super) attended: bool,
    /// The other clusters.
    pub(super) remotes: Vec<Shown>,
}

/// The state of a running session.
struct Work {
    seats: Vec<Seat>,
    host: Option<Arc<Host>>,
    /// The hooks of the processors, as webhooks of the API.
    hooks: Arc<Hooks>,
    /// The server of the host's metrics.
    admin: Option<BoxFuture<'static, ()>>,
    changes: Option<Changes>,
    job: Option<Job>,
    /// The companions of the guests that have one.
    companions: Vec<Companion>,
    /// True if the last job was cancelled for the next one.
    gave_way: bool,
    cluster: Cluster,
    session: Session,
}

/// A guest and its state.
struct Seat {
    guest: Arc<Guest>,
    config: Arc<str>,
    /// The systems outside of the cluster that the guest may call.
    egress: Arc<[Grant]>,
    sources: Sources,
    /// True if files were saved since the last build began.
    dirty: bool,
    /// The first build, kept until all guests have been built.
    first: Option<(Loaded, Duration)>,
    /// The running version, if any.
    version: Option<Version>,
}

/// A guest that is being built and loaded.
struct Job {
    seat: usize,
    give_up: CancellationToken,
    /// True if the job replaced a cancelled one.
    is_second: bool,
    renewed: BoxFuture<'static, Renewed>,
}

// === impl Session ===

impl Session {
    /// Works until `stop` is cancelled, then saves the objects if that was asked for.
    ///
    /// # Errors
    ///
    /// Fails for refused objects, for processors of the same name, for a failing first build while
    /// no user is present, or if a task of the host has ended.
    pub(super) async fn run(self, stop: &CancellationToken) -> anyhow::Result<()> {
        let cluster = Cluster::new(kube::Client::new(self.api.router(), "default"));
        let mut work = Work::new(self, cluster)?;
        let cluster = work.cluster.clone();
        let (messages, is_ready) = (work.session.messages.clone(), work.session.input.ready);
        let now = Options::default().now;
        let mark = async {
            if is_ready {
                ready::run(&cluster, &now, &messages).await?;
            }
            std::future::pending().await
        };
        let worked = tokio::select! {
            worked = work.run() => worked,
            marked = mark => marked,
            () = stop.cancelled() => Ok(()),
        };
        work.end().await?;
        worked
    }

    fn ran(&self, report: Report, secrets: Secrets) -> Ran {
        let api = |cluster: &str| {
            let of = self.remotes.iter().find(|remote| remote.name == cluster);
            of.map_or_else(|| cluster.is_empty().then_some(&*self.api), |of| Some(&of.api))
        };
        Ran::new(report, api, secrets)
    }

    fn send(&self, message: Message) {
        // A closed channel means that the program ends.
        let _ = self.messages.send(message);
    }
}

// === impl Work ===

impl Work {
    fn new(mut session: Session, cluster: Cluster) -> anyhow::Result<Self> {
        let guests = std::mem::take(&mut session.input.guests);
        let configs = std::mem::take(&mut session.input.configs);
        let mut seats = Vec::new();
        for (guest, config) in guests.into_iter().zip(configs) {
            seats.push(Seat {
                sources: Sources::of(&guest)?,
                guest: Arc::new(guest),
                config: config.into(),
                egress: session.input.egress.clone().into(),
                dirty: true,
                first: None,
                version: None,
            });
        }
        let mut work = Self {
            seats,
            host: None,
            hooks: Hooks::of_api(&session.api)?,
            admin: None,
            changes: None,
            job: None,
            companions: Vec::new(),
            gave_way: false,
            cluster,
            session,
        };
        work.watch();
        Ok(work)
    }

    /// Watches the sources of the guests that are not watched yet.
    fn watch(&mut self) {
        let changes = match self.changes.take() {
            Some(changes) => Ok(changes),
            None => Changes::new(),
        };
        let watched = changes.and_then(|mut changes| {
            for seat in &self.seats {
                changes.watch(&seat.sources)?;
            }
            Ok(changes)
        });
        match watched {
            Ok(changes) => self.changes = Some(changes),
            Err(error) => {
                self.session.send(Message::Note(format!("saved files are not noticed: {error}")));
            }
        }
    }

    async fn run(&mut self) -> anyhow::Result<()> {
        let crds = std::mem::take(&mut self.session.input.crds);
        local::apply_files(&self.cluster, crds).await?;
        if self.seats.is_empty() {
            self.put_objects().await?;
        }
        self.start_companions().await?;
        let mut ticks = tokio::time::interval(STATUS_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            self.begin_job();
            self.step(&mut ticks).await?;
        }
    }

    /// Starts the companions of the guests, and waits until each has said what its guest may call.
    async fn start_companions(&mut self) -> anyhow::Result<()> {
        let mut seats = Vec::new();
        for (index, seat) in self.seats.iter().enumerate() {
            let companion = Companion::start(&seat.guest, index, &self.session.messages)?;
            if let Some(companion) = companion {
                self.companions.push(companion);
                seats.push(index);
            }
        }
        for (index, companion) in seats.into_iter().zip(&mut self.companions) {
            let grants = companion.grants().await?;
            if let Some(seat) = self.seats.get_mut(index) {
                let granted: Vec<String> = grants.iter().map(ToString::to_string).collect();
                let granted =
                    if granted.is_empty() { "nothing".into() } else { granted.join(", ") };
                let note = format!("the companion of `{}` grants {granted}", seat.guest.package);
                // A closed channel means that the program ends.
                let _ = self.session.messages.send(Message::Note(note));
                // Those of the command line come first: they may replace one.
                seat.egress = seat.egress.iter().cloned().chain(grants).collect();
            }
        }
        Ok(())
    }

    /// Waits for the next event and handles it.
    async fn step(&mut self, ticks: &mut Interval) -> anyhow::Result<()> {
        tokio::select! {
            saved = next_change(self.changes.as_mut()) => self.saved(&saved),
            renewed = next_renewed(self.job.as_mut()) => {
                if let Some(job) = self.job.take() {
                    self.renewed(job, renewed).await?;
                }
            }
            report = next_report(self.host.as_deref()) => {
                let ran = self.session.ran(report?, self.secrets());
                self.session.send(Message::Ran(Box::new(ran)));
            }
            error = next_end(&mut self.companions) => return Err(error),
            // Metrics are served until the session ends.
            () = served(self.admin.as_mut()) => {}
            _ = ticks.tick() => {
                if let Some(host) = &self.host {
                    self.session.send(Message::Status(host.status()));
                }
            }
        }
        Ok(())
    }

    /// Tells which values are masked: those of Secrets, and of the credentials that the built
    /// versions declare.
    fn secrets(&self) -> Secrets {
        let first = self.seats.iter().filter_map(|seat| seat.first.as_ref());
        let first = first.flat_map(|(loaded, _)| loaded.description.credentials());
        let running = self.seats.iter().filter_map(|seat| seat.version.as_ref());
        let declared = running.flat_map(|version| &version.credentials).chain(first);
        Secrets::new(self.session.input.show_secrets, declared.cloned())
    }

    /// Marks the guests that a save affects, and cancels the build of such a guest.
    fn saved(&mut self, saved: &BTreeSet<PathBuf>) {
        for (index, seat) in self.seats.iter_mut().enumerate() {
            let is_built = self.job.as_ref().is_some_and(|job| job.seat == index);
            // Cargo itself writes the lock file during a build.
            let is_own = |path: &&PathBuf| is_built && path.ends_with("Cargo.lock");
            if !saved.iter().filter(|path| !is_own(path)).any(|path| seat.sources.affects(path)) {
                continue;
            }
            seat.dirty = true;
            if let Some(job) = self.job.as_ref().filter(|job| job.seat == index && !job.is_second) {
                job.give_up.cancel();
            }
        }
        // The sources may have new folders.
        self.watch();
    }

    /// Starts a build of a guest whose sources were saved, if no build is running.
    fn begin_job(&mut self) {
        if self.job.is_some() {
            return;
        }
        let taken: Vec<(String, String)> = self
            .seats
            .iter()
            .filter_map(|seat| {
                Some((
                    seat.version.as_ref()?.name.clone(),
                    seat.guest.folder().display().to_string(),
                ))
            })
            .collect();
        let dirty = self.seats.iter_mut().enumerate().find(|(_, seat)| seat.dirty);
        let Some((index, seat)) = dirty else { return };
        seat.dirty = false;
        let give_up = CancellationToken::new();
        let own = seat.version.as_ref().map(|version| version.name.clone());
        let renewal = Renewal {
            index,
            guest: Arc::clone(&seat.guest),
            config: Arc::clone(&seat.config),
            egress: Arc::clone(&seat.egress),
            with: self.session.input.with.clone(),
            present: seat.version.clone(),
            taken: taken.into_iter().filter(|(name, _)| Some(name) != own.as_ref()).collect(),
            engine: self.session.engine.clone(),
            api: Arc::clone(&self.session.api),
            cluster: self.cluster.clone(),
            host: self.host.clone(),
            messages: self.session.messages.clone(),
        };
        self.session.send(Message::Building(index));
        let cancelled = give_up.clone();
        self.job = Some(Job {
            seat: index,
            give_up,
            is_second: std::mem::take(&mut self.gave_way),
            renewed: Box::pin(async move { renewal.run(&cancelled).await }),
        });
    }

    /// Handles the result of a job.
    async fn renewed(&mut self, job: Job, renewed: Renewed) -> anyhow::Result<()> {
        let Some(seat) = self.seats.get_mut(job.seat) else { return Ok(()) };
        match renewed {
            Renewed::GivenUp => self.gave_way = true,
            Renewed::Unchanged => self.session.send(Message::Unchanged(job.seat)),
            Renewed::Failed(error) => {
                let can_go_on = seat.version.is_some() || self.session.attended;
                anyhow::ensure!(can_go_on, "{error:#}");
                self.session.send(Message::Failed(job.seat, format!("{error:#}")));
            }
            Renewed::First { guest, sources, loaded, built } => {
                (seat.guest, seat.sources, seat.first) = (guest, sources, Some((loaded, built)));
                self.session.send(Message::Waiting(job.seat));
                self.start_if_all_are_built().await?;
            }
            Renewed::Swapped { guest, sources, running, version } => {
                (seat.guest, seat.sources, seat.version) = (guest, sources, Some(version));
                self.follow();
                self.session.send(Message::Running(running));
            }
        }
        self.watch();
        Ok(())
    }

    /// Loads the objects and starts the host, once each guest has been built.
    async fn start_if_all_are_built(&mut self) -> anyhow::Result<()> {
        if self.seats.iter().any(|seat| seat.first.is_none()) {
            return Ok(());
        }
        for (index, seat) in self.seats.iter().enumerate() {
            let name = |seat: &Seat| {
                seat.first.as_ref().map(|(loaded, _)| loaded.description.name.clone())
            };
            if let Some(other) =
                self.seats.iter().take(index).find(|other| name(other) == name(seat))
            {
                anyhow::bail!(
                    "the processors of `{}` and `{}` are both called `{}`: rename one in its description",
                    other.guest.folder().display(),
                    seat.guest.folder().display(),
                    name(seat).unwrap_or_default(),
                );
            }
        }
        for (loaded, _) in self.seats.iter().filter_map(|seat| seat.first.as_ref()) {
            self.hooks.begin(loaded, &Options::default().now)?;
            let served = hooks::serve_converted_of(&self.session.api, &loaded.hooks)?;
            if !served.is_empty() {
                self.session.send(Message::Note(hooks::served_note(&served)));
            }
            let mut untyped =
                local::serve_untyped(&self.session.api, &loaded.description, |_| false);
            for remote in &self.session.remotes {
                let others = loaded.description.elsewhere();
                untyped.extend(local::serve_untyped(&remote.api, &others, |_| false));
            }
            for kind in untyped {
                self.session.send(Message::Note(local::untyped(&kind)));
            }
        }
        self.put_objects().await?;
        let mut processors = Vec::new();
        for (index, seat) in self.seats.iter_mut().enumerate() {
            let Some((loaded, built)) = seat.first.take() else { continue };
            let version = Version::of(&loaded);
            self.session.send(Message::Running(Running {
                guest: index,
                name: version.name.clone(),
                version: version.number.clone(),
                digest: short(version.digest),
                former: None,
                built,
                taken_up: Duration::ZERO,
            }));
            seat.version = Some(version);
            processors.push(loaded);
        }
        let named = |remote: &Shown| (remote.name.clone(), remote.api.clone());
        let remotes: Remotes = self.session.remotes.iter().map(named).collect();
        let options = Options { clusters: remotes.options(), ..Options::default() };
        let host = Host::start(&self.cluster, processors, &options)?;
        if let Some(listener) = self.session.admin.take() {
            let admin = Admin::of(&host);
            // Serving ends with the session, which drops the future.
            let serve = async move { admin.serve(listener, CancellationToken::new()).await };
            self.admin = Some(Box::pin(serve));
        }
        self.host = Some(Arc::new(host));
        self.follow();
        Ok(())
    }

    /// Answers webhooks with the currently running versions.
    fn follow(&self) {
        let Some(host) = &self.host else { return };
        let versions = self.seats.iter().filter_map(|seat| seat.version.as_ref());
        let names: Vec<Arc<str>> = versions.map(|version| version.name.as_str().into()).collect();
        self.hooks.follow(host, &names);
    }

    async fn put_objects(&mut self) -> anyhow::Result<()> {
        let load = std::mem::take(&mut self.session.input.load);
        let apply = std::mem::take(&mut self.session.input.apply);
        let (loaded, applied) = (load.len(), apply.len());
        objects::load(&self.session.api, load)?;
        for remote in &self.session.remotes {
            local::apply(&self.cluster, remote.secret.clone()).await?;
            self.session.send(Message::Note(remote.note.clone()));
        }
        local::apply_files(&self.cluster, apply).await?;
        let loaded = if loaded > 0 { counted(loaded) + " loaded, " } else { String::new() };
        self.session.send(Message::Note(format!("{loaded}{} applied", counted(applied))));
        Ok(())
    }

    /// Ends the running build, then the host, and saves the objects.
    async fn end(mut self) -> anyhow::Result<()> {
        if let Some(job) = self.job.take() {
            job.give_up.cancel();
            job.renewed.await;
        }
        if let Some(host) = self.host.take() {
            host.stop().await?;
        }
        // After the host, whose last runs may call them.
        future::join_all(self.companions.drain(..).map(Companion::end)).await;
        if let Some(folder) = &self.session.input.save {
            let note = objects::save(&self.session.api, folder, &self.secrets())?;
            self.session.send(Message::Note(note));
        }
        Ok(())
    }
}

async fn next_change(changes: Option<&mut Changes>) -> BTreeSet<PathBuf> {
    match changes {
        Some(changes) => changes.next().await,
        None => std::future::pending().await,
    }
}

async fn served(admin: Option<&mut BoxFuture<'static, ()>>) {
    match admin {
        Some(admin) => admin.await,
        None => std::future::pending().await,
    }
}

async fn next_end(companions: &mut [Companion]) -> anyhow::Error {
    let mut ends: Vec<_> = companions.iter_mut().map(|of| Box::pin(of.ended())).collect();
    if ends.is_empty() {
        return future::pending().await;
    }
    future::select_all(&mut ends).await.0
}

async fn next_renewed(job: Option<&mut Job>) -> Renewed {
    match job {
        Some(job) => job.renewed.as_mut().await,
        None => std::future::pending().await,
    }
}

async fn next_report(host: Option<&Host>) -> anyhow::Result<Report> {
    match host {
        Some(host) => host.next_report().await,
        None => std::future::pending().await,
    }
}

fn counted(objects: usize) -> String {
    if objects == 1 { "1 object".to_owned() } else { format!("{objects} objects") }
}
