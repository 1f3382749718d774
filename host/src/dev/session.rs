//! The work of `dev`: builds the guests, starts the host on what was built, and exchanges a processor when its sources were saved.
//!
//! *Guarantees*: there is never more than one build. The latest save wins: a build in whose time something is saved is given up, but for
//! one that has already taken the place of another, so that saves without end do not keep every version from running. A version that
//! does not build, load or take over leaves the former one as it is.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context as _;
use futures::future::BoxFuture;
use mortise_embedded_api::EmbeddedApi;
use tokio::{
    net::TcpListener,
    time::{Interval, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;

use super::{
    change::{Changes, Sources},
    input::Input,
    news::{News, Ran, Running, Sender, short},
    objects, ready,
    renewal::{Renewal, Renewed, Version},
};
use crate::{
    cluster::Cluster,
    desk,
    guest::Guest,
    processor::Engine,
    reconciler::Report,
    run::{Host, Loaded, Options},
};

/// How often the processors' state is told.
const STATUS: Duration = Duration::from_millis(500);

/// What a session is made of.
pub(super) struct Session {
    pub(super) input: Input,
    pub(super) api: Arc<EmbeddedApi>,
    pub(super) engine: Engine,
    /// Where the host's metrics are asked for.
    pub(super) admin: Option<TcpListener>,
    pub(super) news: Sender,
    /// Whether somebody is there who can mend a guest that does not build the first time.
    pub(super) attended: bool,
}

/// The session, as it goes on.
struct Work {
    seats: Vec<Seat>,
    host: Option<Arc<Host>>,
    /// Answers who asks for the host's metrics.
    admin: Option<BoxFuture<'static, std::io::Result<()>>>,
    changes: Option<Changes>,
    job: Option<Job>,
    /// The last job made room for the next one.
    gave_way: bool,
    cluster: Cluster,
    session: Session,
}

/// A guest at work.
struct Seat {
    guest: Arc<Guest>,
    config: Arc<str>,
    sources: Sources,
    /// Something was saved that no build has begun with.
    dirty: bool,
    /// What was built first, until all guests have been.
    first: Option<(Loaded, Duration)>,
    /// What runs.
    version: Option<Version>,
}

/// A guest that is being built and taken up.
struct Job {
    seat: usize,
    give_up: CancellationToken,
    /// It took the place of one that was given up.
    is_second: bool,
    renewed: BoxFuture<'static, Renewed>,
}

// === impl Session ===

impl Session {
    /// Works until it is told to stop, then writes down what there is, if that is wanted.
    ///
    /// # Errors
    ///
    /// Objects that are refused, processors of one name, a first build that fails where nobody is there to mend it, or a task of the
    /// host that has ended.
    pub(super) async fn run(self, stop: &CancellationToken) -> anyhow::Result<()> {
        let cluster = Cluster::new(kube::Client::new(self.api.router(), "default"));
        let mut work = Work::new(self, cluster)?;
        let cluster = work.cluster.clone();
        let (news, is_ready) = (work.session.news.clone(), work.session.input.ready);
        let now = Options::default().now;
        let mark = async {
            if is_ready {
                ready::run(&cluster, &now, &news).await?;
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

    fn tell(&self, news: News) {
        // Nobody listens any more: the program ends.
        let _ = self.news.send(news);
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
                dirty: true,
                first: None,
                version: None,
            });
        }
        let mut work = Self {
            seats,
            host: None,
            admin: None,
            changes: None,
            job: None,
            gave_way: false,
            cluster,
            session,
        };
        work.watch();
        Ok(work)
    }

    /// Watches what the guests are built from, as far as it is not watched yet.
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
                self.session.tell(News::Note(format!("saved files are not noticed: {error}")));
            }
        }
    }

    async fn run(&mut self) -> anyhow::Result<()> {
        let crds = std::mem::take(&mut self.session.input.crds);
        desk::apply_files(&self.cluster, crds).await?;
        if self.seats.is_empty() {
            self.put_objects().await?;
        }
        let mut ticks = tokio::time::interval(STATUS);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            self.begin_job();
            self.step(&mut ticks).await?;
        }
    }

    /// Waits for the next thing that happens.
    async fn step(&mut self, ticks: &mut Interval) -> anyhow::Result<()> {
        tokio::select! {
            saved = next_change(self.changes.as_mut()) => self.saved(&saved),
            renewed = next_renewed(self.job.as_mut()) => {
                if let Some(job) = self.job.take() {
                    self.renewed(job, renewed).await?;
                }
            }
            report = next_report(self.host.as_deref()) => {
                self.session.tell(News::Ran(Box::new(Ran::new(report?, &self.session.api))));
            }
            served = answered(self.admin.as_mut()) => served.context("metrics are no longer served")?,
            _ = ticks.tick() => {
                if let Some(host) = &self.host {
                    self.session.tell(News::Status(host.status()));
                }
            }
        }
        Ok(())
    }

    /// Marks the guests that a save concerns; gives up what is being built of them.
    fn saved(&mut self, saved: &BTreeSet<PathBuf>) {
        for (index, seat) in self.seats.iter_mut().enumerate() {
            let is_built = self.job.as_ref().is_some_and(|job| job.seat == index);
            // Cargo writes that itself.
            let is_own = |path: &&PathBuf| is_built && path.ends_with("Cargo.lock");
            if !saved.iter().filter(|path| !is_own(path)).any(|path| seat.sources.concerns(path)) {
                continue;
            }
            seat.dirty = true;
            if let Some(job) = self.job.as_ref().filter(|job| job.seat == index && !job.is_second) {
                job.give_up.cancel();
            }
        }
        // There may be new folders.
        self.watch();
    }

    /// Begins to build a guest whose sources were saved, if nothing is being built.
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
            present: seat.version.clone(),
            taken: taken.into_iter().filter(|(name, _)| Some(name) != own.as_ref()).collect(),
            engine: self.session.engine.clone(),
            api: Arc::clone(&self.session.api),
            cluster: self.cluster.clone(),
            host: self.host.clone(),
            news: self.session.news.clone(),
        };
        self.session.tell(News::Building(index));
        let cancelled = give_up.clone();
        self.job = Some(Job {
            seat: index,
            give_up,
            is_second: std::mem::take(&mut self.gave_way),
            renewed: Box::pin(async move { renewal.run(&cancelled).await }),
        });
    }

    /// Takes note of how a job has ended.
    async fn renewed(&mut self, job: Job, renewed: Renewed) -> anyhow::Result<()> {
        let Some(seat) = self.seats.get_mut(job.seat) else { return Ok(()) };
        match renewed {
            Renewed::GivenUp => self.gave_way = true,
            Renewed::Unchanged => self.session.tell(News::Unchanged(job.seat)),
            Renewed::Failed(error) => {
                let can_go_on = seat.version.is_some() || self.session.attended;
                anyhow::ensure!(can_go_on, "{error:#}");
                self.session.tell(News::Failed(job.seat, format!("{error:#}")));
            }
            Renewed::First { guest, sources, loaded, built } => {
                (seat.guest, seat.sources, seat.first) = (guest, sources, Some((loaded, built)));
                self.session.tell(News::Waiting(job.seat));
                self.start_if_all_are_built().await?;
            }
            Renewed::Exchanged { guest, sources, running, version } => {
                (seat.guest, seat.sources, seat.version) = (guest, sources, Some(version));
                self.session.tell(News::Running(running));
            }
        }
        self.watch();
        Ok(())
    }

    /// Puts in the objects and starts the host, once each guest has been built.
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
            for kind in desk::serve_untyped(&self.session.api, &loaded.description, |_| false) {
                self.session.tell(News::Note(desk::untyped(&kind)));
            }
        }
        self.put_objects().await?;
        let mut processors = Vec::new();
        for (index, seat) in self.seats.iter_mut().enumerate() {
            let Some((loaded, built)) = seat.first.take() else { continue };
            let version = Version::of(&loaded);
            self.session.tell(News::Running(Running {
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
        let host = Host::start(&self.cluster, processors, &Options::default())?;
        if let Some(listener) = self.session.admin.take() {
            let admin = host.admin();
            // It ends with the session, which drops it.
            let serve = async move { admin.serve(listener, CancellationToken::new()).await };
            self.admin = Some(Box::pin(serve));
        }
        self.host = Some(Arc::new(host));
        Ok(())
    }

    async fn put_objects(&mut self) -> anyhow::Result<()> {
        let load = std::mem::take(&mut self.session.input.load);
        let apply = std::mem::take(&mut self.session.input.apply);
        let (loaded, applied) = (load.len(), apply.len());
        objects::load(&self.session.api, load)?;
        desk::apply_files(&self.cluster, apply).await?;
        let loaded = if loaded > 0 { counted(loaded) + " loaded, " } else { String::new() };
        self.session.tell(News::Note(format!("{loaded}{} applied", counted(applied))));
        Ok(())
    }

    /// Ends what runs, in its order, and saves the objects.
    async fn end(mut self) -> anyhow::Result<()> {
        if let Some(job) = self.job.take() {
            job.give_up.cancel();
            job.renewed.await;
        }
        if let Some(host) = self.host.take() {
            host.stop().await?;
        }
        if let Some(folder) = &self.session.input.save {
            let note = objects::save(&self.session.api, folder, self.session.input.secrets)?;
            self.session.tell(News::Note(note));
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

async fn answered(
    admin: Option<&mut BoxFuture<'static, std::io::Result<()>>>,
) -> std::io::Result<()> {
    match admin {
        Some(admin) => admin.await,
        None => std::future::pending().await,
    }
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
