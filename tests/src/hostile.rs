//! Tests of hostile neighbours: a host in its own process on a real control plane, a benign tenant,
//! and tenants that attack host and benign tenant in the ways that the table [`ATTACKS`] lists.
//! [`Street::attacked`] returns measurements, [`Figures::faults`] lists the ones that are not
//! acceptable.
//!
//! [`Figures::faults`]: figures::Figures::faults

pub mod attack;
mod benign;
mod beside;
pub mod figures;
pub mod host;
mod look;
mod modules;
mod registry;
mod requests;
mod tenants;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use mortise::local;
use mortise_host::{
    cluster::Cluster,
    wasm::{Limits, Processor},
};
use tempfile::TempDir;

use self::{
    attack::{Attack, Beside},
    benign::Load,
    figures::Figures,
    host::Host,
    look::Look,
};
use crate::{cluster, guest, registry::fake::Fake};

/// Interval of polling where no notification exists.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Timeout that only a fault reaches.
const TIMEOUT: Duration = Duration::from_mins(1);
/// The time for which the quiet host is measured.
const QUIET_PERIOD: Duration = Duration::from_secs(2);
/// The time in which conditions have to be set and Processors have to go; after it they are
/// reported as missing.
const CONDITION_TIMEOUT: Duration = Duration::from_mins(3);
/// The value of a Secret of each tenant, in plain text and in base64.
const TREASURE: [&str; 2] = ["open-sesame-1c9f", "b3Blbi1zZXNhbWUtMWM5Zg=="];
/// The beginnings of log lines that a guest has forged.
const FORGED: [&str; 2] = ["2026-01-01T00:00:00Z FORGED", "FORGED"];
const GUESTS: [(&str, &str); 3] = [
    ("puppet", "tests/guests/puppet"),
    ("hostile", "tests/guests/hostile"),
    ("hooks", "tests/guests/hooks"),
];

/// A control plane with a host and a benign tenant.
pub struct Street {
    plane: cluster::Cluster,
    admin: Cluster,
    folder: TempDir,
    registry: Arc<Fake>,
    program: PathBuf,
    /// The authority of the certificate of the host's webhooks.
    authority: String,
    host: Option<Host>,
    /// Memory in bytes and number of metric series of the host before the first attack.
    quiet: Option<(u64, usize)>,
    /// The number of the next change, larger than those of all earlier changes.
    changes: u64,
}

/// The duration of an attack, and the checks after it.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// The duration of the attack.
    pub lasting: Duration,
    /// The time after the attack at which the memory is measured once more; zero: it is not
    /// measured.
    pub after: Duration,
    /// True if the host is terminated during a second round of the attack.
    pub terminate: bool,
}

// === impl Street ===

impl Street {
    /// Starts a control plane with the benign tenant; `program` will be the host. Returns `None`
    /// without Go.
    ///
    /// # Errors
    ///
    /// Fails if the control plane cannot be built or started.
    pub async fn open(program: &Path) -> Result<Option<Self>> {
        let Some(plane) = cluster::own_bare().await? else { return Ok(None) };
        let admin = Cluster::new(plane.client().await?);
        let folder = tempfile::tempdir()?;
        let authority = tenants::install(&plane, &admin, &folder.path().join("kubeconfig")).await?;
        let street = Self {
            plane,
            admin,
            folder,
            registry: Arc::new(Fake::plain().await),
            program: program.to_owned(),
            authority,
            host: None,
            quiet: None,
            changes: 1,
        };
        street.modules().await?;
        tenants::prepare_benign(&street.admin).await?;
        local::apply(&street.admin, vec![benign::processor()]).await?;
        Ok(Some(street))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Builds and compiles the guests, so that neither is a part of an attack.
    async fn modules(&self) -> Result<()> {
        std::fs::create_dir(self.file("modules"))?;
        let engine = local::engine(Some(&self.file("cache")), false)?;
        for (name, folder) in GUESTS {
            let module = tokio::task::spawn_blocking(|| guest(folder)).await??;
            let bytes = std::fs::read(&module)?;
            std::fs::write(self.module(name), &bytes)?;
            Processor::load(&engine, name, bytes.into(), Limits::default()).await?;
        }
        std::fs::copy(self.module("hostile"), self.module("replaced"))?;
        let hostile = std::fs::read(self.module("hostile"))?;
        for (name, made) in modules::ADDED {
            std::fs::write(self.module(name), made(&hostile)?)?;
        }
        self.registry.push_to("replaced", registry::TAG, &hostile);
        let puppet = std::fs::read(self.module("puppet"))?;
        self.registry.push_to("puppet", registry::TAG, &puppet);
        registry::push_layers(&self.registry);
        Ok(())
    }

    fn module(&self, name: &str) -> PathBuf {
        self.file("modules").join(format!("{name}.wasm"))
    }

    /// Returns the running host; starts one if none runs.
    async fn host(&mut self) -> Result<&mut Host> {
        if !self.lives()? {
            self.forget_host();
            let [kubeconfig, modules, cache] =
                ["kubeconfig", "modules", "cache"].map(|name| self.file(name));
            self.host = Some(Host::start(&self.program, &kubeconfig, &modules, &cache).await?);
        }
        self.host.as_mut().context("a host")
    }

    fn lives(&mut self) -> Result<bool> {
        Ok(self.host.as_mut().map(Host::is_alive).transpose()?.unwrap_or(false))
    }

    /// Drops the host, so that another one is started for the next attack.
    pub fn forget_host(&mut self) {
        self.host = None;
        self.quiet = None;
    }

    /// Begins to change the benign objects, and waits until changes are answered.
    async fn load(&mut self) -> Result<Load> {
        let load = Load::start(&self.admin, self.changes);
        let begun = Instant::now();
        while load.answered() < 10 {
            ensure!(begun.elapsed() < TIMEOUT, "the benign neighbour is not at work");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        load.forget();
        Ok(load)
    }

    /// Measures a host without attacks, as the baseline of other measurements.
    ///
    /// # Errors
    ///
    /// Fails if the measurement does.
    pub async fn quiet(&mut self, lasting: Duration) -> Result<Figures> {
        self.attacked(&[], Form { lasting, after: Duration::ZERO, terminate: false }).await
    }

    /// Runs the attacks at the same time, and returns the measurements.
    ///
    /// # Errors
    ///
    /// Fails if the measurement does.
    pub async fn attacked(&mut self, attacks: &[&'static Attack], form: Form) -> Result<Figures> {
        for attack in attacks {
            tenants::prepare(&self.admin, attack).await?;
        }
        self.host().await?;
        let load = self.load().await?;
        let mut seen = self.while_attacked(attacks, form, &load).await?;
        // A host that has ended answers nothing more.
        let patience = if seen.died.is_some() { Duration::ZERO } else { CONDITION_TIMEOUT };
        seen.answers = load.stop(patience).await?;
        self.changes += u64::try_from(seen.answers.times.len() + seen.answers.lost)? + 1_000;
        self.afterwards(&mut seen, form).await?;
        Ok(seen)
    }

    async fn while_attacked(
        &mut self,
        attacks: &[&'static Attack],
        form: Form,
        load: &Load,
    ) -> Result<Figures> {
        let (id, public) = {
            let host = self.host().await?;
            (host.id(), host.public.clone())
        };
        let before = self.quiet_figures(id, &public).await?;
        load.forget();
        let audit = self.plane.audit().await?;
        let (look, said) = (Look::at(id, &public), self.host().await?.said());
        let begun = Instant::now();
        let besides = self.begin(attacks).await?;
        tokio::time::sleep(form.lasting.saturating_sub(begun.elapsed())).await;
        let pulls = attacks.iter().any(|attack| attack.beside == Beside::Layers);
        if pulls {
            local::apply(&self.admin, vec![benign::puller(&self.registry.host())]).await?;
        }
        let unsaid = self.unsaid(attacks, pulls).await?;
        let series = self.series().await;
        let mut leaked = self.leaks(attacks).await?;
        let failed = beside::end(besides);
        let lives = self.lives()?;
        let removed = if lives { self.remove(attacks).await? } else { None };
        let host = self.host.as_mut().context("a host")?;
        let now = host.said();
        if now.leaked > said.leaked {
            leaked.push("the log".to_owned());
        }
        let (requests, strange) = requests::of_host(&audit).await?;
        let died = if host.is_alive()? { None } else { Some(now.last()) };
        let seen = look.seen();
        Ok(Figures {
            attacks: attacks.to_vec(),
            died,
            livez: seen.livez,
            silent: seen.silent,
            memory: [before.0, seen.memory],
            log: now.bytes - said.bytes,
            forged: now.forged - said.forged,
            leaked,
            series: [before.1, series.unwrap_or_default(), 0],
            requests,
            strange,
            unsaid,
            failed,
            removed,
            ..Figures::default()
        })
    }

    /// Returns memory and number of series of a host with benign neighbours only, measured once per
    /// host.
    async fn quiet_figures(&mut self, id: u32, public: &str) -> Result<(u64, usize)> {
        if let Some(figures) = self.quiet {
            return Ok(figures);
        }
        let look = Look::at(id, public);
        tokio::time::sleep(QUIET_PERIOD).await;
        let series = self.series().await.context("/metrics of a quiet host")?;
        Ok(*self.quiet.insert((look.seen().memory, series)))
    }

    async fn series(&self) -> Option<usize> {
        Some(self.host.as_ref()?.series().await?.len())
    }

    /// Returns the series that name one of the attacks after their Processors are gone, and the files
    /// that are stored for them; waits until pending writes of series are done.
    async fn left(&self, attacks: &[&'static Attack]) -> Vec<String> {
        let Some(host) = &self.host else { return Vec::new() };
        let is_of = |line: &str| attacks.iter().any(|attack| line.contains(&attack.namespace()));
        let end = Instant::now() + CONDITION_TIMEOUT;
        loop {
            let mut series = host.series().await.unwrap_or_default();
            // Keys of a removed processor are counted until the queue has given them out; a unit
            // test of the queue checks that none stays.
            series.retain(|line| is_of(line) && !line.starts_with("mortise_queue_keys{"));
            series.extend(self.stored());
            let is_over = Instant::now() >= end;
            if series.is_empty() || is_over {
                return series;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns the names of the files that are stored for modules from the registry.
    fn stored(&self) -> Vec<String> {
        let folder = std::fs::read_dir(self.file("cache").join("modules"));
        let files = folder.into_iter().flatten().flatten();
        files.map(|file| file.file_name().to_string_lossy().into_owned()).collect()
    }

    /// Creates the Processors of the attacks, and starts their side actions.
    async fn begin(&mut self, attacks: &[&'static Attack]) -> Result<beside::Besides> {
        let is_older = attacks.iter().any(|attack| attack.beside == Beside::Older);
        if is_older {
            tenants::delete(self.admin.client(), benign::NAME, benign::NAME).await?;
            self.until_gone(benign::NAME, benign::NAME, TIMEOUT).await?;
        }
        let registry = self.registry.host();
        let processors = attacks.iter().map(|attack| attack.processor(&registry, 0)).collect();
        local::apply(&self.admin, processors).await?;
        if is_older {
            // The API server reports ages in whole seconds.
            tokio::time::sleep(Duration::from_millis(1_100)).await;
            local::apply(&self.admin, vec![benign::processor()]).await?;
        }
        let [public, objects, webhooks] = {
            let host = self.host().await?;
            [&host.public, &host.admin, &host.webhooks].map(Clone::clone)
        };
        let place = beside::Place {
            admin: &self.admin,
            public: &public,
            objects: &objects,
            module: &self.module("replaced"),
            webhooks: &beside::Webhooks::new(webhooks, &self.authority)?,
            registry: &self.registry,
        };
        Ok(attacks.iter().filter_map(|attack| beside::begin(attack, &place)).collect())
    }

    /// Returns the attacks without the expected condition or series, with the conditions that they
    /// have, and the benign Processor that `pulls` its module if that is not loaded.
    async fn unsaid(&mut self, attacks: &[&'static Attack], pulls: bool) -> Result<Vec<String>> {
        let expected = attacks.iter().map(|of| (of.namespace(), of.name, of.says));
        let puller = (benign::NAME.to_owned(), benign::PULLER, &["Loaded True"][..]);
        let expected: Vec<_> =
            expected.chain(pulls.then_some(puller)).filter(|(.., says)| !says.is_empty()).collect();
        let begun = Instant::now();
        loop {
            let mut unsaid = Vec::new();
            // The metrics are read only for attacks that name a series: reading them is work for the
            // host.
            let is_series = |text: &&str| text.contains('=');
            let series = match &self.host {
                Some(host) if expected.iter().any(|(.., says)| says.iter().any(is_series)) => {
                    host.series().await.unwrap_or_default()
                }
                _ => Vec::new(),
            };
            for (namespace, name, says) in &expected {
                let said = tenants::conditions(self.admin.client(), namespace, name).await?;
                let said = said.unwrap_or_default();
                let own = series.iter().filter(|series| series.contains(namespace));
                let all: Vec<&String> = said.iter().chain(own).collect();
                let is_said = |text: &&str| all.iter().any(|said| said.contains(*text));
                if !says.iter().any(is_said) {
                    unsaid.push(format!("{name}: {said:?}"));
                }
            }
            let lives = self.lives()?;
            if unsaid.is_empty() || !lives || begun.elapsed() > CONDITION_TIMEOUT {
                return Ok(unsaid);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns the places that show the value of a Secret which the host may not even read.
    async fn leaks(&self, attacks: &[&'static Attack]) -> Result<Vec<String>> {
        let mut leaks = Vec::new();
        for attack in attacks.iter().filter(|attack| !attack.may_be) {
            let status =
                tenants::status(self.admin.client(), &attack.namespace(), attack.name).await?;
            if TREASURE.iter().any(|value| status.contains(value)) {
                leaks.push(format!("the status of {}", attack.name));
            }
        }
        Ok(leaks)
    }

    /// Deletes the Processors of the attacks, and then their objects. Returns the time until the
    /// Processors were gone; `None` if they stay.
    async fn remove(&self, attacks: &[&'static Attack]) -> Result<Option<Duration>> {
        let begun = Instant::now();
        for attack in attacks {
            tenants::delete(self.admin.client(), &attack.namespace(), attack.name).await?;
        }
        for attack in attacks {
            if !self.until_gone(&attack.namespace(), attack.name, CONDITION_TIMEOUT).await? {
                return Ok(None);
            }
        }
        let removed = begun.elapsed();
        tenants::delete(self.admin.client(), benign::NAME, benign::PULLER).await?;
        for attack in attacks {
            tenants::clear(&self.admin, attack).await?;
        }
        Ok(Some(removed))
    }

    /// Waits until a Processor is gone. Returns false at the timeout.
    async fn until_gone(&self, namespace: &str, name: &str, within: Duration) -> Result<bool> {
        let begun = Instant::now();
        while tenants::conditions(self.admin.client(), namespace, name).await?.is_some() {
            if begun.elapsed() > within {
                return Ok(false);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(true)
    }

    /// Waits until the host says that it is ready, or until [`TIMEOUT`].
    async fn until_ready(&mut self) -> Result<()> {
        let (public, begun) = (self.host().await?.public.clone(), Instant::now());
        while host::get(&public, "/readyz").await.is_err() && begun.elapsed() < TIMEOUT {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Measures the effects that remain after the attacks, and terminates the host during a second
    /// round of them if `form` asks for it.
    async fn afterwards(&mut self, seen: &mut Figures, form: Form) -> Result<()> {
        let series = self.series().await;
        seen.is_hung = seen.died.is_none() && series.is_none();
        if seen.died.is_some() || seen.is_hung || seen.removed.is_none() {
            // Further measurements of this host say nothing about the next attack.
            for attack in &seen.attacks {
                tenants::unfinish(&self.admin, &attack.namespace(), attack.name).await?;
            }
            self.forget_host();
            return Ok(());
        }
        seen.series[2] = series.unwrap_or_default();
        seen.left = self.left(&seen.attacks).await;
        if !form.after.is_zero() {
            let (id, begun) = (self.host().await?.id(), Instant::now());
            let given_back = seen.memory[0] + figures::MAX_LASTING_MEMORY_BYTES;
            while host::resident(id) > given_back && begun.elapsed() < form.after {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            seen.memory_after = Some(host::resident(id));
        }
        if form.terminate {
            for attack in &seen.attacks {
                tenants::prepare(&self.admin, attack).await?;
            }
            let besides = self.begin(&seen.attacks).await?;
            tokio::time::sleep(form.lasting).await;
            seen.ended = Some(self.host().await?.terminate().await?);
            self.forget_host();
            drop(besides);
            let begun = Instant::now();
            // The new host has other ports.
            self.host().await?;
            let besides = self.begin(&seen.attacks).await?;
            let load = self.load().await?;
            self.until_ready().await?;
            seen.back = Some(begun.elapsed());
            drop(besides);
            self.changes += u64::try_from(load.stop(CONDITION_TIMEOUT).await?.times.len())? + 1_000;
            self.remove(&seen.attacks).await?;
        }
        Ok(())
    }
}
