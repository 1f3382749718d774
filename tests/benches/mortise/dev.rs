//! The developer commands: from `mortise new` to the first reconcile, and from a saved file to the
//! first reconcile with the new version, in each language. The times of the build and of the host
//! (which compiles the component) are given separately.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use mortise::{
    args::{NewArgs, NewLanguage},
    commands::new,
    files,
    guest::Guest,
    local,
};
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

/// A language of guests.
struct Language {
    word: &'static str,
    of_new: NewLanguage,
    /// The source of a new guest.
    source: &'static str,
    /// The changed part of it: the name of the object that it makes.
    named: &'static str,
    budget: &'static str,
}

const LANGUAGES: [Language; 3] = [
    Language {
        word: "Rust",
        of_new: NewLanguage::Rust,
        source: "src/lib.rs",
        named: r#"&["text"#,
        budget: "warm: < 5 s, of it the host < 300 ms",
    },
    Language {
        word: "Python",
        of_new: NewLanguage::Python,
        source: "src/app.py",
        named: r#"["name"], "text"#,
        budget: "warm: < 30 s",
    },
    Language {
        word: "TypeScript",
        of_new: NewLanguage::Typescript,
        source: "src/index.ts",
        named: r#"metadata.name, "text"#,
        budget: "warm: < 30 s",
    },
];

/// A guest, and the cache of its code.
struct Workspace {
    guest: Guest,
    language: &'static Language,
    source: PathBuf,
    cache: PathBuf,
}

/// The times of the build and of the host.
struct Took {
    build: Duration,
    host: Duration,
}

/// Adds the times for a new guest and for saving a change.
///
/// # Errors
///
/// Fails if the guest cannot be created, does not build, or fails.
pub(crate) fn run(table: &mut Table) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    runtime(2, "dev")?.block_on(async {
        for language in &LANGUAGES {
            let work = measure(folder.path(), language, table);
            let done = tokio::time::timeout(DEADLINE, work).await;
            done.with_context(|| format!("{}: no reconcile", language.word))??;
        }
        Ok(())
    })
}

async fn measure(
    folder: &Path,
    language: &'static Language,
    table: &mut Table,
) -> anyhow::Result<()> {
    let path = folder.join(language.word);
    let start = Instant::now();
    new::run(&NewArgs {
        name: NAME.into(),
        kind: None,
        path: Some(path.clone()),
        language: language.of_new,
    })
    .await?;
    let workspace = Workspace {
        guest: Guest::open(&path)?,
        language,
        source: path.join(language.source),
        cache: folder.join("cache"),
    };
    let (loaded, build) = workspace.build().await?;
    let mut host = workspace.start(&loaded).await?;
    until(&mut host, &loaded).await?;
    let took = Took { build, host: start.elapsed().saturating_sub(build) };
    let word = language.word;
    table.row(format!("dev, {word}, from `new` to the first reconcile"), took.figure(), "");
    for save in 1..=SAVES {
        let took = workspace.save(save, &mut host).await?;
        table.row(
            format!("dev, {word}, from save {save} to the new version's first"),
            took.figure(),
            language.budget,
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

// === impl Workspace ===

impl Workspace {
    /// Builds and loads the guest; returns the duration of the build too.
    async fn build(&self) -> anyhow::Result<(Loaded, Duration)> {
        let start = Instant::now();
        let module = self.guest.build()?;
        let build = start.elapsed();
        Ok((local::load(&module, "{}".to_owned(), Some(&self.cache)).await?, build))
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
        let named = self.language.named;
        let (before, rest) = text.split_once(named).context("the template has changed")?;
        let (_, after) = rest.split_once('"').context("the template has changed")?;
        fs::write(&self.source, format!("{before}{named}-{save}\"{after}"))?;
        let start = Instant::now();
        let (loaded, build) = self.build().await?;
        host.swap(loaded.clone()).await?;
        until(host, &loaded).await?;
        Ok(Took { build, host: start.elapsed().saturating_sub(build) })
    }
}

// === impl Took ===

impl Took {
    fn figure(&self) -> String {
        let (all, build) = ((self.build + self.host).as_secs_f64(), self.build.as_secs_f64());
        let host = self.host.as_secs_f64() * 1e3;
        format!("{all:.2} s: build {build:.2} s, host {host:.0} ms")
    }
}
