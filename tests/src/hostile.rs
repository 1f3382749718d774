//! Hostile neighbours: a host as a process of its own on a real control plane, a tenant that does no harm, and others that attack
//! both, as a table ([`ATTACKS`]). [`Street::attacked`] tells what was seen, [`Figures::faults`] what of it must not be.
//!
//! [`Figures::faults`]: figures::Figures::faults

pub mod attack;
mod benign;
mod beside;
pub mod figures;
pub mod host;
mod look;
mod requests;
mod tenants;

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use mortise_host::{
    cluster::Cluster,
    desk,
    processor::{Limits, Processor},
};
use tempfile::TempDir;

use self::{
    attack::{Attack, Beside},
    benign::Load,
    figures::Figures,
    host::Host,
    look::Look,
};
use crate::{cluster, guest};

/// How often something is looked at that nobody tells of.
const GLANCE: Duration = Duration::from_millis(50);
/// Only a fault takes longer.
const GUARD: Duration = Duration::from_mins(1);
/// So long the quiet host is looked at.
const QUIET: Duration = Duration::from_secs(2);
/// After so long, what has to be said or done is not said or done any more.
const SAID: Duration = Duration::from_secs(20);
/// The value of a Secret of each tenant, as it is and as it stands in the Secret.
const TREASURE: [&str; 2] = ["open-sesame-1c9f", "b3Blbi1zZXNhbWUtMWM5Zg=="];
/// How a line of the log begins that a guest has begun.
const FORGED: [&str; 2] = ["2026-01-01T00:00:00Z FORGED", "FORGED"];
const GUESTS: [(&str, &str); 2] =
    [("puppet", "tests/guests/puppet"), ("hostile", "tests/guests/hostile")];

/// A control plane with a host and a benign tenant.
pub struct Street {
    plane: cluster::Cluster,
    admin: Cluster,
    folder: TempDir,
    program: PathBuf,
    host: Option<Host>,
    /// The memory and the series of the host before the first attack.
    quiet: Option<(u64, usize)>,
    /// The number of the next change, which is larger than all before.
    changes: u64,
}

/// How long, and what besides.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// How long the attack lasts.
    pub lasting: Duration,
    /// After so long the memory is looked at once more; zero: it is not.
    pub after: Duration,
    /// Whether the host is told to end beside the attack, at the end.
    pub terminate: bool,
}

// === impl Street ===

impl Street {
    /// With this program as the host. None without Go.
    ///
    /// # Errors
    ///
    /// What keeps it from being built.
    pub async fn open(program: &Path) -> Result<Option<Self>> {
        let Some(plane) = cluster::own_bare().await? else { return Ok(None) };
        let admin = Cluster::new(plane.client().await?);
        let folder = tempfile::tempdir()?;
        let street = Self {
            plane,
            admin,
            folder,
            program: program.to_owned(),
            host: None,
            quiet: None,
            changes: 1,
        };
        tenants::install(&street.plane, &street.admin, &street.file("kubeconfig")).await?;
        street.modules().await?;
        tenants::prepare_benign(&street.admin).await?;
        desk::apply(&street.admin, vec![benign::processor()]).await?;
        Ok(Some(street))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Builds the guests, and compiles them: what that takes is no part of an attack.
    async fn modules(&self) -> Result<()> {
        std::fs::create_dir(self.file("modules"))?;
        let engine = desk::engine(Some(&self.file("cache")), false)?;
        for (name, folder) in GUESTS {
            let module = tokio::task::spawn_blocking(|| guest(folder)).await??;
            let bytes = std::fs::read(&module)?;
            std::fs::write(self.module(name), &bytes)?;
            Processor::load(&engine, name, bytes.into(), Limits::default()).await?;
        }
        std::fs::copy(self.module("hostile"), self.module("replaced"))?;
        Ok(())
    }

    fn module(&self, name: &str) -> PathBuf {
        self.file("modules").join(format!("{name}.wasm"))
    }

    /// A host that runs, the former one where it does.
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

    /// Another host is started for the next attack.
    pub fn forget_host(&mut self) {
        self.host = None;
        self.quiet = None;
    }

    /// Begins to change the benign objects, and waits until that is answered.
    async fn load(&mut self) -> Result<Load> {
        let load = Load::start(&self.admin, self.changes);
        let begun = Instant::now();
        while load.answered() < 10 {
            ensure!(begun.elapsed() < GUARD, "the benign neighbour is not at work");
            tokio::time::sleep(GLANCE).await;
        }
        load.forget();
        Ok(load)
    }

    /// A host beside which nothing happens, for so long: what others are compared with.
    ///
    /// # Errors
    ///
    /// What keeps it from being seen.
    pub async fn quiet(&mut self, lasting: Duration) -> Result<Figures> {
        self.attacked(&[], Form { lasting, after: Duration::ZERO, terminate: false }).await
    }

    /// Lets the attacks happen beside each other, and tells what was seen.
    ///
    /// # Errors
    ///
    /// What keeps it from being seen.
    pub async fn attacked(&mut self, attacks: &[&'static Attack], form: Form) -> Result<Figures> {
        for attack in attacks {
            tenants::prepare(&self.admin, attack).await?;
        }
        self.host().await?;
        let load = self.load().await?;
        let mut seen = self.while_attacked(attacks, form, &load).await?;
        // Nobody answers any more where the host has ended.
        let patience = if seen.died.is_some() { Duration::ZERO } else { SAID };
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
        let unsaid = self.unsaid(attacks).await?;
        let series = self.series().await;
        let mut leaked = self.leaks(attacks).await?;
        drop(besides);
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
            removed,
            ..Figures::default()
        })
    }

    /// The memory and the series of a host that has had nothing but benign neighbours.
    async fn quiet_figures(&mut self, id: u32, public: &str) -> Result<(u64, usize)> {
        if let Some(figures) = self.quiet {
            return Ok(figures);
        }
        let look = Look::at(id, public);
        tokio::time::sleep(QUIET).await;
        let series = self.series().await.context("/metrics of a quiet host")?;
        Ok(*self.quiet.insert((look.seen().memory, series)))
    }

    async fn series(&self) -> Option<usize> {
        Some(self.host.as_ref()?.series().await?.len())
    }

    /// The series that name one of the attacks, whose Processors are gone, once what they had begun to write is written.
    async fn left(&self, attacks: &[&'static Attack]) -> Vec<String> {
        let Some(host) = &self.host else { return Vec::new() };
        let is_of = |line: &str| attacks.iter().any(|attack| line.contains(&attack.namespace()));
        let end = Instant::now() + SAID;
        loop {
            let mut series = host.series().await.unwrap_or_default();
            // Keys of what is gone count until the queue has given them out; a unit test of the queue holds that none stays.
            series.retain(|line| is_of(line) && !line.starts_with("mortise_queue_keys{"));
            let is_over = Instant::now() >= end;
            if series.is_empty() || is_over {
                return series;
            }
            tokio::time::sleep(GLANCE).await;
        }
    }

    /// Makes the Processors, and what happens beside them.
    async fn begin(&mut self, attacks: &[&'static Attack]) -> Result<beside::Besides> {
        let is_older = attacks.iter().any(|attack| attack.beside == Beside::Older);
        if is_older {
            tenants::delete(self.admin.client(), benign::NAME, benign::NAME).await?;
            self.until_gone(benign::NAME, benign::NAME, GUARD).await?;
        }
        let processors = attacks.iter().map(|attack| attack.processor(benign::NAME, 0)).collect();
        desk::apply(&self.admin, processors).await?;
        if is_older {
            // The API server tells ages in whole seconds.
            tokio::time::sleep(Duration::from_millis(1_100)).await;
            desk::apply(&self.admin, vec![benign::processor()]).await?;
        }
        let public = self.host().await?.public.clone();
        let module = self.module("replaced");
        let attacks = attacks.iter().copied();
        Ok(attacks
            .filter_map(|attack| beside::begin(attack, &self.admin, &public, &module))
            .collect())
    }

    /// The attacks of which no condition says what it should, with what is said.
    async fn unsaid(&mut self, attacks: &[&'static Attack]) -> Result<Vec<String>> {
        let begun = Instant::now();
        loop {
            let mut unsaid = Vec::new();
            for attack in attacks.iter().filter(|attack| !attack.says.is_empty()) {
                let (client, namespace) = (self.admin.client(), attack.namespace());
                let said =
                    tenants::conditions(client, &namespace, attack.name).await?.unwrap_or_default();
                let is_said = |text: &&str| said.iter().any(|said| said.contains(*text));
                if !attack.says.iter().any(is_said) {
                    unsaid.push(format!("{}: {said:?}", attack.name));
                }
            }
            let lives = self.lives()?;
            if unsaid.is_empty() || !lives || begun.elapsed() > SAID {
                return Ok(unsaid);
            }
            tokio::time::sleep(GLANCE).await;
        }
    }

    /// Where a Secret's value stands that the host may not even read.
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

    /// Deletes the Processors: how long it took until they were gone, or none where they stay.
    async fn remove(&self, attacks: &[&'static Attack]) -> Result<Option<Duration>> {
        let begun = Instant::now();
        for attack in attacks {
            tenants::delete(self.admin.client(), &attack.namespace(), attack.name).await?;
        }
        for attack in attacks {
            if !self.until_gone(&attack.namespace(), attack.name, SAID).await? {
                return Ok(None);
            }
        }
        Ok(Some(begun.elapsed()))
    }

    /// Whether a Processor is gone within a time.
    async fn until_gone(&self, namespace: &str, name: &str, within: Duration) -> Result<bool> {
        let begun = Instant::now();
        while tenants::conditions(self.admin.client(), namespace, name).await?.is_some() {
            if begun.elapsed() > within {
                return Ok(false);
            }
            tokio::time::sleep(GLANCE).await;
        }
        Ok(true)
    }

    /// What is left of the attacks, and what becomes of a host that is told to end beside them.
    async fn afterwards(&mut self, seen: &mut Figures, form: Form) -> Result<()> {
        let series = self.series().await;
        seen.is_hung = seen.died.is_none() && series.is_none();
        if seen.died.is_some() || seen.is_hung || seen.removed.is_none() {
            // Whatever else is seen of this host says nothing of the next attack.
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
            let given_back = seen.memory[0] + figures::AFTER;
            while host::resident(id) > given_back && begun.elapsed() < form.after {
                tokio::time::sleep(GLANCE).await;
            }
            seen.memory_after = Some(host::resident(id));
        }
        if form.terminate {
            let besides = self.begin(&seen.attacks).await?;
            tokio::time::sleep(form.lasting).await;
            drop(besides);
            seen.ended = Some(self.host().await?.terminate().await?);
            self.forget_host();
            self.host().await?;
            self.remove(&seen.attacks).await?;
        }
        Ok(())
    }
}
