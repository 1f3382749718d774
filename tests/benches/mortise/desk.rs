//! The developer commands: from `mortise new` to the first reconcile, and from a saved file to the
//! first reconcile with the new version. The times of cargo and of the host are given separately.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use mortise::{args::NewArgs, commands::new, files, guest::Guest, local};
use mortise_embedded_api::{EmbeddedApi, Options};
use mortise_host::{
    cluster::Cluster,
    host::{Host, Loaded, Options as HostOptions},
};

use crate::{calls::runtime, table::Table};

const NAME: &str = "bench-guest";
const SAVES: usize = 3;
/// Timeout that only a fault reaches.
const DEADLINE: Duration = Duration::from_mins(10);
/// The changed part of the new guest's source: the name of the object that it makes.
const NAMED: &str = r#"&["text"#;

/// A guest, and the cache of its code.
struct Desk {
    guest: Guest,
    source: PathBuf,
    cache: PathBuf,
}

/// The times of cargo and of the host.
struct Took {
    cargo: Duration,
    host: Duration,
}

/// Adds the times for a new guest and for saving a change.
///
/// # Errors
///
/// Fails if the guest cannot be created, does not build, or fails.
pub(crate) fn run(table: &mut Table) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    runtime(2, "desk")?.block_on(async {
        let work = sit_down(folder.path(), table);
        tokio::time::timeout(DEADLINE, work).await.context("it did not come to a reconcile")?
    })
}

async fn sit_down(folder: &Path, table: &mut Table) -> anyhow::Result<()> {
    let path = folder.join(NAME);
    let start = Instant::now();
    new::run(&NewArgs { name: NAME.into(), kind: None, path: Some(path.clone()) }).await?;
    let desk = Desk {
        guest: Guest::open(&path)?,
        source: path.join("src/lib.rs"),
        cache: folder.join("cache"),
    };
    let (loaded, cargo) = desk.build().await?;
    let mut host = desk.start(&loaded).await?;
    until(&mut host, &loaded).await?;
    let took = Took { cargo, host: start.elapsed().saturating_sub(cargo) };
    table.row("desk, from `new` to the first reconcile", took.figure(), "");
    for save in 1..=SAVES {
        let took = desk.save(save, &mut host).await?;
        let budget = "warm: < 5 s, of it the host < 300 ms";
        table.row(
            format!("desk, from save {save} to the new version's first"),
            took.figure(),
            budget,
        );
    }
    host.stop().await
}

/// Waits for the first reconcile with this version.
async fn until(host: &mut Host, loaded: &Loaded) -> anyhow::Result<()> {
    loop {
        let report = host.next_report().await?;
        ensure!(report.failure.is_none(), "{}: {:?}", report.key, report.failure);
        if report.version.is_some_and(|version| version.digest == loaded.processor.digest()) {
            return Ok(());
        }
    }
}

// === impl Desk ===

impl Desk {
    /// Builds and loads the guest; returns the duration of the build too.
    async fn build(&self) -> anyhow::Result<(Loaded, Duration)> {
        let start = Instant::now();
        let module = self.guest.build()?;
        let cargo = start.elapsed();
        Ok((local::load(&module, "{}".to_owned(), Some(&self.cache)).await?, cargo))
    }

    /// Starts a host on an API with the guest's kinds and examples, as `dev` does.
    async fn start(&self, loaded: &Loaded) -> anyhow::Result<Host> {
        let api = EmbeddedApi::new(Options::default());
        let cluster = Cluster::new(kube::Client::new(api.router(), "default"));
        for folder in self.guest.crds.iter().chain(&self.guest.examples) {
            local::apply(&cluster, files::load(folder)?).await?;
        }
        Host::start(&cluster, vec![loaded.clone()], &HostOptions::default())
    }

    /// Changes the source, and waits until the new version has run.
    async fn save(&self, save: usize, host: &mut Host) -> anyhow::Result<Took> {
        let text = fs::read_to_string(&self.source)?;
        let (before, rest) = text.split_once(NAMED).context("the template has changed")?;
        let (_, after) = rest.split_once('"').context("the template has changed")?;
        fs::write(&self.source, format!("{before}{NAMED}-{save}\"{after}"))?;
        let start = Instant::now();
        let (loaded, cargo) = self.build().await?;
        host.swap(loaded.clone()).await?;
        until(host, &loaded).await?;
        Ok(Took { cargo, host: start.elapsed().saturating_sub(cargo) })
    }
}

// === impl Took ===

impl Took {
    fn figure(&self) -> String {
        let (all, cargo) = ((self.cargo + self.host).as_secs_f64(), self.cargo.as_secs_f64());
        let host = self.host.as_secs_f64() * 1e3;
        format!("{all:.2} s: cargo {cargo:.2} s, host {host:.0} ms")
    }
}
